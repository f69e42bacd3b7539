//! The index postings of a memtable: which of its rows were written under a term. See docs/dev/indexes.md.
//!
//! Nothing is removed: a value that was overwritten stays listed until the flush, whose file lists what is there. So a
//! row that matches a query all the time is found, however far the query is when it is overwritten.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound as RangeBound;

use mutation::candidates::{Candidate, CandidatesFrom, FirstCandidates, PassedPosition};
use mutation::terms::{IndexLookup, IndexTerms, TermPlace};
use mutation::{Bound, RowView};
use schema::{ClusteringOrder, IndexId, RowLayout, Table};
use types::Token;

/// Names of one chunk of a long list.
const CHUNK_NAMES_MAX: usize = 512;

/// What the indexes of the table list of a memtable.
#[derive(Debug)]
pub(crate) struct MemtableTerms {
    indexes: Vec<(IndexTerms, Terms)>,
    /// Of the partition that is written.
    token: Token,
    /// About how many bytes they take.
    bytes: usize,
}

/// The postings of one index by term.
#[derive(Debug, Default)]
struct Terms {
    lists: BTreeMap<Box<[u8]>, Postings>,
}

/// A partition: its token and its number in the memtable.
type PartitionPlace = (i64, u32);

/// The rows of one term.
#[derive(Debug)]
enum Postings {
    Partition(PartitionPlace, Names),
    Partitions(BTreeMap<PartitionPlace, Names>),
}

/// The rows of one term in one partition.
#[derive(Debug)]
enum Names {
    /// The partition.
    Whole,
    /// One row, by its clustering key.
    Row(Box<[u8]>),
    /// Several, in their order: chunks, none of them empty.
    Rows(Vec<Vec<Box<[u8]>>>),
}

/// About what a posting takes besides its bytes: its share of nodes that are two thirds full.
const POSTING_BYTES: usize = 64;
/// About what a term takes besides its bytes.
const TERM_BYTES: usize = 96;

impl Names {
    fn new(name: Option<&[u8]>) -> Self {
        name.map_or(Self::Whole, |name| Self::Row(name.into()))
    }

    /// Adds a row; false if it is there.
    fn add(&mut self, name: &[u8], order: &ClusteringOrder) -> bool {
        match self {
            Self::Whole => false,
            Self::Row(only) => {
                let rows = match order.compare(only, name) {
                    Ordering::Equal => return false,
                    Ordering::Less => vec![std::mem::take(only), name.into()],
                    Ordering::Greater => vec![name.into(), std::mem::take(only)],
                };
                *self = Self::Rows(vec![rows]);
                true
            }
            Self::Rows(chunks) => {
                let is_at_or_before = |chunk: &Vec<Box<[u8]>>| order.compare(&chunk[0], name).is_le();
                let at = chunks.partition_point(is_at_or_before).saturating_sub(1);
                let chunk = &mut chunks[at];
                let place = chunk.binary_search_by(|other| order.compare(other, name));
                let Err(place) = place else { return false };
                chunk.insert(place, name.into());
                if chunk.len() > CHUNK_NAMES_MAX {
                    // Rows that arrive in order fill chunks.
                    let is_appended = place + 1 == chunk.len();
                    let rest = chunk.split_off(if is_appended { place } else { chunk.len() / 2 });
                    chunks.insert(at + 1, rest);
                }
                true
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Whole | Self::Row(_) => 1,
            Self::Rows(chunks) => chunks.iter().map(Vec::len).sum(),
        }
    }

    /// Gives the rows after a bound, in order, until that returns false.
    fn each(&self, behind: Option<&Bound>, order: &ClusteringOrder, give: &mut impl FnMut(Option<&[u8]>) -> bool) {
        let is_behind = |name: &[u8]| behind.is_none_or(|behind| behind.compare_key(order, name).is_lt());
        match self {
            Self::Whole if behind.is_none() => {
                give(None);
            }
            Self::Row(name) if is_behind(name) => {
                give(Some(name));
            }
            Self::Whole | Self::Row(_) => {}
            Self::Rows(chunks) => {
                let first = chunks.partition_point(|chunk| chunk.last().is_some_and(|last| !is_behind(last)));
                let names = chunks[first..].iter().flatten();
                for name in names.skip_while(|name| !is_behind(name)) {
                    if !give(Some(name)) {
                        return;
                    }
                }
            }
        }
    }
}

impl Terms {
    fn add(&mut self, term: &[u8], partition: PartitionPlace, name: Option<&[u8]>, order: &ClusteringOrder) -> usize {
        let name_bytes = POSTING_BYTES + name.map_or(0, <[u8]>::len);
        let Some(postings) = self.lists.get_mut(term) else {
            let postings = Postings::Partition(partition, Names::new(name));
            self.lists.insert(term.into(), postings);
            return TERM_BYTES + term.len() + name.map_or(0, <[u8]>::len);
        };
        if let Postings::Partition(only, _) = postings
            && *only != partition
        {
            let former = std::mem::replace(postings, Postings::Partitions(BTreeMap::new()));
            if let (Postings::Partition(place, names), Postings::Partitions(all)) = (former, &mut *postings) {
                all.insert(place, names);
            }
        }
        let names = match postings {
            Postings::Partition(_, names) => names,
            Postings::Partitions(all) => match all.get_mut(&partition) {
                Some(names) => names,
                None => {
                    all.insert(partition, Names::new(name));
                    return name_bytes;
                }
            },
        };
        let is_new = name.is_some_and(|name| names.add(name, order));
        if is_new { name_bytes } else { 0 }
    }
}

impl MemtableTerms {
    /// Of the indexes of a table; None where it has none.
    pub(crate) fn of(table: &Table) -> Option<Box<Self>> {
        let indexes = IndexTerms::of_table(table);
        let indexes: Vec<_> = indexes.into_iter().map(|index| (index, Terms::default())).collect();
        (!indexes.is_empty()).then(|| {
            Box::new(Self {
                indexes,
                token: Token(0),
                bytes: 0,
            })
        })
    }

    /// About how many bytes they take.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether it has an index.
    pub(crate) fn has(&self, id: IndexId) -> bool {
        self.indexes.iter().any(|(index, _)| index.id == id)
    }

    /// Keeps the indexes that a table still has. One that is new is not added: earlier rows would be missing in it.
    pub(crate) fn retain(&mut self, table: &Table) {
        self.indexes
            .retain(|(index, _)| table.indexes.iter().any(|other| other.id == index.id));
    }

    /// Says the token of the partition that is written next.
    pub(crate) fn set_token(&mut self, token: Token) {
        self.token = token;
    }

    /// Lists a partition that is new.
    pub(crate) fn add_partition(&mut self, number: u32, key: &[u8], order: &ClusteringOrder) {
        let partition = (self.token.0, number);
        for (index, terms) in &mut self.indexes {
            index.of_key(key, &mut |term| self.bytes += terms.add(term, partition, None, order));
        }
    }

    /// Lists a row by what was written of it, and by its clustering key.
    pub(crate) fn add_row(
        &mut self,
        number: u32,
        (clustering, row): (&[u8], RowView<'_>),
        (layout, order): (&RowLayout, &ClusteringOrder),
    ) {
        let partition = (self.token.0, number);
        for (index, terms) in &mut self.indexes {
            let mut add = |term: &[u8]| self.bytes += terms.add(term, partition, Some(clustering), order);
            match index.place {
                TermPlace::Regular => index.of_row(layout, row, &mut add),
                TermPlace::Clustering(_) => index.of_clustering(clustering, &mut add),
                TermPlace::PartitionKey(_) | TermPlace::Static => {}
            }
        }
    }

    /// Lists a partition by what was written of its static row.
    pub(crate) fn add_static_row(
        &mut self,
        number: u32,
        row: RowView<'_>,
        (layout, order): (&RowLayout, &ClusteringOrder),
    ) {
        let partition = (self.token.0, number);
        for (index, terms) in &mut self.indexes {
            if index.place == TermPlace::Static {
                let mut add = |term: &[u8]| self.bytes += terms.add(term, partition, None, order);
                index.of_row(layout, row, &mut add);
            }
        }
    }

    /// How many candidates a query would get, as far as that is no more than `max`.
    pub(crate) fn count(&self, lookup: &IndexLookup, max: usize) -> usize {
        let Some((_, terms)) = self.indexes.iter().find(|(index, _)| index.id == lookup.id) else {
            return 0;
        };
        let ranges = lookup.ranges.iter().filter(|range| !range.is_empty());
        let listed = ranges.flat_map(|range| terms.lists.range::<[u8], _>(range.bounds()));
        let mut count = 0;
        for (_, postings) in listed {
            match postings {
                Postings::Partition(_, names) => count += names.len(),
                Postings::Partitions(all) => {
                    for names in all.values() {
                        count += names.len();
                        if count > max {
                            break;
                        }
                    }
                }
            }
            if count > max {
                return max;
            }
        }
        count
    }

    /// Offers the candidates that a query asks an index for, after a position.
    pub(crate) fn offer<'k>(
        &self,
        lookup: &IndexLookup,
        from: &CandidatesFrom,
        key_of: impl Fn(u32) -> &'k [u8],
        first: &mut FirstCandidates<'_>,
    ) {
        let Some((_, terms)) = self.indexes.iter().find(|(index, _)| index.id == lookup.id) else {
            return;
        };
        let ranges = lookup.ranges.iter().filter(|range| !range.is_empty());
        let listed = ranges.flat_map(|range| terms.lists.range::<[u8], _>(range.bounds()));
        for (_, postings) in listed.filter(|(term, _)| lookup.is_like(term)) {
            match postings {
                Postings::Partition(place, names) => {
                    offer_partition((*place, names), from, &key_of, first);
                }
                Postings::Partitions(all) => {
                    let max = first.max();
                    let mut offered = 0;
                    let mut last_token = None;
                    let here = (RangeBound::Included((from.token.0, 0)), RangeBound::Unbounded);
                    for (place, names) in all.range(here) {
                        // Partitions of one token are in no order.
                        if offered > max && last_token != Some(place.0) {
                            break;
                        }
                        last_token = Some(place.0);
                        offered += offer_partition((*place, names), from, &key_of, first);
                    }
                }
            }
        }
    }
}

/// Offers what a term lists of a partition; returns how much that was.
fn offer_partition<'k>(
    ((token, number), names): (PartitionPlace, &Names),
    from: &CandidatesFrom,
    key_of: &impl Fn(u32) -> &'k [u8],
    first: &mut FirstCandidates<'_>,
) -> usize {
    let (token, key) = (Token(token), key_of(number));
    let passed = match (token, key).cmp(&(from.token, &from.key[..])) {
        Ordering::Less => return 0,
        Ordering::Greater => None,
        Ordering::Equal => match &from.passed {
            PassedPosition::Nothing => None,
            PassedPosition::To(bound) => Some(bound),
            PassedPosition::All => return 0,
        },
    };
    let (mut offered, max, order) = (0, first.max(), first.order());
    names.each(passed, order, &mut |name| {
        first.offer(Candidate {
            token,
            key: key.to_vec(),
            clustering: name.map(<[u8]>::to_vec),
        });
        offered += 1;
        offered < max + 1
    });
    offered
}
