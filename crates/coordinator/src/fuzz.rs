//! What the fuzzer of nodes' messages needs: real messages to begin with, and the decoders.

use crate::batchlog::Note;
use crate::counter::decode_additions;
use crate::message::{Answer, Extent, ReadCommand, decode_mutations, encode_mutations};
use crate::paxos_message::{PaxosAnswer, PaxosRequest, Phase, Reads};
use crate::rate::Admission;
use mutation::row::Shared;
use mutation::{Addressed, Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use paxos::Ballot;
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use types::{CqlType, Token};
use uuid::Uuid;

fn table() -> Table {
    let columns = vec![
        Column::new("k", CqlType::Blob, ColumnKind::PartitionKey),
        Column::new("c", CqlType::Int, ColumnKind::Clustering),
        Column::new("v", CqlType::Blob, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(0x7ea));
    Table::new("sea", "t", id, columns, TableOptions::default())
}

/// The mutation of an INSERT of two rows.
fn insert(table: &Table) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table.id, b"key");
    let (shared, marker) = (
        Shared {
            timestamp: 9,
            ttl: 0,
            expiry: 0,
        },
        Liveness {
            timestamp: 9,
            ttl: 0,
            expiry: 0,
        },
    );
    for clustering in [[4, 0, 0, 0, 1], [4, 0, 0, 0, 2]] {
        builder.row(&clustering, |out| {
            RowBuilder::begin(out, &table.layout, shared, Some(marker), Tombstone::NONE, false, 1).value(0, b"value");
        });
    }
    out
}

const BALLOT: Ballot = Ballot {
    timestamp_us: 7,
    node: 1,
    shard: 2,
    unique: 3,
};

/// One message of most kinds.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let table = table();
    let mutation = insert(&table);
    let mutation = Addressed::new(mutation).expect("a whole mutation");
    let mutations = encode_mutations(true, [&mutation, &mutation].into_iter());
    let read = ReadCommand {
        table: table.id,
        extent: Extent::Partition {
            key: b"key".to_vec(),
            slices: Vec::new(),
            reversed: true,
        },
        now: 7,
        rows: 100,
        bytes: 1000,
        digest_only: false,
        until: None,
    };
    let scan = ReadCommand {
        extent: Extent::Tokens {
            after: Token(-9),
            to: Token(9),
            from: (Token(0), b"key".to_vec()),
            inside: None,
        },
        ..read.clone()
    };
    let mut addition = vec![4];
    addition.extend_from_slice(&mutations);
    let reads = Reads::of(std::iter::once(read.borrowed()));
    let encoded = |phase: Phase<'_>| {
        let mut out = Vec::new();
        phase.encode(table.id, b"key", &mut out);
        out
    };
    vec![
        mutation.into_bytes(),
        mutations,
        read.encode(),
        scan.encode(),
        addition,
        encoded(Phase::Prepare(BALLOT, reads)),
        encoded(Phase::Commit(BALLOT)),
        Answer::default().encode(table.id),
        PaxosAnswer::Refused(BALLOT).encode(table.id),
        vec![0; 40],
    ]
}

/// Reads the bytes as every kind of message.
pub fn read(bytes: &[u8]) {
    let table = table();
    if let Ok((mutations, _)) = decode_mutations(bytes) {
        for bytes in mutations.iter().map(Addressed::bytes) {
            let _ = Mutation::new(bytes).map(|mutation| mutation.validate(&table.layout));
        }
    }
    let _ = decode_additions(bytes);
    let _ = (ReadCommand::decode(bytes), Answer::decode(bytes, &table).map(drop));
    if let Ok(PaxosRequest {
        phase: Phase::Prepare(_, reads),
        ..
    }) = PaxosRequest::decode(bytes)
    {
        for read in reads.iter() {
            let _ = read.and_then(ReadCommand::decode).map(drop);
        }
    }
    let _ = PaxosAnswer::decode(bytes, &table).map(drop);
    let _ = (Note::decode(bytes).is_some(), Admission::decode(bytes).is_ok());
}
