//! Nodes whose metadata differs, directories that are older than what ran last, nodes that lost their metadata, and
//! nodes that are removed.

use crate::support::{SECOND, Sea, dir, host};
use cluster::{ChangeError, Cluster, Metadata};
use consensus::Part;
use record::Known;
use runtime::sim::CrashKind;
use std::rc::Rc;
use topology::NodeState;

const LOG: &str = "raft/metadata-raft.log";

/// Three nodes that vote and whose starts are noted.
fn noted(seed: u64) -> Sea {
    let mut sea = Sea::formed(seed, 3);
    sea.expect_voters(3);
    sea.expect_noted(0..3);
    sea
}

/// The number of the node that leads.
fn leader_of(sea: &Sea) -> usize {
    let leader = sea.cluster(0).status().leader.expect("somebody leads");
    (0..sea.nodes.len())
        .find(|number| host(*number) == leader)
        .expect("a member leads")
}

/// A node is stopped, copied, started, stopped, and the copy put back; then the leader that has its acknowledgement is
/// down.
fn put_back_while_another_leads(seed: u64) -> (Sea, usize) {
    let mut sea = noted(seed);
    let leader = leader_of(&sea);
    let (older, other) = ((leader + 1) % 3, (leader + 2) % 3);
    sea.crash(older, CrashKind::Kill);
    let backup = sea.files(older);
    sea.restart(older);
    sea.expect_normal(0..3);
    sea.expect_noted(0..3);
    sea.create(other, "what_the_backup_lacks").expect("all are there");
    sea.crash(older, CrashKind::Kill);
    sea.crash(leader, CrashKind::PowerLoss);
    sea.put_files(older, &backup);
    (sea, older)
}

#[test]
fn an_older_directory_is_refused_whoever_leads() {
    for seed in 400..404 {
        let (mut sea, older) = put_back_while_another_leads(seed);
        sea.restart(older);
        let reason = sea.refusal(older).to_string();
        assert!(
            reason.contains("older") && reason.contains("a start of node"),
            "seed {seed}: {reason}"
        );
    }
}

#[test]
#[cfg(debug_assertions)]
fn without_the_check_of_runs_an_older_directory_votes() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::UncheckedRun));
    let (mut sea, older) = put_back_while_another_leads(400);
    sea.restart(older);
    sea.expect("two of three elect a leader", |views| {
        views.len() == 2 && views.iter().all(|view| view.status().leader.is_some())
    });
}

#[test]
fn an_older_directory_that_meets_nobody_serves_without_a_vote_and_stops_when_it_meets_somebody() {
    let (mut sea, older) = put_back_while_another_leads(410);
    let other = (older + 1) % 3;
    sea.crash(other, CrashKind::Kill);
    let before = sea.sim.now();
    sea.restart(older);
    let seen = sea.nodes[older].seen.clone();
    let is_in = sea.sim.run_until(SECOND, || seen.cluster.borrow().is_some());
    assert!(is_in, "a restart serves at once when nobody is there");
    assert!(sea.sim.now() - before < SECOND, "it takes its time");
    sea.sim.run_for(5 * SECOND);
    assert_eq!(
        sea.cluster(older).status().raft.part,
        Part::Silent,
        "it votes before it was checked"
    );
    sea.restart(other);
    let has_stopped = sea.sim.run_until(10 * SECOND, || seen.fatal.borrow().is_some());
    assert!(has_stopped, "it goes on with less than it has acknowledged");
    let reason = seen.fatal.take().expect("it is there");
    assert!(reason.contains("a start of node"), "{reason}");
}

#[test]
fn when_all_come_back_at_once_all_vote_again_at_once() {
    for (seed, kind) in [(420, CrashKind::Kill), (421, CrashKind::PowerLoss)] {
        let mut sea = noted(seed);
        (0..3).for_each(|number| sea.crash(number, kind));
        (0..3).for_each(|number| sea.restart(number));
        sea.expect_normal(0..3);
        sea.expect_noted(0..3);
        sea.create(1, "afterwards").expect("all are there");
        for number in 0..3 {
            let status = sea.cluster(number).status();
            assert_eq!((status.raft.part, status.withdrawn), (Part::Full, None));
        }
    }
}

/// Gives a node that is down another history of the same value, as if it had applied other commands at the same
/// indexes.
fn forge_history(sea: &mut Sea, number: usize, history: u128) {
    sea.crash(number, CrashKind::Kill);
    sea.sim.on_node(sea.nodes[number].id, || {
        let metadata = cluster::load(&dir(), &Known::everything())
            .expect("it is readable")
            .expect("it is there");
        let forged = Metadata {
            history: Some(cluster::History(history)),
            ..metadata
        };
        let base = forged.encode();
        let mut bytes = b"CETOMET1".to_vec();
        bytes.extend_from_slice(&(base.len() as u64).to_be_bytes());
        bytes.extend_from_slice(&base);
        runtime::fs::write(dir().join("metadata"), &bytes).expect("the disk works");
    });
}

#[test]
fn a_member_whose_history_is_another_withdraws_and_the_majority_goes_on() {
    for seed in 430..433 {
        let mut sea = noted(seed);
        forge_history(&mut sea, 2, 7);
        sea.restart(2);
        sea.expect("the one that differs withdraws", |views| {
            views.len() == 3 && views[2].status().withdrawn.is_some()
        });
        let (status, why) = (sea.cluster(2).status(), sea.cluster(2).status().withdrawn);
        let why = why.unwrap_or_else(|| panic!("seed {seed}: {status:?}"));
        assert!(
            why.contains(&host(2).to_string()) && why.contains("at index") && why.contains("metadata-differs"),
            "{why}"
        );
        let refused = sea.create(2, "refused");
        assert!(
            matches!(&refused, Err(ChangeError::Refused(told)) if *told == why),
            "{refused:?}"
        );
        sea.expect("the others say which one differs", |views| {
            views[..2].iter().all(|view| {
                let differing: Vec<_> = view.differing().into_iter().map(|(host, _)| host).collect();
                differing == [host(2)] && view.status().withdrawn.is_none()
            })
        });
        for number in 0..2 {
            sea.create(number, &format!("ks_{number}"))
                .expect("two of three are a majority");
        }
        // The remedy.
        sea.crash(2, CrashKind::Kill);
        assert_eq!(sea.rejoin(2), Ok("sea".to_owned()));
        sea.restart(2);
        sea.expect_normal(0..3);
        sea.expect("nobody differs", |views| {
            views
                .iter()
                .all(|view| view.differing().is_empty() && view.status().withdrawn.is_none())
        });
        sea.create(2, "again").expect("it is a member as before");
    }
}

#[test]
#[cfg(debug_assertions)]
fn without_the_comparison_a_member_that_differs_goes_on() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::UncomparedHistory));
    let mut sea = noted(430);
    forge_history(&mut sea, 2, 7);
    sea.restart(2);
    sea.expect_normal(0..3);
    sea.create(2, "from_another_history").expect("nobody notices");
}

#[test]
fn where_no_majority_has_one_history_nobody_changes_anything() {
    let mut sea = noted(440);
    forge_history(&mut sea, 1, 7);
    forge_history(&mut sea, 2, 8);
    sea.restart(1);
    sea.restart(2);
    sea.expect("all withdraw", |views| {
        views.len() == 3 && views.iter().all(|view| view.status().withdrawn.is_some())
    });
    for number in 0..3 {
        let refused = sea.create(number, "refused");
        assert!(matches!(refused, Err(ChangeError::Refused(_))), "{refused:?}");
        assert_eq!(*sea.nodes[number].seen.fatal.borrow(), None, "reads and writes go on");
    }
}

/// The log of one voter is put back as it was earlier in its present run, so its start is not refused; the one that has
/// what it forgot is cut off.
#[test]
fn two_histories_of_one_log_are_told_apart_when_they_meet() {
    let mut sea = noted(450);
    let whole = leader_of(&sea);
    let (restored, away) = ((whole + 1) % 3, (whole + 2) % 3);
    let backup = sea.files(restored);
    sea.crash(away, CrashKind::Kill);
    for name in ["a", "b", "c"] {
        sea.create(whole, name).expect("two of three are a majority");
    }
    let pair = [sea.nodes[restored].id, sea.nodes[away].id];
    let alone = [sea.nodes[whole].id];
    sea.sim.partition(&alone, &pair);
    sea.crash(restored, CrashKind::Kill);
    sea.put_files(restored, &backup);
    sea.restart(restored);
    sea.restart(away);
    for name in ["x", "y", "z", "u", "v"] {
        sea.create(restored, name)
            .expect("two of three vote, though one forgot");
    }
    sea.sim.heal(&alone, &pair);
    sea.expect("the one that is alone withdraws", |views| {
        views.len() == 3 && views.iter().any(|view| view.status().withdrawn.is_some())
    });
    sea.sim.run_for(5 * SECOND);
    let has_withdrawn = |view: &Rc<Cluster>| view.status().withdrawn.is_some();
    assert!(has_withdrawn(&sea.cluster(whole)), "two others have one history");
    assert!(!has_withdrawn(&sea.cluster(restored)) && !has_withdrawn(&sea.cluster(away)));
    let metadata = sea.cluster(whole).metadata();
    assert!(
        metadata.schema.keyspaces.contains_key("a") && !metadata.schema.keyspaces.contains_key("v"),
        "nothing was applied behind a history that it does not follow"
    );
    sea.create(away, "goes_on").expect("two of three are a majority");
}

#[test]
fn a_node_that_lost_its_metadata_comes_back_with_its_identity_and_another_raft_id() {
    for (seed, lost) in [(460, vec!["metadata", LOG]), (461, vec![LOG]), (462, vec!["metadata"])] {
        let mut sea = noted(seed);
        let before = sea.cluster(2).metadata().topology.node(host(2)).cloned();
        let id = sea.cluster(2).status().raft.id;
        sea.crash(2, CrashKind::PowerLoss);
        let copy = sea.files(2);
        lost.iter().for_each(|name| sea.remove_file(2, name));
        sea.restart(2);
        let reason = sea.refusal(2).to_string();
        assert!(reason.contains("recover-metadata --rejoin"), "{lost:?}: {reason}");
        sea.crash(2, CrashKind::Kill);
        sea.create(0, "meanwhile").expect("two of three are a majority");
        assert_eq!(sea.rejoin(2), Ok("sea".to_owned()), "{lost:?}");
        sea.restart(2);
        sea.expect_normal(0..3);
        sea.expect_voters(3);
        sea.expect_noted(0..3);
        let status = sea.cluster(2).status();
        assert_ne!(status.raft.id, id, "a Raft id is never used again");
        assert!(
            !sea.cluster(0).status().raft.voters.contains(&id),
            "the former Raft id has no vote"
        );
        let after = sea.cluster(0).metadata().topology.node(host(2)).cloned();
        assert_eq!(after, before, "{lost:?}: it owns what it owned");
        sea.create(2, "afterwards").expect("it is a member as before");

        // The log of the new id cannot be begun twice, and what was copied before is out of date.
        sea.crash(2, CrashKind::Kill);
        sea.remove_file(2, LOG);
        sea.restart(2);
        let reason = sea.refusal(2).to_string();
        assert!(reason.contains("its log"), "{reason}");
        sea.crash(2, CrashKind::Kill);
        sea.put_files(2, &copy);
        sea.restart(2);
        let reason = sea.refusal(2).to_string();
        assert!(reason.contains("has since rejoined with new metadata"), "{reason}");
    }
}

#[test]
fn a_node_does_not_rejoin_while_it_is_alive_or_after_it_was_removed() {
    let mut sea = Sea::new(470, 4);
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.expect_voters(3);
    sea.expect_noted(0..3);
    // Another machine says that it is the node.
    sea.nodes[3].config.borrow_mut().host_id = host(2);
    sea.start(3);
    let error = sea.refusal(3).to_string();
    assert!(error.contains("two nodes have one identity"), "{error}");
    sea.crash(3, CrashKind::Kill);
    let refused = sea.rejoin(3).expect_err("it is alive").to_string();
    assert!(refused.contains("is alive at"), "{refused}");
    sea.crash(2, CrashKind::Kill);
    let removed = sea.on(0, |cluster| async move {
        let mut result = cluster.remove_node(host(2)).await;
        while matches!(&result, Err(ChangeError::Refused(why)) if why.contains("a moment ago")) {
            runtime::sleep(SECOND).await;
            result = cluster.remove_node(host(2)).await;
        }
        result
    });
    assert_eq!(removed, Ok(()));
    let refused = sea.rejoin(3).expect_err("it was removed").to_string();
    assert!(refused.contains("was removed"), "{refused}");
}

#[test]
fn a_node_that_is_down_is_removed_for_ever_and_one_that_is_up_is_not() {
    let mut sea = noted(480);
    let remove =
        |sea: &mut Sea, number: usize| sea.on(0, move |cluster| async move { cluster.remove_node(host(number)).await });
    for (number, expected) in [(0, "this node runs"), (2, "is alive at")] {
        let refused = remove(&mut sea, number);
        assert!(
            matches!(&refused, Err(ChangeError::Refused(why)) if why.contains(expected)),
            "{refused:?}"
        );
    }
    let unknown = remove(&mut sea, 9);
    assert!(
        matches!(&unknown, Err(ChangeError::Rejected(why)) if why.contains("is not a member")),
        "{unknown:?}"
    );
    sea.crash(2, CrashKind::PowerLoss);
    sea.expect("it is down", |views| views.iter().all(|view| !view.is_live(host(2))));
    assert_eq!(remove(&mut sea, 2), Ok(()));
    sea.expect("its vote is gone", |views| {
        views.iter().all(|view| {
            let node = view.metadata().topology.node(host(2)).map(|node| node.state);
            node == Some(NodeState::Left) && view.status().raft.voters.len() == 1
        })
    });
    let again = remove(&mut sea, 2);
    assert!(
        matches!(&again, Err(ChangeError::Rejected(why)) if why.contains("left already")),
        "{again:?}"
    );
    sea.create(1, "without_it").expect("the others go on");
    let seen = sea.nodes[2].seen.clone();
    sea.restart(2);
    let has_stopped = sea.sim.run_until(30 * SECOND, || {
        seen.fatal.borrow().is_some() || seen.error.borrow().is_some()
    });
    assert!(has_stopped, "a removed node goes on as if nothing had been");
}
