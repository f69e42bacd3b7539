//! How long a shard's thread ran, and how long it waited for a processor.

use std::cell::RefCell;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::sim::world::is_simulated;

/// Times of a thread since its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessorTime {
    /// On a processor.
    pub ran: Duration,
    /// Ready to run, while others had the processors.
    pub waited: Duration,
}

thread_local! {
    /// `/proc/thread-self/schedstat` of this thread, once it was asked for.
    static SCHEDSTAT: RefCell<Option<File>> = const { RefCell::new(None) };
}

/// The times of the calling thread; `None` in the simulator and where the kernel does not count them. Costs about two
/// microseconds.
#[must_use]
pub fn processor_time() -> Option<ProcessorTime> {
    if is_simulated() {
        return None;
    }
    let mut bytes = [0; 96];
    let read = SCHEDSTAT.with_borrow_mut(|file| {
        if file.is_none() {
            *file = File::open("/proc/thread-self/schedstat").ok();
        }
        file.as_ref()?.read_at(&mut bytes, 0).ok()
    })?;
    parse(std::str::from_utf8(&bytes[..read]).ok()?)
}

/// The first two numbers, in nanoseconds (Linux, Documentation/scheduler/sched-stats.rst).
fn parse(schedstat: &str) -> Option<ProcessorTime> {
    let mut numbers = schedstat
        .split_ascii_whitespace()
        .map(|number| number.parse().ok().map(Duration::from_nanos));
    Some(ProcessorTime {
        ran: numbers.next()??,
        waited: numbers.next()??,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_has_run_for_longer() {
        assert_eq!(
            parse("1500 20 7\n"),
            Some(ProcessorTime {
                ran: Duration::from_nanos(1500),
                waited: Duration::from_nanos(20)
            })
        );
        assert_eq!(parse("many"), None);
        let Some(before) = processor_time() else { return };
        let mut sum = 0_u64;
        while processor_time().is_some_and(|now| now.ran <= before.ran) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
    }
}
