//! Applying: committed entries, in order, each proposal once.
//!
//! A proposal is an entry of a proposer's life (`incarnation`) with a sequence number in it. A proposer that hears
//! nothing proposes again under the same number, so the log may hold a proposal twice; only the first is applied. Each
//! proposal also says below which number its proposer waits for nothing any more: what is below and comes late is
//! dropped, and what was applied below is forgotten. So the table is as large as the number of proposals in flight, and
//! a proposal that its proposer has given up can no longer happen once a later one of the same proposer has.
//!
//! ```text
//! proposal  u64 proposer, u64 incarnation, u64 sequence, u64 settled below, the command
//! snapshot  u32 count of proposers, each: u64 proposer, u64 incarnation, u64 settled below,
//!                                         u32 count, each: u64 sequence, u64 index;
//!           then the machine's snapshot
//! ```
//!
//! The table is part of the replicated state: all members decide alike, and snapshots carry it.

use crate::codec::{Malformed, expected, put_u32, put_u64};
use std::collections::BTreeMap;
use stdx::bytes::Reader;

/// Bytes before the command.
pub(crate) const PROPOSAL_HEADER_BYTES: usize = 32;

/// Identifies a proposal by its proposer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct ProposalId {
    pub(crate) proposer: u64,
    pub(crate) incarnation: u64,
    pub(crate) sequence: u64,
}

pub(crate) fn encode_proposal(id: ProposalId, settled_below: u64, command: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(PROPOSAL_HEADER_BYTES + command.len());
    for number in [id.proposer, id.incarnation, id.sequence, settled_below] {
        put_u64(&mut out, number);
    }
    out.extend_from_slice(command);
    out
}

/// Id, settled below, command.
pub(crate) fn decode_proposal(data: &[u8]) -> Option<(ProposalId, u64, &[u8])> {
    let mut reader = Reader::new(data);
    let mut number = || reader.get_u64().ok();
    let id = ProposalId {
        proposer: number()?,
        incarnation: number()?,
        sequence: number()?,
    };
    let settled_below = number()?;
    Some((id, settled_below, reader.rest()))
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct Proposer {
    incarnation: u64,
    settled_below: u64,
    /// Sequence and index of what was applied and may come again.
    applied: BTreeMap<u64, u64>,
}

/// What was applied and may come again.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Applied(BTreeMap<u64, Proposer>);

impl Applied {
    /// Whether the proposal at this index is to be applied; notes that it was.
    pub(crate) fn admit(&mut self, id: ProposalId, settled_below: u64, index: u64) -> bool {
        let proposer = self.0.entry(id.proposer).or_default();
        if id.incarnation < proposer.incarnation {
            return false;
        }
        if id.incarnation > proposer.incarnation {
            *proposer = Proposer {
                incarnation: id.incarnation,
                ..Proposer::default()
            };
        }
        if id.sequence < proposer.settled_below || proposer.applied.contains_key(&id.sequence) {
            return false;
        }
        proposer.applied.insert(id.sequence, index);
        proposer.settled_below = proposer.settled_below.max(settled_below.min(id.sequence));
        proposer.applied = proposer.applied.split_off(&proposer.settled_below);
        true
    }

    /// Where a proposal was applied, if it was and is still remembered.
    pub(crate) fn index_of(&self, id: ProposalId) -> Option<u64> {
        let proposer = self.0.get(&id.proposer)?;
        (proposer.incarnation == id.incarnation)
            .then(|| proposer.applied.get(&id.sequence).copied())
            .flatten()
    }

    /// A snapshot of the table and the machine.
    pub(crate) fn encode(&self, machine: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        put_u32(
            &mut out,
            u32::try_from(self.0.len()).expect("there are as many proposers as nodes"),
        );
        for (id, proposer) in &self.0 {
            for number in [*id, proposer.incarnation, proposer.settled_below] {
                put_u64(&mut out, number);
            }
            put_u32(
                &mut out,
                u32::try_from(proposer.applied.len()).expect("proposals in flight are limited"),
            );
            for (sequence, index) in &proposer.applied {
                put_u64(&mut out, *sequence);
                put_u64(&mut out, *index);
            }
        }
        out.extend_from_slice(machine);
        out
    }

    /// The table of a snapshot, and the machine's part.
    pub(crate) fn decode(snapshot: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        const WHAT: &str = "the applied proposals of a snapshot";
        let mut reader = Reader::new(snapshot);
        let mut proposers = BTreeMap::new();
        for _ in 0..reader.get_u32().map_err(expected(WHAT))? {
            let id = reader.get_u64().map_err(expected(WHAT))?;
            let mut proposer = Proposer {
                incarnation: reader.get_u64().map_err(expected(WHAT))?,
                settled_below: reader.get_u64().map_err(expected(WHAT))?,
                applied: BTreeMap::new(),
            };
            for _ in 0..reader.get_u32().map_err(expected(WHAT))? {
                let sequence = reader.get_u64().map_err(expected(WHAT))?;
                let index = reader.get_u64().map_err(expected(WHAT))?;
                proposer.applied.insert(sequence, index);
            }
            proposers.insert(id, proposer);
        }
        Ok((Self(proposers), reader.rest()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proposal_is_applied_once_and_never_after_it_was_given_up() {
        // incarnation, sequence, settled below, whether it is applied, story
        let steps = [
            (1, 0, 0, true, "the first"),
            (1, 0, 0, false, "the same again"),
            (1, 2, 0, true, "one overtakes another"),
            (1, 1, 0, true, "the other arrives"),
            (1, 4, 4, true, "3 was given up"),
            (1, 3, 0, false, "and comes all the same"),
            (1, 2, 0, false, "an old one, forgotten by now"),
            (2, 0, 0, true, "the proposer started again"),
            (1, 5, 0, false, "something of its former life"),
            (2, 1, 9, true, "a limit beyond itself is not believed"),
            (2, 2, 0, true, "so the next is applied"),
        ];
        let mut applied = Applied::default();
        for (index, (incarnation, sequence, settled, expected, story)) in (1..).zip(steps) {
            let id = ProposalId {
                proposer: 7,
                incarnation,
                sequence,
            };
            assert_eq!(applied.admit(id, settled, index), expected, "{story}");
            if expected {
                assert_eq!(applied.index_of(id), Some(index), "{story}");
            }
            let bytes = applied.encode(b"machine");
            let (again, machine) = Applied::decode(&bytes).expect("what was encoded");
            assert_eq!((&again, machine), (&applied, &b"machine"[..]), "{story}");
            for cut in 0..bytes.len() - b"machine".len() {
                assert!(Applied::decode(&bytes[..cut]).is_err(), "{story}: cut at {cut}");
            }
        }
    }
}
