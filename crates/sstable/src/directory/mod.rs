//! The directory of a table's sstables: names, generations, marks, and files that come and go together.

pub(crate) mod adopt;
pub(crate) mod component;
pub(crate) mod generation;
pub(crate) mod named;
pub(crate) mod quarantine;
pub(crate) mod repaired;
