//! Which nodes and shards hold the tokens of a table.
//!
//! The ring is cut into *tablets*; tablet `i` has the tokens above the last token of tablet `i - 1`, up to and
//! including its own last token. The first begins at the lowest token of all, the last ends at the highest, so every
//! token has one tablet. Where the cuts are:
//!
//! - `PowerOfTwo(n)`: 2^n tablets of equal size. The tablet of a token is its n most significant bits, the sign
//!   flipped.
//! - `LastTokens`: any; made from the token ring for keyspaces without tablets. The tablet of a token is found by
//!   binary search.
//!
//! In memory the tablets are in *chunks* of 1,024, each in an `Arc`. A chunk has one array of replicas, the position in
//! it where each tablet's replicas end, and the few tablets that are on the move. A change copies the chunks that it
//! touches; readers keep the map that they have. A tablet with three replicas takes 16 bytes.
//!
//! A tablet on the move has a [`Transition`]: the replicas it will have, and the [`Stage`] of the move, which
//! determines which replicas are read and which are written. Every map has a version, and every transition the version
//! in which its stage began: a request with an older version comes from a coordinator that does not know of the stage.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use types::Token;

use crate::node::NodeNumber;

/// The most tablets that a map has.
pub const TABLETS_MAX: u32 = 1 << 22;
const LOG2_MAX: u8 = 22;
const CHUNK_LOG2: u32 = 10;
const CHUNK_TABLETS: usize = 1 << CHUNK_LOG2;
/// The most replicas of a tablet: the maximum of a count of seven bits.
pub(crate) const REPLICAS_MAX: usize = 127;

/// A copy of a tablet: node and shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Replica {
    /// The node, by its number in the topology.
    pub node: NodeNumber,
    /// Its shard.
    pub shard: u16,
}

/// Replicas of one tablet, in place for up to six.
pub type ReplicaList = SmallVec<[Replica; 6]>;

/// A tablet's place in the order of tokens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TabletId(pub u32);

impl TabletId {
    #[inline]
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where tablets end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Boundaries {
    /// 2 to this power tablets of equal size.
    PowerOfTwo(u8),
    /// The last token of each tablet, strictly ascending; the last is `Token::MAX`.
    LastTokens(Arc<[Token]>),
}

impl Boundaries {
    /// How many tablets there are.
    #[must_use]
    pub fn tablet_count(&self) -> u32 {
        match self {
            Self::PowerOfTwo(log2) => 1 << log2,
            Self::LastTokens(tokens) => u32::try_from(tokens.len()).expect("at most TABLETS_MAX"),
        }
    }

    /// The last token of a tablet that is there.
    pub(crate) fn last_token(&self, id: u32) -> Token {
        match self {
            Self::PowerOfTwo(log2) => {
                let next = u128::from(id + 1) << (64 - u32::from(*log2));
                let last = u64::try_from(next - 1).expect("within the ring");
                Token((last ^ (1 << 63)).cast_signed())
            }
            Self::LastTokens(tokens) => tokens[id as usize],
        }
    }

    /// The last tokens of all tablets, in order.
    pub(crate) fn last_tokens(&self) -> impl Iterator<Item = Token> {
        (0..self.tablet_count()).map(|id| self.last_token(id))
    }

    /// These boundaries and those of `other` together.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Self {
        let ends: BTreeSet<Token> = self.last_tokens().chain(other.last_tokens()).collect();
        Self::LastTokens(ends.into_iter().collect())
    }

    /// The tokens of each tablet: above the first of these, up to and including the second.
    pub fn token_ranges(&self) -> impl Iterator<Item = (Token, Token)> {
        let after = std::iter::once(Token::MIN).chain(self.last_tokens());
        after.zip(self.last_tokens())
    }

    /// Whether a tablet ends with this token.
    pub(crate) fn has_end(&self, last: Token) -> bool {
        match self {
            Self::PowerOfTwo(log2) => self.last_token(equal_part(last, *log2).0) == last,
            Self::LastTokens(tokens) => tokens.binary_search(&last).is_ok(),
        }
    }

    fn check(&self) -> Result<(), MapError> {
        match self {
            Self::PowerOfTwo(log2) if *log2 <= LOG2_MAX => Ok(()),
            Self::LastTokens(t)
                if t.len() <= TABLETS_MAX as usize
                    && t.is_sorted_by(|a, b| a < b)
                    && t.first() != Some(&Token::MIN)
                    && t.last() == Some(&Token::MAX) =>
            {
                Ok(())
            }
            _ => Err(MapError::Boundaries),
        }
    }
}

/// The tablet of a token among 2^log2 tablets of equal size.
#[inline]
pub(crate) fn equal_part(token: Token, log2: u8) -> TabletId {
    let place = token.0.cast_unsigned() ^ (1 << 63);
    // Two shifts: one by 64 bits is none.
    let id = (place >> 1) >> (63 - u32::from(log2));
    TabletId(u32::try_from(id).expect("no more bits than a map has tablets"))
}

/// A step of a tablet's move from its replicas to others.
///
/// The order is that of the variants up to `UseNew`, after which the transition is gone and the new replicas are the
/// replicas. A move that fails before `WriteBothReadNew` goes to `CleanupTarget`, after which the transition is gone
/// and the replicas are as before. See [`crate::MoveStep`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// New replicas accept writes; coordinators do not send any yet.
    AllowWriteBothReadOld,
    /// Coordinators write to both.
    WriteBothReadOld,
    /// What the old replicas have is copied.
    Streaming,
    /// Both are written, the new ones are read.
    WriteBothReadNew,
    /// The new ones are written and read.
    UseNew,
    /// After a failure: the new replicas are not written any more, and drop what they received.
    CleanupTarget,
}

/// One of the two replica sets of a transition, or their union.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Selector {
    /// The replicas before the move.
    Old,
    /// Both.
    Both,
    /// The replicas after the move.
    New,
}

impl Stage {
    /// The replicas that coordinators write to.
    #[must_use]
    pub fn writes(self) -> Selector {
        match self {
            Self::AllowWriteBothReadOld | Self::CleanupTarget => Selector::Old,
            Self::WriteBothReadOld | Self::Streaming | Self::WriteBothReadNew => Selector::Both,
            Self::UseNew => Selector::New,
        }
    }

    /// Whether the new replicas are read.
    #[must_use]
    pub fn reads_new(self) -> bool {
        matches!(self, Self::WriteBothReadNew | Self::UseNew)
    }

    /// The stage that follows when all goes well; None after the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        match self {
            Self::AllowWriteBothReadOld => Some(Self::WriteBothReadOld),
            Self::WriteBothReadOld => Some(Self::Streaming),
            Self::Streaming => Some(Self::WriteBothReadNew),
            Self::WriteBothReadNew => Some(Self::UseNew),
            Self::UseNew | Self::CleanupTarget => None,
        }
    }
}

/// A tablet's move.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transition {
    /// How far it is.
    pub stage: Stage,
    /// The replicas after it.
    pub next: ReplicaList,
    /// The version of the map in which the stage began.
    pub version: u64,
    /// The nodes that have copied, where several must: only in `Streaming`.
    pub copied: SmallVec<[NodeNumber; 4]>,
}

/// One tablet, borrowed from its map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tablet<'m> {
    /// Its place.
    pub id: TabletId,
    /// Its replicas; while it moves, those before the move.
    pub replicas: &'m [Replica],
    /// Its move.
    pub transition: Option<&'m Transition>,
}

impl<'m> Tablet<'m> {
    /// Its replicas, or those that it will have when its transition has ended.
    #[inline]
    #[must_use]
    pub fn arrives_at(&self) -> &'m [Replica] {
        match self.transition {
            Some(transition) if transition.stage != Stage::CleanupTarget => &transition.next,
            _ => self.replicas,
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Chunk {
    /// Where in `replicas` each tablet's end.
    ends: Box<[u32]>,
    replicas: Box<[Replica]>,
    /// In order of tablets, counted from the chunk's first.
    transitions: Box<[(u16, Transition)]>,
    /// The highest shard of each node that has a replica here, or will have.
    highest_shards: Box<[Replica]>,
}

/// One tablet's replicas and transition, as they shall be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletEdit {
    /// The tablet.
    pub tablet: TabletId,
    /// All its replicas.
    pub replicas: ReplicaList,
    /// Its move; None when it does not move.
    pub transition: Option<Transition>,
}

/// What turns one version of a map into another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletChange {
    /// The version that it applies to.
    pub from_version: u64,
    /// The version that it makes.
    pub version: u64,
    /// In order of tablets, each once.
    pub edits: Vec<TabletEdit>,
}

/// What no map can be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MapError {
    /// Boundaries that do not cut the ring, or into too many tablets.
    Boundaries,
    /// Another number of replica sets than of tablets.
    Count {
        /// Tablets.
        tablets: u32,
        /// Replica sets.
        found: usize,
    },
    /// A tablet that two replicas of one node hold, or that too many hold.
    Replicas(TabletId),
    /// A tablet that the map does not have.
    NoSuchTablet(TabletId),
    /// Edits that are not in order of tablets, each once.
    EditOrder(TabletId),
    /// A change that was made for another version of the map.
    Version {
        /// The map's.
        map: u64,
        /// The change's.
        from: u64,
        /// What the change would make it.
        to: u64,
    },
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boundaries => write!(
                f,
                "tablets must end at ascending tokens up to the highest, and be at most {TABLETS_MAX}"
            ),
            Self::Count { tablets, found } => write!(f, "{tablets} tablets need as many replica sets, found {found}"),
            Self::Replicas(t) => write!(
                f,
                "tablet {} has two replicas on one node, or more than {REPLICAS_MAX}",
                t.0
            ),
            Self::NoSuchTablet(t) => write!(f, "the map has no tablet {}", t.0),
            Self::EditOrder(t) => write!(f, "the edit of tablet {} is not in order, each tablet once", t.0),
            Self::Version { map, from, to } => write!(
                f,
                "a change from version {from} to {to} cannot be applied to version {map} of the map"
            ),
        }
    }
}

impl std::error::Error for MapError {}

/// All tablets of a table at one version. Cloning it copies a pointer per 1,024 tablets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletMap {
    version: u64,
    boundaries: Boundaries,
    chunks: Vec<Arc<Chunk>>,
}

impl TabletMap {
    /// A map of tablets that have these replicas, in order of tablets, and do not move.
    ///
    /// # Errors
    /// When boundaries or replicas cannot be.
    pub fn new(version: u64, boundaries: Boundaries, replicas: &[ReplicaList]) -> Result<Self, MapError> {
        let mut builder = Builder::new(version, boundaries)?;
        for set in replicas {
            builder.push(set, None)?;
        }
        builder.finish()
    }

    /// Grows with each change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Where its tablets end.
    #[must_use]
    pub fn boundaries(&self) -> &Boundaries {
        &self.boundaries
    }

    /// How many tablets there are; at least one.
    #[must_use]
    pub fn tablet_count(&self) -> u32 {
        self.boundaries.tablet_count()
    }

    /// The tablet that a token is in.
    #[inline]
    #[must_use]
    pub fn tablet_id(&self, token: Token) -> TabletId {
        match &self.boundaries {
            Boundaries::PowerOfTwo(log2) => equal_part(token, *log2),
            Boundaries::LastTokens(tokens) => {
                let at = tokens.partition_point(|last| *last < token);
                TabletId(u32::try_from(at).expect("at most TABLETS_MAX"))
            }
        }
    }

    /// The tablet that a token is in, with its replicas.
    #[inline]
    #[must_use]
    pub fn tablet_of(&self, token: Token) -> Tablet<'_> {
        self.view(self.tablet_id(token))
    }

    /// A tablet of the map; None when it has no such tablet.
    #[must_use]
    pub fn tablet(&self, id: TabletId) -> Option<Tablet<'_>> {
        (id.0 < self.tablet_count()).then(|| self.view(id))
    }

    /// All tablets in order.
    pub fn tablets(&self) -> impl Iterator<Item = Tablet<'_>> {
        (0..self.tablet_count()).map(|id| self.view(TabletId(id)))
    }

    /// The tablets that have any token above `after` and up to `to`, in order.
    pub fn tablets_within(&self, (after, to): (Token, Token)) -> impl Iterator<Item = Tablet<'_>> {
        let first = self.tablet_id(Token(after.0.saturating_add(1)));
        let end = if after < to { self.tablet_id(to).0 + 1 } else { first.0 };
        (first.0..end).map(|id| self.view(TabletId(id)))
    }

    /// The tablets that may have other replicas or moves than in an earlier map, as ranges of ids; None when they have
    /// other boundaries. Costs a look at each chunk of 1,024 tablets, and a comparison of those that are not shared.
    #[must_use]
    pub fn changed_since(&self, before: &Self) -> Option<Vec<Range<u32>>> {
        let have_same = match (&self.boundaries, &before.boundaries) {
            (Boundaries::LastTokens(now), Boundaries::LastTokens(before)) if Arc::ptr_eq(now, before) => true,
            (now, before) => now == before,
        };
        let tablets = self.tablet_count();
        have_same.then(|| {
            let chunks = (0u32..).zip(self.chunks.iter().zip(&before.chunks));
            let changed = chunks.filter(|(_, (now, before))| !Arc::ptr_eq(now, before) && now != before);
            changed
                .map(|(number, _)| number << CHUNK_LOG2..((number + 1) << CHUNK_LOG2).min(tablets))
                .collect()
        })
    }

    /// The tablets that move, in order. Costs a look at each chunk of 1,024 tablets.
    pub fn moving(&self) -> impl Iterator<Item = Tablet<'_>> {
        (0..).zip(&self.chunks).flat_map(move |(number, chunk)| {
            let first: u32 = number << CHUNK_LOG2;
            let tablets = chunk.transitions.iter();
            tablets.map(move |(at, _)| self.view(TabletId(first + u32::from(*at))))
        })
    }

    /// The map after all moves that are in progress. None if nothing moves.
    #[must_use]
    pub fn arrived(&self) -> Option<Self> {
        self.moving().next()?;
        let replicas: Vec<ReplicaList> = self.tablets().map(|tablet| tablet.arrives_at().into()).collect();
        Self::new(self.version, self.boundaries.clone(), &replicas).ok()
    }

    #[inline]
    fn view(&self, id: TabletId) -> Tablet<'_> {
        let chunk = &self.chunks[id.index() >> CHUNK_LOG2];
        let at = id.index() % CHUNK_TABLETS;
        Tablet {
            id,
            replicas: &chunk.replicas[chunk.range(at)],
            transition: chunk.transition(at),
        }
    }

    /// The tokens of a tablet: above the first of these, up to and including the second. `Token::MIN` of the first
    /// tablet belongs to it too.
    #[must_use]
    pub fn token_range(&self, id: TabletId) -> Option<(Token, Token)> {
        if id.0 >= self.tablet_count() {
            return None;
        }
        let after = id.0.checked_sub(1).map_or(Token::MIN, |before| self.last_token(before));
        Some((after, self.last_token(id.0)))
    }

    fn last_token(&self, id: u32) -> Token {
        self.boundaries.last_token(id)
    }

    /// The map for nodes that have fewer shards than when it was made: replicas on a shard that their node no longer
    /// has are distributed over the shards that it has, in turn. None when every replica's shard exists.
    #[must_use]
    pub fn on_shards(&self, shards: impl Fn(NodeNumber) -> u16) -> Option<Self> {
        let is_gone = |r: &Replica| r.shard >= shards(r.node).max(1);
        if !self.chunks.iter().any(|chunk| chunk.highest_shards.iter().any(is_gone)) {
            return None;
        }
        let moved = |replicas: &[Replica]| -> ReplicaList {
            let on = |r: &Replica| Replica {
                node: r.node,
                shard: r.shard % shards(r.node).max(1),
            };
            replicas.iter().map(on).collect()
        };
        let mut builder =
            Builder::new(self.version, self.boundaries.clone()).expect("these are the boundaries of a map");
        for tablet in self.tablets() {
            let transition = tablet.transition.map(|t| Transition {
                next: moved(&t.next),
                ..t.clone()
            });
            let pushed = builder.push(&moved(tablet.replicas), transition);
            pushed.expect("the nodes of a tablet are as before");
        }
        Some(builder.finish().expect("every tablet was pushed"))
    }

    /// Applies a change: copies the chunks that it touches.
    ///
    /// # Errors
    /// When the change is for another version or names what the map cannot have; the map is as before then.
    pub fn apply(&mut self, change: &TabletChange) -> Result<(), MapError> {
        if change.from_version != self.version || change.version <= self.version {
            return Err(MapError::Version {
                map: self.version,
                from: change.from_version,
                to: change.version,
            });
        }
        let mut before = None;
        for edit in &change.edits {
            if before >= Some(edit.tablet) {
                return Err(MapError::EditOrder(edit.tablet));
            }
            if edit.tablet.0 >= self.tablet_count() {
                return Err(MapError::NoSuchTablet(edit.tablet));
            }
            check_replicas(edit.tablet, &edit.replicas)?;
            if let Some(transition) = &edit.transition {
                check_replicas(edit.tablet, &transition.next)?;
            }
            before = Some(edit.tablet);
        }
        for edits in change
            .edits
            .chunk_by(|a, b| a.tablet.index() >> CHUNK_LOG2 == b.tablet.index() >> CHUNK_LOG2)
        {
            let chunk = &mut self.chunks[edits[0].tablet.index() >> CHUNK_LOG2];
            *chunk = Arc::new(chunk.edited(edits));
        }
        self.version = change.version;
        Ok(())
    }

    /// The memory that the map holds, to the byte; what it shares with clones is counted in each.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        // A shared value is stored after its two counts.
        const COUNTS: usize = 2 * size_of::<usize>();
        let boundaries = match &self.boundaries {
            Boundaries::PowerOfTwo(_) => 0,
            Boundaries::LastTokens(tokens) => COUNTS + size_of_val(&**tokens),
        };
        let chunks: usize = self.chunks.iter().map(|c| COUNTS + c.memory_bytes()).sum();
        size_of::<Self>() + boundaries + self.chunks.capacity() * size_of::<Arc<Chunk>>() + chunks
    }
}

impl Chunk {
    #[inline]
    fn range(&self, at: usize) -> Range<usize> {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        start..self.ends[at] as usize
    }

    #[inline]
    fn transition(&self, at: usize) -> Option<&Transition> {
        if self.transitions.is_empty() {
            return None;
        }
        let found = self
            .transitions
            .binary_search_by(|(tablet, _)| usize::from(*tablet).cmp(&at));
        found.ok().map(|i| &self.transitions[i].1)
    }

    /// A copy with these tablets changed; all of them are of this chunk, in order.
    fn edited(&self, edits: &[TabletEdit]) -> Self {
        let mut next = ChunkBuilder::default();
        let mut copied = 0;
        for edit in edits {
            let at = edit.tablet.index() % CHUNK_TABLETS;
            next.copy(self, copied..at);
            next.push(&edit.replicas, edit.transition.clone());
            copied = at + 1;
        }
        next.copy(self, copied..self.ends.len());
        next.finish()
    }

    fn memory_bytes(&self) -> usize {
        let spilled: usize = self
            .transitions
            .iter()
            .filter(|(_, t)| t.next.spilled())
            .map(|(_, t)| t.next.capacity() * size_of::<Replica>())
            .sum();
        size_of::<Self>()
            + size_of_val(&*self.ends)
            + size_of_val(&*self.replicas)
            + size_of_val(&*self.transitions)
            + size_of_val(&*self.highest_shards)
            + spilled
    }
}

#[derive(Default)]
struct ChunkBuilder {
    ends: Vec<u32>,
    replicas: Vec<Replica>,
    transitions: Vec<(u16, Transition)>,
}

impl ChunkBuilder {
    fn push(&mut self, replicas: &[Replica], transition: Option<Transition>) {
        if let Some(transition) = transition {
            let at = u16::try_from(self.ends.len()).expect("a chunk has 1,024 tablets");
            self.transitions.push((at, transition));
        }
        self.replicas.extend_from_slice(replicas);
        self.ends.push(end_of(&self.replicas));
    }

    fn copy(&mut self, from: &Chunk, tablets: Range<usize>) {
        if tablets.is_empty() {
            return;
        }
        let first = from.range(tablets.start).start;
        let last = from.range(tablets.end - 1).end;
        let shift = end_of(&self.replicas);
        let moved = from.ends[tablets.clone()].iter();
        self.ends.extend(moved.map(|end| end - first as u32 + shift));
        self.replicas.extend_from_slice(&from.replicas[first..last]);
        let moved = from
            .transitions
            .iter()
            .filter(|(at, _)| tablets.contains(&usize::from(*at)));
        self.transitions.extend(moved.cloned());
    }

    fn finish(self) -> Chunk {
        let moving = self.transitions.iter().flat_map(|(_, transition)| &transition.next);
        // By the node's number: a chunk has thousands of replicas, and a map is changed often.
        let mut highest: Vec<Option<Replica>> = Vec::new();
        for replica in self.replicas.iter().chain(moving) {
            let at = replica.node.index();
            if highest.len() <= at {
                highest.resize(at + 1, None);
            }
            if highest[at].is_none_or(|known| known.shard < replica.shard) {
                highest[at] = Some(*replica);
            }
        }
        Chunk {
            highest_shards: highest.into_iter().flatten().collect(),
            ends: self.ends.into(),
            replicas: self.replicas.into(),
            transitions: self.transitions.into(),
        }
    }
}

fn end_of(replicas: &[Replica]) -> u32 {
    u32::try_from(replicas.len()).expect("1,024 tablets of at most 127 replicas")
}

pub(crate) fn check_replicas(tablet: TabletId, replicas: &[Replica]) -> Result<(), MapError> {
    let repeats = |(i, r): (usize, &Replica)| replicas[..i].iter().any(|other| other.node == r.node);
    if replicas.len() > REPLICAS_MAX || replicas.iter().enumerate().any(repeats) {
        return Err(MapError::Replicas(tablet));
    }
    Ok(())
}

/// Takes tablets in order.
pub(crate) struct Builder {
    map: TabletMap,
    chunk: ChunkBuilder,
    count: usize,
}

impl Builder {
    pub(crate) fn new(version: u64, boundaries: Boundaries) -> Result<Self, MapError> {
        boundaries.check()?;
        let chunks = (boundaries.tablet_count() as usize).div_ceil(CHUNK_TABLETS);
        Ok(Self {
            map: TabletMap {
                version,
                boundaries,
                chunks: Vec::with_capacity(chunks),
            },
            chunk: ChunkBuilder::default(),
            count: 0,
        })
    }

    pub(crate) fn push(&mut self, replicas: &[Replica], transition: Option<Transition>) -> Result<(), MapError> {
        let tablets = self.map.tablet_count();
        let id = u32::try_from(self.count).unwrap_or(u32::MAX);
        self.count += 1;
        if id >= tablets {
            return Err(MapError::Count {
                tablets,
                found: self.count,
            });
        }
        check_replicas(TabletId(id), replicas)?;
        if let Some(transition) = &transition {
            check_replicas(TabletId(id), &transition.next)?;
        }
        self.chunk.push(replicas, transition);
        if self.chunk.ends.len() == CHUNK_TABLETS {
            self.map.chunks.push(Arc::new(std::mem::take(&mut self.chunk).finish()));
        }
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<TabletMap, MapError> {
        let tablets = self.map.tablet_count();
        if self.count != tablets as usize {
            return Err(MapError::Count {
                tablets,
                found: self.count,
            });
        }
        if !self.chunk.ends.is_empty() {
            self.map.chunks.push(Arc::new(self.chunk.finish()));
        }
        Ok(self.map)
    }
}
