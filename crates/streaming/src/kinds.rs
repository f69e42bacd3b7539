//! The kinds of tasks of a stream. See docs/dev/tasks.md.

use tasks::{Class, Kind, Module, Origin, Spec, Task};

use replica::kinds::of_range;
use replica::{Shard, TableStore, TokenRange};

/// Data of a tablet copied from other nodes.
pub const STREAM_TABLET: Kind = Kind {
    name: "stream tablet",
    module: Module::Streaming,
    class: Class::Streaming,
    units: "bytes",
    // What was copied is removed, and a later attempt copies it again.
    is_abortable: true,
};

/// Data of a tablet read by another node. It takes no worker: two nodes that copy from each other must not wait for each other.
pub const SERVE_STREAM: Kind = Kind {
    name: "serve stream",
    ..STREAM_TABLET
};

/// A task for [`crate::pull`].
pub fn stream_tablet(shard: &Shard, store: &TableStore, range: TokenRange, origin: &Origin) -> Task {
    let spec: Spec = of_range(&STREAM_TABLET, store, range, 0);
    shard.tasks().start(spec, origin)
}
