//! What coordinators and replicas say to each other, as bytes.
//!
//! ```text
//! MUTATE   u8 flags (1: all or nothing, 2: hints, 4: a repair), then for each mutation vint length and packed mutation
//! ADD      u8 level, then as MUTATE; the answer says how it ended (`counter.rs`)
//! READ     [u8; 16] table, u8 flags (1: digest only, 2: reversed, 4: tokens, 8: until, 16: bypasses the cache,
//!          32: withholds long rows, 64: listed, 128: names only), u32 now, vint rows, vint bytes, then
//!          partition: vint length and key, vint count, slices of two bounds
//!          tokens:    i64 after, i64 to, i64 first token, vint length and first key, u8 1 and a bound when inside that
//!                     partition
//!          until:     a place
//!          listed:    vint count, then for each look-up in an index u32 number, vint count, ranges of two term bounds,
//!                     u8 1 with vint length and pattern, else 0
//! BATCHSTORE  as MUTATE; the first mutation is the note (`batchlog.rs`)
//! TAKETURN, ENDTURN  `contention.rs`
//! ADMIT  `limits/rate.rs`
//! REPORT  `hints/src/ledger.rs`
//! NEAR     `near/message.rs`
//! BATCHREMOVE, BATCHKNOWN  u128 batch id; the answer to the latter is u8 1 when it is known, else 0
//! answer   u128 digest; u8 0 when all was read, 1 and a place where it ends, 2 and a place where it pauses; then
//!          blocks:
//!          u8 1 and a bound when covered, else 0; vint length and packed mutation
//! place    i64 token, vint length and key, u8 1 and a bound when inside that partition, else 0
//! bound    u8 side (0 before, 1 after), vint length and prefix
//! term bound  u8 0 none, 1 included, 2 excluded; unless none, vint length and term
//! ```
//!
//! Numbers are little endian. A block travels as the mutation that would make it, so rows keep the one encoding they
//! have in log and memory. The receiver checks every byte against the table's layout.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::ops::Bound as RangeBound;
use std::sync::Arc;

use mutation::merge::missing_part;
use mutation::terms::{IndexLookup, TermRange};
use mutation::{
    Addressed, Bound, BoundKind, ClusteringSlice, Located, Mutation, MutationBuilder, MutationItem, PartitionBlock,
    RowView, Tombstone,
};
use schema::{ClusteringOrder, IndexId, Table, TableId};
use stdx::bytes::{Reader, put_sized};
use stdx::vint;
use types::Token;
use types::token::token_of;
use uuid::Uuid;

use crate::fence::Stamp;
use crate::read::digest::Digest;

/// Bytes that are not what a peer should send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

pub(crate) fn sized<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], Malformed> {
    reader.get_sized().map_err(|_| Malformed(what))
}

/// The sides of bounds.
const BEFORE: u8 = 0;
const AFTER: u8 = 1;

fn put_bound(out: &mut Vec<u8>, bound: &Bound) {
    out.push(if bound.kind == BoundKind::After { AFTER } else { BEFORE });
    put_sized(out, &bound.prefix);
}

fn get_bound(reader: &mut Reader<'_>) -> Result<Bound, Malformed> {
    let kind = match reader.get_u8() {
        Ok(BEFORE) => BoundKind::Before,
        Ok(AFTER) => BoundKind::After,
        _ => return Err(Malformed("the side of a bound, 0 or 1")),
    };
    Ok(Bound {
        prefix: sized(reader, "a bound's prefix")?.into(),
        kind,
    })
}

fn put_optional_bound(out: &mut Vec<u8>, bound: Option<&Bound>) {
    out.push(u8::from(bound.is_some()));
    if let Some(bound) = bound {
        put_bound(out, bound);
    }
}

fn get_optional_bound(reader: &mut Reader<'_>) -> Result<Option<Bound>, Malformed> {
    match reader.get_u8() {
        Ok(0) => Ok(None),
        Ok(1) => get_bound(reader).map(Some),
        _ => Err(Malformed("whether a bound follows, 0 or 1")),
    }
}

/// How many bytes [`put_mutations`] writes.
pub(crate) fn encoded_bytes<'m>(mutations: impl Iterator<Item = &'m Addressed>) -> usize {
    let sized = |len: usize| vint::unsigned_len(len as u64) + len;
    1 + mutations.map(|m| sized(m.bytes().len())).sum::<usize>()
}

/// Appends mutations for one shard.
pub(crate) fn put_mutations<'m>(
    out: &mut Vec<u8>,
    all_or_nothing: bool,
    mutations: impl Iterator<Item = &'m Addressed>,
) {
    out.push(u8::from(all_or_nothing));
    mutations.for_each(|m| put_sized(out, m.bytes()));
}

/// Mutations for one shard.
pub(crate) fn encode_mutations<'m>(
    all_or_nothing: bool,
    mutations: impl Iterator<Item = &'m Addressed> + Clone,
) -> Vec<u8> {
    let mut out = Vec::with_capacity(encoded_bytes(mutations.clone()) + Stamp::BYTES);
    put_mutations(&mut out, all_or_nothing, mutations);
    out
}

/// The flag of mutations that are handed over as hints.
const HINTS: u8 = 2;

/// Marks encoded mutations as hints.
pub(crate) fn mark_hints(body: &mut [u8]) {
    if let Some(flags) = body.first_mut() {
        *flags |= HINTS;
    }
}

/// Whether encoded mutations are hints.
pub(crate) fn are_hints(body: &[u8]) -> bool {
    body.first().is_some_and(|flags| flags & HINTS != 0)
}

/// The flag of mutations that repair a replica which a read found outdated.
const REPAIR: u8 = 4;

/// Marks encoded mutations as a repair.
pub(crate) fn mark_repair(body: &mut [u8]) {
    if let Some(flags) = body.first_mut() {
        *flags |= REPAIR;
    }
}

/// Whether encoded mutations are a repair.
pub(crate) fn is_repair(body: &[u8]) -> bool {
    body.first().is_some_and(|flags| flags & REPAIR != 0)
}

/// The mutations of a message, with their tokens, and whether they count all or not at all. They are not checked yet
/// against their tables.
///
/// # Errors
/// When the bytes end early.
pub(crate) fn decode_mutations(body: &[u8]) -> Result<(Vec<Addressed>, bool), Malformed> {
    let mut reader = Reader::new(body);
    let flags = reader.get_u8().map_err(|_| Malformed("the flags of mutations"))?;
    let mut mutations = Vec::new();
    while !reader.rest().is_empty() {
        mutations.push(located(&mut reader)?.to_owned());
    }
    Ok((mutations, flags & 1 == 1))
}

fn located<'a>(reader: &mut Reader<'a>) -> Result<Located<'a>, Malformed> {
    let bytes = sized(reader, "a whole mutation")?;
    Located::new(bytes).ok_or(Malformed("a mutation's table and key"))
}

/// The mutation of a message that has only one.
#[inline]
pub(crate) fn only_mutation(body: &[u8]) -> Option<Located<'_>> {
    let mut reader = Reader::new(body.get(1..)?);
    let only = located(&mut reader).ok()?;
    reader.rest().is_empty().then_some(only)
}

/// What a replica is to read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Extent {
    /// Slices of one partition.
    Partition {
        /// Its serialised key.
        key: Vec<u8>,
        /// In clustering order and disjoint.
        slices: Vec<ClusteringSlice>,
        /// From the last row to the first.
        reversed: bool,
    },
    /// All partitions of a token range, in order.
    Tokens {
        /// Exclusive start; the lowest token is before all.
        after: Token,
        /// Inclusive end.
        to: Token,
        /// The first partition to come.
        from: (Token, Vec<u8>),
        /// The partition `from` is read from this bound on.
        inside: Option<Bound>,
    },
}

/// A position in a read: after a partition, or after a bound inside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadPosition {
    /// The partition's token.
    pub token: Token,
    /// Its serialised key.
    pub key: Vec<u8>,
    /// None: after all of it.
    pub inside: Option<Bound>,
}

impl ReadPosition {
    /// Where a block ends.
    pub(crate) fn behind(block: &PartitionBlock) -> Self {
        Self {
            token: block.token,
            key: block.key().to_vec(),
            inside: block.covered.clone(),
        }
    }

    /// Which of two places comes first in reading order.
    pub(crate) fn compare(&self, other: &Self, order: &ClusteringOrder, is_reversed: bool) -> Ordering {
        let inside = || match (&self.inside, &other.inside) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(a), Some(b)) if is_reversed => b.compare(order, a),
            (Some(a), Some(b)) => a.compare(order, b),
        };
        (self.token, &self.key)
            .cmp(&(other.token, &other.key))
            .then_with(inside)
    }

    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.token.0.to_le_bytes());
        put_sized(out, &self.key);
        put_optional_bound(out, self.inside.as_ref());
    }

    fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let token = reader.get_array().map_err(|_| Malformed("the token of a place"))?;
        Ok(Self {
            token: Token(i64::from_le_bytes(token)),
            key: sized(reader, "the key of a place")?.to_vec(),
            inside: get_optional_bound(reader)?,
        })
    }
}

/// One stretch of a read. The node that sends it to another one need not own what is read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReadCommand<E = Extent> {
    /// The table.
    pub table: TableId,
    /// What of it.
    pub extent: E,
    /// The second at which rows live or not, for the digest.
    pub now: u32,
    /// The stretch ends after this many living rows.
    pub rows: usize,
    /// The stretch ends after the living row with which what lives reaches this many bytes.
    pub bytes: usize,
    /// The stretch goes no further than this place, where another replica's pauses.
    pub until: Option<ReadPosition>,
    /// Answer with the digest alone.
    pub digest_only: bool,
    /// Read past the caches, and put nothing into them.
    pub bypasses_cache: bool,
    /// If a row is long, answer with its length instead of the data: the coordinator has reserved no memory for it.
    pub withholds: bool,
    /// Of tokens, only rows that indexes list.
    pub listing: Option<Listing>,
}

/// Which rows a replica reads of tokens: those that match all look-ups there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listing {
    /// What indexes are asked for, at least one.
    pub lookups: Arc<[IndexLookup]>,
    /// Answer with the keys of the rows, without what is in them.
    pub names_only: bool,
}

/// The kinds of bounds of terms.
const UNBOUNDED: u8 = 0;
const INCLUDED: u8 = 1;
const EXCLUDED: u8 = 2;

impl Listing {
    fn put(&self, out: &mut Vec<u8>) {
        vint::put_unsigned(out, self.lookups.len() as u64);
        for lookup in self.lookups.iter() {
            out.extend_from_slice(&lookup.id.0.to_le_bytes());
            vint::put_unsigned(out, lookup.ranges.len() as u64);
            for bound in lookup.ranges.iter().flat_map(|range| [&range.from, &range.to]) {
                match bound {
                    RangeBound::Unbounded => out.push(UNBOUNDED),
                    RangeBound::Included(term) => {
                        out.push(INCLUDED);
                        put_sized(out, term);
                    }
                    RangeBound::Excluded(term) => {
                        out.push(EXCLUDED);
                        put_sized(out, term);
                    }
                }
            }
            out.push(u8::from(lookup.pattern.is_some()));
            if let Some(pattern) = &lookup.pattern {
                put_sized(out, pattern);
            }
        }
    }

    fn get(reader: &mut Reader<'_>, names_only: bool) -> Result<Self, Malformed> {
        let cut = |_| Malformed("whole look-ups in indexes");
        let count = reader.get_vint().map_err(cut)?;
        let mut lookups = Vec::new();
        for _ in 0..count {
            let id = IndexId(u32::from_le_bytes(reader.get_array().map_err(cut)?));
            let mut ranges = Vec::new();
            for _ in 0..reader.get_vint().map_err(cut)? {
                ranges.push(TermRange {
                    from: get_term_bound(reader)?,
                    to: get_term_bound(reader)?,
                });
            }
            let pattern = match reader.get_u8() {
                Ok(0) => None,
                Ok(1) => Some(sized(reader, "a pattern")?.to_vec()),
                _ => return Err(Malformed("whether a pattern follows, 0 or 1")),
            };
            lookups.push(IndexLookup { id, ranges, pattern });
        }
        if lookups.is_empty() {
            return Err(Malformed("a look-up in an index"));
        }
        Ok(Self {
            lookups: lookups.into(),
            names_only,
        })
    }
}

fn get_term_bound(reader: &mut Reader<'_>) -> Result<RangeBound<Vec<u8>>, Malformed> {
    match reader.get_u8() {
        Ok(UNBOUNDED) => Ok(RangeBound::Unbounded),
        Ok(INCLUDED) => Ok(RangeBound::Included(sized(reader, "a term")?.to_vec())),
        Ok(EXCLUDED) => Ok(RangeBound::Excluded(sized(reader, "a term")?.to_vec())),
        _ => Err(Malformed("the kind of a term's bound, 0, 1 or 2")),
    }
}

const DIGEST_ONLY: u8 = 1;
const REVERSED: u8 = 2;
const TOKENS: u8 = 4;
const UNTIL: u8 = 8;
const BYPASSES_CACHE: u8 = 16;
const WITHHOLDS: u8 = 32;
const LISTED: u8 = 64;
const NAMES_ONLY: u8 = 128;

impl ReadCommand<&Extent> {
    /// This command with a copy of the extent.
    pub(crate) fn owning(self) -> ReadCommand {
        ReadCommand {
            table: self.table,
            extent: self.extent.clone(),
            now: self.now,
            rows: self.rows,
            bytes: self.bytes,
            until: self.until,
            digest_only: self.digest_only,
            bypasses_cache: self.bypasses_cache,
            withholds: self.withholds,
            listing: self.listing,
        }
    }
}

impl<E: Borrow<Extent>> ReadCommand<E> {
    /// As bytes for a peer.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let extent = self.extent.borrow();
        let mut out = Vec::with_capacity(96);
        out.extend_from_slice(self.table.0.as_bytes());
        let mut flags = if self.digest_only { DIGEST_ONLY } else { 0 };
        match extent {
            Extent::Partition { reversed: true, .. } => flags |= REVERSED,
            Extent::Partition { .. } => {}
            Extent::Tokens { .. } => flags |= TOKENS,
        }
        if self.until.is_some() {
            flags |= UNTIL;
        }
        if self.bypasses_cache {
            flags |= BYPASSES_CACHE;
        }
        if self.withholds {
            flags |= WITHHOLDS;
        }
        if let Some(listing) = &self.listing {
            flags |= LISTED;
            if listing.names_only {
                flags |= NAMES_ONLY;
            }
        }
        out.push(flags);
        out.extend_from_slice(&self.now.to_le_bytes());
        vint::put_unsigned(&mut out, self.rows as u64);
        vint::put_unsigned(&mut out, self.bytes as u64);
        match extent {
            Extent::Partition { key, slices, .. } => {
                put_sized(&mut out, key);
                vint::put_unsigned(&mut out, slices.len() as u64);
                for slice in slices {
                    put_bound(&mut out, &slice.start);
                    put_bound(&mut out, &slice.end);
                }
            }
            Extent::Tokens {
                after,
                to,
                from,
                inside,
            } => {
                for token in [*after, *to, from.0] {
                    out.extend_from_slice(&token.0.to_le_bytes());
                }
                put_sized(&mut out, &from.1);
                put_optional_bound(&mut out, inside.as_ref());
            }
        }
        if let Some(until) = &self.until {
            until.put(&mut out);
        }
        if let Some(listing) = &self.listing {
            listing.put(&mut out);
        }
        out
    }
}

impl ReadCommand {
    /// This command with a borrowed extent.
    pub(crate) fn borrowed(&self) -> ReadCommand<&Extent> {
        ReadCommand {
            table: self.table,
            extent: &self.extent,
            now: self.now,
            rows: self.rows,
            bytes: self.bytes,
            until: self.until.clone(),
            digest_only: self.digest_only,
            bypasses_cache: self.bypasses_cache,
            withholds: self.withholds,
            listing: self.listing.clone(),
        }
    }

    /// From a peer's bytes.
    ///
    /// # Errors
    /// When they are not a command.
    pub fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let cut = |_| Malformed("a whole read command");
        let table = TableId(Uuid::from_bytes(reader.get_array().map_err(cut)?));
        let flags = reader.get_u8().map_err(cut)?;
        let now = u32::from_le_bytes(reader.get_array().map_err(cut)?);
        let rows = usize::try_from(reader.get_vint().map_err(cut)?).unwrap_or(usize::MAX);
        let bytes = usize::try_from(reader.get_vint().map_err(cut)?).unwrap_or(usize::MAX);
        let extent = if flags & TOKENS == 0 {
            let key = sized(&mut reader, "a partition key")?.to_vec();
            let count = reader.get_vint().map_err(cut)?;
            let mut slices = Vec::with_capacity(usize::from(count > 0));
            for _ in 0..count {
                slices.push(ClusteringSlice {
                    start: get_bound(&mut reader)?,
                    end: get_bound(&mut reader)?,
                });
            }
            let reversed = flags & REVERSED != 0;
            Extent::Partition { key, slices, reversed }
        } else {
            let mut token = || reader.get_array().map(|t| Token(i64::from_le_bytes(t))).map_err(cut);
            let (after, to, first) = (token()?, token()?, token()?);
            Extent::Tokens {
                after,
                to,
                from: (first, sized(&mut reader, "a partition key")?.to_vec()),
                inside: get_optional_bound(&mut reader)?,
            }
        };
        let until = match flags & UNTIL {
            0 => None,
            _ => Some(ReadPosition::get(&mut reader)?),
        };
        let listing = match flags & LISTED {
            0 => None,
            _ => Some(Listing::get(&mut reader, flags & NAMES_ONLY != 0)?),
        };
        if !reader.rest().is_empty() {
            return Err(Malformed("nothing behind a read command"));
        }
        Ok(Self {
            table,
            extent,
            now,
            rows,
            bytes,
            until,
            digest_only: flags & DIGEST_ONLY != 0,
            bypasses_cache: flags & BYPASSES_CACHE != 0,
            withholds: flags & WITHHOLDS != 0,
            listing,
        })
    }
}

/// A read of one row by its whole name, borrowed: the same bytes as a [`ReadCommand`] of that row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PointCommand<'a> {
    pub(crate) table: TableId,
    pub(crate) now: u32,
    pub(crate) key: &'a [u8],
    pub(crate) clustering: &'a [u8],
    pub(crate) digest_only: bool,
}

impl<'a> PointCommand<'a> {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + self.key.len() + 2 * self.clustering.len() + Stamp::BYTES);
        out.extend_from_slice(self.table.0.as_bytes());
        out.push(if self.digest_only { DIGEST_ONLY } else { 0 });
        out.extend_from_slice(&self.now.to_le_bytes());
        // A row is read whole.
        vint::put_unsigned(&mut out, 1);
        vint::put_unsigned(&mut out, 1);
        put_sized(&mut out, self.key);
        vint::put_unsigned(&mut out, 1);
        for side in [BEFORE, AFTER] {
            out.push(side);
            put_sized(&mut out, self.clustering);
        }
        out
    }

    /// From a peer's bytes, if they are a read of one row: the bounds of its only slice have the same prefix. That is
    /// all that can be checked without the table.
    #[inline]
    pub(crate) fn decode(body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let table = TableId(Uuid::from_bytes(reader.get_array().ok()?));
        let flags = reader.get_u8().ok()?;
        if flags & !DIGEST_ONLY != 0 {
            return None;
        }
        let now = u32::from_le_bytes(reader.get_array().ok()?);
        reader.get_vint().ok()?;
        reader.get_vint().ok()?;
        let key = sized(&mut reader, "a partition key").ok()?;
        if reader.get_vint().ok()? != 1 || reader.get_u8().ok()? != BEFORE {
            return None;
        }
        let clustering = sized(&mut reader, "a bound's prefix").ok()?;
        if reader.get_u8().ok()? != AFTER || sized(&mut reader, "a bound's prefix").ok()? != clustering {
            return None;
        }
        reader.rest().is_empty().then_some(Self {
            table,
            now,
            key,
            clustering,
            digest_only: flags & DIGEST_ONLY != 0,
        })
    }
}

/// The answer to a read of one row that asks for its digest only.
pub(crate) fn answer_of_digest(digest: u128) -> Vec<u8> {
    let mut out = Vec::with_capacity(17);
    out.extend_from_slice(&digest.to_le_bytes());
    out.push(0);
    out
}

/// The digest of an answer that has only a digest; None for any other answer.
pub(crate) fn digest_of_answer(body: &[u8]) -> Option<u128> {
    let (digest, rest) = body.split_first_chunk()?;
    (rest == [0]).then(|| u128::from_le_bytes(*digest))
}

impl Extent {
    /// What is left of it after a block. None: nothing.
    #[must_use]
    pub fn behind(self, last: &PartitionBlock, order: &ClusteringOrder) -> Option<Self> {
        self.behind_place(&ReadPosition::behind(last), order)
    }

    /// What is left of it after a position. None: nothing.
    pub(crate) fn behind_place(self, place: &ReadPosition, order: &ClusteringOrder) -> Option<Self> {
        match self {
            Self::Partition {
                key,
                mut slices,
                reversed,
            } => {
                let bound = place.inside.as_ref()?;
                if reversed {
                    slices.retain(|s| s.start.compare(order, bound).is_lt());
                    if let Some(slice) = slices.last_mut().filter(|s| s.end.compare(order, bound).is_gt()) {
                        slice.end = bound.clone();
                    }
                } else {
                    slices.retain(|s| s.end.compare(order, bound).is_gt());
                    if let Some(slice) = slices.first_mut().filter(|s| s.start.compare(order, bound).is_lt()) {
                        slice.start = bound.clone();
                    }
                }
                (!slices.is_empty()).then_some(Self::Partition { key, slices, reversed })
            }
            Self::Tokens { after, to, .. } => {
                let mut key = place.key.clone();
                if place.inside.is_none() {
                    // The least key above this one.
                    key.push(0);
                }
                Some(Self::Tokens {
                    after,
                    to,
                    from: (place.token, key),
                    inside: place.inside.clone(),
                })
            }
        }
    }

    /// What is left when the rest of the partition of this block is passed by.
    pub(crate) fn beyond_partition(self, last: &PartitionBlock) -> Option<Self> {
        match self {
            Self::Partition { .. } => None,
            Self::Tokens { after, to, .. } => {
                let mut key = last.key().to_vec();
                key.push(0);
                Some(Self::Tokens {
                    after,
                    to,
                    from: (last.token, key),
                    inside: None,
                })
            }
        }
    }

    pub(crate) fn is_reversed(&self) -> bool {
        matches!(self, Self::Partition { reversed: true, .. })
    }
}

/// What one replica has of a stretch.
#[derive(Clone, Default, Debug)]
pub struct Answer {
    /// Over what lives and what is deleted; equal digests mean equal results.
    pub digest: u128,
    /// In reading order; none when only the digest was asked for. All but the last of a partition say in `covered` how
    /// far they go; the last of the answer does so when the stretch ended inside its partition.
    pub blocks: Vec<PartitionBlock>,
    /// Where the stretch ends; None when everything that was asked for was read.
    pub end: Option<ReadPosition>,
    /// It ends there because of what is dead, which other replicas may have more or less of.
    pub is_paused: bool,
    /// The length of a long row, in bytes; the answer then has no data and no digest ([`ReadCommand::withholds`]).
    pub withheld: Option<usize>,
}

impl Answer {
    /// Of a read that asked for the digest only and read everything.
    pub(crate) fn of_digest(digest: u128) -> Self {
        Self {
            digest,
            ..Self::default()
        }
    }

    /// Withholds a row of `bytes` bytes.
    pub(crate) fn of_long_row(bytes: usize) -> Self {
        Self {
            withheld: Some(bytes),
            ..Self::default()
        }
    }

    /// Whether everything that was asked for was read.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.end.is_none()
    }

    /// Cuts the answer off at `place`, a position before its end.
    pub(crate) fn cut(&mut self, place: &ReadPosition, table: &Table, now: u32, is_reversed: bool) {
        let order = &table.clustering_order;
        let mut digest = Digest::new(is_reversed);
        for block in std::mem::take(&mut self.blocks) {
            let (part, is_reached) = place.clip(block, order, is_reversed);
            if let Some(part) = part {
                digest.add(table, &part, now);
                self.blocks.push(part);
            }
            if is_reached {
                break;
            }
        }
        self.digest = digest.finish(order, Some(place));
        self.end = Some(place.clone());
    }

    /// As bytes for the peer that asked.
    #[must_use]
    pub fn encode(&self, table: TableId) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.blocks.iter().map(PartitionBlock::size).sum::<usize>());
        out.extend_from_slice(&self.digest.to_le_bytes());
        if let Some(bytes) = self.withheld {
            out.push(3);
            vint::put_unsigned(&mut out, bytes as u64);
            return out;
        }
        // 0: all was read. 1: it ends at a place. 2: it pauses at a place. 3: the data is withheld.
        out.push(if self.is_paused {
            2
        } else {
            u8::from(self.end.is_some())
        });
        if let Some(end) = &self.end {
            end.put(&mut out);
        }
        let mut packed = Vec::new();
        for block in &self.blocks {
            put_optional_bound(&mut out, block.covered.as_ref());
            packed.clear();
            block.pack(table, &mut packed);
            put_sized(&mut out, &packed);
        }
        out
    }

    /// From a replica's bytes, checked against the table.
    ///
    /// # Errors
    /// When they are not an answer about this table.
    pub fn decode(body: &[u8], table: &Table) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let cut = |_| Malformed("a whole answer to a read");
        let digest = u128::from_le_bytes(reader.get_array().map_err(cut)?);
        let kind = reader.get_u8().map_err(cut)?;
        let end = match kind {
            0 => None,
            1 | 2 => Some(ReadPosition::get(&mut reader)?),
            3 => {
                let bytes = reader.get_vint().map_err(cut)?;
                return match reader.rest() {
                    [] => Ok(Self {
                        digest,
                        ..Self::of_long_row(usize::try_from(bytes).unwrap_or(usize::MAX))
                    }),
                    _ => Err(Malformed("nothing behind the size of a row that is withheld")),
                };
            }
            _ => return Err(Malformed("how a stretch ends, 0 to 3")),
        };
        let mut blocks = Vec::new();
        while !reader.rest().is_empty() {
            let covered = get_optional_bound(&mut reader)?;
            let mut block = unpack_block(sized(&mut reader, "a whole block")?, table)?;
            block.covered = covered;
            blocks.push(block);
        }
        Ok(Self {
            digest,
            blocks,
            end,
            is_paused: kind == 2,
            withheld: None,
        })
    }
}

pub(crate) fn unpack_block(bytes: &[u8], table: &Table) -> Result<PartitionBlock, Malformed> {
    let mutation = Mutation::new(bytes).ok_or(Malformed("a block's table and key"))?;
    if mutation.table != table.id {
        return Err(Malformed("a block of the table that was asked for"));
    }
    mutation
        .validate(&table.layout)
        .map_err(|_| Malformed("rows of the table's layout"))?;
    let mut block = PartitionBlock::new(token_of(mutation.key), mutation.key);
    let mut last: Option<&[u8]> = None;
    for item in mutation.items() {
        match item {
            MutationItem::Partition(tombstone) => block.tombstone = block.tombstone.merge(tombstone),
            MutationItem::StaticRow(row) => block.set_static_row(row),
            MutationItem::Row { clustering, row } => {
                if last.is_some_and(|l| table.clustering_order.compare(l, clustering).is_ge()) {
                    return Err(Malformed("the rows of a block in clustering order"));
                }
                last = Some(clustering);
                block.push_row(clustering, row);
            }
            MutationItem::Range(range) => block.range_tombstones.push(range),
        }
    }
    Ok(block)
}

/// What `merged` has and `have`, a part of it, does not: the mutation that repairs a replica. None when nothing is
/// missing.
#[must_use]
pub fn difference(merged: &PartitionBlock, have: Option<&PartitionBlock>, table: &Table) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, merged.key());
    let mut any = false;
    let known = have.map_or(Tombstone::NONE, |h| h.tombstone);
    if merged.tombstone.supersedes(known) {
        builder.partition_tombstone(merged.tombstone);
        any = true;
    }
    let mut part = Vec::new();
    if let Some(row) = merged.static_row() {
        part.clear();
        if lacks(row, have.and_then(PartitionBlock::static_row), table, &mut part) {
            builder.static_row(|out| out.extend_from_slice(&part));
            any = true;
        }
    }
    let mut at = 0;
    for (clustering, row) in merged.rows() {
        let order = &table.clustering_order;
        while have.is_some_and(|h| at < h.len() && order.compare(h.clustering(at), clustering).is_lt()) {
            at += 1;
        }
        let known: Option<RowView<'_>> = have
            .filter(|h| at < h.len() && order.compare(h.clustering(at), clustering).is_eq())
            .map(|h| h.row(at));
        part.clear();
        if lacks(row, known, table, &mut part) {
            builder.row(clustering, |out| out.extend_from_slice(&part));
            any = true;
        }
    }
    for range in &merged.range_tombstones {
        if have.is_none_or(|h| !h.range_tombstones.contains(range)) {
            builder.range_tombstone(range);
            any = true;
        }
    }
    any.then_some(out)
}

/// Appends what a replica's row lacks of the merged one; whether that is anything.
fn lacks(merged: RowView<'_>, have: Option<RowView<'_>>, table: &Table, out: &mut Vec<u8>) -> bool {
    match have {
        Some(have) => missing_part(&table.layout, merged, have, out),
        None => {
            out.extend_from_slice(merged.bytes());
            true
        }
    }
}
