//! What the fuzzer needs of the metadata group: real messages and logs to begin with, and the decoders.

use std::path::Path;

use raft::eraftpb::{ConfState, Entry, HardState, Message, MessageType};
use stdx::bytes::Reader;

use crate::apply::{Applied, ProposalId, decode_proposal, encode_proposal};
use crate::codec::make_snapshot;
use crate::epoch::Epoch;
use crate::group::decode_changes;
use crate::members::Change;
use crate::message::{self, Body, Header};
use crate::recovered::{Recovered, Recovery};
use crate::store::{Items, encode_chunk, encode_header, read_chunks};

const MESSAGE: u8 = 0;
const LOG: u8 = 1;
const OTHERS: u8 = 2;

fn entry(index: u64) -> Entry {
    let id = ProposalId {
        proposer: 7,
        incarnation: 1,
        sequence: index,
    };
    Entry {
        term: 2,
        index,
        data: encode_proposal(id, 0, b"a command").into(),
        ..Entry::default()
    }
}

fn conf() -> ConfState {
    ConfState {
        voters: vec![1, 2, 3],
        learners: vec![4],
        ..ConfState::default()
    }
}

fn applied() -> Applied {
    let mut applied = Applied::default();
    let id = ProposalId {
        proposer: 7,
        incarnation: 1,
        sequence: 3,
    };
    applied.admit(id, 2, 9);
    applied
}

fn messages() -> Vec<Vec<u8>> {
    let header = |nonce| Header {
        group: 0xce70,
        epoch: Epoch { number: 1, nonce },
        from: 1,
        to: 2,
    };
    let mut append = Message {
        msg_type: MessageType::MsgAppend,
        term: 2,
        index: 4,
        commit: 3,
        ..Message::default()
    };
    append.entries = vec![entry(5), entry(6)].into();
    let mut snapshot = Message {
        msg_type: MessageType::MsgSnapshot,
        term: 2,
        ..Message::default()
    };
    snapshot.set_snapshot(make_snapshot(9, 2, conf(), applied().encode(b"machine")));
    let mut messages: Vec<Vec<u8>> = [append, snapshot]
        .iter()
        .filter_map(|message| message::encode(header(5), message))
        .collect();
    messages.push(message::encode_epoch_over(header(0)));
    messages
}

fn log() -> Vec<u8> {
    let state = Recovered {
        hard_state: HardState {
            term: 2,
            vote: 1,
            commit: 5,
            ..HardState::default()
        },
        truncated: (4, 1),
        entries: vec![entry(5), entry(6)],
        snapshot_index: 4,
        snapshot_term: 1,
        conf: conf(),
        data: applied().encode(b"machine"),
        incarnation: 3,
        epoch: Some(Epoch { number: 2, nonce: 8 }),
        recovery: Some(Recovery {
            epoch: Epoch { number: 2, nonce: 8 },
            at_us: 77,
            lost: vec![5, 6],
        }),
        ..Recovered::default()
    };
    Items::whole(&state).0
}

fn file_of(chunks: &[&[u8]]) -> Vec<u8> {
    let mut file = encode_header(0xce70, 1).to_vec();
    for (number, items) in (1..).zip(chunks) {
        file.extend_from_slice(&encode_chunk(number, items));
    }
    file
}

/// A kind, and a message, the items of a log, or a command of that kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let of = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    let mut seeds: Vec<Vec<u8>> = messages().iter().map(|message| of(MESSAGE, message)).collect();
    seeds.push(of(LOG, &log()));
    seeds.push(of(OTHERS, &entry(5).data));
    seeds.push(of(OTHERS, &applied().encode(b"machine")));
    let changes = [Change::Learner(4), Change::Voter(5), Change::Remove(6)];
    seeds.push(of(OTHERS, &crate::group::encode_changes(&changes)));
    seeds
}

/// Reads the bytes as what they are of.
pub fn read(bytes: &[u8]) {
    let Some((&kind, bytes)) = bytes.split_first() else {
        return;
    };
    match kind % 3 {
        MESSAGE => match message::decode(bytes) {
            Ok((header, Body::Raft(message))) => {
                let written = message::encode(header, &message).expect("it has travelled");
                let (again, body) = message::decode(&written).expect("it was encoded");
                let Body::Raft(again_message) = body else {
                    panic!("a message of Raft is written as another kind");
                };
                assert_eq!(
                    (again, again_message),
                    (header, message),
                    "a message changes when it is written"
                );
            }
            Ok((_, Body::EpochOver)) => {}
            Err(error) => assert!(error.at <= bytes.len(), "the place of an error is not in the bytes"),
        },
        LOG => read_log(bytes),
        _ => {
            if let Some((id, settled_below, command)) = decode_proposal(bytes) {
                assert_eq!(
                    encode_proposal(id, settled_below, command),
                    bytes,
                    "a proposal is written otherwise"
                );
                let mut applied = applied();
                applied.admit(id, settled_below, 10);
                let written = applied.encode(b"machine");
                assert_eq!(
                    Applied::decode(&written),
                    Ok((applied, &b"machine"[..])),
                    "what was applied changes"
                );
            }
            if let Ok((applied, machine)) = Applied::decode(bytes) {
                let written = applied.encode(machine);
                assert_eq!(
                    Applied::decode(&written),
                    Ok((applied, machine)),
                    "what was applied changes"
                );
            }
            let _ = decode_changes(bytes);
            let _ = crate::codec::get_snapshot(&mut Reader::new(bytes));
        }
    }
}

/// Reads the items as one chunk and as two, with the checksums that chunks should have, and as chunks.
fn read_log(items: &[u8]) {
    let path = Path::new("metadata-raft.log");
    let half = items.len() / 2;
    for chunks in [&[items][..], &[&items[..half], &items[half..]][..]] {
        let Ok(read) = read_chunks(path, &file_of(chunks)) else {
            continue;
        };
        let items = Items::whole(&read.state).0;
        let again = read_chunks(path, &file_of(&[&items])).expect("it was written");
        assert_eq!(
            Items::whole(&again.state).0,
            items,
            "a log changes when it is rewritten"
        );
    }
    let _ = read_chunks(path, &[&encode_header(0xce70, 1), items].concat());
}
