//! Cells of counters, meters and registers.

use v1model::Pipeline;
use v1model::entries::{Bits, ControlResult, MeterState};

use super::{Emitter, Reader, Stop};
use crate::error::{UpdateError, UpdateResult};
use crate::executor;
use crate::proto::p4::v1 as p4;
use crate::translate::{self, Array};

/// The requested cells of an array; `None`: all.
type Wanted<'a> = Option<&'a [&'a p4::Index]>;

/// A kind of array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Meter {
        /// With the counts of its colours.
        counts: bool,
    },
    Register,
}

/// Array and index of an entity that is one cell.
fn address(entity: &p4::Entity) -> Option<(Kind, u32, &p4::Index)> {
    use p4::entity::Entity;
    let (kind, id, index) = match entity.entity.as_ref()? {
        Entity::CounterEntry(cell) => (Kind::Counter, cell.counter_id, &cell.index),
        Entity::MeterEntry(cell) => {
            let counts = cell.counter_data.is_some();
            (Kind::Meter { counts }, cell.meter_id, &cell.index)
        }
        Entity::RegisterEntry(cell) => (Kind::Register, cell.register_id, &cell.index),
        _ => return None,
    };
    Some((kind, id, index.as_ref()?)).filter(|_| id != 0)
}

impl Reader<'_> {
    /// The number of entities at the front that are single cells of one array. They are read together,
    /// because a visit to the switch's thread costs as much as some thousand cells.
    pub(super) fn run_length(entities: &[p4::Entity]) -> usize {
        let array = |entity| address(entity).map(|(kind, id, _)| (kind, id));
        let Some(first) = entities.first().and_then(array) else {
            return 0;
        };
        let same = entities
            .iter()
            .take_while(|entity| array(entity) == Some(first));
        same.count()
    }

    /// Emits the wanted cells, or all, in bounded visits. `message` translates a cell. Returns a
    /// result for each index given.
    async fn cells<V: Send + 'static>(
        &self,
        array: &Array,
        wanted: Wanted<'_>,
        read: impl Fn(&Pipeline, usize, usize) -> ControlResult<V> + Send + Copy + 'static,
        message: impl Fn(p4::Index, V) -> UpdateResult<p4::entity::Entity>,
        emitter: &mut Emitter,
    ) -> Result<Vec<Result<(), UpdateError>>, Stop> {
        let mut results = Vec::new();
        let mut all = 0..array.size;
        let mut some = wanted.unwrap_or_default().iter();
        loop {
            let visited: Vec<Result<usize, UpdateError>> = match wanted {
                None => all
                    .by_ref()
                    .take(executor::CELLS_PER_VISIT)
                    .map(Ok)
                    .collect(),
                Some(_) => some
                    .by_ref()
                    .take(executor::CELLS_PER_VISIT)
                    .map(|index| array.cell_at(index))
                    .collect(),
            };
            if visited.is_empty() {
                return Ok(results);
            }
            let number = array.index;
            let cells: Vec<usize> = visited.iter().flatten().copied().collect();
            let view = self.view().await?;
            let mut values = Vec::with_capacity(cells.len());
            let values = self.visits(&view, &array.name, move |program| {
                let pipeline = program.pipeline();
                let rest = cells.iter().skip(values.len());
                for cell in rest.take(executor::CELLS_PER_LOOK) {
                    values.push(read(pipeline, number, *cell)?);
                }
                Ok((values.len() == cells.len()).then(|| std::mem::take(&mut values)))
            });
            let mut values = values.await?.into_iter();
            for cell in visited {
                let told = cell.and_then(|cell| {
                    let value = values.next();
                    // Controllers know nothing of a cell without an index of theirs.
                    if let (Some(index), Some(value)) = (array.index_message(cell), value) {
                        emitter.entity(Ok(message(index, value)?));
                    }
                    Ok(())
                });
                match told {
                    told if wanted.is_some() => results.push(told),
                    Ok(()) => {}
                    Err(error) => emitter.entity(Err(error)),
                }
            }
            drop(view);
            emitter.send().await?;
        }
    }

    /// Reads the cells that a run of a request's entities asks for, all of one array
    /// ([`Self::run_length`]). Returns a result for each entity.
    pub(super) async fn single_cells(
        &self,
        entities: &[p4::Entity],
        emitter: &mut Emitter,
    ) -> Result<Vec<Result<(), UpdateError>>, Stop> {
        let indices: Vec<&p4::Index> = entities
            .iter()
            .filter_map(|entity| address(entity).map(|(_, _, index)| index))
            .collect();
        match entities.first().and_then(address) {
            Some((Kind::Counter, id, _)) => {
                let array = self.pipeline.counter(id)?;
                self.counters(array, Some(&indices), emitter).await
            }
            Some((Kind::Meter { counts }, id, _)) => {
                let array = self.pipeline.meter(id)?;
                self.meters(array, Some(&indices), counts, emitter).await
            }
            Some((Kind::Register, id, _)) => {
                let array = self.pipeline.register(id)?;
                self.registers(array, Some(&indices), emitter).await
            }
            None => Ok(Vec::new()),
        }
    }

    pub(super) async fn counters(
        &self,
        array: &Array,
        wanted: Wanted<'_>,
        emitter: &mut Emitter,
    ) -> Result<Vec<Result<(), UpdateError>>, Stop> {
        let message = |index, value| {
            Ok(p4::entity::Entity::CounterEntry(p4::CounterEntry {
                counter_id: array.id,
                index: Some(index),
                data: Some(translate::counter_message(value)),
            }))
        };
        self.cells(array, wanted, Pipeline::counter_read, message, emitter)
            .await
    }

    pub(super) async fn meters(
        &self,
        array: &Array,
        wanted: Wanted<'_>,
        counts: bool,
        emitter: &mut Emitter,
    ) -> Result<Vec<Result<(), UpdateError>>, Stop> {
        let message = |index, meter: MeterState| {
            Ok(p4::entity::Entity::MeterEntry(p4::MeterEntry {
                meter_id: array.id,
                index: Some(index),
                config: meter.config.map(translate::meter_message),
                counter_data: counts.then(|| translate::meter_counts_message(meter.counts)),
            }))
        };
        self.cells(array, wanted, Pipeline::meter_read, message, emitter)
            .await
    }

    pub(super) async fn registers(
        &self,
        array: &Array,
        wanted: Wanted<'_>,
        emitter: &mut Emitter,
    ) -> Result<Vec<Result<(), UpdateError>>, Stop> {
        let shape = array.register_shape()?;
        let message = |index, value: Bits| {
            Ok(p4::entity::Entity::RegisterEntry(p4::RegisterEntry {
                register_id: array.id,
                index: Some(index),
                data: Some(shape.one(&value, &array.name)?),
            }))
        };
        self.cells(array, wanted, Pipeline::register_read, message, emitter)
            .await
    }
}
