//! System tables about secondary indexes, in the columns of Cassandra 5.0.

use std::collections::BTreeSet;
use std::rc::Rc;

use query::Engine;
use schema::{Index, IndexId, IndexKind, IndexPart, Table, TableId};
use system_tables::Builder;
use types::CqlType;

use super::measured::{Cell, Row, add};
use crate::follow::on_all_shards;

const INDEX_INFO: &str =
    "IndexInfo (table_name text, index_name text, value blob, PRIMARY KEY (table_name, index_name))";
const COLUMN_INDEXES: &str = "sai_column_indexes (keyspace_name text, index_name text, analyzer text, column_name text, is_building boolean, \
     is_queryable boolean, is_string boolean, table_name text, PRIMARY KEY (keyspace_name, index_name))";

const SSTABLE_INDEXES: &str = "sai_sstable_indexes (keyspace_name text, index_name text, sstable_name text, cell_count bigint, column_name text, end_token text, \
     format_version text, max_row_id bigint, min_row_id bigint, per_column_disk_size bigint, per_table_disk_size bigint, \
     start_token text, table_name text, PRIMARY KEY (keyspace_name, index_name, sstable_name))";
/// The format of index files, in the column where Cassandra has its own.
const FORMAT: &str = "ceto1";

pub(super) fn register(tables: &mut Builder) {
    add(tables, "system", 1, INDEX_INFO, |_| Box::pin(of_indexes(info)));
    add(tables, "system_views", 1, COLUMN_INDEXES, |_| {
        Box::pin(of_indexes(column_index))
    });
    add(tables, "system_views", 1, SSTABLE_INDEXES, |_| {
        Box::pin(sstable_indexes())
    });
}

/// Indexes of tables.
type Indexes = BTreeSet<(TableId, IndexId)>;

/// The rows of all indexes, each of which is being built on this node or not.
async fn of_indexes(row: impl Fn(&Table, &Index, bool) -> Option<Row>) -> Vec<Row> {
    let of_shard = async |engine: Rc<Engine>| {
        let mut building = Indexes::new();
        for store in engine.coordinator.context.shard.stores() {
            let table = store.table();
            for index in &table.indexes {
                let progress = store.index_progress(index.id);
                if progress.indexed < progress.all {
                    building.insert((table.id, index.id));
                }
            }
        }
        building
    };
    let building: Indexes = on_all_shards(of_shard).await.into_iter().flatten().collect();
    let schema = Engine::local().schema();
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let rows = tables.flat_map(|table| {
        let indexes = table.indexes.iter();
        indexes.filter_map(|index| row(table, index, building.contains(&(table.id, index.id))))
    });
    rows.collect()
}

/// Those that are built. Cassandra names the column with the keyspace `table_name`.
fn info(table: &Table, index: &Index, is_building: bool) -> Option<Row> {
    if is_building {
        return None;
    }
    Some(vec![
        ("table_name", Cell::text(&*table.keyspace)),
        ("index_name", Cell::text(&*index.name)),
        ("value", Cell::Null),
    ])
}

fn column_index(table: &Table, index: &Index, is_building: bool) -> Option<Row> {
    if index.kind != IndexKind::Sai {
        return None;
    }
    let analyzer = analyzer(index);
    Some(vec![
        ("keyspace_name", Cell::text(&*table.keyspace)),
        ("index_name", Cell::text(&*index.name)),
        ("analyzer", Cell::text(analyzer)),
        ("column_name", Cell::text(&*index.column)),
        ("is_building", Cell::Boolean(is_building)),
        ("is_queryable", Cell::Boolean(true)),
        ("is_string", Cell::Boolean(is_string(table, index))),
        ("table_name", Cell::text(&*table.name)),
    ])
}

/// A row for each file of an index with the class SAI. Posting lists name the rows of an sstable by their number, so
/// there is nothing that the indexes of a table share: `per_table_disk_size` is 0.
async fn sstable_indexes() -> Vec<Row> {
    let of_shard = async |engine: Rc<Engine>| {
        let mut rows = Vec::new();
        for store in engine.coordinator.context.shard.stores() {
            let table = store.table();
            for index in table.indexes.iter().filter(|index| index.kind == IndexKind::Sai) {
                for tablet in store.tablets().iter() {
                    tablet.with_version(|version| {
                        rows.extend(
                            version
                                .sstables
                                .iter()
                                .filter_map(|reader| index_file(&table, index, reader)),
                        );
                    });
                }
            }
        }
        rows
    };
    on_all_shards(of_shard).await.into_iter().flatten().collect()
}

fn index_file(table: &Table, index: &Index, reader: &sstable::Reader) -> Option<Row> {
    let (stats, meta) = (reader.index_file_stats(index.id)?, reader.meta());
    let data = meta.descriptor.path(sstable::Component::Data);
    Some(vec![
        ("keyspace_name", Cell::text(&*table.keyspace)),
        ("index_name", Cell::text(&*index.name)),
        ("sstable_name", Cell::text(data.to_string_lossy())),
        ("cell_count", Cell::count(stats.postings)),
        ("column_name", Cell::text(&*index.column)),
        ("end_token", Cell::text(meta.last_token.0.to_string())),
        ("format_version", Cell::text(FORMAT)),
        ("max_row_id", Cell::count(stats.rows.saturating_sub(1))),
        ("min_row_id", Cell::count(0)),
        ("per_column_disk_size", Cell::count(stats.bytes)),
        ("per_table_disk_size", Cell::count(0)),
        ("start_token", Cell::text(meta.first_token.0.to_string())),
        ("table_name", Cell::text(&*table.name)),
    ])
}

/// What SAI makes of a text before it is compared, in Cassandra's words.
fn analyzer(index: &Index) -> String {
    if index.options.is_empty() {
        return "NoOpAnalyzer".to_owned();
    }
    let is_on = |name: &str, usual: bool| {
        let value = index.options.get(name);
        value.map_or(usual, |value| value.eq_ignore_ascii_case("true"))
    };
    format!(
        "NonTokenizingAnalyzer{{caseSensitive={}, normalized={}, ascii={}}}",
        is_on("case_sensitive", true),
        is_on("normalize", false),
        is_on("ascii", false)
    )
}

/// Whether Cassandra keeps the terms of the index as texts: those of texts, and of all that is made of other values.
fn is_string(table: &Table, index: &Index) -> bool {
    let Some(column) = table.column(&index.column) else {
        return false;
    };
    let indexed = match (&column.cql_type, index.part) {
        (CqlType::Map(key, _), IndexPart::Keys) => &**key,
        (CqlType::Map(_, element), IndexPart::Values)
        | (CqlType::List(element) | CqlType::Set(element), IndexPart::Values) => &**element,
        (whole, _) => whole,
    };
    indexed.has_elements() || matches!(indexed, CqlType::Text | CqlType::Ascii | CqlType::Boolean)
}
