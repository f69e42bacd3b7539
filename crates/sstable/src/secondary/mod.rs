//! The files of an sstable's secondary indexes: which of its rows have which terms. See docs/dev/indexes.md.
//!
//! Each index of the table has a file of its own, `CetoIndex_ID.db`, in the format of crate `postings`. It is not in
//! the TOC: an sstable that lacks one is whole, and is *not indexed*. A file that has its name is complete: the writer
//! of an sstable makes it durable before the sstable counts, and the builder of an index renames it when it is.
//!
//! A row's ordinal counts the static row of its partition, if the table has static columns, and the rows before it, in
//! the order of Data.db. Samples lead from an ordinal to the place in Data.db.

mod build;
mod cursor;
mod file;
mod walk;
mod write;

pub use build::build_indexes;
pub use cursor::{IndexCursor, IndexFileStats};
pub(crate) use file::{IndexFiles, index_suffix, is_unfinished_index};
pub(crate) use write::IndexWriters;
