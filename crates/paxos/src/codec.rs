//! Bytes of ballots, proposals and promises; the same on wire and disk, little endian.
//!
//! ```text
//! ballot    i64 timestamp, u16 node, u16 shard, u32 unique
//! proposal  ballot, ballot origin, i64 since when the past is whole, u8 count and ballots of the past,
//!           u8 0: pruned, 1: vint length and mutation
//! promise   ballot committed, u8 0, or 1 and a proposal
//! ```

use stdx::bytes::Reader;

use crate::{Ballot, Promise, Proposal};

/// Bytes that are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl std::error::Error for Malformed {}

/// Bytes of a ballot.
pub const BALLOT_BYTES: usize = 16;

impl Ballot {
    /// Its bytes.
    #[inline]
    #[must_use]
    pub fn to_bytes(self) -> [u8; BALLOT_BYTES] {
        let mut bytes = [0; BALLOT_BYTES];
        bytes[..8].copy_from_slice(&self.timestamp_us.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.node.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.shard.to_le_bytes());
        bytes[12..].copy_from_slice(&self.unique.to_le_bytes());
        bytes
    }

    /// Appends its bytes.
    #[inline]
    pub fn encode(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bytes());
    }

    /// Reads it.
    ///
    /// # Errors
    /// When the bytes end early.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes = reader.get_array().map_err(|_| Malformed("a whole ballot"))?;
        Ok(Self::from_bytes(bytes))
    }

    #[inline]
    pub(crate) fn from_bytes(bytes: [u8; BALLOT_BYTES]) -> Self {
        let all = u128::from_le_bytes(bytes);
        #[expect(clippy::cast_possible_truncation, reason = "its parts, the lowest first")]
        Self {
            timestamp_us: all as i64,
            node: (all >> 64) as u16,
            shard: (all >> 80) as u16,
            unique: (all >> 96) as u32,
        }
    }
}

impl Promise {
    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.committed.encode(out);
        out.push(u8::from(self.proposal.is_some()));
        if let Some(proposal) = &self.proposal {
            proposal.encode(out);
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When the bytes are not a promise.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let committed = Ballot::decode(reader)?;
        let proposal = match reader.get_u8() {
            Ok(0) => None,
            Ok(1) => Some(Proposal::decode(reader)?),
            _ => return Err(Malformed("whether a promise has a proposal, 0 or 1")),
        };
        Ok(Self { proposal, committed })
    }
}
