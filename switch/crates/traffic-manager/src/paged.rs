//! Per-class state, found by class number: groups of neighbouring classes that exist only where
//! used.
//!
//! A hash map would take more than the 32 bytes that a class queue may take, and would copy all of
//! them when it grows, a million at once.

/// Classes per page.
pub(crate) const PAGE: usize = 64;

/// Pages that are allocated together: at 32 bytes per class two megabytes, a huge page.
const CHUNK: usize = 1 << 10;

/// Entries of neighbouring classes. Aligned, so that no entry crosses a cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Page<T>([T; PAGE]);

/// A sparse array indexed by class. It keeps the memory of freed pages for new ones.
#[derive(Debug)]
pub(crate) struct Paged<T> {
    /// By page: 0 for none, otherwise 1 + its place.
    places: Vec<u32>,
    /// Pages by place, in chunks: adding a page never copies all of them.
    chunks: Vec<Vec<Page<T>>>,
    free: Vec<u32>,
    used_pages: usize,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self {
            places: Vec::new(),
            chunks: Vec::new(),
            free: Vec::new(),
            used_pages: 0,
        }
    }
}

impl<T: Copy + Default> Paged<T> {
    fn place(&self, class: u32) -> Option<usize> {
        let place = self.places.get(class as usize / PAGE)?.checked_sub(1)?;
        Some(place as usize)
    }

    /// The state of `class`, if its page exists.
    pub(crate) fn get(&self, class: u32) -> Option<&T> {
        let place = self.place(class)?;
        let page = self.chunks.get(place / CHUNK)?.get(place % CHUNK)?;
        page.0.get(class as usize % PAGE)
    }

    /// The state of `class`, if its page exists.
    pub(crate) fn get_mut(&mut self, class: u32) -> Option<&mut T> {
        let place = self.place(class)?;
        let page = self.chunks.get_mut(place / CHUNK)?.get_mut(place % CHUNK)?;
        page.0.get_mut(class as usize % PAGE)
    }

    /// Makes the page of `class`, which the caller has bounded, unless it is there.
    pub(crate) fn create(&mut self, class: u32) {
        if self.place(class).is_some() {
            return;
        }
        let at = class as usize / PAGE;
        if self.places.len() <= at {
            self.places.resize(at + 1, 0);
        }
        let place = self.vacant();
        if let Some(known) = self.places.get_mut(at) {
            *known = place + 1;
            self.used_pages += 1;
        }
    }

    /// The place of a page of defaults. Classes are 32 bits wide, so the place fits.
    fn vacant(&mut self) -> u32 {
        let page = Page([T::default(); PAGE]);
        if let Some(place) = self.free.pop() {
            let at = place as usize;
            let chunk = self.chunks.get_mut(at / CHUNK);
            if let Some(old) = chunk.and_then(|chunk| chunk.get_mut(at % CHUNK)) {
                *old = page;
            }
            return place;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            // The first chunk grows page by page. Where it is full, the next is needed whole soon.
            let room = if self.chunks.is_empty() { 0 } else { CHUNK };
            self.chunks.push(Vec::with_capacity(room));
        }
        let before = (self.chunks.len() - 1) * CHUNK;
        let at = self.chunks.last_mut().map_or(0, |chunk| {
            chunk.push(page);
            chunk.len() - 1
        });
        (before + at) as u32
    }

    /// Number of pages that exist.
    pub(crate) fn used_pages(&self) -> usize {
        self.used_pages
    }

    /// Frees every page whose entries all satisfy `idle`.
    pub(crate) fn free_idle(&mut self, idle: impl Fn(&T) -> bool) {
        for known in &mut self.places {
            let Some(place) = known.checked_sub(1) else {
                continue;
            };
            let at = place as usize;
            let page = self
                .chunks
                .get(at / CHUNK)
                .and_then(|chunk| chunk.get(at % CHUNK));
            if page.is_some_and(|page| page.0.iter().all(&idle)) {
                *known = 0;
                self.free.push(place);
                self.used_pages -= 1;
            }
        }
    }

    /// Visits every entry that exists, with its class.
    pub(crate) fn for_each_mut(&mut self, mut visit: impl FnMut(u32, &mut T)) {
        for (page_at, known) in self.places.iter().enumerate() {
            let Some(place) = known.checked_sub(1) else {
                continue;
            };
            let at = place as usize;
            let page = self
                .chunks
                .get_mut(at / CHUNK)
                .and_then(|chunk| chunk.get_mut(at % CHUNK));
            for (at, entry) in page.into_iter().flat_map(|page| &mut page.0).enumerate() {
                // Classes are 32 bits wide, so the position fits.
                visit((page_at * PAGE + at) as u32, entry);
            }
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
