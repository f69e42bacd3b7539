//! Bytes of ballots, proposals and promises; the same on wire and disk, little endian.
//!
//! ```text
//! ballot    i64 timestamp, u16 node, u16 shard, u32 unique
//! proposal  ballot, ballot origin, i64 since when the past is whole, u8 count and ballots of the past,
//!           u8 0: pruned, 1: vint length and mutation
//! promise   ballot committed, u8 0, or 1 and a proposal
//! ```

use stdx::bytes::Reader;
use stdx::vint;

use crate::{Ballot, PAST_MAX, Promise, Proposal};

/// Bytes that are not what they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "expected {}", self.0)
    }
}

impl std::error::Error for Malformed {}

impl Ballot {
    /// Appends its bytes.
    pub fn encode(self, out: &mut Vec<u8>) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.timestamp_us.to_le_bytes());
        bytes[8..10].copy_from_slice(&self.node.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.shard.to_le_bytes());
        bytes[12..].copy_from_slice(&self.unique.to_le_bytes());
        out.extend_from_slice(&bytes);
    }

    /// Reads it.
    ///
    /// # Errors
    /// When the bytes end early.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes: [u8; 16] = reader.get_array().map_err(|_| Malformed("a whole ballot"))?;
        let [
            t0,
            t1,
            t2,
            t3,
            t4,
            t5,
            t6,
            t7,
            node0,
            node1,
            shard0,
            shard1,
            unique @ ..,
        ] = bytes;
        Ok(Self {
            timestamp_us: i64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
            node: u16::from_le_bytes([node0, node1]),
            shard: u16::from_le_bytes([shard0, shard1]),
            unique: u32::from_le_bytes(unique),
        })
    }
}

impl Proposal {
    /// Room for its bytes.
    #[must_use]
    pub fn encoded_bytes_max(&self) -> usize {
        64 + 16 * self.past.len() + self.value.as_ref().map_or(0, Vec::len)
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_bytes_max());
        self.ballot.encode(out);
        self.origin.encode(out);
        out.extend_from_slice(&self.past_since_us.to_le_bytes());
        let past = &self.past[..self.past.len().min(PAST_MAX)];
        out.push(u8::try_from(past.len()).expect("PAST_MAX fits in a byte"));
        past.iter().for_each(|ballot| ballot.encode(out));
        out.push(u8::from(self.value.is_some()));
        if let Some(value) = &self.value {
            vint::put_unsigned(out, value.len() as u64);
            out.extend_from_slice(value);
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// When the bytes are not a proposal.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (ballot, origin) = (Ballot::decode(reader)?, Ballot::decode(reader)?);
        let since = reader
            .get_array()
            .map_err(|_| Malformed("since when a proposal's past is whole"))?;
        let count = reader.get_u8().map_err(|_| Malformed("how much past a proposal has"))?;
        if usize::from(count) > PAST_MAX {
            return Err(Malformed("no more past than PAST_MAX"));
        }
        let past = (0..count).map(|_| Ballot::decode(reader)).collect::<Result<_, _>>()?;
        let cut = |_| Malformed("a whole proposal");
        let value = match reader.get_u8().map_err(cut)? {
            0 => None,
            1 => {
                let len = usize::try_from(reader.get_vint().map_err(cut)?).map_err(|_| Malformed("a length"))?;
                Some(reader.get_slice(len).map_err(cut)?.to_vec())
            }
            _ => return Err(Malformed("whether a proposal has a value, 0 or 1")),
        };
        Ok(Self {
            ballot,
            origin,
            past,
            past_since_us: i64::from_le_bytes(since),
            value,
        })
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
