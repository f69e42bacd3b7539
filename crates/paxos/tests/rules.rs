//! The rules that a random schedule rarely needs: late messages, truncations, and outcomes that are too old to be
//! known.

use stdx::bytes::Reader;

use paxos::{Ballot, Leader, PAST_MAX, PAST_US, Promise, Proposal, Round, State, Step};

fn ballot(timestamp_us: i64) -> Ballot {
    Ballot {
        timestamp_us,
        ..Ballot::NONE
    }
}

fn proposal(timestamp_us: i64) -> Proposal {
    Proposal::new(ballot(timestamp_us), None, b"value")
}

fn accepted(state: &State) -> Option<Ballot> {
    state.proposal.as_ref().map(|proposal| proposal.ballot)
}

/// What a leader does in a round at this ballot in which one acceptor has promised and said this.
fn next(leader: &mut Leader, at: i64, proposal: Option<Proposal>, committed: Ballot) -> Step<u32> {
    next_since(leader, at, (proposal, committed), i64::MIN)
}

/// As [`next`], where proposals decided before a timestamp are too old.
fn next_since(
    leader: &mut Leader,
    at: i64,
    (proposal, committed): (Option<Proposal>, Ballot),
    oldest_us: i64,
) -> Step<u32> {
    let mut round = Round::new(ballot(at));
    round.promised(1, Promise { proposal, committed });
    leader.next(&round, oldest_us)
}

#[test]
fn a_decision_that_is_learned_late_takes_back_neither_an_acceptance_nor_a_newer_decision() {
    let mut state = State::default();
    state.accept(proposal(20)).expect("nothing was promised");
    assert!(state.learn(proposal(10)));
    assert_eq!((accepted(&state), state.committed), (Some(ballot(20)), ballot(10)));
    assert!(!state.learn(proposal(5)));
    assert_eq!((accepted(&state), state.committed), (Some(ballot(20)), ballot(10)));
    assert!(state.learn(proposal(20)));
    assert!(!state.learn(proposal(10)));
    assert_eq!((accepted(&state), state.committed), (Some(ballot(20)), ballot(20)));
}

#[test]
fn an_acceptance_is_a_promise() {
    let mut state = State::default();
    state.accept(proposal(20)).expect("nothing was promised");
    assert!(state.prepare(ballot(15)).is_err());
    assert!(state.accept(proposal(10)).is_err());
    assert_eq!(accepted(&state), Some(ballot(20)));
}

#[test]
fn behind_a_truncation_nothing_from_before_it_is_promised_or_accepted_and_no_promise_is_taken_back() {
    let mut state = State::default();
    state.accept(proposal(10)).expect("nothing was promised");
    state.forget(ballot(15));
    assert_eq!((accepted(&state), state.committed), (None, Ballot::NONE));
    assert!(state.prepare(ballot(12)).is_err());
    assert!(state.accept(proposal(14)).is_err());
    state.prepare(ballot(30)).expect("it is behind the truncation");
    // A truncation whose ballot comes from a slow clock.
    state.forget(ballot(20));
    assert!(state.accept(proposal(25)).is_err());
}

#[test]
fn the_age_of_a_proposal_is_that_of_its_first_ballot() {
    let old = proposal(5).at(ballot(100));
    let mut leader = Leader::default();
    let round = || (Some(old.clone()), Ballot::NONE);
    let step = next_since(&mut leader, 200, round(), 5);
    assert_eq!(step, Step::Finish(old.at(ballot(200))));
    let step = next_since(&mut leader, 300, round(), 50);
    assert_eq!(
        step,
        Step::Decide,
        "in a later round, what it would write may be hidden by purged deletions"
    );
}

/// A leader that has proposed at this ballot when `last` was chosen last.
fn proposed(at: i64, last: Option<Proposal>) -> Leader {
    let mut leader = Leader::default();
    let committed = last.as_ref().map_or(Ballot::NONE, |last| last.ballot);
    assert_eq!(next(&mut leader, at, last, committed), Step::Decide);
    leader.propose(ballot(at), b"mine");
    leader
}

#[test]
fn what_became_of_a_statement_is_unknown_where_the_past_does_not_reach_back_to_it() {
    let mut leader = proposed(20, None);
    let late = 30 + PAST_US;
    let other = Proposal::new(ballot(late), Some(&proposal(10)), b"other");
    assert_eq!(next(&mut leader, late + 1, Some(other), ballot(late)), Step::Unknown);
    // The past of a ballot soon afterwards reaches back to it.
    let mut leader = proposed(20, None);
    let other = Proposal::new(ballot(30), Some(&proposal(10)), b"other");
    assert_eq!(next(&mut leader, 40, Some(other), ballot(30)), Step::Decide);
}

/// One acceptor has read its state from its row, which has no past.
#[test]
fn what_became_of_a_statement_is_known_where_one_copy_of_the_last_proposal_has_its_past() {
    let whole = Proposal::new(ballot(30), Some(&proposal(10)), b"other");
    let mut bytes = Vec::new();
    whole.encode_without_past(&mut bytes);
    let bare = Proposal::decode(&mut Reader::new(&bytes)).expect("it was encoded");
    let step_after = |copies: &[&Proposal], committed| {
        let mut round = Round::new(ballot(40));
        for (replica, copy) in (0..).zip(copies) {
            let proposal = Some((*copy).clone());
            round.promised(replica, Promise { proposal, committed });
        }
        proposed(20, None).next(&round, i64::MIN)
    };
    for copies in [[&whole, &bare, &bare], [&bare, &bare, &whole]] {
        assert_eq!(step_after(&copies, ballot(30)), Step::Decide, "it was overtaken");
        assert_eq!(step_after(&copies, Ballot::NONE), Step::Finish(whole.at(ballot(40))));
    }
    assert_eq!(step_after(&[&bare, &bare], ballot(30)), Step::Unknown);
}

#[test]
fn what_became_of_a_statement_is_unknown_where_acceptors_have_forgotten_the_one_before_it() {
    let mut leader = proposed(20, Some(proposal(10)));
    assert_eq!(next(&mut leader, 30, None, Ballot::NONE), Step::Unknown);
}

#[test]
fn a_full_past_does_not_tell_of_the_one_that_found_no_room() {
    let last_of = |count: usize| {
        let first = Proposal::new(ballot(100), None, b"mine");
        (101..)
            .take(count)
            .fold(first, |last, at| Proposal::new(ballot(at), Some(&last), b"other"))
    };
    for (count, expected) in [(PAST_MAX, Step::Chosen), (PAST_MAX + 1, Step::Unknown)] {
        let (mut leader, last) = (proposed(100, None), last_of(count));
        let (at, committed) = (last.ballot.timestamp_us + 1, last.ballot);
        assert_eq!(next(&mut leader, at, Some(last), committed), expected, "{count} others");
    }
}
