//! What `ceto sstable` does to files, without a schema: their own header describes them. Blocks.

mod dump;
mod json;
mod verify;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use schema::{Column, ColumnId, ColumnKind, Table, TableId, TableOptions};
use types::CqlType;

pub use dump::dump;
pub use verify::{Report, verify};

use crate::directory::component::{Component, Descriptor};
use crate::error::Error;
use crate::read::reader::Reader;
use crate::statistics::Statistics;

/// A table of which an sstable's header is the schema. Key columns have no names there; they get numbers.
#[must_use]
pub fn table_of(statistics: &Statistics) -> Table {
    let header = &statistics.header;
    let mut columns = Vec::new();
    let mut add = |name: String, cql_type: &CqlType, kind, position: usize, descending| {
        let position = u16::try_from(position).unwrap_or(u16::MAX);
        let cql_type = cql_type.clone();
        columns.push(Column {
            name,
            cql_type,
            kind,
            position,
            descending,
            id: ColumnId(u16::MAX),
        });
    };
    for (i, t) in header.partition_key.iter().enumerate() {
        add(format!("partition key {i}"), t, ColumnKind::PartitionKey, i, false);
    }
    for (i, (t, descending)) in header.clustering.iter().enumerate() {
        add(format!("clustering {i}"), t, ColumnKind::Clustering, i, *descending);
    }
    for (columns, kind) in [
        (&header.statics, ColumnKind::Static),
        (&header.regulars, ColumnKind::Regular),
    ] {
        columns
            .iter()
            .for_each(|c| add(c.name.clone(), &c.cql_type, kind, 0, false));
    }
    Table::new("", "", TableId(uuid::Uuid::nil()), columns, TableOptions::default())
}

/// Opens the sstable that a component's path belongs to.
///
/// # Errors
/// When it is damaged, or of a version that cannot be read.
pub fn open(path: &Path) -> Result<(Arc<Reader>, Table), Error> {
    Reader::open_self_described(&Descriptor::of_path(path)?, table_of)
}

/// What the metadata says, as text for people.
///
/// # Errors
/// When the sstable is damaged, or of a version that cannot be read.
pub fn metadata(path: &Path) -> Result<String, Error> {
    let (reader, _) = open(path)?;
    let meta = reader.meta();
    let s = &*meta.statistics;
    let mut out = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _ = writeln!(out, "{name}: {value}");
    };
    let time = |seconds: u32| match seconds {
        crate::data::header::NO_DELETION_TIME => "none".to_owned(),
        t => format!("{} ({t})", json::seconds(t)),
    };
    let micros = |us: i64| format!("{} ({us})", json::micros(us));
    line("SSTable", &reader.descriptor().path(Component::Data).display());
    line("Version", &meta.descriptor.version.name());
    line("Partitioner", &s.partitioner);
    line("Bloom filter false positive chance", &s.bloom_filter_fp_chance);
    line("Minimum timestamp", &micros(s.min_timestamp));
    line("Maximum timestamp", &micros(s.max_timestamp));
    line("Minimum deletion time", &time(s.min_deletion_time));
    line("Maximum deletion time", &time(s.max_deletion_time));
    line("Minimum ttl", &s.min_ttl);
    line("Maximum ttl", &s.max_ttl);
    let compressor = reader.data.compression().map_or("none", |c| c.compressor.class());
    line("Compressor", &compressor);
    line("Compression ratio", &s.compression_ratio);
    line("Data bytes", &meta.data_len);
    line("Disk bytes", &meta.disk_len);
    line(
        "First token",
        &format!(
            "{} ({})",
            meta.first_token,
            json::key(&s.header.partition_key, &meta.first_key)
        ),
    );
    line(
        "Last token",
        &format!(
            "{} ({})",
            meta.last_token,
            json::key(&s.header.partition_key, &meta.last_key)
        ),
    );
    line("Level", &s.level);
    line("Repaired at", &s.repaired_at);
    line(
        "Originating host id",
        &s.host_id.map_or("none".to_owned(), |id| id.to_string()),
    );
    line("Partitions", &s.partition_size.count());
    line("Rows", &s.rows);
    line("Cells", &s.cells);
    line("Mean partition bytes", &s.partition_size.mean());
    line("Mean cells in a partition", &s.cell_count.mean());
    for (t, n) in s.tombstones.bins() {
        line("Tombstones that drop at", &format!("{}: {n}", json::seconds(t)));
    }
    line(
        "Minimum of the header",
        &format!(
            "timestamp {}, deletion time {}, ttl {}",
            s.header.base.timestamp, s.header.base.deletion_time, s.header.base.ttl
        ),
    );
    line(
        "Partition key",
        &types::partition_key_marshal_name(&s.header.partition_key),
    );
    for (t, descending) in &s.header.clustering {
        line(
            "Clustering column",
            &if *descending {
                t.marshal_name_reversed()
            } else {
                t.marshal_name()
            },
        );
    }
    for c in &s.header.statics {
        line("Static column", &format!("{} {}", c.name, c.cql_type.marshal_name()));
    }
    for c in &s.header.regulars {
        line("Regular column", &format!("{} {}", c.name, c.cql_type.marshal_name()));
    }
    Ok(out)
}
