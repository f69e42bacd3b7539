//! `system.size_estimates` and `system.table_estimates`: how many partitions this node has of each range of tokens that
//! it is the first replica of, and how large they are. Tools that read whole tables, such as Spark connectors, cut
//! their work by it.
//!
//! Sstables say how many partitions they have between their first and last token, memtables how many of their tablet;
//! both are taken to be spread evenly over the tokens in between that this node has a copy of. On the token ring these
//! are far fewer than all: with one copy on three nodes, a third. A partition that several of them have counts for
//! each, as in Cassandra. What is estimated for the ranges of the node adds up: a fraction of a partition is carried to
//! the next range, and where there is anything at all, the node has at least one.

use std::rc::Rc;

use query::Engine;
use schema::TableId;
use system_tables::Request;
use topology::Boundaries;

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

/// Tokens above the first up to the second.
type Range = (i64, i64);

impl Piece {
    /// How many of its tokens are in a range.
    fn tokens_in(&self, (after, to): Range) -> i128 {
        let above = match after {
            i64::MIN => i128::from(i64::MIN),
            after => i128::from(after) + 1,
        };
        let (first, last) = (i128::from(self.first), i128::from(self.last));
        (last.min(i128::from(to)) - first.max(above) + 1).max(0)
    }
}

/// This shard's pieces of these tables.
fn pieces_here(engine: &Engine, tables: &[TableId]) -> ByTable<Piece> {
    let mut pieces: ByTable<Piece> = ByTable::new();
    for id in tables {
        let Some(store) = engine.coordinator.context.shard.store(*id) else {
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

/// The ranges of a table that this node has.
#[derive(Default)]
struct Ranges {
    /// Those that it is the first replica of.
    primary: Vec<Range>,
    /// Those that it is any replica of.
    held: Vec<Range>,
}

/// On the token ring, neighbours are one range.
fn ranges(engine: &Engine, table: TableId) -> Ranges {
    let view = engine.coordinator.context.view();
    let mut ranges = Ranges::default();
    let Some(route) = view.route(table) else {
        return ranges;
    };
    let is_ring = matches!(route.map.boundaries(), Boundaries::LastTokens(_));
    let add = |ranges: &mut Vec<Range>, after: i64, to: i64| match ranges.last_mut() {
        Some(last) if is_ring && last.1 == after => last.1 = to,
        _ => ranges.push((after, to)),
    };
    for tablet in route.map.tablets() {
        let here = tablet.replicas.iter().position(|replica| replica.node == view.me);
        let (Some(position), Some((after, to))) = (here, route.map.token_range(tablet.id)) else {
            continue;
        };
        add(&mut ranges.held, after.0, to.0);
        if position == 0 {
            add(&mut ranges.primary, after.0, to.0);
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
        let ranges = ranges(&engine, table.id);
        let estimates = estimate(&pieces, &ranges);
        for ((after, to), (partitions, mean)) in ranges.primary.into_iter().zip(estimates) {
            for range_type in types {
                let mut row: Row = vec![
                    ("keyspace_name", Cell::text(&*table.keyspace)),
                    ("table_name", Cell::text(&*table.name)),
                ];
                row.extend(range_type.map(|name| ("range_type", Cell::text(name))));
                row.extend([
                    ("range_start", Cell::text(after.to_string())),
                    ("range_end", Cell::text(to.to_string())),
                    ("mean_partition_size", Cell::count(mean)),
                    ("partitions_count", Cell::count(partitions)),
                ]);
                rows.push(row);
            }
        }
    }
    rows
}

/// For each range that the node is the first replica of: how many partitions there are about, and how many bytes one
/// has in the mean.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "estimates; float casts saturate"
)]
fn estimate(pieces: &[Piece], ranges: &Ranges) -> Vec<(u64, u64)> {
    let held: Vec<i128> = pieces
        .iter()
        .map(|piece| ranges.held.iter().map(|range| piece.tokens_in(*range)).sum())
        .collect();
    let within = |range: Range| {
        let (mut partitions, mut bytes) = (0.0, 0.0);
        for (piece, held) in pieces.iter().zip(&held) {
            let share = piece.tokens_in(range) as f64 / (*held).max(1) as f64;
            partitions += piece.partitions as f64 * share;
            bytes += piece.bytes as f64 * share;
        }
        (partitions, bytes)
    };
    let exact: Vec<(f64, f64)> = ranges.primary.iter().map(|range| within(*range)).collect();
    let sum: f64 = exact.iter().map(|(partitions, _)| partitions).sum();
    // A sum that rounds to nothing is shown as one partition.
    let scale = if sum > 0.0 { sum.max(1.0) / sum } else { 0.0 };
    let (mut before, mut counted) = (0.0, 0);
    let mut rounded = Vec::with_capacity(exact.len());
    for (partitions, bytes) in exact {
        before += partitions * scale;
        // Of the sum so far, so that the error of one range does not add to that of the next.
        let up_to_here = before.round() as u64;
        let mean = if partitions > 0.0 { bytes / partitions } else { 0.0 };
        rounded.push((up_to_here.saturating_sub(counted), mean.round() as u64));
        counted = counted.max(up_to_here);
    }
    rounded
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(first: i64, last: i64, partitions: u64, bytes: u64) -> Piece {
        Piece {
            first,
            last,
            partitions,
            bytes,
        }
    }

    fn primary(pieces: &[Piece], primary: &[Range], held: &[Range]) -> Vec<(u64, u64)> {
        let ranges = Ranges {
            primary: primary.to_vec(),
            held: held.to_vec(),
        };
        estimate(pieces, &ranges)
    }

    const ALL: Range = (i64::MIN, i64::MAX);

    #[test]
    fn partitions_are_taken_to_be_spread_evenly() {
        let of = |pieces: &[Piece], after, to| primary(pieces, &[(after, to)], &[ALL])[0];
        let all = [piece(i64::MIN, i64::MAX, 1000, 50_000)];
        assert_eq!(of(&all, i64::MIN, i64::MAX), (1000, 50));
        assert_eq!(of(&all, i64::MIN, -1), (500, 50));
        let half = [piece(0, 99, 100, 1000), piece(50, 149, 100, 3000)];
        assert_eq!(of(&half, i64::MIN, 49), (50, 10), "the second begins above the range");
        assert_eq!(of(&half, 49, i64::MAX), (150, 23));
        assert_eq!(of(&half, 150, i64::MAX), (0, 0), "nothing is there");
        assert_eq!(of(&[], i64::MIN, i64::MAX), (0, 0));
        let one = [piece(7, 7, 1, 30)];
        assert_eq!(
            of(&one, 6, 7),
            (1, 30),
            "a range excludes its start and includes its end"
        );
        assert_eq!(of(&one, 7, 8), (0, 0));
    }

    /// Three nodes on the token ring, each the first replica of every third of 12 ranges, with 900 partitions in
    /// sstables from end to end: whatever the number of copies, the nodes together count 900.
    #[test]
    fn what_a_node_has_no_copy_of_does_not_thin_out_what_it_has() {
        let ranges: Vec<Range> = (0..12).map(|n| (n * 100, (n + 1) * 100)).collect();
        for copies in 1..=3 {
            let mut counted = 0;
            for node in 0..3 {
                let of_node = |copies: usize| -> Vec<Range> {
                    let is_its_own = |n: usize| (node + 3 - n % 3) % 3 < copies;
                    let all = ranges.iter().enumerate();
                    all.filter(|(n, _)| is_its_own(*n)).map(|(_, range)| *range).collect()
                };
                let pieces = [piece(1, 1200, 300 * copies as u64, 30_000 * copies as u64)];
                let estimates = primary(&pieces, &of_node(1), &of_node(copies));
                assert!(estimates.iter().all(|(_, mean)| *mean == 100), "{estimates:?}");
                counted += estimates.iter().map(|(partitions, _)| partitions).sum::<u64>();
            }
            assert_eq!(counted, 900, "{copies} copies");
        }
    }

    #[test]
    fn the_partitions_of_a_small_table_are_not_rounded_away() {
        let ranges: Vec<Range> = (0..16).map(|n| (n * 10, (n + 1) * 10)).collect();
        let count = |partitions| {
            let estimates = primary(&[piece(1, 160, partitions, 100)], &ranges, &[ALL]);
            estimates.iter().map(|(partitions, _)| partitions).sum::<u64>()
        };
        for partitions in [0, 1, 3, 5, 17] {
            assert_eq!(count(partitions), partitions);
        }
        // A third of the tokens of a single partition: of a range that may have it, it is one.
        assert_eq!(primary(&[piece(1, 300, 1, 60)], &[(0, 100)], &[ALL]), [(1, 60)]);
        assert_eq!(primary(&[piece(1, 300, 1, 60)], &[(300, 400)], &[ALL]), [(0, 0)]);
    }
}
