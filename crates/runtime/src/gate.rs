//! What other threads may touch of a shard: its gate. Everything else of a shard belongs to the shard's thread alone.
//!
//! Gates live in one table for the life of the process and are reused, so that a task id names its gate by index and a
//! wake-up after the end of a runtime reaches a gate that exists (at worst it wakes a task of a later runtime once for
//! nothing, which every future tolerates).
//!
//! Protocol: a thread that leaves something (a woken task, a message, a signal) first leaves it, then sets `rung`, then
//! reads `asleep`. The shard first sets `asleep`, then reads `rung`, then sleeps. Both sides have a full barrier in
//! between, so at least one of them sees the other. Ringing a busy shard never costs a system call.

use std::cell::RefCell;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// The most shards a node may have: the doorbell has one bit for each.
pub(crate) const SHARDS_MAX: usize = 256;

/// The most gates in use at once in a process: the shards of all its nodes, real and simulated.
pub(crate) const GATES_MAX: usize = 4096;

/// A task of some shard, as a number: gate (12 bits), generation (24 bits), slot (28 bits).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskId(u64);

const SLOT_BITS: u32 = 28;
const GENERATION_BITS: u32 = 24;

impl TaskId {
    #[inline]
    pub(crate) fn new(gate: u32, generation: u32, slot: u32) -> Self {
        debug_assert!(slot < 1 << SLOT_BITS);
        let generation = u64::from(generation) & ((1 << GENERATION_BITS) - 1);
        Self(u64::from(gate) << (SLOT_BITS + GENERATION_BITS) | generation << SLOT_BITS | u64::from(slot))
    }

    #[inline]
    pub(crate) fn gate(self) -> u32 {
        (self.0 >> (SLOT_BITS + GENERATION_BITS)) as u32
    }

    #[inline]
    pub(crate) fn slot(self) -> u32 {
        (self.0 & ((1 << SLOT_BITS) - 1)) as u32
    }

    /// Whether this id was made for the slot's current generation.
    #[inline]
    pub(crate) fn is_of_generation(self, generation: u32) -> bool {
        (self.0 >> SLOT_BITS) & ((1 << GENERATION_BITS) - 1) == u64::from(generation) & ((1 << GENERATION_BITS) - 1)
    }

    #[inline]
    pub(crate) fn to_bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// The face of one shard towards other threads.
pub(crate) struct Gate {
    index: u32,
    /// Set after anything below was left; the only word a busy shard has to look at.
    rung: AtomicBool,
    asleep: AtomicBool,
    /// Tasks woken by other threads. Bounded by the wakers those threads hold.
    woken: Mutex<Vec<TaskId>>,
    any_woken: AtomicBool,
    /// One bit per source shard whose mailbox ring has messages.
    doorbell: [AtomicU64; SHARDS_MAX / 64],
    event: OnceLock<OwnedFd>,
}

static GATES: [OnceLock<Gate>; GATES_MAX] = [const { OnceLock::new() }; GATES_MAX];
/// Simulated shards have gates of their own, so that no late wake-up of a production shard can reach them and change
/// their run. Nor can one of a simulation in another thread: a thread keeps the gates of its simulations until it ends.
static FREE: [Mutex<FreeGates>; 2] = [const {
    Mutex::new(FreeGates {
        returned: Vec::new(),
        created: 0,
    })
}; 2];
const SIMULATED_GATES: u32 = 2048;

struct FreeGates {
    returned: Vec<u32>,
    created: u32,
}

/// The gates that simulated shards of this thread have given back.
struct OfThisThread(RefCell<Vec<u32>>);

impl Drop for OfThisThread {
    fn drop(&mut self) {
        lock_free(true).returned.append(self.0.get_mut());
    }
}

thread_local! {
    static OF_THIS_THREAD: OfThisThread = const { OfThisThread(RefCell::new(Vec::new())) };
}

fn lock_free(simulated: bool) -> MutexGuard<'static, FreeGates> {
    FREE[usize::from(simulated)]
        .lock()
        .expect("no code panics while it holds the list of free gates")
}

impl Gate {
    /// Takes a gate that no shard uses.
    pub(crate) fn acquire(simulated: bool) -> &'static Self {
        let own = if simulated {
            OF_THIS_THREAD.with(|own| own.0.borrow_mut().pop())
        } else {
            None
        };
        let index = own.unwrap_or_else(|| {
            let mut free = lock_free(simulated);
            free.returned.pop().unwrap_or_else(|| {
                assert!(
                    free.created < SIMULATED_GATES,
                    "at most {SIMULATED_GATES} shards at once in one process"
                );
                free.created += 1;
                free.created - 1 + if simulated { SIMULATED_GATES } else { 0 }
            })
        });
        GATES[index as usize].get_or_init(|| Self {
            index,
            rung: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            woken: Mutex::new(Vec::new()),
            any_woken: AtomicBool::new(false),
            doorbell: [const { AtomicU64::new(0) }; SHARDS_MAX / 64],
            event: OnceLock::new(),
        })
    }

    /// Gives the gate back when its shard has ended.
    pub(crate) fn release(&'static self) {
        self.lock_woken().clear();
        self.any_woken.store(false, Ordering::SeqCst);
        self.asleep.store(false, Ordering::SeqCst);
        self.rung.store(false, Ordering::SeqCst);
        for word in &self.doorbell {
            word.store(0, Ordering::SeqCst);
        }
        let simulated = self.index >= SIMULATED_GATES;
        let keep = |own: &OfThisThread| own.0.borrow_mut().push(self.index);
        // While the thread ends, its list may be gone.
        if !simulated || OF_THIS_THREAD.try_with(keep).is_err() {
            lock_free(simulated).returned.push(self.index);
        }
    }

    /// The gate a task id names.
    pub(crate) fn of(task: TaskId) -> Option<&'static Self> {
        GATES[task.gate() as usize].get()
    }

    /// Every gate of a production shard that was ever used. Safe to call in a signal handler: it only loads.
    pub(crate) fn all() -> impl Iterator<Item = &'static Self> {
        GATES[..SIMULATED_GATES as usize].iter().map_while(OnceLock::get)
    }

    pub(crate) fn index(&self) -> u32 {
        self.index
    }

    /// The eventfd that ends the shard's sleep.
    pub(crate) fn event_fd(&self) -> RawFd {
        self.event
            .get_or_init(|| {
                // SAFETY: eventfd takes two numbers and returns a new descriptor or -1.
                let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
                assert!(fd >= 0, "eventfd: {}", std::io::Error::last_os_error());
                // SAFETY: the descriptor is new and has no other owner.
                unsafe { OwnedFd::from_raw_fd(fd) }
            })
            .as_raw_fd()
    }

    /// Wakes a task of this shard from another thread.
    pub(crate) fn wake_task(&self, task: TaskId) {
        self.lock_woken().push(task);
        self.any_woken.store(true, Ordering::Release);
        self.ring();
    }

    /// Notifies the shard that its mailbox from `source` has messages.
    #[inline]
    pub(crate) fn ring_mailbox(&self, source: usize) {
        self.doorbell[source / 64].fetch_or(1 << (source % 64), Ordering::AcqRel);
        self.ring();
    }

    /// Notifies the shard that something is waiting, and ends its sleep. Async-signal-safe.
    #[inline]
    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.end_sleep();
        }
    }

    #[cold]
    fn end_sleep(&self) {
        if let Some(event) = self.event.get() {
            let one = 1_u64;
            // SAFETY: writes 8 bytes from a local; a full counter (EAGAIN) still leaves the descriptor readable.
            unsafe { libc::write(event.as_raw_fd(), (&raw const one).cast(), 8) };
        }
    }

    /// Whether something was left since the shard last answered: one load.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed)
    }

    /// The shard answers: it must look at all that can be left after this returns true.
    #[inline]
    pub(crate) fn answer(&self) -> bool {
        if !self.rung.load(Ordering::Relaxed) {
            return false;
        }
        self.rung.swap(false, Ordering::AcqRel)
    }

    /// Tasks woken by other threads since the last call, put into an empty vector that keeps its memory.
    #[inline]
    pub(crate) fn take_woken(&self, into: &mut Vec<TaskId>) {
        debug_assert!(into.is_empty());
        // A waker sets the flag after it adds to the list and before it rings. So if the flag is cleared here and the
        // list is still seen empty, another ring follows.
        if self.any_woken.load(Ordering::Relaxed) && self.any_woken.swap(false, Ordering::AcqRel) {
            std::mem::swap(&mut *self.lock_woken(), into);
        }
    }

    /// Calls `visit` with each source shard that rang since the last call.
    #[inline]
    pub(crate) fn take_rung_mailboxes(&self, shards: usize, mut visit: impl FnMut(usize)) {
        for (position, word) in self.doorbell.iter().enumerate().take(shards.div_ceil(64)) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::AcqRel);
            while bits != 0 {
                visit(position * 64 + bits.trailing_zeros() as usize);
                bits &= bits - 1;
            }
        }
    }

    /// Announces sleep. False when something arrived before that and the shard must not sleep.
    pub(crate) fn fall_asleep(&self) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if self.rung.load(Ordering::Acquire) {
            self.wake_up();
            return false;
        }
        true
    }

    /// The shard is awake again.
    pub(crate) fn wake_up(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }

    fn lock_woken(&self) -> MutexGuard<'_, Vec<TaskId>> {
        self.woken
            .lock()
            .expect("no code panics while it holds the list of woken tasks")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A waker that outlived a simulation rang the gate of one in another thread, which then took other steps.
    #[test]
    fn simulations_in_other_threads_get_no_gate_that_one_of_this_thread_had() {
        let mine = Gate::acquire(true);
        mine.release();
        let of_another = std::thread::spawn(|| {
            let theirs = Gate::acquire(true);
            theirs.release();
            theirs.index()
        });
        assert_ne!(of_another.join().expect("it does not panic"), mine.index());
        let again = Gate::acquire(true);
        assert_eq!(again.index(), mine.index());
        again.release();
    }

    #[test]
    fn a_task_id_keeps_its_three_parts_apart() {
        for (gate, generation, slot) in [
            (0, 0, 0),
            (4095, 0xff_ffff, (1 << 28) - 1),
            (1, 2, 3),
            (17, 0x0100_0001, 5),
        ] {
            let id = TaskId::new(gate, generation, slot);
            assert_eq!((id.gate(), id.slot()), (gate, slot));
            assert!(id.is_of_generation(generation));
            assert!(
                !id.is_of_generation(generation.wrapping_add(1)),
                "a stale waker would wake a stranger"
            );
        }
    }
}
