//! The priority of threads that do background work: jobs, and the files of streams.

use std::io::Error;

/// Nice 10 and the batch policy, for the calling thread only: the shards come first. A kernel that refuses does no
/// harm.
///
/// Under load a thread gets about a tenth of what a shard gets, so its work proceeds. `SCHED_IDLE` would give it a
/// three-hundredth, and a stream would wait for minutes during a load that takes all processors; reads during a
/// movement were no faster with it.
pub(crate) fn lower() {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: pid 0 is the calling thread; the parameters are a valid local.
    let batched = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) };
    // SAFETY: plain numbers; on Linux PRIO_PROCESS with id 0 means the calling thread.
    let niced = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 10) };
    if batched != 0 || niced != 0 {
        log::debug!(
            "runtime: background work runs at normal priority: {}",
            Error::last_os_error()
        );
    }
}
