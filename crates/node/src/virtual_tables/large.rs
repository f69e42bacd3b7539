//! `system.large_partitions`, `large_rows` and `large_cells`, with the columns of ScyllaDB: what the sstables of this
//! node have that is larger than the thresholds of the configuration were when they were written.

use std::rc::Rc;

use query::Engine;
use schema::{Table, components};
use sstable::{LargeEntry, LargeKind};
use system_tables::Builder;

use super::measured::{Cell, Row, add};
use crate::follow::on_all_shards;
use crate::operator::key_text;

const LARGE_PARTITIONS: &str = "large_partitions (keyspace_name text, table_name text, sstable_name text, partition_size bigint, \
     partition_key text, compaction_time timestamp, dead_rows bigint, range_tombstones bigint, rows bigint, \
     PRIMARY KEY ((keyspace_name, table_name), sstable_name, partition_size DESC, partition_key))";
const LARGE_ROWS: &str = "large_rows (keyspace_name text, table_name text, sstable_name text, row_size bigint, partition_key text, \
     clustering_key text, compaction_time timestamp, \
     PRIMARY KEY ((keyspace_name, table_name), sstable_name, row_size DESC, partition_key, clustering_key))";
const LARGE_CELLS: &str = "large_cells (keyspace_name text, table_name text, sstable_name text, cell_size bigint, partition_key text, \
     clustering_key text, column_name text, collection_elements bigint, compaction_time timestamp, \
     PRIMARY KEY ((keyspace_name, table_name), sstable_name, cell_size DESC, partition_key, clustering_key, column_name))";

pub(super) fn register(tables: &mut Builder) {
    add(tables, "system", 2, LARGE_PARTITIONS, |_| {
        Box::pin(large(|kind| matches!(kind, LargeKind::Partition { .. })))
    });
    add(tables, "system", 2, LARGE_ROWS, |_| {
        Box::pin(large(|kind| *kind == LargeKind::Row))
    });
    add(tables, "system", 2, LARGE_CELLS, |_| {
        Box::pin(large(|kind| matches!(kind, LargeKind::Cell { .. })))
    });
}

async fn large(is_wanted: fn(&LargeKind) -> bool) -> Vec<Row> {
    let of_shard = async move |engine: Rc<Engine>| {
        let mut rows = Vec::new();
        for store in engine.coordinator.context.shard.stores() {
            let table = store.table();
            for tablet in store.tablets().iter() {
                tablet.with_version(|version| {
                    for reader in &version.sstables {
                        let (meta, large) = (reader.meta(), &reader.meta().large);
                        let name = meta.descriptor.path(sstable::Component::Data);
                        let name = name
                            .file_name()
                            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                        let wanted = large.entries.iter().filter(|entry| is_wanted(&entry.kind));
                        rows.extend(wanted.map(|entry| row(&table, &name, large.written_at, entry)));
                    }
                });
            }
        }
        rows
    };
    on_all_shards(of_shard).await.into_iter().flatten().collect()
}

fn row(table: &Table, sstable: &str, written_at: u64, entry: &LargeEntry) -> Row {
    let clustering = || {
        let values = components(&entry.clustering).zip(table.clustering());
        let values: Vec<String> = values
            .map(|(value, column)| {
                value.map_or_else(|| "null".to_owned(), |value| column.cql_type.format_unquoted(value))
            })
            .collect();
        ("clustering_key", Cell::text(values.join(":")))
    };
    let size = Cell::count(entry.bytes);
    let key = ("partition_key", Cell::text(key_text(table, &entry.key)));
    let written = (
        "compaction_time",
        Cell::Timestamp(i64::try_from(written_at).unwrap_or(0) * 1000),
    );
    let mut row = vec![
        ("keyspace_name", Cell::text(&*table.keyspace)),
        ("table_name", Cell::text(&*table.name)),
        ("sstable_name", Cell::text(sstable)),
    ];
    match &entry.kind {
        LargeKind::Partition {
            rows,
            range_tombstones,
            dead_rows,
        } => row.extend([
            ("partition_size", size),
            key,
            written,
            ("dead_rows", Cell::count(*dead_rows)),
            ("range_tombstones", Cell::count(*range_tombstones)),
            ("rows", Cell::count(*rows)),
        ]),
        LargeKind::Row => row.extend([("row_size", size), key, clustering(), written]),
        LargeKind::Cell { column, elements } => row.extend([
            ("cell_size", size),
            key,
            clustering(),
            ("column_name", Cell::text(&**column)),
            ("collection_elements", Cell::count(*elements)),
            written,
        ]),
    }
    row
}
