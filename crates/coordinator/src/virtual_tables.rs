//! `system.tablets`: where the tablets of each table are, in ScyllaDB's columns.

use std::sync::Arc;

use schema::Table;
use system_tables::{
    Builder, Content, Definition, Opening, Options, Partitions, Request, Rows, Value, VirtualTable, ready,
};
use topology::{Replica, Stage};
use types::{CollectionBuilder, TupleBuilder};

use crate::{ClusterView, Coordinator, Route, paxos_state_of};

static TABLETS: Definition = Definition {
    keyspace: "system",
    cql: "tablets (table_id uuid, last_token bigint, keyspace_name text, table_name text, tablet_count int, \
     replicas frozen<list<frozen<tuple<uuid, int>>>>, new_replicas frozen<list<frozen<tuple<uuid, int>>>>, stage text, \
     PRIMARY KEY (table_id, last_token))",
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
        let view = Coordinator::local().view();
        let tables = request.schema.keyspaces.values().flat_map(|k| k.tables.values());
        let wanted = tables.filter(|table| request.wanted.includes(table.id.0.as_bytes()));
        let with_tablets = wanted.filter_map(|table| {
            let route = view.route(table.id).filter(|route| route.has_own_tablets)?;
            Some((table.clone(), route.clone()))
        });
        let tables = with_tablets.collect();
        ready(TabletsContent { view, tables })
    }
}

struct TabletsContent {
    view: Arc<ClusterView>,
    /// Those that the read wants.
    tables: Vec<(Arc<Table>, Arc<Route>)>,
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
            rows.push(&[
                ("table_id", Value::Uuid(table.id.0)),
                ("last_token", Value::BigInt(last.0)),
                ("keyspace_name", Value::Text(&table.keyspace)),
                ("table_name", Value::Text(&table.name)),
                ("tablet_count", Value::count(route.map.tablet_count())),
                ("replicas", Value::Blob(&replicas)),
                ("new_replicas", next.as_deref().map_or(Value::Null, Value::Blob)),
                ("stage", Value::text(stage)),
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
