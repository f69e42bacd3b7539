//! sstable files: the `me` format written, and `mc`, `md`, `me` read.
//!
//! An sstable is an immutable set of component files that hold the partitions of one table in (token, key) order.
//! Nothing here knows which write wins: rows come in and go out as [`mutation::PartitionBlock`]s, converted between the
//! packed row and the format's own encoding.
//!
//! Encoding and decoding work on byte slices and do no I/O; drivers on top feed them:
//! - [`Writer`] and [`BlockingScan`] block, and belong on background threads (flush, compaction, tools);
//! - [`PartitionCursor`] and [`ScanCursor`] are asynchronous, and belong on a shard's thread.
//!
//! A [`Reader`] is shared by all of them. Every byte of Data.db is checked against its checksum when it is read; bytes
//! from a file never panic, whatever they are: damage is an [`Error`] that names the file and the place.

mod adopt;
mod cache;
mod chunks;
mod clustering;
mod component;
mod compression;
mod counter;
mod cursor;
mod decode;
mod encode;
mod error;
mod filter;
#[doc(hidden)]
pub mod fuzz;
mod generation;
mod header;
mod histogram;
mod index;
mod io;
mod large;
mod named;
mod quarantine;
mod reader;
mod repaired;
mod row_memory;
mod scan;
mod statistics;
mod summary;
pub mod tool;
mod window;
mod writer;

pub use adopt::{adopt, move_to};
pub use cache::ChunkCache;
pub use component::{
    Component, Descriptor, Obsolete, Unsealed, Version, delete, list, mark_obsolete, refuse_unreadable, remove_unsealed,
};
pub use compression::{Compression, Compressor};
pub use cursor::PartitionCursor;
pub use error::Error;
pub use generation::{Generation, Generations};
pub use header::{EncodingBase, HeaderColumn, SerializationHeader, kept_columns};
pub use histogram::{EstimatedHistogram, TombstoneHistogram};
pub use large::{
    LargeCounts, LargeData, LargeEntry, LargeKind, LargeThresholds, large_counts, large_thresholds,
    set_large_thresholds,
};
pub use quarantine::{Quarantined, accept, quarantine, quarantined, read_twice};
pub use reader::{Meta, Reader};
pub use repaired::{FileHosts, RepairRecord, mark_repaired, records, remove_record, remove_records, write_record};
pub use scan::{BlockingScan, ScanCursor};
pub use statistics::Statistics;
pub use window::ReadLimits;
pub use writer::{Writer, WriterOptions};
