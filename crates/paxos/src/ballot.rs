//! Ballots: the order of attempts, and the write timestamps of what they decide.

/// One attempt of one leader. A later one is greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ballot {
    /// Microseconds since the epoch; what was decided is written at this timestamp.
    pub timestamp_us: i64,
    /// The leader's node.
    pub node: u16,
    /// Its shard.
    pub shard: u16,
    /// Distinguishes attempts of one shard, whatever its clock did.
    pub unique: u32,
}

impl Ballot {
    /// Before all others.
    pub const NONE: Self = Self {
        timestamp_us: i64::MIN,
        node: 0,
        shard: 0,
        unique: 0,
    };

    /// Whether an acceptor that has promised `self` may still promise or accept `other`: the same ballot, or one of a
    /// later timestamp. Another one of the same timestamp is refused though it may be greater: if both were chosen,
    /// they would write at one timestamp.
    #[inline]
    #[must_use]
    pub fn admits(self, other: Self) -> bool {
        other == self || other.timestamp_us > self.timestamp_us
    }
}

impl std::fmt::Display for Ballot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of node {} shard {}", self.timestamp_us, self.node, self.shard)
    }
}
