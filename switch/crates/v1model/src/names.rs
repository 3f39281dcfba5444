//! Names of the objects of a program.

use crate::error::{LoadResult, refuse};
use std::collections::HashMap;

/// Most objects of one kind.
pub(crate) const MAX_OBJECTS: usize = 1 << 14;

/// The indices of the objects of one kind by name.
#[derive(Debug, Default)]
pub(crate) struct Names(HashMap<String, usize>);

impl Names {
    /// Adds the next object and returns its index. Refuses a name that is taken.
    pub fn add(&mut self, name: &str) -> LoadResult<usize> {
        let index = self.0.len();
        if self.0.insert(name.to_owned(), index).is_some() {
            refuse!("is defined twice");
        }
        Ok(index)
    }

    /// Finds an object; `kind` is the kind of object, for the error.
    pub fn find(&self, kind: &str, name: &str) -> LoadResult<usize> {
        match self.0.get(name) {
            Some(&index) => Ok(index),
            None => refuse!("unknown {kind} '{name}'"),
        }
    }

    /// The names with their indices, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(name, &index)| (name.as_str(), index))
    }
}
