//! How many tablets a table is to have, by the options of the table and of its keyspace: docs/dev/tablets.md.

use schema::{Keyspace, TabletOptions};
use topology::{Replication, TABLETS_MAX, Topology, first_tablet_count, tablets_per_shard};

/// A table has no more tablets than give each shard about so many: each costs its shard memory and every scan a step.
const PER_SHARD_MAX: f64 = 1_024.0;
/// Bytes of a unit of `expected_data_size_in_gb`.
const GIB: u64 = 1 << 30;

/// The counts that a table may have: powers of two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TabletCounts {
    /// It is not merged below this.
    pub least: u32,
    /// It is split until it has so many: what the table's own options ask for.
    pub wanted: u32,
    /// It is not split above this, and merged until it has no more.
    pub most: u32,
    /// How many the table or its keyspace asks for.
    asked: u32,
    /// How many the shards have room for.
    room: u32,
}

impl TabletCounts {
    /// The counts that the options of a table and of its keyspace result in. `bytes_goal` is the usual size of a
    /// tablet; 0 where it is not known.
    #[must_use]
    pub fn of(
        topology: &Topology,
        replication: Option<&Replication>,
        keyspace: Option<&Keyspace>,
        options: Option<&TabletOptions>,
        bytes_goal: u64,
    ) -> Self {
        let initial = keyspace.and_then(|keyspace| keyspace.tablets.as_ref()?.get("initial"));
        let initial: u32 = initial.and_then(|initial| initial.parse().ok()).unwrap_or(0);
        let options = options.copied().unwrap_or_default();
        let per_shard = options.min_per_shard_tablet_count.zip(replication);
        let per_shard = per_shard.and_then(|(goal, replication)| tablets_per_shard(topology, replication, goal).ok());
        let by_size = options.expected_data_size_in_gb.map(|size| {
            let tablets = (u64::from(size) * GIB).checked_div(bytes_goal).unwrap_or(0);
            u32::try_from(tablets).unwrap_or(u32::MAX)
        });
        let of_options = [options.min_tablet_count, per_shard, by_size];
        let of_options = of_options.into_iter().flatten().max().unwrap_or(0);
        let room = replication.and_then(|replication| tablets_per_shard(topology, replication, PER_SHARD_MAX).ok());
        let room = room.unwrap_or(TABLETS_MAX);
        let most = options.max_tablet_count.unwrap_or(TABLETS_MAX).clamp(1, TABLETS_MAX);
        let most = 1 << most.ilog2();
        let power = |count: u32| count.min(room).next_power_of_two().min(most);
        let asked = initial.max(of_options);
        Self {
            least: power(asked),
            wanted: power(of_options),
            most,
            asked,
            room,
        }
    }

    /// The warning for a user that asks for more tablets than the shards have room for: the table has fewer until there
    /// are more shards. None if there is room.
    #[must_use]
    pub fn warning(&self, of: &str) -> Option<String> {
        let asked = self
            .asked
            .checked_next_power_of_two()
            .unwrap_or(u32::MAX)
            .min(self.most);
        (asked > self.room).then(|| {
            format!(
                "The options of tablets of {of} ask for {asked} tablets; with the shards that the cluster has there are at most {}, about {PER_SHARD_MAX} for each",
                self.room
            )
        })
    }

    /// How many tablets a new table gets; None where none can be placed.
    #[must_use]
    pub fn first(&self, topology: &Topology, replication: &Replication) -> Option<u32> {
        let given = (self.asked > 0).then_some(self.least);
        let count = first_tablet_count(topology, replication, given).ok()?;
        Some(count.min(self.most))
    }
}
