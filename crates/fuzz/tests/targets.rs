//! A round of each target, and the proof that a missing check is found.

use fuzz::{Read, TARGETS, Target, raft};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn no_changed_input_breaks_the_promises_of_a_decoder() {
    for target in TARGETS {
        if let Err(find) = target.play(1) {
            panic!("{}: {find}", target.name);
        }
    }
}

#[test]
fn every_target_has_a_name_and_seeds_of_its_own() {
    let names: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).collect();
    assert_eq!(names.len(), TARGETS.len(), "two targets have one name");
    for target in TARGETS.iter().filter(|target| matches!(target.read, Read::Bytes(_))) {
        let seeds = (target.seeds)();
        assert!(
            seeds.iter().any(|seed| seed.len() > 2),
            "{} begins with nothing",
            target.name
        );
    }
}

/// A target whose reader does this.
const fn bad(read: fn(&[u8])) -> Target {
    Target {
        name: "bad",
        seeds: || vec![vec![7; 100]],
        read: Read::Bytes(read),
        inputs_per_round: 50,
        memory_base: 1 << 10,
    }
}

#[test]
fn a_reader_that_panics_or_believes_a_length_is_found() {
    static PANICS: Target = bad(|bytes| assert!(bytes.len() < 90, "the bytes are too long"));
    let find = PANICS.play(1).expect_err("most inputs are as long");
    assert!(find.what.contains("the bytes are too long"), "{find}");
    assert_eq!(PANICS.play(1), Err(find), "the same seed finds another input");
    static BELIEVES: Target = bad(|bytes| drop(std::hint::black_box(vec![0_u8; bytes.len() << 12])));
    let find = BELIEVES.play(1).expect_err("it allocates more than the input is worth");
    assert!(find.what.contains("it allocates"), "{find}");
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
