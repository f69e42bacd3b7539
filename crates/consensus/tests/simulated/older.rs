//! Members whose files are older than what they have promised, and members that are kept silent.

use crate::support::{Cluster, Setup, dir};
use consensus::{Part, ProposeError, ReadError};
use runtime::fs;
use runtime::sim::{CrashKind, NodeId};
use std::time::Duration;

const SECONDS: Duration = Duration::from_secs(1);

/// The observer of these tests would object first, to what two halves of a broken group agree on.
fn blind(cluster: &Cluster) {
    let mut record = cluster.record.borrow_mut();
    record.log.clear();
    record.votes.clear();
    record.leaders.clear();
    record.histories.clear();
}

#[test]
fn a_member_whose_committed_entries_are_not_the_leaders_withdraws_and_says_where() {
    let mut cluster = Cluster::start(Setup::calm(7, 3, 3));
    let leader = cluster.wait_for_leader();
    cluster.propose(leader, 5 * SECONDS).expect("the group works");
    cluster.sim.run_for(3 * SECONDS);
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    let (restored, away) = (cluster.node(others[0]), cluster.node(others[1]));
    // A backup of one voter; then another is down while the group continues.
    cluster.sim.crash(restored, CrashKind::Kill);
    let backup = cluster.sim.on_node(restored, || {
        fs::read(dir().join("metadata-raft.log")).expect("it is there")
    });
    cluster.sim.restart(restored);
    cluster.sim.run_for(3 * SECONDS);
    cluster.sim.crash(away, CrashKind::Kill);
    for _ in 0..6 {
        let leader = cluster.wait_for_leader();
        cluster.propose(leader, 5 * SECONDS).expect("two of three live");
    }
    cluster.sim.run_for(2 * SECONDS);
    // The whole one is cut off, the backup is put back, and the one that was away has less than was committed.
    let whole = cluster.node(leader);
    let pair: Vec<NodeId> = vec![restored, away];
    cluster.sim.partition(&[whole], &pair);
    cluster.sim.crash(restored, CrashKind::Kill);
    cluster.sim.on_node(restored, || {
        fs::write(dir().join("metadata-raft.log"), &backup).expect("the disk works");
    });
    blind(&cluster);
    cluster.sim.restart(restored);
    cluster.sim.restart(away);
    cluster.sim.run_for(15 * SECONDS);
    blind(&cluster);
    for _ in 0..6 {
        cluster
            .propose(others[0], 5 * SECONDS)
            .expect("two of three vote, though one of them forgot");
    }
    blind(&cluster);
    cluster.sim.heal(&[whole], &pair);
    cluster.sim.run_for(20 * SECONDS);
    let status = cluster.status(leader).expect("it runs");
    let divergence = status.diverged.expect("the difference is seen");
    assert!(
        divergence.index <= status.committed && divergence.term < divergence.leader_term,
        "{divergence:?}"
    );
    let refused = cluster.propose(leader, 3 * SECONDS);
    assert!(
        matches!(&refused, Err(ProposeError::Withdrawn(why)) if why.contains("two histories")),
        "{refused:?}"
    );
    // It takes nothing of the other history, however long it hears of it.
    cluster.sim.run_for(60 * SECONDS);
    let later = cluster.status(leader).expect("it runs");
    assert!(later.diverged.is_some() && later.applied == status.applied, "{later:?}");
}

#[test]
fn a_member_that_lost_its_last_entry_takes_no_part_and_says_so() {
    let mut cluster = Cluster::start(Setup::calm(13, 3, 3));
    let leader = cluster.wait_for_leader();
    cluster.propose(leader, 5 * SECONDS).expect("the group works");
    cluster.sim.run_for(3 * SECONDS);
    let follower = leader % 3 + 1;
    let (node, log) = (cluster.node(follower), dir().join("metadata-raft.log"));
    let backup = cluster.sim.on_node(node, || fs::read(&log).expect("it is there"));
    let last = cluster.propose(leader, 5 * SECONDS).expect("the group works");
    cluster.sim.run_for(3 * SECONDS);
    cluster.sim.crash(node, CrashKind::Kill);
    cluster
        .sim
        .on_node(node, || fs::write(&log, &backup).expect("the disk works"));
    cluster.record.borrow_mut().histories.remove(&follower);
    cluster.sim.restart(node);
    cluster.sim.run_for(3 * SECONDS);
    let lost = cluster.status(follower).expect("it runs").lost_entries;
    let lost = lost.expect("the leader knows what was acknowledged");
    assert_eq!((lost.promised, lost.last, lost.leader), (last, last - 1, leader));
    cluster
        .propose(leader, 5 * SECONDS)
        .expect("two of three are a majority");
}

#[test]
fn a_silent_member_does_not_vote_and_a_withdrawn_one_says_why() {
    let mut cluster = Cluster::start(Setup::calm(11, 3, 3));
    let leader = cluster.wait_for_leader();
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    cluster.ask(others[0], SECONDS, async |consensus| consensus.take_part(Part::Silent));
    let gone = cluster.node(leader);
    cluster.sim.crash(gone, CrashKind::Kill);
    cluster.sim.run_for(20 * SECONDS);
    let status = cluster.status(others[1]).expect("it runs");
    assert_eq!(status.leader, None, "a silent member gave its vote");
    let waiting = cluster.propose(others[0], 2 * SECONDS);
    assert_eq!(waiting, Err(ProposeError::NoQuorum), "its proposals wait");

    let why = "it was told to".to_owned();
    let told = why.clone();
    cluster.ask(others[0], SECONDS, async move |consensus| {
        consensus.take_part(Part::Withdrawn(told));
    });
    assert_eq!(
        cluster.propose(others[0], 5 * SECONDS),
        Err(ProposeError::Withdrawn(why))
    );
    let barrier = cluster.ask(others[0], 5 * SECONDS, async |consensus| {
        consensus.read_barrier(4 * SECONDS).await
    });
    assert_eq!(barrier, Some(Err(ReadError::Withdrawn)));

    cluster.ask(others[0], SECONDS, async |consensus| consensus.take_part(Part::Full));
    cluster.wait_for_leader();
    cluster.propose(others[0], 5 * SECONDS).expect("it votes again");
}

#[test]
fn every_start_has_a_name_that_the_file_keeps() {
    let mut setup = Setup::calm(12, 1, 1);
    setup.log_bytes_max = 1 << 10;
    let mut cluster = Cluster::start(setup);
    let node = cluster.node(1);
    let mut known: Vec<u64> = Vec::new();
    for start in 1..6 {
        cluster.wait_for_leader();
        for _ in 0..10 {
            cluster.propose(1, 5 * SECONDS).expect("one voter is enough");
        }
        let status = cluster.status(1).expect("it runs");
        assert_eq!(
            (status.incarnation, &status.runs[..known.len()]),
            (start, &known[..]),
            "start {start}"
        );
        known = status.runs.to_vec();
        assert_eq!(
            known.len() as u64,
            start,
            "each start adds one name, and compaction keeps them"
        );
        cluster.sim.crash(node, CrashKind::PowerLoss);
        cluster.sim.restart(node);
    }
}
