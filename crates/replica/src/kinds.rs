//! The kinds of tasks that a shard has. See docs/dev/tasks.md.

use tasks::{Class, Kind, Module, Spec};

use crate::tablets::tablet::{TableStore, Tablet, TokenRange};

/// A frozen memtable written as an sstable.
pub const FLUSH: Kind = Kind {
    name: "flush",
    module: Module::Flush,
    class: Class::Flush,
    units: "bytes",
    // Writers wait for its memory, and the log for its segments.
    is_abortable: false,
};

/// Sstables of a tablet merged because the table's strategy chose them.
pub const COMPACTION: Kind = Kind {
    name: "compaction",
    module: Module::Compaction,
    class: Class::Compaction,
    units: "bytes",
    is_abortable: true,
};

/// All sstables merged, on request.
pub const MAJOR_COMPACTION: Kind = Kind {
    name: "major compaction",
    ..COMPACTION
};

/// The files of indexes made for sstables that lack them.
pub const INDEX_BUILD: Kind = Kind {
    name: "index build",
    ..COMPACTION
};

/// Sstables rewritten at a start, because they span tablets.
pub const RESHARD: Kind = Kind {
    name: "reshard",
    module: Module::Compaction,
    class: Class::Reshard,
    units: "bytes",
    // The start waits for it, and the API is not open yet.
    is_abortable: false,
};

/// An sstable cut because its tablet is about to be split.
pub const CUT_AHEAD: Kind = Kind {
    name: "cut ahead of a split",
    ..COMPACTION
};

/// A part of an sstable written for another node.
pub const CUT_SSTABLE: Kind = Kind {
    name: "cut sstable",
    module: Module::Streaming,
    // It has workers of its own: a node that copies to another may wait for that other, which copies from it.
    class: Class::Reshard,
    units: "bytes",
    is_abortable: true,
};

/// Everything that a table holds removed.
pub const TRUNCATE: Kind = Kind {
    name: "truncate",
    module: Module::Truncation,
    class: Class::Maintenance,
    units: "tablets",
    // The cluster has agreed on it.
    is_abortable: false,
};

/// A tablet put on another shard of its node, on request.
pub const MOVE_TABLET: Kind = Kind {
    name: "move tablet",
    module: Module::Tablets,
    class: Class::Maintenance,
    units: "tablets",
    // The cluster agrees on it at once.
    is_abortable: false,
};

/// A table's tablets split, or merged, on request.
pub const RESIZE_TABLE: Kind = Kind {
    name: "resize table",
    units: "tables",
    ..MOVE_TABLET
};

/// What tablets had that left a shard given to those that have them next.
pub const HAND_OVER: Kind = Kind {
    name: "hand over tablets",
    module: Module::Tablets,
    class: Class::Maintenance,
    units: "tables",
    // The cluster has agreed on it.
    is_abortable: false,
};

/// A suspect sstable read to its end, and moved aside if it is damaged.
pub const CHECK_SSTABLE: Kind = Kind {
    name: "check sstable",
    module: Module::Quarantine,
    class: Class::Maintenance,
    units: "sstables",
    // Reads of its tokens may fail until it is known whether it is damaged.
    is_abortable: false,
};

/// Sstables kept under a name.
pub const SNAPSHOT: Kind = Kind {
    name: "snapshot",
    module: Module::Snapshot,
    class: Class::Maintenance,
    units: "tables",
    // Half of one is of no use.
    is_abortable: false,
};

/// A task on this shard's part of a table.
pub(crate) fn of_table(kind: &'static Kind, store: &TableStore, total: u64) -> Spec {
    let table = store.table();
    Spec {
        scope: "table",
        keyspace: table.keyspace.clone(),
        table: table.name.clone(),
        shard: Some(runtime::shard().0),
        total,
        ..Spec::of(kind)
    }
}

/// A task on a tablet. Where its tokens are not all, the entity says which they are.
pub(crate) fn of_tablet(kind: &'static Kind, store: &TableStore, tablet: &Tablet, total: u64) -> Spec {
    of_range(kind, store, tablet.range, total)
}

/// A task on tokens of a table.
pub fn of_range(kind: &'static Kind, store: &TableStore, range: TokenRange, total: u64) -> Spec {
    let (after, to) = (range.after.0, range.to.0);
    Spec {
        scope: "tablet",
        entity: format!("({after}, {to}]"),
        ..of_table(kind, store, total)
    }
}
