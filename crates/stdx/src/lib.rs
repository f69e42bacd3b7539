//! What std lacks: varints, byte cursors, checksums, histograms, sizes for people.

pub mod bytes;
pub mod crc32c;
pub mod histogram;
pub mod latencies;
mod long_vec;
mod nearest;
pub mod planted;
pub mod preempt;
pub mod probe;
pub mod random;
pub mod size;
pub mod vint;

pub use long_vec::LongVec;
pub use nearest::nearest;
