//! `system.tablets`: where the tablets of each table are, in ScyllaDB's columns.

use coordinator::ClusterView;
use schema::{Schema, Table};
use topology::{Replica, Stage};
use types::{CollectionBuilder, TupleBuilder};

use super::rows::{Field, Rows};

pub(super) fn tablets(rows: &mut Rows<'_>, schema: &Schema, view: &ClusterView) {
    for table in schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
        let route = view.route(table.id).filter(|route| route.has_own_tablets);
        if let Some(route) = route {
            tablets_of(rows, table, view, &route.map);
        }
    }
}

fn tablets_of(rows: &mut Rows<'_>, table: &Table, view: &ClusterView, map: &topology::TabletMap) {
    let count = i32::try_from(map.tablet_count()).unwrap_or(i32::MAX);
    for tablet in map.tablets() {
        let Some((_, last)) = map.token_range(tablet.id) else {
            continue;
        };
        let replicas = list(view, tablet.replicas);
        let next = tablet.transition.map(|t| list(view, &t.next));
        let stage = tablet.transition.map(|t| stage(t.stage));
        rows.push(&[
            ("table_id", Field::Uuid(table.id.0)),
            ("last_token", Field::BigInt(last.0)),
            ("keyspace_name", Field::Text(&table.keyspace)),
            ("table_name", Field::Text(&table.name)),
            ("tablet_count", Field::Int(count)),
            ("replicas", Field::Blob(&replicas)),
            ("new_replicas", next.as_deref().map_or(Field::Null, Field::Blob)),
            ("stage", Field::text(stage)),
        ]);
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
        Stage::Cleanup => "cleanup",
        Stage::CleanupTarget => "cleanup_target",
        Stage::Revert => "revert_migration",
    }
}
