//! Tasks: the long work of a node, such as flushes, compactions and snapshots. See docs/dev/tasks.md.
//!
//! A node has one list of tasks ([`Tasks`]), which its shards share: tasks begin and end rarely, so one mutex serves
//! them. The code that does the work holds a [`Task`]: it reports progress, creates tasks below it, and ends it. The
//! part of it that a background thread needs is [`JobControl`]. Operators read [`Status`], abort tasks, and change the
//! limits of a [`Class`] while its tasks run.
//!
//! Invariants
//! - A task that was created ends exactly once: done, or failed with an error. One that is dropped has failed.
//! - A job has a thread as soon as its class has a worker free on its shard, and no class waits for the workers of
//!   another.
//! - An abort reaches a job that runs, one that waits for a worker, and one that waits for its bandwidth; and every
//!   task below it, also one that is created afterwards.
//! - The list is bounded: tasks that have ended are kept for a time, and at most [`ENDED_MAX`] of them.

mod class;
mod registry;
mod status;
mod task;

pub use class::{Class, ClassStatus, Counts, WORKERS_MAX};
pub use registry::{AbortError, ENDED_MAX, ERROR_BYTES_MAX, TTL_DEFAULT, Tasks, USER_TTL_DEFAULT};
pub use status::{Kind, Module, Origin, Spec, State, Status};
pub use task::{Aborted, JobControl, Meter, Parent, Task, Worker};
