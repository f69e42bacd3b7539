//! What std lacks: varints, byte cursors, checksums, bounded queues, exact memory accounting.

pub mod bytes;
pub mod planted;
pub mod probe;
pub mod vint;
