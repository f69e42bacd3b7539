//! What the fuzzer needs of agreement: real bytes to begin with, and the decoders.

use stdx::bytes::Reader;

use crate::{Ballot, Promise, Proposal};

fn ballot(timestamp_us: i64) -> Ballot {
    Ballot {
        timestamp_us,
        node: 1,
        shard: 2,
        unique: 3,
    }
}

/// A ballot, proposals with and without a past and a value, promises.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let first = Proposal::new(ballot(10), None, b"one");
    let second = Proposal::new(ballot(20), Some(&first), &[7; 200]);
    let mut third = Proposal::new(ballot(30), Some(&second), b"three").at(ballot(40));
    let encoded = |proposal: &Proposal| {
        let mut out = Vec::new();
        proposal.encode(&mut out);
        out
    };
    let mut seeds = vec![ballot(5).to_bytes().to_vec()];
    seeds.extend([&first, &second, &third].map(encoded));
    third.prune();
    seeds.push(encoded(&third));
    for proposal in [None, Some(second)] {
        let mut out = Vec::new();
        let committed = ballot(9);
        Promise { proposal, committed }.encode(&mut out);
        seeds.push(out);
    }
    seeds
}

/// Reads the bytes as a ballot, a proposal and a promise; each is written as it was read.
pub fn read(bytes: &[u8]) {
    let is_the_same = |reader: &Reader<'_>, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut out = Vec::new();
        encode(&mut out);
        assert_eq!(out, bytes[..reader.at()], "what was read is written otherwise");
    };
    let mut reader = Reader::new(bytes);
    if let Ok(ballot) = Ballot::decode(&mut reader) {
        is_the_same(&reader, &|out| ballot.encode(out));
    }
    let mut reader = Reader::new(bytes);
    if let Ok(proposal) = Proposal::decode(&mut reader) {
        is_the_same(&reader, &|out| proposal.encode(out));
        read_proposal(&proposal);
    }
    let mut reader = Reader::new(bytes);
    if let Ok(promise) = Promise::decode(&mut reader) {
        is_the_same(&reader, &|out| promise.encode(out));
        promise.proposal.iter().for_each(read_proposal);
    }
}

/// Does with a proposal what leaders and acceptors do with it.
fn read_proposal(proposal: &Proposal) {
    let mut out = Vec::new();
    proposal.encode_without_past(&mut out);
    assert_eq!(
        out.len(),
        proposal.encoded_bytes_without_past(),
        "a proposal has another length"
    );
    let without = Proposal::decode(&mut Reader::new(&out)).expect("it was encoded");
    assert_eq!(
        without.value(),
        proposal.value(),
        "a proposal loses its value with its past"
    );
    let next = Proposal::new(
        ballot(proposal.origin.timestamp_us.saturating_add(1)),
        Some(proposal),
        b"next",
    );
    assert!(next.chain().count() >= 1, "a proposal has an origin");
    let mut pruned = proposal.clone();
    pruned.prune();
    assert_eq!(pruned.value(), None, "a pruned proposal has a value");
}
