//! What std lacks: varints, byte cursors, checksums, bounded queues, exact memory accounting.

pub mod bytes;
pub mod crc32c;
pub mod planted;
pub mod probe;
pub mod random;
pub mod vint;
