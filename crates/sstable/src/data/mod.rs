//! Data.db: bytes in checked and compressed chunks, and the partitions, rows and cells in them.

pub(crate) mod chunks;
pub(crate) mod clustering;
pub(crate) mod compression;
pub(crate) mod counter;
pub(crate) mod decode;
pub(crate) mod encode;
pub(crate) mod header;
pub(crate) mod window;
