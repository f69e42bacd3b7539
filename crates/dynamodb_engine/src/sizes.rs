//! How many items a table has and their bytes, for DescribeTable: an estimate.
//!
//! This node counts what it has of the table, on all shards: rows and bytes of sstables and memtables. A row that is in
//! several of them counts for each, and deleted rows count until a compaction drops them. Other nodes are not asked:
//! keys are spread over the tokens by their hash, so this node's part of the tokens says how much all have. A node
//! without any replica of the table says 0.
//!
//! Shard 0 keeps the estimates, so that every connection to the node gets the same one, for
//! [`crate::Settings::sizes_validity`].

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use query::Engine;
use runtime::{Instant, ShardId};
use schema::TableId;

use crate::service::Service;

/// Items of a table and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct TableSizes {
    /// Items.
    pub items: u64,
    /// Their bytes, before compression.
    pub bytes: u64,
}

impl TableSizes {
    fn add(&mut self, other: Self) {
        self.items = self.items.saturating_add(other.items);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }

    /// The sizes of the whole, of which these are of `part` tokens.
    fn of_whole(self, part: u128) -> Self {
        let whole = 1_u128 << 64;
        let scale = |count: u64| match part {
            0 => 0,
            part => u64::try_from(u128::from(count).saturating_mul(whole) / part).unwrap_or(u64::MAX),
        };
        Self {
            items: scale(self.items),
            bytes: scale(self.bytes),
        }
    }
}

/// The estimates of shard 0.
#[derive(Default)]
pub(crate) struct KnownSizes(RefCell<BTreeMap<TableId, (Instant, TableSizes)>>);

impl KnownSizes {
    /// An estimate that is not older than this.
    fn get(&self, table: TableId, validity: Duration) -> Option<TableSizes> {
        let known = self.0.borrow();
        let (at, sizes) = known.get(&table)?;
        (at.elapsed() < validity).then_some(*sizes)
    }

    /// Keeps an estimate, and forgets those that have expired.
    fn keep(&self, table: TableId, sizes: TableSizes, validity: Duration) {
        let mut known = self.0.borrow_mut();
        known.retain(|_, (at, _)| at.elapsed() < validity);
        if !validity.is_zero() {
            known.insert(table, (runtime::now(), sizes));
        }
    }
}

/// What this shard has of a table.
fn of_shard(engine: &Engine, table: TableId) -> TableSizes {
    let mut sizes = TableSizes::default();
    let Some(store) = engine.coordinator.context.shard.store(table) else {
        return sizes;
    };
    for tablet in store.tablets().iter() {
        tablet.with_version(|version| {
            for reader in &version.sstables {
                let meta = reader.meta();
                sizes.add(TableSizes {
                    items: meta.statistics.rows,
                    bytes: meta.data_len,
                });
            }
            let active = version.active.borrow();
            if !active.is_empty() {
                sizes.add(TableSizes {
                    items: active.row_count(),
                    bytes: active.used_bytes() as u64,
                });
            }
            for frozen in &version.frozen {
                sizes.add(TableSizes {
                    items: frozen.share(frozen.memtable.row_count()),
                    bytes: frozen.share(frozen.memtable.used_bytes() as u64),
                });
            }
        });
    }
    sizes
}

/// Tokens of the table of which this node has a replica.
fn tokens_here(engine: &Engine, table: TableId) -> u128 {
    let view = engine.coordinator.context.view();
    let Some(route) = view.route(table) else {
        return 0;
    };
    let mut tokens = 0_u128;
    for tablet in route.map.tablets() {
        let is_here = tablet.replicas.iter().any(|replica| replica.node == view.me);
        if let Some((after, to)) = route.map.token_range(tablet.id).filter(|_| is_here) {
            let width = i128::from(to.0) - i128::from(after.0);
            tokens = tokens.saturating_add(u128::try_from(width).unwrap_or(0));
        }
    }
    tokens
}

async fn measure(table: TableId) -> TableSizes {
    let shards: Vec<_> = (0..runtime::shard_count())
        .map(|shard| runtime::submit_to(ShardId(shard), move || of_shard(&Engine::local(), table)))
        .collect();
    let mut sizes = TableSizes::default();
    for shard in shards {
        sizes.add(shard.await);
    }
    sizes.of_whole(tokens_here(&Engine::local(), table))
}

impl Service {
    /// The estimate of a table: the one that shard 0 keeps, if it is still valid.
    pub(crate) async fn table_sizes(self: &Rc<Self>, table: TableId) -> TableSizes {
        let validity = self.settings.sizes_validity;
        runtime::submit_async_to(ShardId(0), move || async move {
            // A shard may serve clients before shard 0 does.
            let keeper = runtime::local::<Self>();
            let known = keeper
                .as_ref()
                .and_then(|keeper| keeper.known_sizes.get(table, validity));
            if let Some(sizes) = known {
                return sizes;
            }
            let sizes = measure(table).await;
            if let Some(keeper) = keeper {
                keeper.known_sizes.keep(table, sizes, validity);
            }
            sizes
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_the_tokens_is_taken_for_the_whole() {
        let here = TableSizes { items: 30, bytes: 900 };
        let quarter = 1_u128 << 62;
        assert_eq!(here.of_whole(1 << 64), here);
        let whole = TableSizes {
            items: 120,
            bytes: 3600,
        };
        assert_eq!(here.of_whole(quarter), whole);
        assert_eq!(here.of_whole(0), TableSizes::default(), "nothing is known");
        let most = TableSizes {
            items: u64::MAX,
            bytes: u64::MAX,
        };
        assert_eq!(most.of_whole(1), most);
    }
}
