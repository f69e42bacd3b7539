//! What the format BIG has of its own: where partitions are in Data.db, as Index.db and Summary.db say. Everything else
//! is shared with a format that has an index of another kind.

pub(crate) mod index;
pub(crate) mod summary;
