//! What the fuzzer needs of the engine: paging states and parts of aggregates to begin with, and the decoders.
use coordinator::near::{
    ResumePoint, Span, StepFound, Work, decode_answer, decode_request, encode_answer, encode_request,
};
use coordinator::{CoordinatorError, Tally};
use cql_compiler::fuzz::{schema, select};
use mutation::Bound;
use plan::{Execution, OwnedBound};
use stdx::bytes::Reader;
use topology::{Consistency, Unavailable};
use types::Token;
use uuid::Uuid;

use super::aggregate_message::AggregateMessage;
use super::aggregate_part::Aggregate;
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

fn request() -> Vec<u8> {
    let span = |place| Span {
        after: Token(-9),
        to: Token(9),
        place,
    };
    let message = AggregateMessage {
        schema: Uuid::from_u128(7),
        plan: b"a plan".to_vec(),
        run: execution(),
        level: Consistency::Quorum,
    };
    let spans = [span(None), span(Some(place()))];
    encode_request(Aggregate::KIND, &message.encode(), &spans)
}

fn execution() -> Execution {
    Execution {
        values: vec![OwnedBound::Value(vec![1, 2]), OwnedBound::Null, OwnedBound::Unset],
        now_us: 5,
        now_in_seconds: None,
        random: 6,
    }
}

/// A statement as work near the data.
fn aggregate(text: &str) -> Aggregate {
    let plan = select(&schema(), text).expect("a SELECT");
    Aggregate::new(&plan, &execution(), Consistency::Quorum, &schema())
}

fn answers() -> Vec<Vec<u8>> {
    let (plan, grouped) = (aggregate(AGGREGATE), aggregate(GROUPS));
    let state = || Found::All(plan.select.selection.new_group());
    let groups = Found::Groups(vec![GroupPart {
        key: vec![Some(vec![1]), None],
        last_row: (vec![1], vec![4, 0, 0, 0, 1]),
        state: grouped.select.selection.new_group(),
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
    let part = StepFound {
        done: vec![state(), state()],
        begun: Some((state(), place())),
    };
    let of_groups = StepFound {
        done: vec![Found::Groups(Vec::new()), groups.clone()],
        begun: Some((groups, place())),
    };
    let mut answers = vec![encode_answer(&Ok(part), &plan), encode_answer(&Ok(of_groups), &grouped)];
    answers.extend(failed.map(|error| encode_answer(&Err(QueryError::Replicas(error)), &plan)));
    let failed = QueryError::Function("a division by zero".to_owned());
    answers.push(encode_answer(&Err(failed), &plan));
    answers
}

/// Paging states, a request for a part of an aggregate, answers of each kind.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = answers();
    seeds.push(request());
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
    if let Ok((work, spans)) = decode_request(bytes) {
        let written = encode_request(Aggregate::KIND, work, &spans);
        let (again, ..) = decode_request(&written).expect("it was encoded");
        assert_eq!(again, work, "a request changes when it is written");
        if let Ok(message) = AggregateMessage::decode(work) {
            let written = message.encode();
            let again = AggregateMessage::decode(&written).expect("it was encoded");
            assert_eq!(again.encode(), written, "an aggregate changes when it is written");
        }
    }
    for text in [AGGREGATE, GROUPS] {
        let aggregate = aggregate(text);
        if let Ok(answer) = decode_answer(bytes, &aggregate, SPANS) {
            let written = encode_answer(&answer, &aggregate);
            let again = decode_answer(&written, &aggregate, SPANS).expect("it was encoded");
            // Errors that are not among those of the encoding come back as what they say.
            assert_eq!(
                encode_answer(&again, &aggregate),
                written,
                "an answer changes when it is written"
            );
            if let Ok(step) = answer {
                assert!(
                    step.done.len() + usize::from(step.begun.is_some()) <= SPANS,
                    "more parts than spans"
                );
            }
        }
        let _ = aggregate.get_found(&mut Reader::new(bytes));
    }
}
