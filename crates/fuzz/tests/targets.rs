//! A few rounds of each target, and the proof that a missing check is found.

use fuzz::{DECODERS, raft};
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn no_changed_message_makes_a_decoder_panic() {
    for target in DECODERS {
        for seed in 1..=3 {
            target.play(seed);
        }
    }
}

#[test]
fn no_changed_message_makes_a_member_of_the_metadata_group_panic() {
    for seed in 1..=3 {
        let played = raft::play(seed);
        assert!(
            played.applied >= 50 && played.working > 0,
            "seed {seed}: what the lies are told to hardly works: {played:?}"
        );
    }
}

#[test]
fn the_same_seed_is_the_same_round() {
    assert_eq!(raft::play(5), raft::play(5));
}

#[cfg(debug_assertions)]
#[test]
fn a_group_that_believes_its_peers_is_ended_in_a_few_rounds() {
    use stdx::planted::{Bug, Planted};
    let ended = catch_unwind(AssertUnwindSafe(|| {
        let _planted = Planted::new(Some(Bug::UncheckedPeer));
        (1..=10).for_each(|seed| assert!(raft::play(seed).inputs > 0));
    }));
    assert!(
        ended.is_err(),
        "no message of ten rounds ends a member that checks nothing"
    );
}
