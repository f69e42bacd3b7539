//! Writing an sstable, and what is noticed of it on the way.

pub(crate) mod large;
pub(crate) mod writer;
