//! Memory of long bodies, kept for the next ones.
//!
//! A chunk of a stream is a quarter of a megabyte. The allocator gives such memory back to the kernel soon, and the
//! kernel clears each page that it gives out again: for streams that was a quarter of all processor time, on the thread
//! that serves reads. So long bodies are written into memory that an earlier one had. A shard keeps at most
//! [`BYTES_MAX`], and nothing once no long body has come or gone for [`KEPT_FOR`].

use runtime::Instant;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Memory that one shard keeps.
const BYTES_MAX: usize = 16 << 20;
/// Buffers above this are not kept: a few of them would be all that is.
const BUFFER_BYTES_MAX: usize = 1 << 20;
/// How long unused memory is kept.
const KEPT_FOR: Duration = Duration::from_secs(5);

/// The spare buffers of a shard.
#[derive(Default)]
pub(crate) struct Spares {
    /// All of them; the last one was used last.
    buffers: RefCell<Vec<Vec<u8>>>,
    bytes: Cell<usize>,
    /// When one was last taken or given back.
    used_at: Cell<Option<Instant>>,
    is_watched: Cell<bool>,
}

impl Spares {
    /// A buffer of so many bytes: what earlier bodies left in it, and zeros after that. A new one where none is kept.
    pub(crate) fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.take_for(len).unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// An empty buffer with room for so many bytes, if one is kept.
    pub(crate) fn take_empty(&self, len: usize) -> Option<Vec<u8>> {
        let mut buffer = self.take_for(len)?;
        buffer.clear();
        Some(buffer)
    }

    fn take_for(&self, len: usize) -> Option<Vec<u8>> {
        let mut buffers = self.buffers.borrow_mut();
        let at = buffers.iter().rposition(|buffer| buffer.capacity() >= len)?;
        let buffer = buffers.remove(at);
        self.bytes.set(self.bytes.get() - buffer.capacity());
        self.used_at.set(Some(runtime::now()));
        Some(buffer)
    }

    /// Keeps a buffer that is not needed any more, or frees it.
    pub(crate) fn give(self: &Rc<Self>, buffer: Vec<u8>) {
        let bytes = self.bytes.get() + buffer.capacity();
        if !(crate::LONG_BODY_BYTES..=BUFFER_BYTES_MAX).contains(&buffer.capacity()) || bytes > BYTES_MAX {
            return;
        }
        self.bytes.set(bytes);
        self.used_at.set(Some(runtime::now()));
        self.buffers.borrow_mut().push(buffer);
        if !self.is_watched.replace(true) {
            drop(runtime::spawn_in(runtime::Group::BACKGROUND, Rc::clone(self).watch()));
        }
    }

    /// Frees the buffers when none has been used for a while, and ends with that.
    async fn watch(self: Rc<Self>) {
        loop {
            runtime::sleep(KEPT_FOR).await;
            let idle = self.used_at.get().map(|used_at| runtime::now() - used_at);
            if idle.is_none_or(|idle| idle >= KEPT_FOR) {
                self.is_watched.set(false);
                self.bytes.set(0);
                drop(self.buffers.take());
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LONG_BODY_BYTES;
    use runtime::sim::Simulation;

    fn on_a_shard<F: Future<Output = ()> + 'static>(test: impl Fn() -> F + 'static) {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        simulation.start(node, move |_| Box::pin(test()));
        assert!(
            simulation.run_until_ended(node, Duration::from_mins(1)),
            "the test has ended"
        );
    }

    #[test]
    fn memory_is_used_again_and_freed_when_nobody_needs_it() {
        on_a_shard(|| async {
            let spares = Rc::new(Spares::default());
            let buffer = spares.take(2 * LONG_BODY_BYTES);
            let memory = buffer.as_ptr();
            spares.give(buffer);
            assert!(
                spares.take_empty(3 * LONG_BODY_BYTES).is_none(),
                "none has so much room"
            );
            let again = spares.take_empty(LONG_BODY_BYTES).expect("one is kept");
            assert_eq!((again.as_ptr(), again.len()), (memory, 0));
            spares.give(again);
            runtime::sleep(3 * KEPT_FOR).await;
            assert_eq!(spares.bytes.get(), 0);
            assert!(spares.take_empty(LONG_BODY_BYTES).is_none(), "it was freed");
        });
    }

    #[test]
    fn no_more_is_kept_than_a_shard_may() {
        on_a_shard(|| async {
            let spares = Rc::new(Spares::default());
            for bytes in [LONG_BODY_BYTES - 1, BUFFER_BYTES_MAX + 1] {
                spares.give(Vec::with_capacity(bytes));
                assert_eq!(spares.bytes.get(), 0, "a buffer of {bytes} bytes");
            }
            for _ in 0..100 {
                spares.give(Vec::with_capacity(BUFFER_BYTES_MAX));
            }
            assert!(spares.bytes.get() <= BYTES_MAX, "{}", spares.bytes.get());
        });
    }
}
