//! The kinds of tasks of a repair. See docs/dev/tasks.md.

use tasks::{Class, Kind, Module, Origin, Task};

use replica::kinds::of_range;
use replica::{Shard, TableStore, TokenRange};

/// Progress of [`REPAIR_RANGE`] at its end.
pub(crate) const UNITS: u64 = 1_000;

/// The replicas of a token range made equal.
pub const REPAIR_RANGE: Kind = Kind {
    name: "repair range",
    module: Module::Repair,
    class: Class::Repair,
    units: "thousandths of the tokens",
    // What was written before is what some replica had.
    is_abortable: true,
};

/// A token range compared for another node. It takes no worker: two nodes that repair with each other must not wait for
/// each other.
pub const SERVE_REPAIR: Kind = Kind {
    name: "serve repair",
    units: "bytes",
    ..REPAIR_RANGE
};

/// A task for [`crate::repair`].
pub fn repair_range(shard: &Shard, store: &TableStore, range: TokenRange, origin: &Origin) -> Task {
    shard
        .tasks()
        .start(of_range(&REPAIR_RANGE, store, range, UNITS), origin)
}
