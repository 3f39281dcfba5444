//! The service `standard`.

mod counters;
mod digests;
mod direct;
mod entries;
mod given;
mod hashes;
mod keys;
mod listing;
mod lookup;
mod meters;
mod ports;
mod profiles;
mod rates;
mod registers;
mod reset;
mod service;
mod value_sets;
mod values;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bmv2_thrift::standard::{
    BmMatchParam, BmMatchParams, BmResourceType, IdLookupErrorCode, InvalidIdLookup,
    InvalidSwapOperation, InvalidTableOperation, SwapOperationErrorCode,
};
use p4runtime_server::Standing;
use switch::Program;

pub(crate) use given::Given;

use crate::control::{Control, LongAnswer};
use crate::errors::{application, context};
use crate::programs::{Programs, Text};
use crate::replication::Replication;

/// Most elements of an answer that is not long.
const SHORT_ANSWER: usize = 4_096;

/// Where a long answer's place is kept until the answer has been sent.
pub(crate) type Held = Rc<RefCell<Option<LongAnswer>>>;

/// The service as one client has it.
pub(crate) struct Standard {
    pub(crate) control: Arc<Control>,
    pub(crate) programs: Arc<Programs>,
    pub(crate) replication: Arc<Replication>,
    pub(crate) device_id: u64,
    pub(crate) thrift_port: u16,
    pub(crate) notifications: Option<String>,
    pub(crate) standing: Standing,
    pub(crate) held: Held,
    pub(crate) given: Arc<Given>,
}

impl Standard {
    /// Changes tables.
    fn change<R: Send + 'static>(
        &self,
        cxt_id: i32,
        work: impl FnOnce(&mut Program) -> Result<R, InvalidTableOperation> + Send + 'static,
    ) -> thrift::Result<R> {
        context(cxt_id)?;
        self.control.change(self.standing, work)
    }

    /// Adds an entry and returns its handle.
    fn add(
        &self,
        cxt_id: i32,
        table: String,
        key: BmMatchParams,
        add: impl FnOnce(&mut Program, &str, &[BmMatchParam]) -> Result<i32, InvalidTableOperation>
        + Send
        + 'static,
    ) -> thrift::Result<i32> {
        let name = table.clone();
        let (added, given) = self.change(cxt_id, move |program| {
            let handle = add(program, &table, &key)?;
            let (_, info) = lookup::table(program.pipeline(), &table)?;
            let given = keys::with_fitting_prefixes(info, key);
            Ok((listing::by_handle(program, &table, handle)?, given))
        })?;
        self.given.remember(&name, &added, given);
        Ok(added.entry_handle.unwrap_or(0))
    }

    /// Removes an entry, and what P4Runtime's controllers attached to it.
    fn remove(
        &self,
        cxt_id: i32,
        remove: impl FnOnce(&mut Program) -> Result<entries::Removed, InvalidTableOperation>
        + Send
        + 'static,
    ) -> thrift::Result<()> {
        context(cxt_id)?;
        let mut changing = self.control.begin(self.standing)?;
        let (table, key) = self.control.change_as(&changing, remove)?;
        changing.forget_entry(table, Some(&key));
        Ok(())
    }

    /// Changes tables piece by piece.
    fn change_in_visits<R: Send + 'static>(
        &self,
        cxt_id: i32,
        work: impl FnMut(&mut Program) -> Result<Option<R>, InvalidTableOperation> + Send + 'static,
    ) -> thrift::Result<R> {
        context(cxt_id)?;
        self.control.change_in_visits(self.standing, work)
    }

    /// Reads tables.
    fn read<R: Send + 'static>(
        &self,
        cxt_id: i32,
        work: impl FnOnce(&Program) -> Result<R, InvalidTableOperation> + Send + 'static,
    ) -> thrift::Result<R> {
        context(cxt_id)?;
        self.control.read(work)
    }

    /// Takes a place for an answer with this many elements.
    fn begin_answer(&self, what: &str, elements: usize) -> thrift::Result<()> {
        if elements > self.control.limits.answer_elements {
            return Err(self.control.too_long(what));
        }
        if elements > SHORT_ANSWER {
            *self.held.borrow_mut() = Some(self.control.long_answer(self.standing)?);
        }
        Ok(())
    }

    /// A list of objects, read piece by piece. `page` gives some, and where to go on.
    fn list<T: Send + 'static, P: Copy + Default + Send + 'static>(
        &self,
        what: &str,
        elements: usize,
        page: impl Fn(&Program, P) -> Result<(Vec<T>, Option<P>), InvalidTableOperation>
        + Send
        + 'static,
    ) -> thrift::Result<Vec<T>> {
        self.begin_answer(what, elements)?;
        let most = self.control.limits.answer_elements;
        let (mut all, mut from) = (Vec::new(), P::default());
        let all = self.control.read_in_visits(move |program| {
            let (objects, next) = page(program, from)?;
            all.extend(objects);
            match next.filter(|_| all.len() <= most) {
                Some(next) => {
                    from = next;
                    Ok::<_, InvalidTableOperation>(None)
                }
                None => Ok(Some(std::mem::take(&mut all))),
            }
        })?;
        if all.len() > most {
            return Err(self.control.too_long(what));
        }
        Ok(all)
    }

    /// The text of the program that clients see.
    fn text(&self) -> Option<Arc<Text>> {
        self.programs.current(&self.control.begin_read())
    }

    fn load(&self, json: String) -> thrift::Result<()> {
        let refused = |code| -> thrift::Error { InvalidSwapOperation::new(code).into() };
        // A client that may not load a program has none compiled.
        self.control.check(self.standing)?;
        // Compiled without keeping others waiting, then staged if no other client has staged a program.
        let compiled = self.control.beside.compiler().compile(json.as_bytes());
        let mut changing = self.control.begin(self.standing)?;
        if changing.is_staged() {
            return Err(refused(SwapOperationErrorCode::ONGOING_SWAP));
        }
        let program = compiled.map_err(|error| application(format!("config_str: {error}")))?;
        self.replication.take_over(&self.control)?;
        let staged = changing.stage(program);
        staged.map_err(|error| self.control.failed(error))?;
        self.programs.staged(&changing, json.into_bytes());
        self.replication.install_again(&self.control)
    }

    fn swap(&self) -> thrift::Result<()> {
        let refused = |code| -> thrift::Error { InvalidSwapOperation::new(code).into() };
        let mut changing = self.control.begin(self.standing)?;
        if !changing.is_staged_beside() {
            return Err(refused(SwapOperationErrorCode::NO_ONGOING_SWAP));
        }
        let swapped = changing.commit();
        let swapped = swapped.map_err(|error| self.control.failed(error))?;
        swapped.map_err(|error| application(error.to_string()))?;
        self.programs.swapped(&changing);
        Ok(())
    }

    fn reset(&self) -> thrift::Result<()> {
        let mut changing = self.control.begin(self.standing)?;
        let mut reset = reset::Reset::default();
        let done = self.control.run_in_visits(move |visit| {
            loop {
                let Ok(program) = visit.switch.program_mut() else {
                    return Some(Ok(0));
                };
                match reset.piece(program) {
                    Ok(true) => return Some(Ok(program.pipeline().tables().len())),
                    Ok(false) if visit.is_over() => return None,
                    Ok(false) => {}
                    Err(error) => return Some(Err(error)),
                }
            }
        })?;
        let tables = done.map_err(|error| application(error.to_string()))?;
        (0..tables).for_each(|table| changing.forget_entry(table, None));
        self.replication.reset_groups(&self.control)
    }

    fn id(&self, kind: BmResourceType, name: &str) -> thrift::Result<i32> {
        let refused = |code| -> thrift::Error { InvalidIdLookup::new(code).into() };
        let unknown = || refused(IdLookupErrorCode::INVALID_RESOURCE_NAME);
        let text = self.text().ok_or_else(unknown)?;
        let objects = text.objects();
        let find = |named: &[crate::programs::Named]| {
            let found = named.iter().find(|object| object.name == name);
            found.map(|object| object.id)
        };
        let found = match kind {
            BmResourceType::MATCH_TABLE => {
                let found = objects.tables().find(|table| table.name == name);
                found.map(|table| table.id)
            }
            BmResourceType::ACTION_PROFILE => {
                let found = objects.action_profiles().find(|other| other.name == name);
                found.map(|profile| profile.id)
            }
            BmResourceType::COUNTER => find(&objects.counter_arrays),
            BmResourceType::METER => find(&objects.meter_arrays),
            BmResourceType::REGISTER => find(&objects.register_arrays),
            BmResourceType::LEARNING_LIST => find(&objects.learn_lists),
            _ => return Err(refused(IdLookupErrorCode::INVALID_RESOURCE_TYPE)),
        };
        found.ok_or_else(unknown)
    }
}
