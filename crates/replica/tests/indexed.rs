//! What indexes list on a shard, against a scan of everything: in memory, in files, after compactions, over rows that
//! are overwritten and deleted, and of indexes that come and go between the writes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound as RangeBound;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use mutation::candidates::{CandidatesFrom, PassedPosition};
use mutation::row::{Liveness, Shared};
use mutation::terms::{IndexLookup, IndexTerms, TermPlace};
use mutation::{Bound, Mutation, MutationBuilder, PartitionBlock, RangeTombstone, RowBuilder, Tombstone};
use replica::{BlockLimits, ReadOptions, Shard, ShardReader, TableStore, TokenRange, WantedTable};
use runtime::random_u64;
use runtime::sim::Simulation;
use schema::{Column, ColumnKind, Index, IndexKind, IndexPart, Table, TableId, TableOptions, push_component};
use stdx::planted::Bug;
use types::CqlType;
use types::Token;
use types::token::token_of;
use uuid::Uuid;

use crate::support::{open_table, shard};

/// At this second rows live.
const NOW: u32 = 1_000;
const COLUMNS: [&str; 4] = ["k", "c", "s", "v"];

/// `sea.t (k blob, c int, s blob static, v blob, PRIMARY KEY (k, c))` with descending rows and no index.
fn table() -> Table {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column {
            descending: true,
            ..Column::new("c", CqlType::Int, ColumnKind::Clustering)
        },
        Column::new("s", CqlType::Blob, ColumnKind::Static),
        Column::new("v", CqlType::Blob, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(7));
    Table::new("sea", "t", id, columns, TableOptions::default())
}

fn below(end: u64) -> u64 {
    random_u64() % end
}

fn clustering(c: i32) -> Vec<u8> {
    let mut out = Vec::new();
    push_component(&mut out, &c.to_be_bytes());
    out
}

#[derive(Clone)]
struct Sea {
    shard: Rc<Shard>,
    store: Rc<TableStore>,
}

impl Sea {
    fn start(table: &Arc<Table>) -> Self {
        let shard = shard(8 << 20, 0);
        open_table(&shard, table, &[shard.token_range()]);
        let store = shard.store(table.id).expect("it was opened");
        Self { shard, store }
    }

    /// Writes or deletes something at random, at this time.
    fn write(&self, rows: u64, timestamp: i64) {
        let (table, mut bytes) = (self.store.table(), Vec::new());
        let id = |name: &str| usize::from(table.column(name).expect("a column").id.0);
        let key = [u8::try_from(below(5)).expect("a small number")];
        let shared = Shared {
            timestamp,
            ttl: 0,
            expiry: 0,
        };
        let tombstone = Tombstone {
            timestamp,
            deletion_time: NOW,
        };
        let marker = Liveness {
            timestamp,
            ttl: 0,
            expiry: 0,
        };
        let value = [u8::try_from(below(4)).expect("a small number")];
        let row = |end: u64| clustering(i32::try_from(below(end)).expect("a small number"));
        let mut mutation = MutationBuilder::begin(&mut bytes, table.id, &key);
        match below(40) {
            0 => mutation.partition_tombstone(tombstone),
            1 => mutation.range_tombstone(&RangeTombstone {
                start: Bound::before(&clustering(20)),
                end: Bound::after(&clustering(10)),
                tombstone,
            }),
            2..5 => mutation.row(&row(rows), |out| {
                RowBuilder::begin(out, &table.layout, shared, None, tombstone, false, 0);
            }),
            5..9 => mutation.static_row(|out| {
                RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, id("s") + 1)
                    .value(id("s"), &value);
            }),
            _ => mutation.row(&row(rows), |out| {
                RowBuilder::begin(
                    out,
                    &table.layout,
                    shared,
                    Some(marker),
                    Tombstone::NONE,
                    false,
                    id("v") + 1,
                )
                .value(id("v"), &value);
            }),
        }
        let mutation = Mutation::new(&bytes).expect("a whole mutation");
        let written = self.shard.write(&self.store, token_of(&key), &mutation);
        written.expect("there is room").is_not_awaited();
    }

    /// Gives the table other indexes.
    fn alter(&self, change: impl FnOnce(&mut Table)) {
        let mut table = (*self.store.table()).clone();
        change(&mut table);
        self.shard.reconcile(&[WantedTable {
            table: Arc::new(table),
            ranges: vec![self.shard.token_range()],
            keeps_shards: true,
        }]);
    }

    /// The rows of blocks that pass a test of block and row.
    async fn rows(&self, mut reader: ShardReader, lookups: &[IndexLookup]) -> BTreeSet<(Vec<u8>, Vec<u8>)> {
        let table = self.store.table();
        let mut found = BTreeSet::new();
        let mut last: Option<(Token, Vec<u8>)> = None;
        while let Some(block) = reader.next_block().await.expect("the files can be read") {
            let place = (block.token, block.key().to_vec());
            assert!(last.as_ref().is_none_or(|last| *last <= place), "partitions ascend");
            last = Some(place);
            for n in 0..block.len() {
                if lookups.iter().all(|lookup| matches(&table, lookup, &block, n)) {
                    found.insert((block.key().to_vec(), block.clustering(n).to_vec()));
                }
            }
        }
        found
    }

    /// Compares what is found by these look-ups with what a scan finds, and says how many rows there are.
    async fn compare(&self, lookups: Vec<IndexLookup>, rows: usize) -> Result<usize, String> {
        let (shard, table) = ((&self.shard, &*self.store), self.store.table());
        let limits = BlockLimits { rows, bytes: 1 << 20 };
        let options = ReadOptions::default();
        let all = (TokenRange::ALL, (Token(i64::MIN), Vec::new()));
        let scan = ShardReader::of_tokens(shard, table.clone(), all, limits, options.clone());
        let wanted = self.rows(scan, &lookups).await;
        let from = (TokenRange::ALL, CandidatesFrom::token(Token(i64::MIN)));
        let listed = ShardReader::of_index(shard, table, from, lookups.clone(), (limits, options));
        let found = self.rows(listed, &lookups).await;
        if found == wanted {
            Ok(wanted.len())
        } else {
            Err(format!("{lookups:?}: {found:?}, not {wanted:?}"))
        }
    }

    /// Compares random queries.
    async fn compare_some(&self) -> Result<usize, String> {
        let table = self.store.table();
        let mut seen = 0;
        for _ in 0..6 {
            let mut lookups = Vec::new();
            for index in &table.indexes {
                if below(2) == 0 || lookups.is_empty() && index.column == "v" {
                    lookups.push(random_lookup(&table, index));
                }
            }
            if !lookups.is_empty() {
                let rows = [1, 3, 1000][usize::try_from(below(3)).expect("a small number")];
                seen += self.compare(lookups, rows).await?;
            }
        }
        Ok(seen)
    }

    /// Makes the index files that sstables lack.
    async fn build(&self) {
        let table = self.store.table();
        for tablet in self.store.tablets().iter() {
            for reader in &tablet.version().sstables {
                let lacks = |index: &&Index| !reader.has_index(index.id);
                let lacking: Vec<_> = table.indexes.iter().filter(lacks).map(|index| index.id).collect();
                let built = sstable::build_indexes(reader, &table, &lacking, |_| true);
                assert!(built.expect("the disk works"), "it came to its end");
            }
        }
    }
}

fn random_lookup(table: &Table, index: &Index) -> IndexLookup {
    let terms = IndexTerms::of(table, index).expect("the table has the column");
    let value = |of: u64| match index.column.as_str() {
        "c" => i32::try_from(below(40)).expect("a small number").to_be_bytes().to_vec(),
        _ => vec![u8::try_from(below(of)).expect("a small number")],
    };
    let (one, two) = (value(6), value(6));
    let (from, to) = if one <= two { (one, two) } else { (two, one) };
    let range = |from: RangeBound<&[u8]>, to: RangeBound<&[u8]>| terms.range(None, from, to);
    let ranges = match below(4) {
        0 => vec![range(RangeBound::Included(&from), RangeBound::Included(&to))],
        1 => vec![range(RangeBound::Excluded(&from), RangeBound::Unbounded)],
        _ => vec![range(RangeBound::Included(&from), RangeBound::Included(&from))],
    };
    IndexLookup {
        id: index.id,
        ranges,
        pattern: None,
    }
}

/// Whether a row of a block has a term that a look-up asks for, and lives.
fn matches(table: &Table, lookup: &IndexLookup, block: &PartitionBlock, n: usize) -> bool {
    let index = table
        .indexes
        .iter()
        .find(|index| index.id == lookup.id)
        .expect("it is there");
    let terms = IndexTerms::of(table, index).expect("the table has the column");
    let (clustering, row) = (block.clustering(n), block.row(n));
    let deletion = block.deletion_of(&table.clustering_order, clustering);
    if !mutation::compact::LiveRow::new(row, &table.layout, deletion, NOW).is_live() {
        return false;
    }
    let mut is_match = false;
    let mut note = |term: &[u8]| is_match |= lookup.takes(term);
    match terms.place {
        TermPlace::PartitionKey(_) => terms.of_key(block.key(), &mut note),
        TermPlace::Clustering(_) => terms.of_clustering(clustering, &mut note),
        TermPlace::Regular => terms.of_live_row(&table.layout, row, (deletion, NOW), &mut note),
        TermPlace::Static => {
            if let Some(row) = block.static_row() {
                terms.of_live_row(&table.layout, row, (block.tombstone, NOW), &mut note);
            }
        }
    }
    is_match
}

fn add(table: &mut Table, column: &str) {
    let name = format!("t_{column}_{}", table.next_index_id);
    table.add_index(&name, (column, IndexPart::Value), IndexKind::Legacy, BTreeMap::new());
}

fn run<F: Future<Output = ()> + 'static>(seed: u64, f: impl Fn() -> F + 'static) {
    let mut simulation = Simulation::new(seed);
    let node = simulation.add_node(1);
    simulation.start(node, move |_| Box::pin(f()));
    let hour = std::time::Duration::from_hours(1);
    assert!(simulation.run_until_ended(node, hour), "the node has not ended");
}

/// A history of one seed; how many rows its queries have found, or the first that differs from a scan.
async fn history(rows: u64) -> Result<usize, String> {
    let mut indexed = table();
    COLUMNS
        .iter()
        .filter(|_| below(3) > 0)
        .for_each(|column| add(&mut indexed, column));
    let sea = Sea::start(&Arc::new(indexed));
    let mut seen = 0;
    for time in 0..400 {
        sea.write(rows, (time * 7919) % 401);
        match below(60) {
            0 => sea.shard.flush_all().await.expect("the disk works"),
            1 => sea.shard.compact_table(&sea.store).await.expect("the disk works"),
            2 => {
                let column = COLUMNS[usize::try_from(below(4)).expect("a small number")];
                sea.alter(|table| add(table, column));
            }
            3 => sea.alter(|table| {
                let name = table.indexes.first().map(|index| index.name.clone());
                table.drop_index(&name.unwrap_or_default());
            }),
            4 => seen += sea.compare_some().await?,
            5 => sea.build().await,
            _ => {}
        }
    }
    sea.shard.flush_all().await.expect("the disk works");
    seen += sea.compare_some().await?;
    sea.build().await;
    seen += sea.compare_some().await?;
    sea.shard.compact_table(&sea.store).await.expect("the disk works");
    Ok(seen + sea.compare_some().await?)
}

/// The history of a seed.
fn played(seed: u64) -> Result<usize, String> {
    let rows = if seed.is_multiple_of(2) { 40 } else { 2000 };
    let result = Arc::new(Mutex::new(Ok(0)));
    let told = result.clone();
    run(seed, move || {
        let told = told.clone();
        async move { *told.lock().expect("one thread") = history(rows).await }
    });
    let result = result.lock().expect("one thread");
    result.clone()
}

#[test]
fn what_indexes_list_is_what_a_scan_finds_whatever_happens_between_the_writes() {
    let mut seen = 0;
    for seed in 0..40 {
        match played(seed) {
            Ok(found) => seen += found,
            Err(difference) => panic!("seed {seed}: {difference}"),
        }
    }
    assert!(seen > 1000, "the queries found {seen} rows in all");
}

#[test]
fn a_value_that_most_rows_have_is_read_from_any_row_on() {
    run(1, || async {
        let mut indexed = table();
        add(&mut indexed, "v");
        let sea = Sea::start(&Arc::new(indexed));
        let table = sea.store.table();
        let id = usize::from(table.column("v").expect("a column").id.0);
        let shared = Shared {
            timestamp: 1,
            ttl: 0,
            expiry: 0,
        };
        // More than are read one by one, whatever they cost.
        for c in 0..12_000 {
            let (mut bytes, key) = (Vec::new(), [u8::try_from(c % 3).expect("a small number")]);
            MutationBuilder::begin(&mut bytes, table.id, &key).row(&clustering(c), |out| {
                let value = [u8::from(c % 1000 == 7)];
                RowBuilder::begin(out, &table.layout, shared, None, Tombstone::NONE, false, id + 1).value(id, &value);
            });
            let mutation = Mutation::new(&bytes).expect("a whole mutation");
            let written = sea.shard.write(&sea.store, token_of(&key), &mutation);
            written.expect("there is room").is_not_awaited();
            if c == 6_000 {
                sea.shard.flush_all().await.expect("the disk works");
            }
        }
        let terms = IndexTerms::of(&table, &table.indexes[0]).expect("the table has the column");
        for (value, wanted) in [(0_u8, 11_988), (1, 12)] {
            let bound = RangeBound::Included(&[value][..]);
            let lookup = IndexLookup {
                id: table.indexes[0].id,
                ranges: vec![terms.range(None, bound, bound)],
                pattern: None,
            };
            assert_eq!(sea.compare(vec![lookup.clone()], 1000).await, Ok(wanted));
            // After a row in the middle of each partition.
            let behind = |c: i32| CandidatesFrom {
                token: token_of(&[u8::try_from(c % 3).expect("a small number")]),
                key: vec![u8::try_from(c % 3).expect("a small number")],
                passed: PassedPosition::To(Bound::after(&clustering(c))),
            };
            for c in [3_000, 6_001, 9_002] {
                let (shard, limits) = (
                    (&sea.shard, &*sea.store),
                    BlockLimits {
                        rows: 100,
                        bytes: 1 << 20,
                    },
                );
                let extent = (TokenRange::ALL, behind(c));
                let how = (limits, ReadOptions::default());
                let listed = ShardReader::of_index(shard, table.clone(), extent, vec![lookup.clone()], how);
                let found = sea.rows(listed, std::slice::from_ref(&lookup)).await;
                let key = vec![u8::try_from(c % 3).expect("a small number")];
                let is_after = |other: i32| {
                    let other_key = vec![u8::try_from(other % 3).expect("a small number")];
                    let places = (token_of(&other_key), &other_key).cmp(&(token_of(&key), &key));
                    // Rows descend.
                    places.is_gt() || places.is_eq() && other < c
                };
                let wanted = (0..12_000).filter(|other| u8::from(other % 1000 == 7) == value && is_after(*other));
                assert_eq!(found.len(), wanted.count(), "value {value} behind {c}");
            }
        }
    });
}

#[test]
fn a_posting_that_is_lost_anywhere_is_missed() {
    for bug in [Bug::LostPosting, Bug::UnlistedOverwrite, Bug::UnfinishedBuild] {
        let _planted = stdx::planted::Planted::new(Some(bug));
        assert!((0..40).any(|seed| played(seed).is_err()), "{bug:?}");
    }
}
