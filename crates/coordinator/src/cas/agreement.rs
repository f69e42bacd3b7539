//! Random partitions on a few replicas: what equal digests promise, and what repairs do.

use std::sync::Arc;

use mutation::compact::{LiveColumn, LiveRow, Purge, compact_block};
use mutation::cut::cut;
use mutation::merge::merge_blocks;
use mutation::row::Shared;
use mutation::{
    Bound, Cell, Liveness, Mutation, MutationBuilder, PartitionBlock, RangeTombstone, RowBuilder, RowView, Tombstone,
};
use replica::split_block;
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use stdx::planted::{Bug, Planted};
use stdx::random::SplitMix64;
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

use crate::message::{difference, unpack_block};
use crate::read::digest::Digest;

const KEY: &[u8] = b"key";
const NOW: u32 = 1_000_000;
const GRACE: i32 = 1_000;
/// What was deleted then may be forgotten, or not.
const OLD: u32 = NOW - 5_000;
const YOUNG: u32 = NOW - 500;

/// `(k blob, c int, s int static, sm map<int, blob> static, a int, m map<int, blob>, e set<blob>, …)`, or with a
/// counter alone.
fn table(has_counter: bool) -> Arc<Table> {
    let column = |(name, cql_type, kind): (&str, &str, ColumnKind)| {
        Column::new(name, CqlType::parse_native(cql_type).expect("a type"), kind)
    };
    let keys = [
        ("k", "blob", ColumnKind::PartitionKey),
        ("c", "int", ColumnKind::Clustering),
    ];
    let regular = [
        ("s", "int", ColumnKind::Static),
        ("sm", "map<int, blob>", ColumnKind::Static),
        ("a", "int", ColumnKind::Regular),
        ("e", "set<blob>", ColumnKind::Regular),
        ("m", "map<int, blob>", ColumnKind::Regular),
    ];
    let columns = if has_counter {
        keys.into_iter()
            .chain([("n", "counter", ColumnKind::Regular)])
            .map(column)
            .collect()
    } else {
        keys.into_iter().chain(regular).map(column).collect()
    };
    let options = TableOptions {
        gc_grace_seconds: GRACE,
        ..TableOptions::default()
    };
    Arc::new(Table::new("ks", "t", TableId(Uuid::from_u128(1)), columns, options))
}

/// How deletions of a case are dated.
#[derive(Clone, Copy, PartialEq)]
enum Age {
    Young,
    Mixed,
}

struct Writer<'t> {
    table: &'t Table,
    chance: SplitMix64,
    age: Age,
}

impl Writer<'_> {
    fn timestamp(&mut self) -> i64 {
        1 + i64::try_from(self.chance.below(8)).expect("small")
    }

    fn deletion_time(&mut self) -> u32 {
        if self.age == Age::Mixed && self.chance.one_in(2) {
            OLD
        } else {
            YOUNG
        }
    }

    fn tombstone(&mut self) -> Tombstone {
        Tombstone {
            timestamp: self.timestamp(),
            deletion_time: self.deletion_time(),
        }
    }

    /// A ttl and when it ends: none, one that has ended, one that has not.
    fn life(&mut self) -> (u32, u32) {
        match self.chance.below(6) {
            0 => (100, self.deletion_time() + 100),
            1 => (10_000, NOW + 5_000),
            _ => (0, 0),
        }
    }

    fn cell<'v>(&mut self, value: &'v [u8]) -> Cell<'v> {
        let timestamp = self.timestamp();
        if self.chance.one_in(4) {
            return Cell {
                timestamp,
                ttl: 0,
                deletion_time: self.deletion_time(),
                dead: true,
                value: &[],
            };
        }
        let (ttl, deletion_time) = self.life();
        Cell {
            timestamp,
            ttl,
            deletion_time,
            dead: false,
            value,
        }
    }

    fn clustering(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let c = i32::try_from(self.chance.below(4)).expect("small");
        schema::push_component(&mut out, &c.to_be_bytes());
        out
    }

    fn row(&mut self, is_static: bool, out: &mut Vec<u8>) {
        let layout = &self.table.layout.clone();
        let timestamp = self.timestamp();
        let shared = Shared {
            timestamp,
            ttl: 0,
            expiry: 0,
        };
        let marker = (!is_static && self.chance.one_in(3)).then(|| {
            let (ttl, expiry) = self.life();
            Liveness { timestamp, ttl, expiry }
        });
        let tombstone = if !is_static && self.chance.one_in(6) {
            self.tombstone()
        } else {
            Tombstone::NONE
        };
        let kind = if is_static {
            ColumnKind::Static
        } else {
            ColumnKind::Regular
        };
        let mut columns: Vec<(usize, bool)> = self
            .table
            .columns
            .iter()
            .filter(|c| c.kind == kind)
            .map(|c| {
                (
                    usize::from(c.id.0),
                    layout.cell(usize::from(c.id.0)) == schema::CellLayout::Complex,
                )
            })
            .collect();
        columns.sort_unstable();
        let mut row = RowBuilder::begin(out, layout, shared, marker, tombstone, true, 8);
        for (id, is_complex) in columns {
            if !self.chance.one_in(2) {
                continue;
            }
            let value = [0, 0, 0, u8::try_from(self.chance.below(3)).expect("small")];
            if !is_complex {
                let cell = self.cell(&value);
                row.cell(id, &cell);
                continue;
            }
            let own = if self.chance.one_in(4) {
                self.tombstone()
            } else {
                Tombstone::NONE
            };
            let paths: Vec<[u8; 4]> = (0..3u8)
                .filter(|_| self.chance.one_in(2))
                .map(|n| [0, 0, 0, n])
                .collect();
            let cells: Vec<Cell<'_>> = paths.iter().map(|_| self.cell(&value)).collect();
            row.complex(id, own, paths.iter().map(|p| &p[..]).zip(cells));
        }
    }

    /// One write as a block.
    fn write(&mut self) -> PartitionBlock {
        let mut out = Vec::new();
        let has_static = self.table.columns.iter().any(|c| c.kind == ColumnKind::Static);
        let mut builder = MutationBuilder::begin(&mut out, self.table.id, KEY);
        match self.chance.below(12) {
            0 => builder.partition_tombstone(self.tombstone()),
            1 | 2 => {
                let (a, b) = (self.clustering(), self.clustering());
                let (low, high) = if a > b { (b, a) } else { (a, b) };
                let tombstone = self.tombstone();
                builder.range_tombstone(&RangeTombstone {
                    start: Bound::before(&low),
                    end: Bound::after(&high),
                    tombstone,
                });
            }
            3 | 4 if has_static => builder.static_row(|out| self.row(true, out)),
            _ => {
                let clustering = self.clustering();
                builder.row(&clustering, |out| self.row(false, out));
            }
        }
        unpack_block(&out, self.table).expect("a whole mutation")
    }
}

/// What a replica has that got these writes.
fn replica<'w>(table: &Table, writes: impl Iterator<Item = &'w PartitionBlock>) -> PartitionBlock {
    let empty = PartitionBlock::new(token_of(KEY), KEY);
    writes.fold(empty, |have, write| merge(table, &[&have, write]))
}

fn merge(table: &Table, blocks: &[&PartitionBlock]) -> PartitionBlock {
    merge_blocks(&table.layout, &table.clustering_order, blocks).expect("one at least")
}

fn digest<'b>(table: &Table, blocks: impl IntoIterator<Item = &'b PartitionBlock>) -> u128 {
    digest_of(table, blocks, false)
}

/// Of blocks in reading order.
fn digest_of<'b>(table: &Table, blocks: impl IntoIterator<Item = &'b PartitionBlock>, is_reversed: bool) -> u128 {
    let mut digest = Digest::new(is_reversed);
    for block in blocks {
        digest.add(table, block, NOW);
    }
    digest.finish(&table.clustering_order, None)
}

/// A value that lives: its clustering key (None for the static row), its column and path (none for a row marker), and
/// what is stored there.
type Shown = (Option<Vec<u8>>, Option<(usize, Vec<u8>)>, Vec<u8>, (i64, u32, u32));

/// What a client sees, with timestamps and expiries, row by row. It does not use the digest: what a digest leaves out
/// must be missed here.
fn shown(table: &Table, block: &PartitionBlock) -> Vec<Shown> {
    let mut all = Vec::new();
    let mut show = |clustering: Option<&[u8]>, row: RowView<'_>, deletion: Tombstone| {
        let live = LiveRow::new(row, &table.layout, deletion, NOW);
        let name = clustering.map(<[u8]>::to_vec);
        if let Some(marker) = row.marker.filter(|_| live.has_live_marker()) {
            let times = (marker.timestamp, marker.ttl, marker.expiry);
            all.push((name.clone(), None, Vec::new(), times));
        }
        for (id, column) in live.columns() {
            let mut push = |path: &[u8], cell: &Cell<'_>| {
                let times = (cell.timestamp, cell.ttl, cell.deletion_time);
                all.push((name.clone(), Some((id, path.to_vec())), cell.value.to_vec(), times));
            };
            match column {
                LiveColumn::Simple(cell) => push(&[], &cell),
                LiveColumn::Complex(elements) => elements.for_each(|(path, cell)| push(path, &cell)),
            }
        }
    };
    if let Some(row) = block.static_row() {
        show(None, row, block.tombstone);
    }
    for (clustering, row) in block.rows() {
        show(
            Some(clustering),
            row,
            block.deletion_of(&table.clustering_order, clustering),
        );
    }
    all
}

/// What a compaction at `NOW` leaves that may forget what is old.
fn compacted(table: &Table, block: &PartitionBlock) -> PartitionBlock {
    let purge = Purge {
        now: NOW,
        gc_before: NOW - GRACE.unsigned_abs(),
        max_purgeable_timestamp: i64::MAX,
        held: &[],
        keeps_expired: false,
    };
    compact_block(&table.layout, &table.clustering_order, block, &purge)
}

/// A case: writes, and for each of three replicas what it got, some of it compacted.
fn case(seed: u64, table: &Table, age: Age) -> (Vec<PartitionBlock>, Vec<PartitionBlock>) {
    let mut writer = Writer {
        table,
        chance: SplitMix64::new(seed),
        age,
    };
    let count = 1 + writer.chance.below(12);
    let writes: Vec<PartitionBlock> = (0..count).map(|_| writer.write()).collect();
    // Few writes are missing anywhere, or no two replicas would ever agree.
    let mut chance = SplitMix64::new(seed ^ 0xabcd);
    let misses = 1 + chance.below(12);
    let replicas = (0..3).map(|_| {
        let has = replica(table, writes.iter().filter(|_| !chance.one_in(misses + 1)));
        if chance.one_in(3) { compacted(table, &has) } else { has }
    });
    let replicas = replicas.collect();
    (writes, replicas)
}

/// Plays many cases with and without counters; how many pairs of replicas agreed that were not the same.
fn play(age: Age, mut check: impl FnMut(u64, &Table, &[PartitionBlock], &[PartitionBlock])) {
    for has_counter in [false, true] {
        let table = table(has_counter);
        for seed in 0..6_000 {
            let (writes, replicas) = case(seed, &table, age);
            check(seed, &table, &writes, &replicas);
        }
    }
}

/// Equal digests: the merge shows what each shows, and no write that comes late is hidden on one and not on the other.
fn check_agreement(seed: u64, table: &Table, writes: &[PartitionBlock], replicas: &[PartitionBlock], age: Age) {
    for (a, b) in [(0, 1), (0, 2), (1, 2)] {
        let (a, b) = (&replicas[a], &replicas[b]);
        if digest(table, [a]) != digest(table, [b]) {
            continue;
        }
        let both = merge(table, &[a, b]);
        assert_eq!(
            shown(table, a),
            shown(table, b),
            "seed {seed}: equal digests show the same"
        );
        assert_eq!(
            shown(table, a),
            shown(table, &both),
            "seed {seed}: the merge hides nothing"
        );
        if age == Age::Mixed {
            continue;
        }
        for late in writes {
            let (a, b) = (merge(table, &[a, late]), merge(table, &[b, late]));
            assert_eq!(shown(table, &a), shown(table, &b), "seed {seed}: a deletion is missing");
        }
    }
}

#[test]
fn digests_agree_only_where_the_merge_hides_nothing_and_no_deletion_is_missing() {
    for age in [Age::Young, Age::Mixed] {
        play(age, |seed, table, writes, replicas| {
            check_agreement(seed, table, writes, replicas, age)
        });
    }
}

#[test]
fn a_digest_tells_elements_apart_by_their_names() {
    let table = table(false);
    let id = table.column("m").map(|column| usize::from(column.id.0));
    let id = id.expect("a column of the table");
    let with_element = |path: u8| {
        let mut out = Vec::new();
        let shared = Shared {
            timestamp: 1,
            ttl: 0,
            expiry: 0,
        };
        let cell = Cell {
            timestamp: 1,
            ttl: 0,
            deletion_time: 0,
            dead: false,
            value: b"v",
        };
        MutationBuilder::begin(&mut out, table.id, KEY).row(&[], |out| {
            let mut row = RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, true, id + 1);
            row.complex(id, Tombstone::NONE, std::iter::once((&[0, 0, 0, path][..], cell)));
        });
        unpack_block(&out, &table).expect("a whole mutation")
    };
    let (one, other) = (with_element(1), with_element(2));
    assert_ne!(digest(&table, [&one]), digest(&table, [&other]));
}

#[test]
#[should_panic(expected = "a deletion is missing")]
fn digests_without_tombstones_are_found() {
    let _planted = Planted::new(Some(Bug::DigestWithoutTombstones));
    play(Age::Young, |seed, table, writes, replicas| {
        check_agreement(seed, table, writes, replicas, Age::Young)
    });
}

#[test]
fn after_repair_all_replicas_have_what_the_merge_has() {
    for age in [Age::Young, Age::Mixed] {
        play(age, |seed, table, _, replicas| {
            let merged = merge(table, &replicas.iter().collect::<Vec<_>>());
            let wanted = digest(table, [&merged]);
            for has in replicas {
                let repaired = match difference(&merged, Some(has), table) {
                    Some(mutation) => {
                        let mutation = unpack_block(&mutation, table).expect("a whole mutation");
                        merge(table, &[has, &mutation])
                    }
                    None => has.clone(),
                };
                assert_eq!(digest(table, [&repaired]), wanted, "seed {seed}");
                assert_eq!(shown(table, &repaired), shown(table, &merged), "seed {seed}");
                assert!(
                    difference(&merged, Some(&repaired), table).is_none(),
                    "seed {seed}: repaired twice"
                );
            }
            let whole = difference(&merged, None, table);
            let whole = whole.map(|mutation| unpack_block(&mutation, table).expect("a whole mutation"));
            let whole = whole.unwrap_or_else(|| PartitionBlock::new(token_of(KEY), KEY));
            assert_eq!(
                shown(table, &whole),
                shown(table, &merged),
                "seed {seed}: a replica that had nothing"
            );
            assert_eq!(
                digest(table, [&whole]),
                wanted,
                "seed {seed}: a replica that had nothing"
            );
        });
    }
}

#[test]
fn the_cuts_of_a_repair_do_what_the_whole_does_in_any_order() {
    let mut longest = 0;
    for age in [Age::Young, Age::Mixed] {
        play(age, |seed, table, _, replicas| {
            let merged = merge(table, &replicas.iter().collect::<Vec<_>>());
            let Some(whole) = difference(&merged, None, table) else {
                return;
            };
            let mut chance = SplitMix64::new(seed);
            let bytes_max = 1 + usize::try_from(chance.below(200)).expect("it is small");
            let mutation = Mutation::new(&whole).expect("a whole mutation");
            let mut cuts = cut(&mutation, &table.layout, bytes_max);
            longest = longest.max(cuts.len());
            if let Some(last) = cuts.len().checked_sub(1) {
                let other = usize::try_from(chance.below(cuts.len() as u64)).expect("it is small");
                cuts.swap(last, other);
            }
            let parts: Vec<_> = cuts
                .iter()
                .map(|bytes| {
                    let part = Mutation::new(bytes).expect("a cut is a whole mutation");
                    part.validate(&table.layout).expect("a cut is valid");
                    unpack_block(bytes, table).expect("a cut is a whole mutation")
                })
                .collect();
            let together = merge(table, &parts.iter().collect::<Vec<_>>());
            assert_eq!(shown(table, &together), shown(table, &merged), "seed {seed}");
            assert_eq!(digest(table, [&together]), digest(table, [&merged]), "seed {seed}");
            // What deletions cover may be gone from either.
            let both = merge(table, &[&merged, &together]);
            assert!(
                difference(&both, Some(&together), table).is_none(),
                "seed {seed}: cuts of {bytes_max} bytes lack something"
            );
        });
    }
    assert!(
        longest > 10,
        "the cases are too small to be cut: {longest} cuts at the most"
    );
}

/// Cuts a block at some of the rows' bounds.
fn pieces(table: &Table, block: &PartitionBlock, chance: &mut SplitMix64) -> Vec<PartitionBlock> {
    let (order, mut rest, mut pieces) = (&table.clustering_order, block.clone(), Vec::new());
    for c in 0..4i32 {
        let mut clustering = Vec::new();
        schema::push_component(&mut clustering, &c.to_be_bytes());
        if chance.one_in(2) {
            let far = split_block(&mut rest, &Bound::after(&clustering), order, false);
            pieces.push(std::mem::replace(&mut rest, far));
        }
    }
    pieces.push(rest);
    pieces
}

#[test]
fn a_digest_depends_neither_on_compactions_nor_on_where_blocks_are_cut() {
    for age in [Age::Young, Age::Mixed] {
        play(age, |seed, table, _, replicas| {
            let mut chance = SplitMix64::new(seed);
            for has in replicas {
                let compacted = compacted(table, has);
                let wanted = digest(table, [has]);
                assert_eq!(
                    digest(table, &pieces(table, has, &mut chance)),
                    wanted,
                    "seed {seed}: cut"
                );
                assert_eq!(digest(table, [&compacted]), wanted, "seed {seed}: compacted");
                let cut = pieces(table, &compacted, &mut chance);
                assert_eq!(digest(table, &cut), wanted, "seed {seed}: compacted and cut");
                let (whole, back) = (digest_of(table, [has], true), digest_of(table, cut.iter().rev(), true));
                assert_eq!(whole, back, "seed {seed}: compacted, cut and read from its end");
            }
        });
    }
}

#[test]
fn the_cases_have_deletions_of_every_kind() {
    let table = table(false);
    let mut seen = [0u32; 7];
    for seed in 0..200 {
        let (_, replicas) = case(seed, &table, Age::Mixed);
        for has in &replicas {
            seen[0] += u32::from(!has.tombstone.is_none());
            seen[1] += u32::from(!has.range_tombstones.is_empty());
            seen[2] += u32::from(has.static_row().is_some());
            for (clustering, row) in has.rows() {
                seen[3] += u32::from(!row.tombstone.is_none());
                seen[4] += u32::from(!has.range_deletion_of(&table.clustering_order, clustering).is_none());
                for (_, column) in row.columns(&table.layout) {
                    match column {
                        mutation::Column::Simple(cell) => seen[5] += u32::from(!cell.is_live(NOW)),
                        mutation::Column::Complex(complex) => seen[6] += u32::from(!complex.tombstone.is_none()),
                    }
                }
            }
        }
    }
    assert!(seen.iter().all(|count| *count > 30), "{seen:?}");
}
