//! What the operating system says of this process: memory, processor time, open files.

use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, io};

use crate::clock;
use crate::sim::world::is_simulated;

/// What a process uses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Process {
    /// Bytes of memory that are in RAM.
    pub resident_bytes: u64,
    /// Processor time of all threads since the start, the kernel's part included.
    pub cpu_time: Duration,
    /// Open file descriptors, those of sockets included.
    pub open_files: u64,
    /// The most that it may have open.
    pub open_files_max: u64,
}

/// The most files that this process may have open; None in the simulator, where many nodes share one process.
#[must_use]
pub fn open_files_max() -> Option<u64> {
    (!is_simulated()).then(|| open_files_limit().rlim_cur)
}

fn open_files_limit() -> libc::rlimit {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the kernel writes one rlimit, to a place that lives through the call.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(code, 0, "every Linux has this limit");
    limit
}

/// What this process uses now; zeros in the simulator, where many nodes share one. Blocks: it lists `/proc/self/fd`.
///
/// # Errors
/// When `/proc` is not there or says something else than expected; the text names the file.
pub fn process() -> io::Result<Process> {
    if is_simulated() {
        return Ok(Process::default());
    }
    // The descriptor by which the directory is listed is not counted.
    let open_files = fs::read_dir("/proc/self/fd")?.count().saturating_sub(1) as u64;
    Ok(Process {
        resident_bytes: resident_pages(&fs::read_to_string("/proc/self/statm")?)? * page_bytes(),
        cpu_time: clock::process_cpu_time(),
        open_files,
        open_files_max: open_files_limit().rlim_cur,
    })
}

/// Has this process use memory in pages of the usual size only, from now on. A page of two megabytes is cleared as a
/// whole when its first byte is written, by the thread that writes: 0.1 ms, and some milliseconds in a virtual machine
/// whose host has to find the memory. Requests of a shard wait for that.
pub fn refuse_huge_pages() {
    let (on, unused): (libc::c_ulong, libc::c_ulong) = (1, 0);
    // SAFETY: plain numbers.
    let code = unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, on, unused, unused, unused) };
    if code != 0 {
        log::debug!("runtime: memory may come in huge pages: {}", io::Error::last_os_error());
    }
}

/// How the allocator of this process is made to give memory back to the system.
#[derive(Clone, Copy, Debug)]
pub struct MemoryCollector {
    /// Takes back what the calling thread keeps of what it freed. Takes microseconds.
    pub of_thread: fn(),
    /// Gives to the system what all threads have freed. May take milliseconds.
    pub of_process: fn(),
}

static MEMORY_COLLECTOR: OnceLock<MemoryCollector> = OnceLock::new();

/// Sets how the allocator of this process is made to give memory back that its threads have freed. Allocators do so
/// themselves while much is allocated; a thread that allocates little keeps what it freed. Only the first call counts.
pub fn set_memory_collector(collector: MemoryCollector) {
    // The first one stays.
    let _ = MEMORY_COLLECTOR.set(collector);
}

/// What [`set_memory_collector`] set; None in simulations, and in processes whose allocator needs none.
#[must_use]
pub fn memory_collector() -> Option<MemoryCollector> {
    MEMORY_COLLECTOR.get().copied().filter(|_| !is_simulated())
}

/// The second number of `/proc/self/statm`.
fn resident_pages(statm: &str) -> io::Result<u64> {
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok());
    pages.ok_or_else(|| {
        let reason = format!(
            "/proc/self/statm: expected numbers of pages, got '{}'",
            statm.trim_end()
        );
        io::Error::new(io::ErrorKind::InvalidData, reason)
    })
}

fn page_bytes() -> u64 {
    // SAFETY: sysconf reads a constant of the system.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(bytes).expect("every Linux has a page size")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_files_and_has_used_a_processor() {
        let file = fs::File::open("/proc/self/statm").expect("/proc is there");
        let before = process().expect("/proc is there");
        assert!(before.resident_bytes >= 1 << 16, "{before:?}");
        assert!(before.cpu_time > Duration::ZERO, "{before:?}");
        assert!(
            before.open_files >= 1 && before.open_files <= before.open_files_max,
            "{before:?}"
        );
        drop(file);
    }

    #[test]
    fn what_statm_does_not_say_is_an_error_that_names_it() {
        assert_eq!(resident_pages("100 25 3 4 0 6 0\n").expect("the second number"), 25);
        for damaged in ["", "100", "100 many 3"] {
            let error = resident_pages(damaged).expect_err("no number of pages").to_string();
            assert!(error.contains("/proc/self/statm"), "{error}");
        }
    }
}
