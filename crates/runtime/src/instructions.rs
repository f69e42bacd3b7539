//! User instructions of a thread, where the processor and the kernel count them (perf_event_open(2)).

use std::fs::File;
use std::io::Read;
use std::os::fd::FromRawFd;

/// `PERF_TYPE_HARDWARE` and `PERF_COUNT_HW_INSTRUCTIONS` of linux/perf_event.h.
const USER_INSTRUCTIONS: Event = Event { kind: 0, config: 1 };
/// Length of the first published `perf_event_attr`, which every kernel takes.
const ATTRIBUTE_BYTES: usize = 64;
/// `exclude_kernel` and `exclude_hv` among the bits at offset 40.
const USER_ONLY: u64 = 1 << 5 | 1 << 6;

#[derive(Clone, Copy)]
struct Event {
    kind: u32,
    config: u64,
}

/// Counts the user instructions of the thread that made it. Meant for measuring; reading is a system call.
#[derive(Debug)]
pub struct InstructionCounter(File);

impl InstructionCounter {
    /// Counts from now on. None where the processor does not count (most virtual machines) or the kernel does not say
    /// (`kernel.perf_event_paranoid` above 2, many containers).
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::count(USER_INSTRUCTIONS)
    }

    fn count(event: Event) -> Option<Self> {
        let mut attribute = [0_u8; ATTRIBUTE_BYTES];
        attribute[..4].copy_from_slice(&event.kind.to_ne_bytes());
        attribute[4..8].copy_from_slice(&(ATTRIBUTE_BYTES as u32).to_ne_bytes());
        attribute[8..16].copy_from_slice(&event.config.to_ne_bytes());
        attribute[40..48].copy_from_slice(&USER_ONLY.to_ne_bytes());
        let (this_thread, any_cpu, no_group, close_on_exec) = (0, -1, -1, 8);
        // SAFETY: the kernel reads ATTRIBUTE_BYTES from the array, as its length field says; the other arguments are
        // numbers.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                attribute.as_ptr(),
                this_thread,
                any_cpu,
                no_group,
                close_on_exec,
            )
        };
        let fd = i32::try_from(fd).ok().filter(|&fd| fd >= 0)?;
        // SAFETY: the kernel has just returned this descriptor, so it has no other owner.
        Some(Self(unsafe { File::from_raw_fd(fd) }))
    }

    /// Counted so far.
    #[must_use]
    pub fn read(&self) -> Option<u64> {
        let mut bytes = [0; 8];
        (&self.0).read_exact(&mut bytes).ok()?;
        Some(u64::from_ne_bytes(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_TASK_CLOCK`: counted by every kernel that permits counters at all.
    const TASK_CLOCK: Event = Event { kind: 1, config: 1 };

    #[test]
    fn a_counter_rises_while_its_thread_works_and_is_absent_where_nothing_counts() {
        let work = || (0..2_000_000_u64).fold(0, |sum, i| std::hint::black_box(sum ^ i));
        for event in [TASK_CLOCK, USER_INSTRUCTIONS] {
            let Some(counter) = InstructionCounter::count(event) else {
                continue;
            };
            let before = counter.read().expect("an open counter can be read");
            work();
            let after = counter.read().expect("an open counter can be read");
            assert!(after > before + 100_000, "the count went from {before} to {after}");
        }
        let unknown = Event {
            kind: u32::MAX,
            config: 0,
        };
        assert!(
            InstructionCounter::count(unknown).is_none(),
            "an event that is not there was counted"
        );
    }
}
