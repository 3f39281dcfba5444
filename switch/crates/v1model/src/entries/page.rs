//! Pages of objects.

/// A page of objects: some of many, so that no call takes long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page<T> {
    /// The objects, in their order.
    pub items: Vec<T>,
    /// The beginning of the next page; `None`: this is the last one.
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
    /// Makes a page of the first `most` (at least 1) of `items`, which are in the order of their
    /// numbers. The next page begins at the number of the first item left out.
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
