//! Proposals. All but the ballot is one run of bytes, the same in memory, on the wire and on disk, so that a proposal
//! is handed on without being taken apart: leaders and acceptors look at its past only when something went wrong.

use std::ops::Range;
use std::sync::Arc;

use stdx::bytes::Reader;
use stdx::vint;

use crate::codec::{BALLOT_BYTES, Malformed};
use crate::{Ballot, PAST_MAX, PAST_US};

/// Where the past begins: after the origin, `past_since_us` and the count.
const PAST_AT: usize = BALLOT_BYTES + 8 + 1;
const PRUNED: u8 = 0;
const WITH_VALUE: u8 = 1;

/// A value that a leader wants to be chosen. Copies share its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proposal {
    /// At which it is, or was last, accepted.
    pub ballot: Ballot,
    /// At which it was decided first.
    pub origin: Ballot,
    /// The encoded bytes after the ballot.
    body: Arc<[u8]>,
    /// How many ballots its past has.
    past: u8,
    /// Where the mutation begins, which goes to the end; 0 when it was pruned.
    value_at: usize,
}

impl Proposal {
    /// A new one, decided at this ballot when `last` was the one chosen last.
    #[must_use]
    pub fn new(ballot: Ballot, last: Option<&Self>, value: &[u8]) -> Self {
        let mut body = Vec::with_capacity(last.map_or(0, |last| last.past_bytes().len()) + value.len() + 64);
        ballot.encode(&mut body);
        let mut past_since_us = i64::MIN;
        body.extend_from_slice(&past_since_us.to_le_bytes());
        body.push(0);
        let mut count = 0;
        if let Some(last) = last {
            past_since_us = last.past_since_us().max(ballot.timestamp_us.saturating_sub(PAST_US));
            for origin in last.chain().filter(|origin| origin.timestamp_us >= past_since_us) {
                if count == PAST_MAX {
                    past_since_us = origin.timestamp_us.saturating_add(1);
                    break;
                }
                origin.encode(&mut body);
                count += 1;
            }
        }
        body[BALLOT_BYTES..BALLOT_BYTES + 8].copy_from_slice(&past_since_us.to_le_bytes());
        let past = u8::try_from(count).expect("PAST_MAX fits in a byte");
        body[PAST_AT - 1] = past;
        body.push(WITH_VALUE);
        vint::put_unsigned(&mut body, value.len() as u64);
        let value_at = body.len();
        body.extend_from_slice(value);
        Self {
            ballot,
            origin: ballot,
            body: body.into(),
            past,
            value_at,
        }
    }

    /// A copy of the proposal, to be accepted at another ballot.
    #[must_use]
    pub fn at(&self, ballot: Ballot) -> Self {
        Self { ballot, ..self.clone() }
    }

    /// The mutation. None: every replica has learned it, and it was dropped.
    #[must_use]
    pub fn value(&self) -> Option<&[u8]> {
        (self.value_at > 0).then(|| &self.body[self.value_at..])
    }

    /// Drops the mutation.
    pub(crate) fn prune(&mut self) {
        let mut body = self.body[..self.past_range().end].to_vec();
        body.push(PRUNED);
        (self.body, self.value_at) = (body.into(), 0);
    }

    /// The timestamp from which on the past is whole.
    pub(crate) fn past_since_us(&self) -> i64 {
        let bytes = self.body[BALLOT_BYTES..].first_chunk();
        i64::from_le_bytes(*bytes.expect("it was encoded"))
    }

    fn past_range(&self) -> Range<usize> {
        PAST_AT..PAST_AT + BALLOT_BYTES * usize::from(self.past)
    }

    fn past_bytes(&self) -> &[u8] {
        &self.body[self.past_range()]
    }

    /// Its origin and those chosen before it, the last first: all from the timestamp [`Proposal::past_since_us`] on.
    pub(crate) fn chain(&self) -> impl Iterator<Item = Ballot> + '_ {
        let (past, _) = self.past_bytes().as_chunks();
        std::iter::once(self.origin).chain(past.iter().copied().map(Ballot::from_bytes))
    }

    /// Appends the bytes of the same proposal without a past, for an acceptor's row: a leader that was overtaken and
    /// finds only acceptors that have restarted since does not learn what became of its own, which is rare, and each
    /// row is smaller by up to a kilobyte.
    pub fn encode_without_past(&self, out: &mut Vec<u8>) {
        self.ballot.encode(out);
        self.origin.encode(out);
        // Everything chosen before was decided before.
        out.extend_from_slice(&self.origin.timestamp_us.to_le_bytes());
        out.push(0);
        out.extend_from_slice(&self.body[self.past_range().end..]);
    }

    /// Bytes of [`Proposal::encode_without_past`].
    #[must_use]
    pub fn encoded_bytes_without_past(&self) -> usize {
        self.encoded_bytes() - self.past_range().len()
    }

    /// Bytes of the encoded form.
    #[must_use]
    pub fn encoded_bytes(&self) -> usize {
        BALLOT_BYTES + self.body.len()
    }

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_bytes());
        self.ballot.encode(out);
        out.extend_from_slice(&self.body);
    }

    /// Reads it.
    ///
    /// # Errors
    /// When the bytes are not a proposal.
    pub fn decode(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let cut = |_| Malformed("a whole proposal");
        let ballot = Ballot::decode(reader)?;
        let (body, begin) = (reader.rest(), reader.at());
        let origin = Ballot::decode(reader)?;
        reader.get_slice(8).map_err(cut)?;
        let past = reader.get_u8().map_err(cut)?;
        if usize::from(past) > PAST_MAX {
            return Err(Malformed("no more past than PAST_MAX"));
        }
        reader.get_slice(BALLOT_BYTES * usize::from(past)).map_err(cut)?;
        let value_at = match reader.get_u8().map_err(cut)? {
            PRUNED => 0,
            WITH_VALUE => {
                let len = usize::try_from(reader.get_vint().map_err(cut)?).map_err(|_| Malformed("a length"))?;
                let value_at = reader.at() - begin;
                reader.get_slice(len).map_err(cut)?;
                value_at
            }
            _ => return Err(Malformed("whether a proposal has a value, 0 or 1")),
        };
        Ok(Self {
            ballot,
            origin,
            body: body[..reader.at() - begin].into(),
            past,
            value_at,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ballot(timestamp_us: i64) -> Ballot {
        Ballot {
            timestamp_us,
            ..Ballot::NONE
        }
    }

    fn decoded(encode: impl Fn(&mut Vec<u8>)) -> Proposal {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        let proposal = Proposal::decode(&mut reader).expect("it was encoded");
        assert!(reader.rest().is_empty(), "nothing is left of it");
        proposal
    }

    #[test]
    fn a_proposal_comes_back_whole_or_without_its_past_and_says_how_far_back_it_knows() {
        let first = Proposal::new(ballot(10), None, b"one");
        let second = Proposal::new(ballot(20), Some(&first), b"two");
        let mut third = Proposal::new(ballot(30), Some(&second), b"three");
        assert_eq!(decoded(|out| third.encode(out)), third);
        let chain: Vec<i64> = third.chain().map(|b| b.timestamp_us).collect();
        assert_eq!((chain, third.past_since_us()), (vec![30, 20, 10], 30 - PAST_US));
        let without = decoded(|out| third.encode_without_past(out));
        assert_eq!(without.encoded_bytes(), third.encoded_bytes_without_past());
        assert_eq!(without.chain().collect::<Vec<_>>(), [ballot(30)]);
        assert_eq!((without.past_since_us(), without.value()), (30, Some(&b"three"[..])));
        third.prune();
        assert_eq!(decoded(|out| third.encode(out)).value(), None);
        assert_eq!(decoded(|out| third.encode_without_past(out)).value(), None);
    }
}
