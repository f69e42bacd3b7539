//! How tablets are distributed, for operators.

use admin::operator::{Balance, Standing, TableStanding};
use cluster::{BalanceReport, Cluster, Metadata, TableBalance};
use stdx::size;

pub(super) async fn balance(cluster: &Cluster) -> Balance {
    let report = cluster.balance_report().await;
    let metadata = cluster.metadata();
    Balance {
        is_on: metadata.is_balanced,
        moving: metadata.moving().count(),
        standing: report.map(|report| standing(&metadata, report)),
    }
}

fn standing(metadata: &Metadata, report: BalanceReport) -> Standing {
    let off = |deviation: topology::Deviation| [deviation.rack, deviation.node, deviation.shard];
    let table = |stands: &TableBalance| {
        let table = metadata.schema.table_by_id(stands.table)?;
        Some(TableStanding {
            keyspace: table.keyspace.clone(),
            table: table.name.clone(),
            tablets: stands.tablets,
            wanted: stands.wanted,
            least: stands.least,
            average_bytes: stands.average_bytes,
            largest_bytes: stands.largest_bytes,
            hottest: f64::from(stands.hottest),
            waits_for: waits_for(metadata, stands),
        })
    };
    let mut tables: Vec<TableStanding> = report.tables.iter().filter_map(table).collect();
    tables.sort_by(|a, b| (&a.keyspace, &a.table).cmp(&(&b.keyspace, &b.table)));
    Standing {
        tablet_bytes_goal: report.tablet_bytes_goal,
        bytes_off: off(report.bytes),
        load_off: off(report.load),
        lacks: report.lacks,
        tables,
    }
}

/// Why a table does not have as many tablets as it should have.
fn waits_for(metadata: &Metadata, stands: &TableBalance) -> String {
    let map = metadata.tablets.get(&stands.table);
    let moving = map.map_or(0, |map| map.moving().count());
    match stands {
        _ if stands.wanted == stands.tablets => String::new(),
        _ if moving > 0 => format!("{moving} tablets of it that move"),
        TableBalance { uncut: Some(bytes), .. } => {
            format!(
                "nodes to cut its sstables; {} are left on one of them",
                size::text(*bytes)
            )
        }
        _ if stands.wanted < stands.tablets => "pairs of its tablets to be on the same shards".to_owned(),
        _ => "other tablets to be where they should be".to_owned(),
    }
}
