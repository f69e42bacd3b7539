//! An open sstable, and what reads it: one partition by key, or all in order.

pub(crate) mod cache;
pub(crate) mod checksums;
pub(crate) mod cursor;
pub(crate) mod filter;
pub(crate) mod reader;
pub(crate) mod row_memory;
pub(crate) mod scan;
