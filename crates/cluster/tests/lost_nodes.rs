//! Nodes that are lost permanently: what still works without them, how a lost majority is given up, and which nodes are
//! removed.

use crate::support::{SECOND, Sea, dir, host};
use cluster::{ChangeError, Command};
use runtime::sim::CrashKind;
use schema::TableId;
use topology::TopologyCommand;
use uuid::Uuid;

#[test]
fn a_lost_minority_changes_nothing_and_a_lost_majority_stops_changes_only() {
    let mut sea = Sea::formed(60, 5);
    sea.expect_voters(5);
    sea.crash(3, CrashKind::PowerLoss);
    sea.crash(4, CrashKind::Kill);
    sea.create(1, "three_of_five").expect("three of five are a majority");
    sea.crash(2, CrashKind::Kill);
    sea.sim.run_for(5 * SECOND);
    let refused = sea.create(0, "two_of_five");
    assert!(
        matches!(refused, Err(ChangeError::NoQuorum(_) | ChangeError::Timeout(_))),
        "{refused:?}"
    );
    let again = sea.create(0, "two_of_five_again");
    assert!(matches!(again, Err(ChangeError::NoQuorum(_))), "{again:?}");
    sea.crash(1, CrashKind::PowerLoss);
    let before = sea.sim.now();
    sea.restart(1);
    let seen = sea.nodes[1].seen.clone();
    assert!(
        sea.sim.run_until(2 * SECOND, || seen.cluster.borrow().is_some()),
        "a restart waits for a majority"
    );
    assert!(sea.sim.now() - before < SECOND, "a restart takes its time");
    assert!(sea.cluster(1).metadata().schema.keyspaces.contains_key("three_of_five"));
    for number in [2, 3, 4] {
        sea.restart(number);
    }
    sea.expect_normal(0..5);
    sea.create(4, "five_of_five").expect("all are there");
}

#[test]
fn a_voter_that_is_lost_is_replaced_by_a_learner() {
    let mut sea = Sea::new(180, 6);
    for number in 0..6 {
        sea.nodes[number].config.borrow_mut().replace_voter_after = 10 * SECOND;
        sea.start(number);
    }
    sea.expect_normal(0..6);
    sea.expect_voters(5);
    let voters = sea.cluster(0).status().raft.voters;
    let lost = (1..6)
        .find(|number| {
            let id = sea
                .cluster(0)
                .metadata()
                .topology
                .number(host(*number))
                .expect("a member");
            voters.contains(&(u64::from(id.0) + 1))
        })
        .expect("five of six vote");
    let lost_id = sea
        .cluster(0)
        .metadata()
        .topology
        .number(host(lost))
        .expect("a member")
        .0;
    sea.crash(lost, CrashKind::PowerLoss);
    sea.expect("the vote of the lost node goes to another", |views| {
        views.iter().all(|view| {
            let raft = view.status().raft;
            raft.voters.len() == 5 && !raft.voters.contains(&(u64::from(lost_id) + 1))
        })
    });
}

#[test]
fn a_lost_majority_is_given_up_only_by_the_word_of_an_operator() {
    let mut sea = Sea::formed(190, 3);
    sea.expect_voters(3);
    sea.create(0, "before").expect("all are there");
    for number in 0..3 {
        sea.crash(number, CrashKind::PowerLoss);
    }
    let id = sea.nodes[0].id;
    let refused = sea.sim.on_node(id, || cluster::recover(&dir(), host(0), "yes"));
    assert!(refused.is_err(), "a majority was given up by accident");
    sea.sim
        .on_node(id, || {
            let words = cluster::prospect(&dir(), host(0))
                .expect("two voters are lost")
                .confirmation();
            cluster::recover(&dir(), host(0), &words)
        })
        .expect("it is confirmed");
    sea.restart(0);
    sea.sim.run_for(5 * SECOND);
    sea.create(0, "after").expect("the survivor decides alone");
    assert!(sea.cluster(0).metadata().schema.keyspaces.contains_key("before"));
    // A node that was given up returns, and is notified.
    sea.restart(1);
    let seen = sea.nodes[1].seen.clone();
    assert!(
        sea.sim.run_until(60 * SECOND, || seen.fatal.borrow().is_some()),
        "a node that was given up goes on as if nothing had been"
    );
    let reason = seen.fatal.take().expect("it is there");
    assert!(reason.contains("given up"), "{reason}");
    sea.create(0, "still").expect("the survivor decides alone");
}

#[test]
fn a_node_that_was_removed_is_told_and_does_not_come_back() {
    for (seed, is_down) in [(210, false), (211, true)] {
        let mut sea = Sea::formed(seed, 3);
        sea.expect_voters(3);
        if is_down {
            sea.crash(2, CrashKind::PowerLoss);
        }
        let command = Command::Topology(TopologyCommand::RemoveNode { host_id: host(2) });
        sea.on(0, |cluster| async move { cluster.propose(command).await })
            .expect("a majority is there");
        sea.sim.run_for(3 * SECOND);
        if is_down {
            sea.restart(2);
        }
        let seen = sea.nodes[2].seen.clone();
        assert!(
            sea.sim.run_until(30 * SECOND, || seen.fatal.borrow().is_some()),
            "a removed node goes on as if nothing had been"
        );
        sea.crash(2, CrashKind::Kill);
        sea.expect_voters(1);
        sea.create(1, "ks").expect("the others go on");
    }
}

#[test]
fn survivors_of_a_lost_majority_follow_the_one_that_was_recovered_and_keep_their_identity() {
    for (seed, ahead) in [(280, 0), (281, 1)] {
        let mut sea = Sea::formed(seed, 5);
        sea.expect_voters(5);
        sea.create(0, "before").expect("all are there");
        // One of the survivors lags.
        sea.crash(1 - ahead, CrashKind::PowerLoss);
        sea.create(ahead, "late").expect("four of five are a majority");
        for number in (0..5).filter(|number| *number != 1 - ahead) {
            sea.crash(number, CrashKind::PowerLoss);
        }
        let recovered = sea.sim.on_node(sea.nodes[0].id, || {
            let prospect = cluster::prospect(&dir(), host(0)).expect("four are lost");
            assert_eq!((prospect.lost.len(), prospect.majority()), (4, 3));
            cluster::recover(&dir(), host(0), &prospect.confirmation())
        });
        let epoch = recovered.expect("it is confirmed").epoch;
        let followed = sea.sim.on_node(sea.nodes[1].id, || {
            let prospect = cluster::prospect(&dir(), host(1)).expect("four are lost");
            assert!(cluster::follow(&dir(), host(1), epoch, &prospect.confirmation()).is_err());
            let own = prospect.raft.epoch;
            assert!(cluster::follow(&dir(), host(1), own, &prospect.follow_confirmation(own)).is_err());
            cluster::follow(&dir(), host(1), epoch, &prospect.follow_confirmation(epoch))
        });
        followed.expect("it is confirmed");
        sea.restart(0);
        sea.restart(1);
        sea.expect("both have the same metadata and live", |views| {
            views.len() == 2
                && views[0].metadata().schema == views[1].metadata().schema
                && views[0].is_live(host(1))
                && views[1].status().raft.epoch.is_some_and(|epoch| epoch.number == 1)
        });
        sea.create(0, "after").expect("the survivor decides alone");
        sea.create(1, "after_too").expect("the follower is a member");
        let schema = &sea.cluster(1).metadata().schema;
        assert_eq!(
            schema.keyspaces.contains_key("late"),
            ahead == 0,
            "the recovered node's word counts"
        );
        assert!(schema.keyspaces.contains_key("before"));
        for number in 0..2 {
            assert_eq!(*sea.nodes[number].seen.fatal.borrow(), None);
        }
    }
}

/// A client that truncates waits for all replicas, and would wait for its whole time for one that dies; not when an
/// operator says that it is dead.
#[test]
fn a_truncation_does_not_wait_for_a_node_that_is_given_up() {
    let table = TableId(Uuid::from_u128(0x7ab1e7));
    let mut sea = Sea::new(3300, 4);
    (0..4).for_each(|number| sea.start(number));
    sea.expect_normal(0..4);
    sea.expect_voters(3);
    sea.make_table(table, &[0, 1, 2], 4);
    sea.crash(2, CrashKind::Kill);
    let truncating = sea.spawn(0, move |cluster| async move {
        let (replicas, deadline) = ([0, 1, 2].map(host), runtime::now() + 60 * SECOND);
        let result = cluster.truncate(table, &replicas, deadline).await;
        (result, deadline.saturating_duration_since(runtime::now()))
    });
    sea.sim.run_for(10 * SECOND);
    assert!(truncating.borrow().is_none(), "it may come back and answer clients");
    let removed = sea.on(0, |cluster| async move { cluster.remove_node(host(2)).await });
    removed.expect("it is removed");
    assert!(
        sea.sim.run_until(SECOND, || truncating.borrow().is_some()),
        "it goes on"
    );
    let (result, left) = truncating.take().expect("it has ended");
    assert_eq!(result, Ok(()));
    assert!(left > 20 * SECOND, "{left:?} before its deadline");
}

/// The deadline is the client's, and holds whatever of the truncation takes long.
#[test]
fn a_truncation_ends_with_its_deadline_when_the_majority_does_not_answer() {
    let table = TableId(Uuid::from_u128(0x7ab1e7));
    let mut sea = Sea::formed(3301, 3);
    sea.expect_voters(3);
    sea.make_table(table, &[0], 4);
    sea.crash(1, CrashKind::Kill);
    sea.crash(2, CrashKind::Kill);
    let (result, late) = sea.on(0, move |cluster| async move {
        let deadline = runtime::now() + SECOND / 2;
        let result = cluster.truncate(table, &[host(0)], deadline).await;
        (result, runtime::now().saturating_duration_since(deadline))
    });
    let refused = result.expect_err("there is no majority");
    assert!(
        refused.ends_with("the table may be truncated") || refused.ends_with("nothing was removed"),
        "{refused}"
    );
    assert!(late < SECOND / 10, "{late:?} after its deadline");
}
