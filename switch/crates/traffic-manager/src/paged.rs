//! Per-class state, found by class number: an array of pages that exist only where used.

/// Classes per page.
pub(crate) const PAGE: usize = 64;

/// A sparse array indexed by class.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    pages: Vec<Option<Box<[T; PAGE]>>>,
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
        page.get(class as usize % PAGE)
    }

    /// The state of `class`, if its page exists.
    pub(crate) fn get_mut(&mut self, class: u32) -> Option<&mut T> {
        let page = self.pages.get_mut(class as usize / PAGE)?.as_mut()?;
        page.get_mut(class as usize % PAGE)
    }

    /// Makes the page of `class`, which the caller has bounded; false: it was there.
    pub(crate) fn create(&mut self, class: u32) -> bool {
        let at = class as usize / PAGE;
        if self.pages.len() <= at {
            self.pages.resize_with(at + 1, || None);
        }
        if let Some(page) = self.pages.get_mut(at)
            && page.is_none()
        {
            *page = Some(Box::new([T::default(); PAGE]));
            self.used_pages += 1;
            return true;
        }
        false
    }

    /// Number of pages that exist.
    pub(crate) fn used_pages(&self) -> usize {
        self.used_pages
    }

    /// Frees every page whose entries all satisfy `idle`; returns how many.
    pub(crate) fn free_idle(&mut self, idle: impl Fn(&T) -> bool) -> usize {
        let mut freed = 0;
        for page in &mut self.pages {
            if page
                .as_ref()
                .is_some_and(|entries| entries.iter().all(&idle))
            {
                *page = None;
                freed += 1;
            }
        }
        self.used_pages -= freed;
        freed
    }

    /// Visits every entry that exists, with its class.
    pub(crate) fn for_each(&self, mut visit: impl FnMut(u32, &T)) {
        for (page_at, page) in self.pages.iter().enumerate() {
            for (at, entry) in page.iter().flat_map(|p| p.iter()).enumerate() {
                // Classes are 32 bits wide, so the position fits.
                visit((page_at * PAGE + at) as u32, entry);
            }
        }
    }

    /// Every entry that exists, by class.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pages
            .iter_mut()
            .flatten()
            .flat_map(|page| page.iter_mut())
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.pages.clear();
        self.used_pages = 0;
    }
}
