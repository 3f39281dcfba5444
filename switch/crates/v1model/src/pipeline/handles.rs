//! The control plane's access to entries by BMv2's handles
//! ([`LoadOptions::entry_handles`](crate::LoadOptions::entry_handles)).

use crate::entries::error::not_found;
use crate::entries::{ControlResult, EntryKey, Handled, MeterConfig, MeterWrite, Page};
use crate::pipeline::Pipeline;

impl Pipeline {
    /// The handle of an entry.
    ///
    /// # Errors
    /// There is no such table or entry, or its table keeps no handles.
    pub fn entry_handle(&self, table: usize, key: &EntryKey) -> ControlResult<u32> {
        let (_, id) = self.existing(table, key)?;
        let (info, t) = self.info(table)?;
        match t.entry(id).and_then(|entry| t.handle_of(entry)) {
            Some(handle) => Ok(handle),
            None => not_found(format!("table '{}' keeps no handles", info.name)),
        }
    }

    /// Entries with their handles by index, at most `most` of them, from the index of the handle
    /// `from` on; none for a table that does not exist.
    pub fn handled_entries(&self, table: usize, from: u32, most: usize) -> Page<Handled> {
        let Ok((info, t)) = self.info(table) else {
            return Page::default();
        };
        let entries = t.handled_from(from).map(|(handle, entry)| {
            let entry = self.public_entry(info, t, entry);
            (u64::from(handle), Handled { handle, entry })
        });
        Page::of(entries, most)
    }

    /// The entry at the index of a handle, with the handle that it has now.
    pub fn handled_entry(&self, table: usize, handle: u32) -> Option<Handled> {
        let mut at = self.handled_entries(table, handle, 1).items;
        let index = |handle: u32| handle << 8;
        at.pop()
            .filter(|found| index(found.handle) == index(handle))
    }

    /// Sets the direct meter of a handle's index (`None`: of all indices). An entry does not get it by itself.
    ///
    /// # Errors
    /// There is no such table, or the rates make no meter.
    pub fn index_meter_set(
        &mut self,
        table: usize,
        handle: Option<u32>,
        write: MeterWrite,
    ) -> ControlResult<()> {
        write.check()?;
        self.info_mut(table)?
            .1
            .set_index_meter(handle, write.config);
        Ok(())
    }

    /// The direct meter of a handle's index.
    pub fn index_meter(&self, table: usize, handle: u32) -> Option<MeterConfig> {
        self.info(table).ok()?.1.index_meter(handle)
    }

    /// Gives handles of a table without entries as if it never had any.
    ///
    /// # Errors
    /// There is no such table.
    pub fn handles_forget(&mut self, table: usize) -> ControlResult<()> {
        self.info_mut(table)?.1.forget_handles();
        Ok(())
    }
}
