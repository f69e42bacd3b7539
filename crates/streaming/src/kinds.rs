//! The kinds of tasks of a stream. See docs/dev/tasks.md.

use tasks::{Class, Kind, Module, Origin, Spec, Task};

use replica::kinds::of_range;
use replica::{Shard, TableStore, TokenRange, hull};

/// Data of a tablet copied from other nodes.
pub const STREAM_TABLET: Kind = Kind {
    name: "stream tablet",
    module: Module::Streaming,
    class: Class::Streaming,
    units: "bytes",
    // What was copied is removed, and a later attempt copies it again.
    is_abortable: true,
};

/// Data of a tablet read by another node. It takes no worker: two nodes that copy from each other must not wait for
/// each other.
pub const SERVE_STREAM: Kind = Kind {
    name: "serve stream",
    ..STREAM_TABLET
};

/// What a node has of ranges that it is about to copy, removed.
pub const MAKE_ROOM: Kind = Kind {
    name: "remove former ranges",
    units: "sstables",
    ..STREAM_TABLET
};

/// A task for [`Shard::discard_ranges`].
pub fn make_room(shard: &Shard, store: &TableStore, origin: &Origin) -> Task {
    let spec: Spec = of_range(&MAKE_ROOM, store, TokenRange::ALL, 0);
    shard.tasks().start(spec, origin)
}

/// A task for [`crate::pull`].
pub fn stream_tablet(shard: &Shard, store: &TableStore, ranges: &[TokenRange], origin: &Origin) -> Task {
    let spec: Spec = of_range(&STREAM_TABLET, store, hull(ranges), 0);
    shard.tasks().start(spec, origin)
}
