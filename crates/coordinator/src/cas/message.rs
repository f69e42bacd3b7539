//! What the leader of a conditional statement and the replicas of its partition say to each other.
//!
//! ```text
//! PAXOS    u8 phase, [u8; 16] table, vint length and partition key, then
//!          1 prepare: ballot, for each read vint length and READ command (see message.rs; digest only or not)
//!          2 accept, 3 learn: proposal
//!          4 prune: ballot
//!          5 commit: ballot
//! answer   1 promised: promise, for each read vint length and answer
//!          2 done (accepted, learned, pruned)
//!          3 refused: the ballot that was promised
//!          4 lacking: what was chosen at the ballot is not here
//! ```
//! Ballots, proposals and promises are those of crate `paxos`.

use std::borrow::Cow;

use paxos::{BALLOT_BYTES, Ballot, Promise, Proposal};
use schema::{Table, TableId};
use smallvec::SmallVec;
use stdx::bytes::{Reader, put_sized};
use stdx::vint;
use uuid::Uuid;

use crate::message::{Answer, Extent, Malformed, ReadCommand, sized};

impl From<paxos::Malformed> for Malformed {
    fn from(malformed: paxos::Malformed) -> Self {
        Self(malformed.0)
    }
}

/// What an acceptor is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase<'a> {
    /// With what is to be read then.
    Prepare(Ballot, Reads<'a>),
    Accept(Proposal),
    Learn(Proposal),
    /// Learn what was accepted at this ballot.
    Commit(Ballot),
    Prune(Ballot),
}

impl Phase<'_> {
    /// What an acceptor does in it, for a trace.
    pub(crate) fn activity(&self) -> String {
        let name = match self {
            Self::Prepare(..) => "Promising a ballot",
            Self::Accept(_) => "Accepting a proposal",
            Self::Learn(_) => "Learning a decision",
            Self::Commit(_) => "Learning the accepted proposal",
            Self::Prune(_) => "Forgetting a decision that all replicas have",
        };
        name.to_owned()
    }
}

/// Reads, as bytes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Reads<'a>(Cow<'a, [u8]>);

impl Reads<'_> {
    pub(crate) fn of<'e>(commands: impl Iterator<Item = ReadCommand<&'e Extent>>) -> Self {
        let mut bytes = Vec::new();
        for command in commands {
            let command = command.encode();
            bytes.reserve(command.len() + vint::LEN_MAX);
            put_sized(&mut bytes, &command);
        }
        Self(Cow::Owned(bytes))
    }

    /// The bytes of each, which are not looked at yet. An error is the last.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Result<&[u8], Malformed>> {
        let mut reader = Reader::new(&self.0);
        let mut is_over = false;
        std::iter::from_fn(move || {
            let next = (!is_over && !reader.rest().is_empty()).then(|| sized(&mut reader, "a whole read command"));
            is_over = next.as_ref().is_none_or(Result::is_err);
            next
        })
    }
}

/// A phase for one partition, as a leader on another node sent it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PaxosRequest<'a> {
    pub(crate) table: TableId,
    pub(crate) key: &'a [u8],
    pub(crate) phase: Phase<'a>,
}

/// What an acceptor answers.
#[derive(Clone, Debug)]
pub(crate) enum PaxosAnswer {
    /// With what was read after the promise.
    Promised(Promise, Vec<Answer>),
    Done,
    Refused(Ballot),
    /// The acceptor can learn it only if it is sent the proposal.
    Lacking,
}

/// The kind of an answer and a promise, besides its proposal.
const PROMISE_BYTES_MAX: usize = 16 + BALLOT_BYTES;

const PREPARE: u8 = 1;
const ACCEPT: u8 = 2;
const LEARN: u8 = 3;
const PRUNE: u8 = 4;
const COMMIT: u8 = 5;

impl Phase<'_> {
    pub(crate) fn to_owned(&self) -> Phase<'static> {
        match self {
            Self::Prepare(ballot, reads) => Phase::Prepare(*ballot, Reads(Cow::Owned(reads.0.to_vec()))),
            Self::Accept(proposal) => Phase::Accept(proposal.clone()),
            Self::Learn(proposal) => Phase::Learn(proposal.clone()),
            Self::Commit(ballot) => Phase::Commit(*ballot),
            Self::Prune(ballot) => Phase::Prune(*ballot),
        }
    }

    /// How many bytes [`Phase::encode`] appends for a partition of this key.
    pub(crate) fn encoded_bytes(&self, key: &[u8]) -> usize {
        let more = match self {
            Self::Prepare(_, reads) => BALLOT_BYTES + reads.0.len(),
            Self::Accept(proposal) | Self::Learn(proposal) => proposal.encoded_bytes(),
            Self::Commit(_) | Self::Prune(_) => BALLOT_BYTES,
        };
        1 + size_of::<Uuid>() + vint::unsigned_len(key.len() as u64) + key.len() + more
    }

    /// Appends a request for this phase of a partition, for another node.
    pub(crate) fn encode(&self, table: TableId, key: &[u8], out: &mut Vec<u8>) {
        out.push(match self {
            Self::Prepare(..) => PREPARE,
            Self::Accept(_) => ACCEPT,
            Self::Learn(_) => LEARN,
            Self::Commit(_) => COMMIT,
            Self::Prune(_) => PRUNE,
        });
        out.extend_from_slice(table.0.as_bytes());
        put_sized(out, key);
        match self {
            Self::Prepare(ballot, reads) => {
                ballot.encode(out);
                out.extend_from_slice(&reads.0);
            }
            Self::Accept(proposal) | Self::Learn(proposal) => proposal.encode(out),
            Self::Commit(ballot) | Self::Prune(ballot) => ballot.encode(out),
        }
    }
}

impl<'a> PaxosRequest<'a> {
    /// # Errors
    /// When the bytes are not a phase. Reads are looked at when they are done.
    pub(crate) fn decode(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let cut = |_| Malformed("a whole phase of a conditional statement");
        let phase = reader.get_u8().map_err(cut)?;
        let table = TableId(Uuid::from_bytes(reader.get_array().map_err(cut)?));
        let key = sized(&mut reader, "a partition key")?;
        let phase = match phase {
            PREPARE => {
                let ballot = Ballot::decode(&mut reader)?;
                let reads = Reads(Cow::Borrowed(reader.rest()));
                return Ok(Self {
                    table,
                    key,
                    phase: Phase::Prepare(ballot, reads),
                });
            }
            ACCEPT => Phase::Accept(Proposal::decode(&mut reader)?),
            LEARN => Phase::Learn(Proposal::decode(&mut reader)?),
            COMMIT => Phase::Commit(Ballot::decode(&mut reader)?),
            PRUNE => Phase::Prune(Ballot::decode(&mut reader)?),
            _ => return Err(Malformed("a phase, 1 to 5")),
        };
        if !reader.rest().is_empty() {
            return Err(Malformed("nothing behind a phase"));
        }
        Ok(Self { table, key, phase })
    }
}

impl PaxosAnswer {
    pub(crate) fn encode(&self, table: TableId) -> Vec<u8> {
        match self {
            Self::Promised(promise, answers) => {
                let answers: SmallVec<[Vec<u8>; 1]> = answers.iter().map(|answer| answer.encode(table)).collect();
                let answer_bytes: usize = answers.iter().map(|answer| answer.len() + vint::LEN_MAX).sum();
                let proposal_bytes = promise.proposal.as_ref().map_or(0, Proposal::encoded_bytes);
                let mut out = Vec::with_capacity(PROMISE_BYTES_MAX + proposal_bytes + answer_bytes);
                out.push(1);
                promise.encode(&mut out);
                answers.iter().for_each(|answer| put_sized(&mut out, answer));
                out
            }
            Self::Done => vec![2],
            Self::Refused(promised) => {
                let mut out = Vec::with_capacity(1 + BALLOT_BYTES);
                out.push(3);
                promised.encode(&mut out);
                out
            }
            Self::Lacking => vec![4],
        }
    }

    pub(crate) fn decode(body: &[u8], table: &Table) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        match reader.get_u8() {
            Ok(1) => {
                let promise = Promise::decode(&mut reader)?;
                let mut answers = Vec::new();
                while !reader.rest().is_empty() {
                    answers.push(Answer::decode(sized(&mut reader, "a whole answer to a read")?, table)?);
                }
                Ok(Self::Promised(promise, answers))
            }
            Ok(2) => Ok(Self::Done),
            Ok(3) => Ok(Self::Refused(Ballot::decode(&mut reader)?)),
            Ok(4) => Ok(Self::Lacking),
            _ => Err(Malformed("the kind of an acceptor's answer, 1 to 4")),
        }
    }
}
