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

use paxos::{Ballot, Promise, Proposal};
use schema::{Table, TableId};
use stdx::bytes::Reader;
use uuid::Uuid;

use crate::fence::Stamp;
use crate::message::{Answer, Malformed, ReadCommand, put_sized, sized};

impl From<paxos::Malformed> for Malformed {
    fn from(malformed: paxos::Malformed) -> Self {
        Self(malformed.0)
    }
}

/// What an acceptor is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    Prepare(Ballot, Vec<ReadCommand>),
    Accept(Proposal),
    Learn(Proposal),
    /// Learn what was accepted at this ballot.
    Commit(Ballot),
    Prune(Ballot),
}

/// A phase for one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PaxosRequest {
    pub(crate) table: TableId,
    pub(crate) key: Vec<u8>,
    pub(crate) phase: Phase,
}

/// What an acceptor answers.
#[derive(Clone, Debug)]
pub(crate) enum PaxosAnswer {
    /// With what was read after the promise.
    Promised(Promise, Vec<Answer>),
    Done,
    Refused(Ballot),
    /// To learn it, the acceptor must be told.
    Lacking,
}

const PREPARE: u8 = 1;
const ACCEPT: u8 = 2;
const LEARN: u8 = 3;
const PRUNE: u8 = 4;
const COMMIT: u8 = 5;

impl Phase {
    /// A request for this phase of a partition, for another node.
    pub(crate) fn encode(&self, table: TableId, key: &[u8]) -> Vec<u8> {
        let more = match self {
            Self::Accept(proposal) | Self::Learn(proposal) => proposal.encoded_bytes(),
            _ => 160,
        };
        let mut out = Vec::with_capacity(24 + key.len() + more + Stamp::BYTES);
        out.push(match self {
            Self::Prepare(..) => PREPARE,
            Self::Accept(_) => ACCEPT,
            Self::Learn(_) => LEARN,
            Self::Commit(_) => COMMIT,
            Self::Prune(_) => PRUNE,
        });
        out.extend_from_slice(table.0.as_bytes());
        put_sized(&mut out, key);
        match self {
            Self::Prepare(ballot, reads) => {
                ballot.encode(&mut out);
                reads.iter().for_each(|read| put_sized(&mut out, &read.encode()));
            }
            Self::Accept(proposal) | Self::Learn(proposal) => proposal.encode(&mut out),
            Self::Commit(ballot) | Self::Prune(ballot) => ballot.encode(&mut out),
        }
        out
    }
}

impl PaxosRequest {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let cut = |_| Malformed("a whole phase of a conditional statement");
        let phase = reader.get_u8().map_err(cut)?;
        let table = TableId(Uuid::from_bytes(reader.get_array().map_err(cut)?));
        let key = sized(&mut reader, "a partition key")?.to_vec();
        let phase = match phase {
            PREPARE => {
                let ballot = Ballot::decode(&mut reader)?;
                let mut reads = Vec::new();
                while !reader.rest().is_empty() {
                    let read = ReadCommand::decode(sized(&mut reader, "a whole read command")?)?;
                    if read.table != table {
                        return Err(Malformed("reads of the table that the statement is about"));
                    }
                    reads.push(read);
                }
                Phase::Prepare(ballot, reads)
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
        let mut out = Vec::with_capacity(64);
        match self {
            Self::Promised(promise, answers) => {
                out.push(1);
                promise.encode(&mut out);
                answers
                    .iter()
                    .for_each(|answer| put_sized(&mut out, &answer.encode(table)));
            }
            Self::Done => out.push(2),
            Self::Refused(promised) => {
                out.push(3);
                promised.encode(&mut out);
            }
            Self::Lacking => out.push(4),
        }
        out
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
