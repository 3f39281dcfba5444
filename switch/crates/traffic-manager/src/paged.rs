//! Per-class state, found by class number: an array of pages that exist only where used.

/// Classes per page.
pub(crate) const PAGE: usize = 64;

/// Entries of neighbouring classes. Aligned, so that none of them lies across cache lines.
#[derive(Debug)]
#[repr(align(64))]
struct Page<T>([T; PAGE]);

/// A sparse array indexed by class.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Option<Box<Page<T>>>>,
    used_pages: usize,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self {
            pages: Vec::new(),
            used_pages: 0,
        }
    }
}

impl<T: Copy + Default> Paged<T> {
    /// The state of `class`, if its page exists.
    pub(crate) fn get(&self, class: u32) -> Option<&T> {
        let page = self.pages.get(class as usize / PAGE)?.as_ref()?;
        page.0.get(class as usize % PAGE)
    }

    /// The state of `class`, if its page exists.
    pub(crate) fn get_mut(&mut self, class: u32) -> Option<&mut T> {
        let page = self.pages.get_mut(class as usize / PAGE)?.as_mut()?;
        page.0.get_mut(class as usize % PAGE)
    }

    /// Makes the page of `class`, which the caller has bounded, unless it is there.
    pub(crate) fn create(&mut self, class: u32) {
        let at = class as usize / PAGE;
        if self.pages.len() <= at {
            self.pages.resize_with(at + 1, || None);
        }
        if let Some(page) = self.pages.get_mut(at)
            && page.is_none()
        {
            *page = Some(Box::new(Page([T::default(); PAGE])));
            self.used_pages += 1;
        }
    }

    /// Number of pages that exist.
    pub(crate) fn used_pages(&self) -> usize {
        self.used_pages
    }

    /// Frees every page whose entries all satisfy `idle`.
    pub(crate) fn free_idle(&mut self, idle: impl Fn(&T) -> bool) {
        for page in &mut self.pages {
            if page.as_ref().is_some_and(|page| page.0.iter().all(&idle)) {
                *page = None;
                self.used_pages -= 1;
            }
        }
    }

    /// Visits every entry that exists, with its class.
    pub(crate) fn for_each_mut(&mut self, mut visit: impl FnMut(u32, &mut T)) {
        for (page_at, page) in self.pages.iter_mut().enumerate() {
            let entries = page.iter_mut().flat_map(|page| page.0.iter_mut());
            for (at, entry) in entries.enumerate() {
                // Classes are 32 bits wide, so the position fits.
                visit((page_at * PAGE + at) as u32, entry);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.used_pages = 0;
    }
}
