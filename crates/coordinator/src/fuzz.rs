//! What the fuzzer of nodes' messages needs: real messages to begin with, and the decoders.

use crate::batchlog::{Note, batch_id};
use crate::cas::acceptor::promises;
use crate::cas::message::{PaxosAnswer, PaxosRequest, Phase, Reads};
use crate::counter::{decode_additions, decode_answer, encode_answer};
use crate::error::CoordinatorError;
use crate::fence::Stamp;
use crate::limits::{Admission, large};
use crate::message::{Answer, Extent, PointCommand, ReadCommand, decode_mutations, encode_mutations, only_mutation};
use mutation::row::Shared;
use mutation::{Addressed, Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use paxos::Ballot;
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use topology::Consistency;
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
        bypasses_cache: true,
        withholds: true,
        until: None,
        listing: None,
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
    let [measure, measured] = large::seeds();
    vec![
        measure,
        measured,
        mutation.into_bytes(),
        mutations,
        read.encode(),
        scan.encode(),
        addition,
        encoded(Phase::Prepare(BALLOT, reads)),
        encoded(Phase::Commit(BALLOT)),
        Answer::default().encode(table.id),
        Answer::of_long_row(1 << 20).encode(table.id),
        PaxosAnswer::Refused(BALLOT).encode(table.id),
        vec![0; 40],
        encode_answer(&Err(CoordinatorError::Internal("no room".to_owned()))),
        promises::encode(1_600_000_000_000_000).into_bytes(),
    ]
}

/// Reads the bytes as every kind of message. What is read is the same when it is written again.
pub fn read(bytes: &[u8]) {
    let table = table();
    if let Ok((mutations, all_or_nothing)) = decode_mutations(bytes) {
        let written = encode_mutations(all_or_nothing, mutations.iter());
        let again = decode_mutations(&written);
        assert_eq!(
            again,
            Ok((mutations.clone(), all_or_nothing)),
            "mutations change when they are written"
        );
        for bytes in mutations.iter().map(Addressed::bytes) {
            let _ = Mutation::new(bytes).map(|mutation| mutation.validate(&table.layout));
        }
    }
    if let Some(only) = only_mutation(bytes) {
        let (all, _) = decode_mutations(bytes).expect("a message of one mutation is one of mutations");
        assert_eq!(all.len(), 1, "the only mutation is not alone");
        assert_eq!(all[0].bytes(), only.mutation.bytes(), "the only mutation is another");
    }
    let _ = decode_additions(bytes);
    if let Ok(command) = ReadCommand::decode(bytes) {
        let again = ReadCommand::decode(&command.encode());
        assert_eq!(again.as_ref(), Ok(&command), "a read changes when it is written");
    }
    if let Some(point) = PointCommand::decode(bytes) {
        let mut command = ReadCommand::decode(bytes).expect("a read of one row is a read");
        let row = ReadCommand::decode(&point.encode()).expect("it was encoded");
        // One row fits every limit that a coordinator sends.
        (command.rows, command.bytes) = (row.rows, row.bytes);
        assert_eq!(command, row, "a read of one row is another");
    }
    if let Ok(answer) = Answer::decode(bytes, &table) {
        let written = answer.encode(table.id);
        let again = Answer::decode(&written, &table).expect("it was encoded");
        assert_eq!(again.encode(table.id), written, "an answer changes when it is written");
    }
    read_paxos(bytes, &table);
    large::read_and_write(bytes);
    let _ = (Note::decode(bytes).is_some(), Admission::decode(bytes).is_ok());
    let _ = (batch_id(bytes), Stamp::take(bytes).is_some());
    if let Ok(Err(error)) = decode_answer(bytes, Consistency::One) {
        drop(error.to_string());
    }
    if let Some(mark_us) = promises::decode(bytes) {
        assert_eq!(
            promises::decode(promises::encode(mark_us).as_bytes()),
            Some(mark_us),
            "a mark changes"
        );
    }
}

fn read_paxos(bytes: &[u8], table: &Table) {
    if let Ok(request) = PaxosRequest::decode(bytes) {
        let mut written = Vec::new();
        request.phase.encode(request.table, request.key, &mut written);
        assert_eq!(
            written.len(),
            request.phase.encoded_bytes(request.key),
            "a phase has another length"
        );
        assert_eq!(
            PaxosRequest::decode(&written).as_ref(),
            Ok(&request),
            "a phase changes when it is written"
        );
        if let Phase::Prepare(_, reads) = &request.phase {
            for read in reads.iter() {
                let _ = read.and_then(ReadCommand::decode).map(drop);
            }
        }
    }
    if let Ok(answer) = PaxosAnswer::decode(bytes, table) {
        let written = answer.encode(table.id);
        let again = PaxosAnswer::decode(&written, table).expect("it was encoded");
        assert_eq!(
            again.encode(table.id),
            written,
            "an acceptor's answer changes when it is written"
        );
    }
}
