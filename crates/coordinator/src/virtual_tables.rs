//! `system.tablets`: where the tablets of each table are, in ScyllaDB's columns.

use std::collections::BTreeMap;
use std::sync::Arc;

use replica::TokenRange;
use runtime::ShardId;
use schema::{Table, TableId};
use system_tables::{Builder, Content, Definition, Opening, Options, Partitions, Request, Rows, Value, VirtualTable};
use topology::{Replica, Stage};
use types::{CollectionBuilder, TupleBuilder};

use crate::{ClusterView, Coordinator, Route, paxos_state_of};

static TABLETS: Definition = Definition {
    keyspace: "system",
    cql: "tablets (table_id uuid, last_token bigint, keyspace_name text, table_name text, tablet_count int, \
     replicas frozen<list<frozen<tuple<uuid, int>>>>, new_replicas frozen<list<frozen<tuple<uuid, int>>>>, stage text, \
     repair_time timestamp, watermark timestamp, PRIMARY KEY (table_id, last_token))",
    options: Options::USUAL,
};

/// Registers the system tables whose facts the coordinator has, and the tables that acceptors keep.
pub fn register_system_tables(tables: &mut Builder) {
    tables.virtual_table(Arc::new(Tablets));
    tables.local_beside_user_tables(paxos_state_of);
}

/// `system.tablets`. A partition is a table.
struct Tablets;

impl VirtualTable for Tablets {
    fn definition(&self) -> &'static Definition {
        &TABLETS
    }

    fn open(&self, request: Request) -> Opening<'_> {
        let view = Coordinator::local().context.view();
        let tables = request.schema.keyspaces.values().flat_map(|k| k.tables.values());
        let wanted = tables.filter(|table| request.wanted.includes(table.id.0.as_bytes()));
        let with_tablets = wanted.filter_map(|table| {
            let route = view.route(table.id).filter(|route| route.has_own_tablets)?;
            Some((table.clone(), route.clone()))
        });
        let tables: Vec<(Arc<Table>, Arc<Route>)> = with_tablets.collect();
        Box::pin(async move {
            let times = times_of(&view, &tables).await;
            let content: Box<dyn Content> = Box::new(TabletsContent { view, tables, times });
            content
        })
    }
}

/// Up to when the replicas of a tablet are known to be equal, seconds.
#[derive(Clone, Copy, Default)]
struct Times {
    /// By a repair; 0: this node knows of none.
    repaired: u32,
    /// By repairs and reports; 0: unknown.
    watermark: u32,
}

/// By table and last token, for tablets of which this node has a replica.
type AllTimes = BTreeMap<(TableId, i64), Times>;

async fn times_of(view: &Arc<ClusterView>, tables: &[(Arc<Table>, Arc<Route>)]) -> AllTimes {
    let mut by_shard: BTreeMap<u16, Vec<(TableId, TokenRange)>> = BTreeMap::new();
    for (table, route) in tables {
        for tablet in route.map.tablets() {
            let mine = tablet.read_replicas().iter().find(|replica| replica.node == view.me);
            if let Some((replica, (after, to))) = mine.zip(route.map.token_range(tablet.id)) {
                let range = TokenRange { after, to };
                by_shard.entry(replica.shard).or_default().push((table.id, range));
            }
        }
    }
    let asked: Vec<_> = by_shard
        .into_iter()
        .map(|(shard, ranges)| {
            runtime::submit_to(ShardId(u32::from(shard)), move || {
                let shard = &Coordinator::local().context.shard;
                let of_range = |(table, range): (TableId, TokenRange)| {
                    let hold = shard.tombstone_hold(table, range);
                    let times = Times {
                        repaired: hold.repaired,
                        watermark: hold.watermark,
                    };
                    ((table, range.to.0), times)
                };
                ranges.into_iter().map(of_range).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut times = AllTimes::new();
    for of_shard in asked {
        times.extend(of_shard.await);
    }
    times
}

/// A second that is known: 0 is none, and what has one replica alone has no bound.
fn moment(second: u32) -> Value<'static> {
    match second {
        0 | u32::MAX => Value::Null,
        second => Value::Timestamp(i64::from(second) * 1_000),
    }
}

struct TabletsContent {
    view: Arc<ClusterView>,
    /// Those that the read wants.
    tables: Vec<(Arc<Table>, Arc<Route>)>,
    times: AllTimes,
}

impl Content for TabletsContent {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, (table, _)) in self.tables.iter().enumerate() {
            partitions.add(number, &[Value::Uuid(table.id.0)]);
        }
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        self.tables.iter().position(|(table, _)| table.id.0.as_bytes() == key)
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        let (table, route) = &self.tables[partition];
        for tablet in route.map.tablets() {
            let Some((_, last)) = route.map.token_range(tablet.id) else {
                continue;
            };
            if rows.is_full() {
                return;
            }
            if !rows.wants(&[Value::BigInt(last.0)]) {
                continue;
            }
            let replicas = list(&self.view, tablet.replicas);
            let next = tablet.transition.map(|t| list(&self.view, &t.next));
            let stage = tablet.transition.map(|t| stage(t.stage));
            let times = self.times.get(&(table.id, last.0)).copied().unwrap_or_default();
            rows.push(&[
                ("table_id", Value::Uuid(table.id.0)),
                ("last_token", Value::BigInt(last.0)),
                ("keyspace_name", Value::Text(&table.keyspace)),
                ("table_name", Value::Text(&table.name)),
                ("tablet_count", Value::count(route.map.tablet_count())),
                ("replicas", Value::Blob(&replicas)),
                ("new_replicas", next.as_deref().map_or(Value::Null, Value::Blob)),
                ("stage", Value::text(stage)),
                ("repair_time", moment(times.repaired)),
                ("watermark", moment(times.watermark)),
            ]);
        }
    }
}

/// `list<tuple<uuid, int>>`: host id and shard of each.
fn list(view: &ClusterView, replicas: &[Replica]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut list = CollectionBuilder::new(&mut out);
    for replica in replicas {
        let Some(node) = view.topology.numbered(replica.node) else {
            continue;
        };
        let mut one = Vec::with_capacity(28);
        let mut tuple = TupleBuilder::new(&mut one);
        tuple.push(Some(node.host_id.0.as_bytes()));
        tuple.push(Some(&i32::from(replica.shard).to_be_bytes()));
        list.push(&one);
    }
    list.finish();
    out
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::AllowWriteBothReadOld => "allow_write_both_read_old",
        Stage::WriteBothReadOld => "write_both_read_old",
        Stage::Streaming => "streaming",
        Stage::WriteBothReadNew => "write_both_read_new",
        Stage::UseNew => "use_new",
        Stage::CleanupTarget => "cleanup_target",
    }
}
