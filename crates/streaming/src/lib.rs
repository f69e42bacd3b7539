//! Copying what a shard of another node has of a table's token range, as sstable files.
//!
//! The shard that is to have the data, the *target*, calls [`pull`]. It opens a *stream* at each *source*: the source
//! flushes its memtables and puts sealed sstables of the range into `streams/NAME` of the table's directory
//! ([`replica::Shard::export`]). Its answer lists every file with length and checksum. The target reads them in chunks,
//! several in flight, into `incoming/NAME`, checks each file, opens each sstable, and takes all of them into its table
//! in one durable step ([`replica::Shard::adopt_sstables`]). Then both directories go.
//!
//! Invariants
//! - A copy is taken wholly or not at all, and only if each file is as the source listed it.
//! - A copy from before a truncation or a drop of the table, on either node, is not taken.
//! - Each end bounds what a stream holds in memory ([`IN_FLIGHT_BYTES_MAX`]), and each ends alone when the other is
//!   gone.
//! - What a peer sends is checked: it names no file, and its numbers are limits for nothing but its own stream.
//!
//! Writes are not this crate's business: while a stream runs, both ends get them already. [`pull`] may be called again
//! after any failure.
//!
//! Lives on each shard; sees its own shard and the sources that a caller names. See docs/dev/streaming.md.

mod error;
#[doc(hidden)]
pub mod fuzz;
pub mod kinds;
mod manifest;
mod message;
mod pace;
mod receive;
mod source;
mod streams;
mod target;

pub use error::{Refusal, StreamError};
pub use source::{SESSION_IDLE, SESSIONS_MAX, handler};
pub use streams::{StreamMetrics, metrics};
pub use target::{IN_FLIGHT_BYTES_MAX, PART_BYTES, Pulled, PulledFrom, Request, Source, pull};

/// The first verb of this crate.
pub const FIRST_VERB: u16 = 60;
/// The last verb of this crate.
pub const LAST_VERB: u16 = 69;

/// Most bytes of a file that one request reads. An answer of this length goes in parts, between which short answers
/// pass.
pub const CHUNK_BYTES: usize = 2 << 20;
