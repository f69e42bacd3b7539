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

mod big;
mod data;
mod directory;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod io;
mod read;
mod secondary;
mod statistics;
pub mod tool;
mod write;

pub use data::compression::{Compression, Compressor};
pub use data::header::{EncodingBase, HeaderColumn, SerializationHeader, kept_columns};
pub use data::window::ReadLimits;
pub use directory::adopt::{adopt, move_to};
pub use directory::component::{
    Component, Descriptor, Obsolete, Unsealed, Version, delete, list, mark_obsolete, refuse_unreadable, remove_unsealed,
};
pub use directory::generation::{Generation, Generations};
pub use directory::quarantine::{Quarantined, accept, quarantine, quarantined, read_twice};
pub use directory::repaired::{
    FileHosts, RepairRecord, mark_repaired, records, remove_record, remove_records, write_record,
};
pub use error::Error;
pub use read::cache::ChunkCache;
pub use read::cursor::PartitionCursor;

pub use read::reader::{Meta, Reader};
pub use read::scan::{BlockingScan, ScanCursor};
pub use secondary::{IndexCursor, IndexFileStats, build_indexes};
pub use statistics::Statistics;
pub use statistics::histogram::{EstimatedHistogram, TombstoneHistogram};
pub use write::large::{
    LargeCounts, LargeData, LargeEntry, LargeKind, LargeThresholds, large_counts, large_thresholds,
    set_large_thresholds,
};
pub use write::writer::{Writer, WriterOptions};
