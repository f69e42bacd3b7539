//! Which processors a thread may run on. A new thread inherits the processors of the one that started it, so threads
//! that a pinned shard starts must be given back what the process had.

use std::io;

/// A set of processors.
#[derive(Clone, Copy)]
pub(crate) struct Processors(libc::cpu_set_t);

impl Processors {
    /// One processor.
    pub(crate) fn only(cpu: usize) -> io::Result<Self> {
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("processor {cpu} does not exist"),
            ));
        }
        let mut set = Self::empty();
        // SAFETY: `cpu` is below CPU_SETSIZE, so the bit is inside the set.
        unsafe { libc::CPU_SET(cpu, &mut set.0) };
        Ok(set)
    }

    /// Those of the calling thread.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        let mut set = Self::empty();
        // SAFETY: pid 0 is the calling thread; the set and its size are those of the local.
        let result = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set.0) };
        if result == 0 {
            Ok(set)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// From now on the calling thread runs only on these.
    pub(crate) fn bind_this_thread(&self) -> io::Result<()> {
        // SAFETY: pid 0 is the calling thread; the set and its size are those of the field.
        let result = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const self.0) };
        if result == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    fn empty() -> Self {
        // SAFETY: an all-zero cpu_set_t is the empty set.
        Self(unsafe { std::mem::zeroed() })
    }
}
