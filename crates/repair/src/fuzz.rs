//! What the fuzzer of a repair's messages needs: real bytes to begin with, and the decoders.

use mutation::Bound;
use replica::{RepairedRange, TokenRange};
use schema::TableId;
use types::Token;
use uuid::Uuid;

use crate::error::Refusal;
use crate::marking::IncrementalMode;
use crate::message::{
    Apply, Bucket, Compare, Exchange, Given, MarkOpen, MarkSet, MarkStep, Open, Opened, RepairId, UnitHashes,
    decode_answer, decode_applied, decode_compared, decode_equal, decode_exchanged, encode_equal,
};
use crate::position::Position;
use crate::request::{Left, RepairRequest, Selected};

const ID: RepairId = RepairId(0x1234_5678_9abc_def0);

/// One message of each kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let open = Open {
        id: ID,
        table: TableId(Uuid::from_u128(3)),
        range: TokenRange {
            after: Token(-5),
            to: Token(5),
        },
        truncated_at: 12,
        now: 1_000,
        gc_before: 900,
        columns: 77,
    };
    let inside = Position::Inside {
        token: Token(4),
        key: b"key".to_vec(),
        bound: Bound::after(b"\0\x04row7"),
    };
    let buckets = [
        Bucket {
            end: Position::Token(Token(3)),
            hash: 1,
        },
        Bucket {
            end: inside.clone(),
            hash: u128::MAX,
        },
    ];
    let exchange = Exchange {
        id: ID,
        has_others: true,
        stretches: vec![UnitHashes {
            from: Position::Token(Token(3)),
            to: inside.clone(),
            hashes: vec![1, 2, 3],
        }],
    };
    let given = Given {
        end: Some(inside),
        has: vec![0b101],
        mutations: vec![b"one".to_vec(), b"1".to_vec()],
    };
    let mut exchanged = Vec::new();
    given.put(&mut exchanged);
    let apply = Apply {
        id: ID,
        mutations: vec![b"one", b"two"],
    };
    let equal = RepairedRange::new(open.table, open.range, 800);
    let wanted = RepairRequest {
        since: 800,
        tables: vec![open.table],
        mode: None,
        selected: None,
    };
    let wanted_fully = RepairRequest {
        mode: Some(IncrementalMode::Full),
        ..wanted.clone()
    };
    let wanted_in_part = RepairRequest {
        selected: Some(Selected {
            id: 9,
            tokens: vec![-1, 1],
            hosts: vec![Uuid::from_u128(2)],
            is_over: false,
        }),
        ..wanted.clone()
    };
    let left = Left {
        ranges: 3,
        failure: "a node is down".to_owned(),
    };
    let mut of_left = Vec::new();
    left.put(&mut of_left);
    let mark_open = MarkOpen {
        open: open.clone(),
        is_full: true,
        replicas: 5,
        session: 6,
    };
    let mark = MarkSet {
        id: ID,
        since: 7,
        at: 8,
    };
    let mut opened = Vec::new();
    let last_mark = 8;
    Opened {
        is_open: true,
        last_mark,
    }
    .put(&mut opened);
    vec![
        MarkStep::Open(mark_open).encode(),
        MarkStep::Settle(ID).encode(),
        MarkStep::Mark(mark).encode(),
        opened,
        wanted.encode(),
        wanted_fully.encode(),
        wanted_in_part.encode(),
        of_left,
        encode_equal(&equal, IncrementalMode::Disabled),
        encode_equal(&equal, IncrementalMode::Full),
        ID.encode(),
        open.encode(),
        Compare::encode(ID, &Position::Token(Token(-5)), &buckets),
        exchange.encode(),
        apply.encode(),
        vec![0, 1, 0],
        exchanged,
        Refusal::Missing("me-7-big-0".to_owned()).encode(),
    ]
}

/// Reads the bytes in every way; what is read is written as it was read.
pub fn read(bytes: &[u8]) {
    let _ = RepairId::decode(bytes).map(|id| assert_eq!(id.encode(), bytes));
    let _ = Open::decode(bytes).map(|open| assert_eq!(Open::decode(&open.encode()), Ok(open)));
    if let Ok(compare) = Compare::decode(bytes) {
        let again = Compare::encode(compare.id, &compare.from, &compare.buckets);
        assert_eq!(Compare::decode(&again), Ok(compare));
    }
    let _ = Exchange::decode(bytes).map(|exchange| assert_eq!(Exchange::decode(&exchange.encode()), Ok(exchange)));
    let _ = Apply::decode(bytes).map(|apply| assert_eq!(Apply::decode(&apply.encode()), Ok(apply.clone())));
    if let Ok(given) = decode_exchanged(bytes) {
        let mut again = Vec::new();
        given.iter().for_each(|one| one.put(&mut again));
        assert_eq!(decode_exchanged(&again), Ok(given));
    }
    let _ = decode_equal(bytes).map(|(equal, mode)| assert_eq!(encode_equal(&equal, mode), bytes));
    let _ = RepairRequest::decode(bytes).map(|wanted| assert_eq!(RepairRequest::decode(&wanted.encode()), Ok(wanted)));
    let _ = MarkStep::decode(bytes).map(|step| assert_eq!(step.encode(), bytes));
    if let Ok(opened) = Opened::decode(bytes) {
        let mut again = Vec::new();
        opened.put(&mut again);
        assert_eq!(again, bytes);
    }
    let _ = Left::decode(bytes);
    let _ = decode_applied(bytes);
    let _ = decode_compared(bytes);
    let _ = decode_answer(bytes);
}
