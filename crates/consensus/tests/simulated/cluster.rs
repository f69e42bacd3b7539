//! What members promise one at a time: lost quorums, joining, leaving, barriers, snapshots, damaged files, recovery.

use crate::support::{Cluster, GROUP, Setup, Weather, dir};
use consensus::{
    Change, Epoch, MembershipError, ProposeError, RECOVERY_CONFIRMATION, ReadError, RecoveryError, follow_recovered,
    recover_from_lost_majority,
};
use runtime::fs;
use runtime::sim::{CrashKind, NodeId};
use std::time::Duration;

const SECONDS: Duration = Duration::from_secs(1);

fn isolate(cluster: &mut Cluster, id: u64, others: &[u64]) {
    let others: Vec<NodeId> = others.iter().map(|other| cluster.node(*other)).collect();
    let node = cluster.node(id);
    cluster.sim.partition(&[node], &others);
}

#[test]
fn every_member_can_propose_and_sees_its_own_change() {
    let mut cluster = Cluster::start(Setup::calm(1, 3, 3));
    cluster.wait_for_leader();
    for id in [1, 2, 3, 1] {
        let index = cluster.propose(id, 5 * SECONDS).expect("the group works");
        let history = cluster.record.borrow().histories[&id].clone();
        assert_eq!(
            history.last().map(|(index, _)| *index),
            Some(index),
            "member {id} has applied what it was told is committed"
        );
    }
    cluster.heal_and_check();
}

#[test]
fn a_proposal_that_is_lost_on_its_way_to_the_leader_is_proposed_again() {
    let mut cluster = Cluster::start(Setup {
        weather: Weather {
            lost_percent: 40,
            ..Weather::default()
        },
        ..Setup::calm(1, 3, 3)
    });
    let leader = cluster.wait_for_leader();
    let follower = leader % 3 + 1;
    for _ in 0..20 {
        cluster.propose(follower, 30 * SECONDS).expect("the group works");
    }
    cluster.heal_and_check();
}

#[test]
fn a_proposal_without_a_quorum_says_that_it_did_not_happen() {
    let mut cluster = Cluster::start(Setup::calm(2, 3, 3));
    let leader = cluster.wait_for_leader();
    for id in cluster.ids() {
        if id != leader {
            let node = cluster.node(id);
            cluster.sim.crash(node, CrashKind::Kill);
        }
    }
    let unknown = cluster.propose(leader, 3 * SECONDS);
    assert_eq!(unknown, Err(ProposeError::Timeout), "the leader had it in its log");
    cluster.sim.run_for(5 * SECONDS);
    assert_eq!(cluster.propose(leader, 3 * SECONDS), Err(ProposeError::NoQuorum));
    let barrier = cluster.ask(leader, 10 * SECONDS, async |consensus| {
        consensus.read_barrier(2 * SECONDS).await
    });
    assert_eq!(barrier, Some(Err(ReadError::Timeout)));
    cluster.heal_and_check();
}

#[test]
fn a_leader_that_was_cut_off_passes_no_barrier_and_does_not_disturb_when_it_returns() {
    let mut cluster = Cluster::start(Setup::calm(3, 3, 3));
    let leader = cluster.wait_for_leader();
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    isolate(&mut cluster, leader, &others);
    cluster.propose(others[0], 10 * SECONDS).expect("the majority goes on");
    let barrier = cluster.ask(leader, 10 * SECONDS, async |consensus| {
        consensus.read_barrier(3 * SECONDS).await
    });
    assert_eq!(
        barrier,
        Some(Err(ReadError::Timeout)),
        "it cannot know of what the others did"
    );
    let term = cluster.status(others[0]).expect("it runs").term;
    cluster.sim.run_for(30 * SECONDS);
    cluster.heal_and_check();
    assert_eq!(
        cluster.status(others[0]).expect("it runs").term,
        term,
        "no election was forced"
    );
}

#[test]
fn a_node_joins_with_a_snapshot_gets_a_vote_and_leaves() {
    let mut cluster = Cluster::start(Setup {
        log_bytes_max: 2000,
        entries_kept: 2,
        ..Setup::calm(4, 4, 3)
    });
    cluster.wait_for_leader();
    for _ in 0..40 {
        cluster.propose(1, 5 * SECONDS).expect("the group works");
    }
    let bytes = cluster.status(1).expect("it runs").file_bytes;
    assert!(bytes < 12_000, "the log is compacted, and has {bytes} bytes");
    let added = cluster.ask(2, 20 * SECONDS, async |consensus| {
        consensus.add_learner(4, 10 * SECONDS).await
    });
    assert_eq!(added, Some(Ok(())));
    cluster.sim.run_for(5 * SECONDS);
    let (first, joined) = (cluster.status(1).expect("it runs"), cluster.status(4).expect("it runs"));
    assert_eq!(
        (joined.applied, joined.learners),
        (first.applied, vec![4]),
        "the new member has everything"
    );
    assert_eq!(joined.epoch, Some(Epoch::default()));
    let promoted = cluster.ask(4, 20 * SECONDS, async |consensus| {
        consensus.promote(4, 2 * SECONDS).await
    });
    assert_eq!(
        promoted,
        Some(Err(MembershipError::Timeout)),
        "a member without a vote changes no members"
    );
    let promoted = cluster.ask(2, 20 * SECONDS, async |consensus| {
        consensus.promote(4, 10 * SECONDS).await
    });
    assert_eq!(promoted, Some(Ok(())));
    let leader = cluster.wait_for_leader();
    let other = if leader == 1 { 2 } else { 1 };
    let removed = cluster.ask(other, 20 * SECONDS, async move |consensus| {
        consensus.remove(leader, 10 * SECONDS).await
    });
    assert_eq!(removed, Some(Ok(())), "the leader itself is removed");
    let node = cluster.node(leader);
    cluster.sim.crash(node, CrashKind::Kill);
    cluster.propose(other, 10 * SECONDS).expect("the others go on");
    let status = cluster.status(other).expect("it runs");
    assert!(
        !status.voters.contains(&leader) && status.voters.len() == 3,
        "{status:?}"
    );
}

#[test]
fn memberships_that_cannot_be_are_refused_by_name() {
    let mut cluster = Cluster::start(Setup::calm(5, 3, 3));
    cluster.wait_for_leader();
    let cases: Vec<(Vec<Change>, MembershipError)> = vec![
        ((4..7).map(Change::Voter).collect(), MembershipError::TooManyVoters),
        ((1..4).map(Change::Remove).collect(), MembershipError::NoVoter),
        (vec![Change::Voter(0)], MembershipError::InvalidId(0)),
        (vec![Change::Voter(2), Change::Remove(2)], MembershipError::InvalidId(2)),
    ];
    for (changes, expected) in cases {
        let story = format!("{changes:?}");
        let result = cluster.ask(1, 10 * SECONDS, async |consensus| {
            consensus.change_members(changes, 5 * SECONDS).await
        });
        assert_eq!(result, Some(Err(expected)), "{story}");
    }
}

#[test]
fn a_leader_that_hands_over_leaves_no_gap_and_loses_nothing_that_is_under_way() {
    for seed in 30..40 {
        let mut cluster = Cluster::start(Setup::calm(seed, 3, 3));
        let leader = cluster.wait_for_leader();
        let term = cluster.status(leader).expect("it runs").term;
        let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
        let candidates = others.clone();
        let handed = cluster.ask(leader, 5 * SECONDS, async move |consensus| {
            let waiting = consensus.clone();
            let proposal =
                runtime::spawn(async move { waiting.propose(u64::MAX.to_be_bytes().to_vec(), SECONDS).await });
            let begun = runtime::now();
            let is_handed = consensus.hand_over(candidates, SECONDS).await;
            let took = runtime::now() - begun;
            let proposed = proposal.await;
            (is_handed, took, proposed.is_ok())
        });
        let (is_handed, took, is_proposed) = handed.expect("it comes to an end");
        assert!(is_handed && is_proposed, "seed {seed}: {is_handed}, {is_proposed}");
        assert!(took < Duration::from_millis(500), "seed {seed}: it took {took:?}");
        let node = cluster.node(leader);
        cluster.sim.crash(node, CrashKind::Kill);
        // Less than the shortest election.
        cluster
            .propose(others[0], Duration::from_millis(900))
            .expect("another leads already");
        let status = cluster.status(others[0]).expect("it runs");
        assert!(
            status.term > term && status.leader != Some(leader),
            "seed {seed}: {status:?}"
        );
    }
}

#[test]
fn who_does_not_lead_and_who_has_nobody_to_lead_hands_nothing_over() {
    let mut cluster = Cluster::start(Setup::calm(29, 4, 3));
    let leader = cluster.wait_for_leader();
    let term = cluster.status(leader).expect("it runs").term;
    // A member that does not vote, and one that is not there.
    let handed = cluster.ask(leader, 5 * SECONDS, async |consensus| {
        consensus.hand_over(vec![4, 9], Duration::from_millis(300)).await
    });
    assert_eq!(handed, Some(false));
    cluster.propose(leader, 5 * SECONDS).expect("it leads still");
    assert_eq!(cluster.status(leader).expect("it runs").term, term);
}

/// Two of three voters are gone; the group continues from what the survivor has.
fn lose_majority() -> Cluster {
    let mut cluster = Cluster::start(Setup::calm(6, 3, 3));
    cluster.wait_for_leader();
    for _ in 0..5 {
        cluster.propose(1, 5 * SECONDS).expect("the group works");
    }
    cluster.sim.run_for(SECONDS);
    for id in cluster.ids() {
        let node = cluster.node(id);
        cluster.sim.crash(node, CrashKind::PowerLoss);
    }
    cluster
}

fn recover(cluster: &mut Cluster, id: u64, words: &str) -> Result<consensus::Recovery, RecoveryError> {
    let node = cluster.node(id);
    cluster
        .sim
        .on_node(node, || recover_from_lost_majority(&dir(), GROUP, id, words))
}

#[test]
fn a_survivor_goes_on_alone_and_refuses_the_dead_when_they_return() {
    let mut cluster = lose_majority();
    assert_eq!(recover(&mut cluster, 1, "yes"), Err(RecoveryError::NotConfirmed));
    let recovery = recover(&mut cluster, 1, RECOVERY_CONFIRMATION).expect("the survivor has a log");
    assert_eq!((recovery.epoch.number, &recovery.lost), (1, &vec![2, 3]));
    let epoch = recovery.epoch;
    let survivor = cluster.node(1);
    cluster.sim.restart(survivor);
    cluster.wait_for_leader();
    cluster.propose(1, 5 * SECONDS).expect("one voter is a majority of one");
    let kept = cluster.record.borrow().histories[&1].len();
    assert_eq!(kept, 6, "nothing the survivor had is lost");
    // The dead rise, elect a leader among themselves, and speak to the survivor.
    for id in [2, 3] {
        let node = cluster.node(id);
        cluster.sim.restart(node);
    }
    cluster.sim.run_for(20 * SECONDS);
    for id in [2, 3] {
        let status = cluster.status(id).expect("it runs");
        assert_eq!(status.superseded_by, Some(1), "member {id} was told");
        let refused = cluster.propose(id, 3 * SECONDS);
        assert_eq!(refused, Err(ProposeError::Superseded { epoch: 1 }));
    }
    let status = cluster.status(1).expect("it runs");
    assert_eq!(
        (status.leader, status.voters, status.recovery),
        (Some(1), vec![1], Some(recovery))
    );
    // And after a restart the survivor still knows.
    cluster.sim.crash(survivor, CrashKind::PowerLoss);
    cluster.sim.restart(survivor);
    cluster.wait_for_leader();
    assert_eq!(cluster.status(1).expect("it runs").epoch, Some(epoch));
}

#[test]
fn another_survivor_follows_with_its_old_id_and_the_dead_cannot_bring_it_back() {
    let mut cluster = lose_majority();
    let recovery = recover(&mut cluster, 1, RECOVERY_CONFIRMATION).expect("the survivor has a log");
    let epoch = recovery.epoch;
    let node = cluster.node(2);
    let refused = cluster
        .sim
        .on_node(node, || follow_recovered(&dir(), GROUP, 2, Epoch::default()));
    let own = Epoch::default();
    assert_eq!(refused, Err(RecoveryError::NotLater { own, followed: own }));
    cluster
        .sim
        .on_node(node, || follow_recovered(&dir(), GROUP, 2, epoch))
        .expect("it has a log");
    cluster.record.borrow_mut().histories.remove(&2);
    // The dead member speaks to the follower first.
    for id in [3, 2, 1] {
        let node = cluster.node(id);
        cluster.sim.restart(node);
        cluster.sim.run_for(5 * SECONDS);
    }
    cluster.wait_for_leader();
    for change in [Change::Learner(2), Change::Voter(2)] {
        let changed = cluster.ask(1, 20 * SECONDS, async move |consensus| {
            consensus.change_members(vec![change], 10 * SECONDS).await
        });
        assert_eq!(changed, Some(Ok(())), "{change:?}");
    }
    cluster.propose(2, 5 * SECONDS).expect("it is a member again");
    let (one, two) = (cluster.status(1).expect("it runs"), cluster.status(2).expect("it runs"));
    assert_eq!((two.epoch, two.superseded_by), (Some(epoch), None));
    assert_eq!(one.voters, vec![1, 2]);
    assert_eq!(
        cluster.status(3).expect("it runs").superseded_by,
        Some(1),
        "the dead stay out"
    );
}

/// Two survivors are recovered independently, and a third member follows the second while only the first runs. The
/// first member and the third.
fn recover_twice() -> [consensus::Status; 2] {
    let mut cluster = lose_majority();
    recover(&mut cluster, 1, RECOVERY_CONFIRMATION).expect("the survivor has a log");
    let second = recover(&mut cluster, 2, RECOVERY_CONFIRMATION).expect("the survivor has a log");
    let node = cluster.node(3);
    let followed = cluster
        .sim
        .on_node(node, || follow_recovered(&dir(), GROUP, 3, second.epoch));
    assert_eq!(followed, Ok(()));
    {
        // The observer of these tests takes the group for one, and both epochs continue from the same log.
        let mut record = cluster.record.borrow_mut();
        record.leaders.clear();
        record.votes.clear();
        record.histories.remove(&3);
    }
    // The epoch that the follower does not follow speaks to it first.
    for id in [3, 1] {
        let node = cluster.node(id);
        cluster.sim.restart(node);
    }
    cluster.sim.run_for(5 * SECONDS);
    let added = cluster.ask(1, 10 * SECONDS, async |consensus| {
        consensus.change_members(vec![Change::Voter(3)], 3 * SECONDS).await
    });
    assert!(added.is_some());
    cluster.sim.run_for(5 * SECONDS);
    [1, 3].map(|id| cluster.status(id).expect("it runs"))
}

#[test]
fn two_survivors_that_are_recovered_begin_two_epochs_that_do_not_hear_each_other() {
    let [first, follower] = recover_twice();
    let (one, other) = (
        first.epoch.expect("it was recovered"),
        follower.epoch.expect("it follows"),
    );
    assert_eq!((one.number, other.number), (1, 1));
    assert_ne!(one.nonce, other.nonce);
    assert_eq!(
        (follower.applied, follower.voters),
        (0, Vec::new()),
        "the follower took the log of an epoch that it does not follow"
    );
}

#[test]
#[cfg(debug_assertions)]
fn without_its_nonce_a_follower_takes_the_log_of_the_wrong_epoch() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::IgnoredEpochNonce));
    let [_, follower] = recover_twice();
    assert_ne!(follower.applied, 0, "the planted bug does what the nonce is there for");
}

#[test]
fn recovery_by_accident_is_refused() {
    let mut cluster = Cluster::start(Setup::calm(7, 2, 1));
    cluster.wait_for_leader();
    for id in [1, 2] {
        let node = cluster.node(id);
        cluster.sim.crash(node, CrashKind::Kill);
    }
    assert_eq!(
        recover(&mut cluster, 1, RECOVERY_CONFIRMATION),
        Err(RecoveryError::NothingLost)
    );
    assert_eq!(
        recover(&mut cluster, 2, RECOVERY_CONFIRMATION),
        Err(RecoveryError::NeverJoined)
    );
    let node = cluster.node(1);
    let nowhere = cluster.sim.on_node(node, || {
        recover_from_lost_majority(std::path::Path::new("/nowhere"), GROUP, 1, RECOVERY_CONFIRMATION)
    });
    assert_eq!(nowhere, Err(RecoveryError::NoLog));
}

/// A member's file after some proposals, with its process stopped.
fn stopped_with_log() -> (Cluster, NodeId, Vec<u8>) {
    let mut cluster = Cluster::start(Setup::calm(8, 1, 1));
    cluster.wait_for_leader();
    for _ in 0..5 {
        cluster.propose(1, 5 * SECONDS).expect("one voter is enough");
    }
    let node = cluster.node(1);
    cluster.sim.crash(node, CrashKind::Kill);
    let bytes = cluster.sim.on_node(node, || {
        fs::read(dir().join("metadata-raft.log")).expect("the file is there")
    });
    (cluster, node, bytes)
}

/// What recovery, which opens the file as a start does, says of these bytes.
fn open_error(cluster: &mut Cluster, node: NodeId, bytes: &[u8], group: u64, id: u64) -> String {
    cluster.sim.on_node(node, || {
        fs::write(dir().join("metadata-raft.log"), bytes).expect("the disk works");
        match recover_from_lost_majority(&dir(), group, id, RECOVERY_CONFIRMATION) {
            Err(RecoveryError::Store(error)) => error.to_string(),
            other => format!("{other:?}"),
        }
    })
}

#[test]
fn a_file_that_is_not_ours_or_damaged_is_named_with_the_place() {
    let (mut cluster, node, bytes) = stopped_with_log();
    let changed = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let mut newer = bytes.clone();
    newer[11] = 9;
    let crc = crc32fast_of(&newer[..60]);
    newer[60..64].copy_from_slice(&crc.to_be_bytes());
    let cases: Vec<(&str, Vec<u8>, u64, u64, &str)> = vec![
        (
            "empty",
            Vec::new(),
            GROUP,
            1,
            "metadata-raft.log is no metadata log: it has 0 bytes",
        ),
        ("foreign", vec![b'x'; 200], GROUP, 1, "does not begin with CETORAFT"),
        ("a bit of the header", changed(20), GROUP, 1, "damaged at offset 0"),
        ("of a later program", newer, GROUP, 1, "its format is 9"),
        (
            "of another group",
            bytes.clone(),
            5,
            1,
            "belongs to member 1 of group 0xce70; this is member 1 of group 0x5",
        ),
        ("of another member", bytes.clone(), GROUP, 2, "this is member 2"),
        (
            "cut in the first chunk",
            bytes[..100].to_vec(),
            GROUP,
            1,
            "damaged at offset 64",
        ),
        (
            "only a header",
            bytes[..64].to_vec(),
            GROUP,
            1,
            "a first chunk expected",
        ),
        (
            "a bit of the first chunk",
            changed(100),
            GROUP,
            1,
            "damaged at offset 64",
        ),
        (
            "a bit in the middle",
            changed(bytes.len() / 2),
            GROUP,
            1,
            "damaged at offset ",
        ),
    ];
    for (story, bytes, group, id, expected) in cases {
        let message = open_error(&mut cluster, node, &bytes, group, id);
        assert!(message.contains(expected), "{story}: {message}");
    }
}

/// CRC-32 as zlib has it, bit by bit.
fn crc32fast_of(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}

#[test]
fn a_file_cut_anywhere_after_its_first_chunk_is_an_unfinished_write() {
    let (mut cluster, node, bytes) = stopped_with_log();
    let first = 64 + 24 + u32::from_be_bytes(bytes[80..84].try_into().expect("four bytes")) as usize;
    assert!(first + 400 < bytes.len(), "there are chunks behind the first");
    for cut in (first..bytes.len()).step_by(7) {
        let message = open_error(&mut cluster, node, &bytes[..cut], GROUP, 1);
        assert_eq!(message, "Err(NothingLost)", "cut at {cut}");
    }
    // And the member continues from what is left.
    cluster.sim.restart(node);
    cluster.wait_for_leader();
}

#[test]
fn bytes_from_anywhere_do_no_harm() {
    let mut cluster = Cluster::start(Setup::calm(9, 3, 3));
    cluster.wait_for_leader();
    let sent = cluster.ask(1, 60 * SECONDS, async |consensus| {
        let mut header = vec![1];
        for field in [GROUP, 0, 2, 1] {
            header.extend_from_slice(&field.to_be_bytes());
        }
        header.push(1);
        for round in 0..20_000_u64 {
            let mut bytes = header.clone();
            bytes.push((round % 16) as u8);
            // Small numbers in most fields, so that many messages are well-formed.
            for _ in 0..7 {
                bytes.extend_from_slice(&(runtime::random_u64() % 20).to_be_bytes());
            }
            bytes.push((runtime::random_u64() % 2) as u8);
            bytes.extend_from_slice(&[0; 8 + 4]);
            let entries = u32::from(runtime::random_u64().is_multiple_of(2));
            bytes.extend_from_slice(&entries.to_be_bytes());
            for _ in 0..entries {
                bytes.extend_from_slice(&(runtime::random_u64() % 9).to_be_bytes());
                bytes.extend_from_slice(&(runtime::random_u64() % 9).to_be_bytes());
                bytes.push((runtime::random_u64() % 3) as u8);
                bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 2, 1, 1]);
            }
            bytes.push(0);
            if runtime::random_u64().is_multiple_of(4) {
                let at = (runtime::random_u64() as usize) % bytes.len();
                bytes[at] = runtime::random_u64() as u8;
            }
            if runtime::random_u64().is_multiple_of(8) {
                bytes.truncate((runtime::random_u64() as usize) % (bytes.len() + 1));
            }
            consensus.receive(2 + round % 2, bytes);
            if round.is_multiple_of(50) {
                runtime::sleep(Duration::from_millis(5)).await;
            }
        }
        consensus.status().id
    });
    assert_eq!(sent, Some(1), "the member still answers");
}

#[test]
fn a_full_disk_makes_a_member_silent_and_room_makes_it_speak() {
    let mut cluster = Cluster::start(Setup::calm(10, 3, 3));
    cluster.wait_for_leader();
    cluster.propose(2, 5 * SECONDS).expect("the group works");
    let node = cluster.node(1);
    cluster.sim.set_disk_capacity(node, Some(0));
    for _ in 0..5 {
        cluster.propose(2, 10 * SECONDS).expect("two of three are a majority");
    }
    cluster.sim.run_for(5 * SECONDS);
    let status = cluster.status(1).expect("it runs");
    assert!(status.storage_error.is_some(), "an operator can see it: {status:?}");
    cluster.sim.set_disk_capacity(node, None);
    cluster.heal_and_check();
    assert_eq!(cluster.status(1).expect("it runs").storage_error, None);
}

#[test]
fn a_member_that_stops_tells_those_who_wait() {
    let mut cluster = Cluster::start(Setup::calm(11, 3, 3));
    let leader = cluster.wait_for_leader();
    let others: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    isolate(&mut cluster, leader, &others);
    let outcome = cluster.ask(leader, 10 * SECONDS, async |consensus| {
        let waiting = consensus.clone();
        let proposal = runtime::spawn(async move { waiting.propose(vec![0; 8], 60 * SECONDS).await });
        runtime::sleep(SECONDS).await;
        consensus.stop().await;
        (proposal.await, consensus.propose(vec![0; 8], SECONDS).await)
    });
    assert_eq!(
        outcome,
        Some((Err(ProposeError::Shutdown), Err(ProposeError::Shutdown)))
    );
}
