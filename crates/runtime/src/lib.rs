//! The seam to the world: shards, tasks, clock, randomness, files and sockets, in production and simulated.
//!
//! A *shard* is one thread that owns everything its tasks touch: tasks are `!Send`, are polled only by their shard, and
//! cross to another shard only as a message ([`submit_to`]). Each shard runs a loop: groups of tasks by their shares,
//! then what other threads left at its gate, then timers, then the kernel. Three backends implement the same functions;
//! one is chosen at start:
//!
//! - **io_uring**: one ring per shard; a waiting completion is seen by one memory load, so background work gives way at
//!   once;
//! - **epoll** with a small pool for blocking file work, where io_uring is forbidden (most container hosts);
//! - **simulated** ([`sim`]): many nodes, all their shards, disks, clocks and sockets in one thread, driven by one
//!   seed.
//!
//! Invariants:
//! - No code outside this crate asks the operating system for anything.
//! - A buffer handed to the kernel is owned by the operation's slot until the kernel is done with it; dropping a future
//!   is always safe.
//! - A task is woken by a number (gate, generation, slot): cloning a waker costs nothing, and a stale waker wakes no
//!   task.
//! - State that a message finds on its target shard lives in a shard local ([`set_local`]), never in a `thread_local!`,
//!   because simulated shards share one thread.
//! - A panic in a task, message or job of a production node is logged and ends the process; in the simulator it reaches
//!   the test.

#![expect(
    clippy::disallowed_methods,
    reason = "this crate is where clocks, threads, files and sockets of the operating system are allowed"
)]

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("the runtime needs 64-bit Linux: a waker is a 64-bit number, and both backends are Linux interfaces");

mod affinity;
mod belief;
mod blocking;
mod clock;
mod contention;
mod driver;
mod executor;
pub mod fs;
mod gate;
mod group;
mod instructions;
mod mailbox;
pub mod net;
mod os_file;
mod preemptible;
mod priority;
mod process;
mod random;
mod shared_notify;
mod signal;
pub mod sim;
mod spsc;
mod start;
mod stop_point;
mod sync;
mod task;
mod timer;

pub use belief::ClockBelief;
pub use blocking::{jobs_max, offload, offload_background, set_jobs_max, spawn_job};
pub use clock::{
    Instant, believe_clock, clock_offset_us, is_clock_trusted, now, set_wall_clock_wrong_by, steady_clock_us,
    system_clock_us, wall_clock_us,
};
pub use contention::{ProcessorTime, processor_time};
pub use executor::{
    Metrics, ShardId, continue_in, give_way, group, is_preemption_due, local, metrics, set_local, set_start_phase,
    shard, shard_count, should_yield, spawn, spawn_in, try_shard, yield_now,
};
pub use group::Group;
pub use instructions::InstructionCounter;
pub use mailbox::{Submitted, submit_async_to, submit_to};
pub use preemptible::{companion, has_companion, preemptible, preemptible_long, set_companion};
pub use process::{
    MemoryCollector, Process, memory_collector, open_files_max, process, refuse_huge_pages, set_memory_collector,
};
pub use random::{boot_id, random_bytes, random_u64};
pub use shared_notify::{Changed, EndNotify, SharedNotify};
pub use signal::{HangupSignal, TerminateSignal, on_signal_hangup, on_signal_terminate};
pub use start::{Backend, Options, run};
pub use stop_point::{StopPoint, stop_point};
pub use sync::{Notified, Notify, Permit, Semaphore, Signal};
pub use task::JoinHandle;
pub use timer::{Elapsed, Sleep, Timeout, sleep, sleep_until, timeout, timeout_at};
