//! The DynamoDB API on whole clusters, while nodes fail: updates, transactions and reads of items fit one order that
//! keeps real time, and what expires is deleted, and nothing else.

use sim::{ClusterFaults, ClusterScenario, Workload};

/// Three nodes whose clients use the API, besides what others do.
fn items(faults: ClusterFaults) -> ClusterScenario {
    ClusterScenario {
        faults,
        rounds: 3,
        workload: Workload {
            items: true,
            ..Workload::default()
        },
        ..ClusterScenario::new(3)
    }
}

/// What leaves transactions in the middle, and makes their outcome unknown.
const STOPS: ClusterFaults = ClusterFaults {
    kills: true,
    power_losses: true,
    splits: true,
    pauses: true,
    bad_links: true,
    ..ClusterFaults::NONE
};

#[test]
fn transactions_and_single_requests_fit_one_order_while_nodes_fail() {
    for seed in 0..2 {
        let report = items(STOPS).run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(
            report.counts.on_items > 150 && report.counts.transactions > 30,
            "{report:?}"
        );
        assert!(report.counts.renewals > 100, "{report:?}");
    }
}

#[test]
fn transactions_keep_their_order_while_tablets_move_and_messages_overtake_each_other() {
    let faults = ClusterFaults {
        moves: true,
        disturbed_messages: true,
        reorders: true,
        ..ClusterFaults::NONE
    };
    let report = items(faults).run(7).unwrap_or_else(|failure| panic!("{failure}"));
    assert!(report.counts.transactions > 30, "{report:?}");
}

#[cfg(debug_assertions)]
mod planted {
    use stdx::planted::Bug;

    use super::{STOPS, items};
    use crate::support::is_found;

    const COMPLAINTS: [&str; 5] = [
        "no order is right",
        "lost: ",
        "half done: ",
        "refused and done: ",
        " twice",
    ];

    fn finds(bug: Bug) {
        is_found(bug, &items(STOPS), 0..12, &COMPLAINTS);
    }

    #[test]
    fn a_transaction_that_is_carried_out_before_it_is_decided_is_found() {
        finds(Bug::CommittedWhenMet);
    }

    #[test]
    fn a_write_that_does_not_heed_a_lock_is_found() {
        finds(Bug::UnheededLock);
    }

    #[test]
    fn a_read_that_does_not_see_what_is_committed_is_found() {
        finds(Bug::UnseenCommit);
    }

    #[test]
    fn items_that_are_read_at_different_moments_are_found() {
        finds(Bug::ReadTogetherOnce);
    }
}
