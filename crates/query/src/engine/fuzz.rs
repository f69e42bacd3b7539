//! What the fuzzer needs of the engine: paging states and parts of aggregates to begin with, and the decoders.

use coordinator::{CoordinatorError, Tally};
use cql_compiler::fuzz::{schema, select};
use mutation::Bound;
use plan::{Execution, OwnedBound};
use stdx::bytes::Reader;
use topology::{Consistency, Unavailable};
use types::Token;
use uuid::Uuid;

use super::aggregate_message::{Part, PartRequest, ResumePoint, Span, decode_answer, encode_answer};
use super::description;
use super::groups::{Found, GroupPart};
use super::paging_state::PagingState;
use crate::QueryError;

/// What the answers are about.
const AGGREGATE: &str = "SELECT count(*), min(x), max(f), sum(b), avg(i), sum(dc) FROM ks.t";
const GROUPS: &str = "SELECT k, x, count(*), sum(b) FROM ks.t GROUP BY k";
const SPANS: usize = 3;
/// Rows of the description that is paged through.
const DESCRIBED_ROWS: usize = 5;

fn place() -> ResumePoint {
    ResumePoint {
        from: (Token(7), b"key".to_vec()),
        inside: Some((Bound::after(&[4, 0, 0, 0, 1]), true)),
    }
}

fn request() -> PartRequest {
    let span = |place| Span {
        after: Token(-9),
        to: Token(9),
        place,
    };
    PartRequest {
        schema: Uuid::from_u128(7),
        plan: b"a plan".to_vec(),
        run: Execution {
            values: vec![OwnedBound::Value(vec![1, 2]), OwnedBound::Null, OwnedBound::Unset],
            now_us: 5,
            now_in_seconds: None,
            random: 6,
        },
        level: Consistency::Quorum,
        timeout_ms: 5_000,
        spans: vec![span(None), span(Some(place()))],
    }
}

fn answers() -> Vec<Vec<u8>> {
    let plan = select(&schema(), AGGREGATE).expect("a SELECT");
    let state = || Found::All(plan.selection.new_group());
    let grouped = select(&schema(), GROUPS).expect("a SELECT");
    let groups = Found::Groups(vec![GroupPart {
        key: vec![Some(vec![1]), None],
        last_row: (vec![1], vec![4, 0, 0, 0, 1]),
        state: grouped.selection.new_group(),
    }]);
    let tally = || Tally {
        consistency: Consistency::Quorum,
        received: 1,
        block_for: 2,
    };
    let failed = [
        CoordinatorError::Unavailable(Unavailable {
            consistency: Consistency::All,
            required: 3,
            alive: 2,
            datacenter: None,
        }),
        CoordinatorError::ReadTimeout {
            tally: tally(),
            data_present: true,
            missing: "10.0.0.1".to_owned(),
        },
        CoordinatorError::ReadFailure {
            tally: tally(),
            data_present: false,
            failures: vec![([10, 0, 0, 1].into(), 7), ([0; 16].into(), 8)],
            reason: "the disk is full".to_owned(),
        },
    ];
    let part = Part {
        done: vec![state(), state()],
        begun: Some((state(), place())),
    };
    let of_groups = Part {
        done: vec![Found::Groups(Vec::new()), groups.clone()],
        begun: Some((groups, place())),
    };
    let mut answers = vec![
        encode_answer(&Ok(part), &[]),
        encode_answer(&Ok(of_groups), &grouped.selection.columns_of_first()),
    ];
    answers.extend(failed.map(|error| encode_answer(&Err(QueryError::Replicas(error)), &[])));
    let failed = QueryError::Function("a division by zero".to_owned());
    answers.push(encode_answer(&Err(failed), &[]));
    answers
}

/// Paging states, a request for a part of an aggregate, answers of each kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = answers();
    seeds.push(request().encode());
    let limits = [&[1][..], &[0, 0, 0, 0, 0, 0, 0, 9], &[0xff; 8]].concat();
    for position in [&[0][..], &[1, 3, b'k', b'e', b'y'], &[2, 2, 4, 5, 3, b'k', b'e', b'y']] {
        seeds.push([&limits, position].concat());
    }
    let rows = vec![Vec::new(); DESCRIBED_ROWS];
    let (_, state) = description::page(rows, Uuid::nil(), Some(2), None).expect("there is no state to refuse");
    seeds.extend(state);
    seeds
}

/// Reads the bytes as each of these.
pub fn read(bytes: &[u8]) {
    match PagingState::decode(bytes) {
        Ok(state) => {
            let again = PagingState::decode(&state.encode());
            assert_eq!(again, Ok(state), "a paging state changes when it is written");
        }
        Err(error) => drop(error.message()),
    }
    let rows = vec![Vec::new(); DESCRIBED_ROWS];
    if let Ok((page, next)) = description::page(rows, Uuid::nil(), Some(2), Some(bytes)) {
        assert!(
            page.len() <= 2 && next.is_none_or(|next| next != bytes),
            "a page ends, and the next one is another"
        );
    }
    if let Ok(request) = PartRequest::decode(bytes) {
        let written = request.encode();
        let again = PartRequest::decode(&written).expect("it was encoded");
        assert_eq!(again.encode(), written, "a request changes when it is written");
    }
    for text in [AGGREGATE, GROUPS] {
        let plan = select(&schema(), text).expect("a SELECT");
        let columns = plan.selection.columns_of_first();
        if let Ok(answer) = decode_answer(bytes, &plan, SPANS) {
            let written = encode_answer(&answer, &columns);
            let again = decode_answer(&written, &plan, SPANS).expect("it was encoded");
            // Errors that are not among those of the encoding come back as what they say.
            assert_eq!(
                encode_answer(&again, &columns),
                written,
                "an answer changes when it is written"
            );
            if let Ok(part) = answer {
                assert!(
                    part.done.len() + usize::from(part.begun.is_some()) <= SPANS,
                    "more parts than spans"
                );
            }
        }
        let _ = Found::decode(&plan, &columns, &mut Reader::new(bytes));
    }
}
