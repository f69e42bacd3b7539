//! What the indexes of one replica list, against the rows that it holds.
//!
//! A coordinator asks several replicas, so it may find a row that one of them does not list. Here each shard is asked
//! alone: every living row must be read by a look-up of each of its terms, whatever memtables and sstables it is in.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound as RangeBound;

use mutation::PartitionBlock;
use mutation::candidates::CandidatesFrom;
use mutation::compact::LiveRow;
use mutation::terms::{IndexLookup, IndexTerms, TermPlace, TermRange};
use replica::{BlockLimits, ReadOptions, ShardReader, TableStore, TokenRange};
use schema::Table;
use types::Token;

/// Terms of an index that are looked up at most.
const LOOKUPS_MAX: usize = 48;

/// A partition key and a clustering key; none where an index lists the partition.
type Row = (Vec<u8>, Option<Vec<u8>>);

/// The rows of each term.
type TermRows = BTreeMap<Vec<u8>, BTreeSet<Row>>;

/// The terms of the rows of a table, index by index.
pub(super) struct RowTerms {
    indexes: Vec<(String, IndexTerms, TermRows)>,
    /// Rows that have expired by this second do not count.
    now: u32,
}

impl RowTerms {
    pub(super) fn new(table: &Table, now: u32) -> Self {
        let of = |index: &schema::Index| Some((index.name.clone(), IndexTerms::of(table, index)?, BTreeMap::new()));
        Self {
            indexes: table.indexes.iter().filter_map(of).collect(),
            now,
        }
    }

    /// Notes the terms of a whole partition.
    pub(super) fn add(&mut self, table: &Table, block: &PartitionBlock) {
        let (layout, order, now) = (&table.layout, &table.clustering_order, self.now);
        for (_, terms, rows) in &mut self.indexes {
            let mut note = |term: &[u8], clustering: Option<&[u8]>| {
                let row = (block.key().to_vec(), clustering.map(<[u8]>::to_vec));
                rows.entry(term.to_vec()).or_default().insert(row);
            };
            if terms.place == TermPlace::Static
                && let Some(row) = block.static_row()
            {
                terms.of_live_row(layout, row, (block.tombstone, now), &mut |term| note(term, None));
            }
            for (clustering, row) in block.rows() {
                let deletion = block.deletion_of(order, clustering);
                if !LiveRow::new(row, layout, deletion, now).is_live() {
                    continue;
                }
                let mut note = |term: &[u8]| note(term, Some(clustering));
                match terms.place {
                    TermPlace::Regular => terms.of_live_row(layout, row, (deletion, now), &mut note),
                    TermPlace::Clustering(_) => terms.of_clustering(clustering, &mut note),
                    TermPlace::Static | TermPlace::PartitionKey(_) => {}
                }
            }
        }
    }

    /// Looks terms up, one by one.
    ///
    /// # Errors
    /// The first row that is not read by one of its terms.
    pub(super) async fn check(
        &self,
        shard: (&std::rc::Rc<replica::Shard>, &TableStore),
        limits: BlockLimits,
    ) -> Result<(), String> {
        let table = shard.1.table();
        for (name, terms, rows) in &self.indexes {
            let step = rows.len().div_ceil(LOOKUPS_MAX).max(1);
            for (term, expected) in rows.iter().step_by(step) {
                let lookup = IndexLookup {
                    id: terms.id,
                    ranges: vec![TermRange {
                        from: RangeBound::Included(term.clone()),
                        to: RangeBound::Included(term.clone()),
                    }],
                    pattern: None,
                };
                let from = (TokenRange::ALL, CandidatesFrom::token(Token(i64::MIN)));
                let options = (limits, ReadOptions::default());
                let mut reader = ShardReader::of_index(shard, table.clone(), from, vec![lookup], options);
                let mut found = BTreeSet::new();
                while let Some(block) = reader.next_block().await.map_err(|e| e.to_string())? {
                    found.insert((block.key().to_vec(), None));
                    found.extend(block.rows().map(|(c, _)| (block.key().to_vec(), Some(c.to_vec()))));
                }
                if let Some(row) = expected.iter().find(|row| !found.contains(*row)) {
                    return Err(format!(
                        "index {name} of {}.{} does not list row {row:02x?} under its term {term:02x?}",
                        table.keyspace, table.name
                    ));
                }
            }
        }
        Ok(())
    }
}
