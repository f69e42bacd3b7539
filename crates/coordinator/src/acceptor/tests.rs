//! Of one acceptor, message by message.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

use paxos::{Ballot, Proposal};
use runtime::sim::CrashKind;
use topology::Consistency;

use super::handle_from_beside;
use super::row::WHOLE_BYTES_MAX;
use crate::fence::Stamp;
use crate::paxos_message::{PaxosAnswer, Phase, Reads};
use crate::service::ReplicaError;
use crate::support::{Cluster, Local, SECOND, Shape, insert, table};

const KEY: &[u8] = b"key";

fn ballot(timestamp_us: i64) -> Ballot {
    Ballot {
        timestamp_us,
        ..Ballot::NONE
    }
}

/// To insert a row of so many bytes.
fn proposal(at: i64, c: i32, bytes: usize) -> Proposal {
    Proposal::new(ballot(at), None, &insert(&table(), KEY, c, &vec![7; bytes], at))
}

/// A node as an acceptor.
async fn ask(node: &Local, phase: Phase<'static>) -> Result<PaxosAnswer, ReplicaError> {
    handle_from_beside(&node.shard, (table().id, KEY.to_vec()), phase, Stamp::PRESENT).await
}

async fn rows(node: Local) -> BTreeMap<i32, Vec<u8>> {
    node.select(KEY, Consistency::One).await.expect("it is a replica")
}

#[test]
fn what_was_accepted_since_is_not_applied_for_what_was_chosen() {
    let mut cluster = Cluster::new(1, Shape::default());
    let answer = cluster.on(1, |node| async move {
        for accepted in [proposal(10, 1, 1), proposal(20, 2, 1)] {
            ask(&node, Phase::Accept(accepted)).await.expect("the disk works");
        }
        ask(&node, Phase::Commit(ballot(10))).await
    });
    assert!(matches!(answer, Ok(PaxosAnswer::Lacking)), "{answer:?}");
    assert_eq!(
        cluster.on(1, rows),
        BTreeMap::new(),
        "nothing at the second ballot was chosen"
    );
}

#[test]
fn a_promise_that_the_log_lost_is_not_repeated_before_it_is_durable() {
    let mut cluster = Cluster::new(1, Shape::default());
    cluster.on(1, |node| async move {
        // Too long for the row to be written whole with each ballot.
        let accepted = ask(&node, Phase::Accept(proposal(10, 1, 2 * WHOLE_BYTES_MAX))).await;
        accepted.expect("the disk works");
    });
    let broken = cluster.id(1);
    cluster
        .simulation
        .fail_file_op_after(broken, 0, std::io::ErrorKind::StorageFull);
    let prepare = |at| move |node| async move { ask(&node, Phase::Prepare(ballot(at), Reads::default())).await };
    let lost = cluster.on(1, prepare(30));
    assert!(matches!(lost, Err(ReplicaError::Log(_))), "{lost:?}");
    // As a leader does that confirms what it has read.
    let repeated = cluster.on(1, prepare(30));
    assert!(matches!(repeated, Ok(PaxosAnswer::Promised(..))), "{repeated:?}");
    cluster.crash(1, CrashKind::PowerLoss);
    cluster.restart(1);
    let earlier = cluster.on(1, prepare(20));
    assert!(
        matches!(earlier, Ok(PaxosAnswer::Refused(promised)) if promised == ballot(30)),
        "a power loss took back what was promised"
    );
}

#[test]
fn a_decision_that_the_log_lost_is_not_known_as_learned() {
    let mut cluster = Cluster::new(1, Shape::default());
    cluster.on(1, |node| async move {
        ask(&node, Phase::Accept(proposal(10, 1, 1)))
            .await
            .expect("the disk works");
    });
    let broken = cluster.id(1);
    cluster
        .simulation
        .fail_file_op_after(broken, 0, std::io::ErrorKind::StorageFull);
    let lost = cluster.on(1, |node| async move { ask(&node, Phase::Commit(ballot(10))).await });
    assert!(matches!(lost, Err(ReplicaError::Log(_))), "{lost:?}");
    let answer = cluster.on(1, |node| async move {
        ask(&node, Phase::Prepare(ballot(20), Reads::default())).await
    });
    let Ok(PaxosAnswer::Promised(promise, _)) = answer else {
        panic!("no later ballot was promised: {answer:?}");
    };
    assert_eq!(promise.committed, Ballot::NONE, "a power loss would take it");
    assert_eq!(promise.proposal.map(|proposal| proposal.ballot), Some(ballot(10)));
}

/// Whether an acceptor still knows what it has learned when its power goes at some operation on its disk while it accepts the next proposal.
fn outlasts_the_next(seed: u64, operations: u64) -> bool {
    let mut cluster = Cluster::new(seed, Shape::default());
    cluster.on(1, |node| async move {
        // Longer than a sector, so that the mutation and what is written behind it are lost or kept apart.
        for phase in [Phase::Accept(proposal(10, 1, 600)), Phase::Commit(ballot(10))] {
            ask(&node, phase).await.expect("the disk works");
        }
    });
    let acceptor = cluster.id(1);
    cluster
        .simulation
        .crash_after_file_ops(acceptor, operations, CrashKind::PowerLoss);
    drop(cluster.spawn(
        1,
        |node| async move { ask(&node, Phase::Accept(proposal(20, 2, 1))).await },
    ));
    cluster.simulation.run_until_ended(acceptor, SECOND);
    cluster.simulation.clear_file_faults(acceptor);
    cluster.crash(1, CrashKind::PowerLoss);
    cluster.restart(1);
    let promise = cluster.on(1, |node| async move {
        let promise = ask(&node, Phase::Prepare(ballot(30), Reads::default())).await;
        match promise.expect("the disk works") {
            PaxosAnswer::Promised(promise, _) => promise,
            other => panic!("no ballot is later: {other:?}"),
        }
    });
    let is_proposed = promise.proposal.is_some_and(|proposal| proposal.ballot == ballot(10));
    is_proposed || cluster.on(1, rows).contains_key(&1)
}

#[test]
fn what_was_learned_outlasts_a_power_loss_while_the_next_proposal_is_accepted() {
    for (seed, operations) in (0..40).flat_map(|seed| [0, 1, 2].map(|operations| (seed, operations))) {
        assert!(
            outlasts_the_next(seed, operations),
            "seed {seed}, after {operations} operations: neither its proposal nor its row is there"
        );
    }
}

/// A leader that has its quorum gives up what it asked of others.
#[test]
fn a_state_whose_change_is_given_up_is_as_before() {
    let mut cluster = Cluster::new(1, Shape::default());
    let learned = Proposal::new(
        ballot(10),
        Some(&proposal(5, 1, 1)),
        &insert(&table(), KEY, 1, b"v", 10),
    );
    let known = learned.clone();
    let promise = cluster.on(1, |node| async move {
        for phase in [Phase::Accept(known), Phase::Commit(ballot(10))] {
            ask(&node, phase).await.expect("the disk works");
        }
        // It waits for the log, because the row is about to lose what was learned.
        let mut next = Box::pin(ask(&node, Phase::Accept(proposal(20, 2, 1))));
        let is_done = poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_ready())).await;
        assert!(!is_done, "it does not wait");
        drop(next);
        match ask(&node, Phase::Prepare(ballot(15), Reads::default())).await {
            Ok(PaxosAnswer::Promised(promise, _)) => promise,
            other => panic!("it has promised no later ballot: {other:?}"),
        }
    });
    assert_eq!((promise.proposal, promise.committed), (Some(learned), ballot(10)));
}
