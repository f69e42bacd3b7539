//! `system.size_estimates` and `system.table_estimates`: how many partitions this node has of each range of tokens that it is the first replica of, and how
//! large they are. Tools that read whole tables, such as Spark connectors, cut their work by it.
//!
//! Sstables say how many partitions they have between their first and last token, memtables how many of their tablet; both are taken to be spread evenly.
//! A partition that several of them have counts for each, as in Cassandra.

use std::rc::Rc;

use query::Engine;
use schema::TableId;
use system_tables::Request;
use topology::Boundaries;
use types::Token;

use super::measured::{ByTable, Cell, Row};
use crate::follow::on_all_shards;

/// Partitions of some tokens of a table.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Piece {
    /// Inclusive.
    first: i64,
    /// Inclusive.
    last: i64,
    partitions: u64,
    /// Bytes of all of them.
    bytes: u64,
}

impl Piece {
    /// How many partitions, and how many bytes of them, have tokens above `after` up to `to`.
    #[expect(clippy::cast_precision_loss, reason = "estimates")]
    fn within(&self, after: i64, to: i64) -> (f64, f64) {
        let width = |first: i128, last: i128| (last - first + 1).max(0);
        let (first, last) = (i128::from(self.first), i128::from(self.last));
        let whole = width(first, last).max(1);
        let above = match after {
            i64::MIN => i128::from(i64::MIN),
            after => i128::from(after) + 1,
        };
        let part = width(first.max(above), last.min(i128::from(to)));
        let share = part as f64 / whole as f64;
        (self.partitions as f64 * share, self.bytes as f64 * share)
    }
}

/// This shard's pieces of these tables.
fn pieces_here(engine: &Engine, tables: &[TableId]) -> ByTable<Piece> {
    let mut pieces: ByTable<Piece> = ByTable::new();
    for id in tables {
        let Some(store) = engine.shard.store(*id) else {
            continue;
        };
        let of_table = pieces.entry(*id).or_default();
        for tablet in store.tablets().iter() {
            let range = tablet.range;
            tablet.with_version(|version| {
                for reader in &version.sstables {
                    let meta = reader.meta();
                    of_table.push(Piece {
                        first: meta.first_token.0,
                        last: meta.last_token.0,
                        partitions: meta.partitions,
                        bytes: meta.data_len,
                    });
                }
                let mut of_memtable = |memtable: &memtable::Memtable, share: &dyn Fn(u64) -> u64| {
                    if !memtable.is_empty() {
                        of_table.push(Piece {
                            first: range.after.0.saturating_add(1),
                            last: range.to.0,
                            partitions: share(memtable.partition_count() as u64),
                            bytes: share(memtable.used_bytes() as u64),
                        });
                    }
                };
                of_memtable(&version.active.borrow(), &|all| all);
                for frozen in &version.frozen {
                    of_memtable(&frozen.memtable, &|all| frozen.share(all));
                }
            });
        }
    }
    pieces
}

/// The ranges of a table that this node is the first replica of: exclusive start, inclusive end. On the token ring, neighbours are one.
fn primary_ranges(engine: &Engine, table: TableId) -> Vec<(Token, Token)> {
    let view = engine.coordinator.view();
    let Some(route) = view.route(table) else {
        return Vec::new();
    };
    let is_ring = matches!(route.map.boundaries(), Boundaries::LastTokens(_));
    let mut ranges: Vec<(Token, Token)> = Vec::new();
    for tablet in route.map.tablets() {
        let is_first = tablet.replicas.first().is_some_and(|replica| replica.node == view.me);
        let Some((after, to)) = route.map.token_range(tablet.id).filter(|_| is_first) else {
            continue;
        };
        match ranges.last_mut() {
            Some(last) if is_ring && last.1 == after => last.1 = to,
            _ => ranges.push((after, to)),
        }
    }
    ranges
}

/// Rows of the tables whose keyspaces the request wants: one for each range and each type of range.
pub(super) async fn gather(request: Request, types: &'static [Option<&'static str>]) -> Vec<Row> {
    let engine = Engine::local();
    let keyspaces = request.schema.keyspaces.values();
    let wanted = keyspaces.filter(|keyspace| request.wanted.includes(keyspace.name.as_bytes()));
    let tables: Vec<_> = wanted.flat_map(|keyspace| keyspace.tables.values().cloned()).collect();
    let ids: Vec<TableId> = tables.iter().map(|table| table.id).collect();
    let mut pieces: ByTable<Piece> = ByTable::new();
    let of_shard = async move |engine: Rc<Engine>| pieces_here(&engine, &ids);
    for part in on_all_shards(of_shard).await {
        for (table, part) in part {
            pieces.entry(table).or_default().extend(part);
        }
    }
    let mut rows = Vec::new();
    for table in tables {
        let pieces = pieces.remove(&table.id).unwrap_or_default();
        for (after, to) in primary_ranges(&engine, table.id) {
            let (partitions, mean) = estimate(&pieces, after.0, to.0);
            for range_type in types {
                let mut row: Row = vec![
                    ("keyspace_name", Cell::text(&*table.keyspace)),
                    ("table_name", Cell::text(&*table.name)),
                ];
                row.extend(range_type.map(|name| ("range_type", Cell::text(name))));
                row.extend([
                    ("range_start", Cell::text(after.0.to_string())),
                    ("range_end", Cell::text(to.0.to_string())),
                    ("mean_partition_size", Cell::count(mean)),
                    ("partitions_count", Cell::count(partitions)),
                ]);
                rows.push(row);
            }
        }
    }
    rows
}

/// How many partitions there are about of a range, and how many bytes one has in the mean.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates; float casts saturate"
)]
fn estimate(pieces: &[Piece], after: i64, to: i64) -> (u64, u64) {
    let (mut partitions, mut bytes) = (0.0, 0.0);
    for piece in pieces {
        let (its_partitions, its_bytes) = piece.within(after, to);
        partitions += its_partitions;
        bytes += its_bytes;
    }
    let mean = if partitions > 0.0 { bytes / partitions } else { 0.0 };
    (partitions.round() as u64, mean.round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_taken_to_be_spread_evenly() {
        let piece = |first, last, partitions, bytes| Piece {
            first,
            last,
            partitions,
            bytes,
        };
        let all = [piece(i64::MIN, i64::MAX, 1000, 50_000)];
        assert_eq!(estimate(&all, i64::MIN, i64::MAX), (1000, 50));
        assert_eq!(estimate(&all, i64::MIN, -1), (500, 50));
        let half = [piece(0, 99, 100, 1000), piece(50, 149, 100, 3000)];
        assert_eq!(
            estimate(&half, i64::MIN, 49),
            (50, 10),
            "the second begins behind the range"
        );
        assert_eq!(estimate(&half, 49, i64::MAX), (150, 23));
        assert_eq!(estimate(&half, 150, i64::MAX), (0, 0), "nothing is there");
        assert_eq!(estimate(&[], i64::MIN, i64::MAX), (0, 0));
        let one = [piece(7, 7, 1, 30)];
        assert_eq!(
            estimate(&one, 6, 7),
            (1, 30),
            "a range begins behind its start and ends with its end"
        );
        assert_eq!(estimate(&one, 7, 8), (0, 0));
    }
}
