//! The orders in which the two sides of a ring may run: all of them (`make loom`), some with each access to
//! memory checked (`make miri`), and those that happen (`cargo test`). In AF_XDP's rings one side is the
//! kernel, which follows the same rules.

use interleavings::sync::Arc;
use interleavings::sync::atomic::AtomicU32;
use interleavings::{UnsafeCell, check, spawn, thread};
use rings::{Consumer, Memory, Producer};

/// Memory of a ring of two entries. loom and Miri fail a test in which both sides use an entry at a time,
/// or in which a side uses one before it has seen that the other side is done with it.
struct Cells {
    produced: AtomicU32,
    consumed: AtomicU32,
    entries: [UnsafeCell<u32>; 2],
}

// Each entry is used by one side at a time, by the rules of the ring.
#[allow(unsafe_code)]
unsafe impl Sync for Cells {}

#[derive(Clone)]
struct Two(Arc<Cells>);

impl Two {
    fn new() -> Self {
        Self(Arc::new(Cells {
            produced: AtomicU32::new(0),
            consumed: AtomicU32::new(0),
            entries: [UnsafeCell::new(0), UnsafeCell::new(0)],
        }))
    }
}

#[allow(unsafe_code)]
impl Memory for Two {
    type Entry = u32;

    fn size(&self) -> u32 {
        2
    }

    fn produced(&self) -> &AtomicU32 {
        &self.0.produced
    }

    fn consumed(&self) -> &AtomicU32 {
        &self.0.consumed
    }

    fn read(&self, index: u32) -> u32 {
        let entry = &self.0.entries[(index % 2) as usize];
        // SAFETY: by the rules of the ring nobody writes it now; loom and Miri check that.
        entry.with(|entry| unsafe { *entry })
    }

    fn write(&self, index: u32, value: u32) {
        let entry = &self.0.entries[(index % 2) as usize];
        // SAFETY: by the rules of the ring nobody else uses it now; loom and Miri check that.
        entry.with_mut(|entry| unsafe { *entry = value });
    }
}

/// Takes an entry, once there is one.
fn take(consumer: &mut Consumer<Two>) -> u32 {
    loop {
        if let Some(entry) = consumer.peek() {
            consumer.advance();
            return entry;
        }
        thread::yield_now();
    }
}

/// Puts an entry in, once there is room.
fn put(producer: &mut Producer<Two>, entry: u32) {
    while !producer.push(entry) {
        thread::yield_now();
    }
}

#[test]
fn entries_pass_whole_once_and_in_order() {
    check(Some(3), || {
        let memory = Two::new();
        let mut producer = Producer::new(memory.clone());
        let mut consumer = Consumer::new(memory);
        let producing = spawn(move || {
            for entry in 1..=3 {
                put(&mut producer, entry);
                producer.publish();
            }
        });
        // The third entry takes the place of the first.
        let taken = [(); 3].map(|()| take(&mut consumer));
        assert_eq!(taken, [1, 2, 3]);
        producing.join().unwrap();
        assert!(consumer.is_empty());
    });
}

#[test]
fn entries_that_are_published_together_are_seen_together() {
    check(None, || {
        let memory = Two::new();
        let mut producer = Producer::new(memory.clone());
        let mut consumer = Consumer::new(memory);
        let producing = spawn(move || {
            put(&mut producer, 1);
            put(&mut producer, 2);
            producer.publish();
        });
        if consumer.peek().is_some() {
            consumer.advance();
            assert_eq!(consumer.peek(), Some(2));
        }
        producing.join().unwrap();
    });
}
