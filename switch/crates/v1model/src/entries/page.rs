//! Pages of objects.

/// Some of many objects, so that no call takes long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The objects, in their order.
    pub items: Vec<T>,
    /// Where the next page begins; `None`: this was the last one.
    pub next: Option<u64>,
}

impl<T> Default for Page<T> {
    fn default() -> Self {
        Self {
            items: Vec::new(),
            next: None,
        }
    }
}

impl<T> Page<T> {
    /// The first `most` (at least 1) of `items`, which are in order of their numbers; the next page
    /// begins at the number after.
    pub fn of(items: impl Iterator<Item = (u64, T)>, most: usize) -> Self {
        let mut items = items;
        let mut page = Self::default();
        for (number, item) in items.by_ref() {
            if page.items.len() >= most.max(1) {
                page.next = Some(number);
                break;
            }
            page.items.push(item);
        }
        page
    }
}
