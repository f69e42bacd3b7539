//! Secondary indexes of a table, as DDL declared them. See docs/dev/indexes.md.

use std::collections::BTreeMap;

/// An index's number in its table. Never given again, so a file of a dropped index is never taken for one of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IndexId(pub u32);

/// What of its column an index covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndexPart {
    /// The value of a column that is no collection.
    Value,
    /// The keys of a map.
    Keys,
    /// The elements of a list or set, or the values of a map.
    Values,
    /// The pairs of key and value of a map.
    Entries,
    /// The whole of a frozen collection.
    Full,
}

/// As which kind of index it was declared. All of them are local indexes of one form; the kind says which statements
/// they answer, and how they are shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndexKind {
    /// `CREATE INDEX`, or `USING 'legacy_local_table'`.
    Legacy,
    /// `USING 'sai'`.
    Sai,
    /// `USING 'org.apache.cassandra.index.sasi.SASIIndex'`.
    Sasi,
    /// ScyllaDB's `ON t ((pk), c)`.
    Local,
}

/// An index of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// Its number in its table.
    pub id: IndexId,
    /// Its name, which no other index of the keyspace has.
    pub name: String,
    /// The name of the column.
    pub column: String,
    /// What of the column is covered.
    pub part: IndexPart,
    /// As what it was declared.
    pub kind: IndexKind,
    /// WITH OPTIONS, as the statement gave them: without the target and the class.
    pub options: BTreeMap<String, String>,
}
