//! Look-ups and checks of ids in requests.

use crate::error::{UpdateError, UpdateResult};

/// The error for an id that no object has. `what` is the kind of object.
pub(crate) fn unknown(what: &str, id: u32) -> UpdateError {
    let field = format!("{}_id", what.replace(' ', "_"));
    if id == 0 {
        UpdateError::invalid(format!("{field}: not given, the id of a {what} expected"))
    } else {
        UpdateError::not_found(format!(
            "{field}: {id} (0x{id:08x}) given, no {what} of the program has this id"
        ))
    }
}

/// Finds the object with this id.
pub(crate) fn find<'a, T>(
    all: &'a [T],
    id_of: impl Fn(&T) -> u32,
    what: &str,
    id: u32,
) -> UpdateResult<&'a T> {
    let found = all.iter().find(|one| id_of(one) == id);
    found.ok_or_else(|| unknown(what, id))
}

/// All objects (id 0) or the one that `find` finds.
pub(crate) fn all_or_one<'a, T>(
    all: &'a [T],
    id: u32,
    find: impl FnOnce(u32) -> UpdateResult<&'a T>,
) -> UpdateResult<Vec<&'a T>> {
    match id {
        0 => Ok(all.iter().collect()),
        id => Ok(vec![find(id)?]),
    }
}

/// Checks that each id given is among the known ones, and is given once. `what` is the kind of
/// object.
pub(crate) fn check<'k>(
    object: &str,
    what: &str,
    given: impl Iterator<Item = u32>,
    known: impl Iterator<Item = (u32, &'k str)> + Clone,
) -> UpdateResult<()> {
    let mut seen = Vec::new();
    for id in given {
        let Some((_, name)) = known.clone().find(|(known, _)| *known == id) else {
            let mut ids: Vec<String> = known.map(|(id, name)| format!("{id} ({name})")).collect();
            if ids.is_empty() {
                ids.push(format!("no {what}"));
            }
            return Err(UpdateError::invalid(format!(
                "{object}: {what} id {id} given, {} expected",
                ids.join(", ")
            )));
        };
        if seen.contains(&id) {
            return Err(UpdateError::invalid(format!(
                "{object}: {what} {name}: given twice"
            )));
        }
        seen.push(id);
    }
    Ok(())
}

/// Checks an id that the controller chose: it must not be 0.
pub(crate) fn nonzero(id: u32, object: &str, field: &str) -> UpdateResult<u32> {
    if id == 0 {
        return Err(UpdateError::invalid(format!(
            "{object}: {field}: 0 given, greater than 0 expected"
        )));
    }
    Ok(id)
}
