//! Messages that no correct member sends: none of them ends a member, or keeps the group from its work.

use crate::support::{Cluster, GROUP, Setup};
use runtime::sim::CrashKind;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use stdx::planted::{Bug, Planted};

const SECOND: Duration = Duration::from_secs(1);

const PROPOSE: u8 = 1;
const APPEND: u8 = 2;
const ACKNOWLEDGE: u8 = 3;
const VOTE: u8 = 4;
const VOTE_RESPONSE: u8 = 5;
const SNAPSHOT: u8 = 6;
const HEARTBEAT: u8 = 7;
const READ: u8 = 9;
const READ_RESPONSE: u8 = 10;
const TIMEOUT_NOW: u8 = 13;

/// A message as `message.rs` lays it out.
#[derive(Clone, Default)]
struct Forged {
    group: u64,
    epoch: u64,
    from: u64,
    kind: u8,
    term: u64,
    log_term: u64,
    index: u64,
    commit: u64,
    commit_term: u64,
    request_snapshot: u64,
    reject_hint: u64,
    reject: bool,
    context: Vec<u8>,
    /// Term, index, whether it is about members, data.
    entries: Vec<(u64, u64, bool, Vec<u8>)>,
    /// Index, term, voters, data.
    snapshot: Option<(u64, u64, Vec<u64>, Vec<u8>)>,
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&u32::try_from(bytes.len()).expect("small").to_be_bytes());
    out.extend_from_slice(bytes);
}

impl Forged {
    fn encode(&self, to: u64) -> Vec<u8> {
        let mut out = vec![1];
        for field in [GROUP + self.group, self.epoch, 0, self.from, to] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.extend_from_slice(&[1, self.kind]);
        for field in [
            self.term,
            self.log_term,
            self.index,
            self.commit,
            self.commit_term,
            self.request_snapshot,
            self.reject_hint,
        ] {
            out.extend_from_slice(&field.to_be_bytes());
        }
        out.push(u8::from(self.reject));
        out.extend_from_slice(&0_i64.to_be_bytes());
        put_bytes(&mut out, &self.context);
        out.extend_from_slice(&u32::try_from(self.entries.len()).expect("few").to_be_bytes());
        for (term, index, is_membership, data) in &self.entries {
            out.extend_from_slice(&term.to_be_bytes());
            out.extend_from_slice(&index.to_be_bytes());
            out.push(u8::from(*is_membership));
            put_bytes(&mut out, &[]);
            put_bytes(&mut out, data);
        }
        out.push(u8::from(self.snapshot.is_some()));
        if let Some((index, term, voters, data)) = &self.snapshot {
            out.extend_from_slice(&index.to_be_bytes());
            out.extend_from_slice(&term.to_be_bytes());
            out.extend_from_slice(&u32::try_from(voters.len()).expect("few").to_be_bytes());
            voters.iter().for_each(|id| out.extend_from_slice(&id.to_be_bytes()));
            out.extend_from_slice(&[0; 3 * 4 + 1]);
            put_bytes(&mut out, data);
        }
        out
    }
}

/// A proposal as `apply.rs` lays it out.
fn proposal(proposer: u64, command: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    for field in [proposer, u64::MAX, 7, u64::MAX] {
        data.extend_from_slice(&field.to_be_bytes());
    }
    data.extend_from_slice(command);
    data
}

fn read_name(id: u64) -> Vec<u8> {
    [id, 1, 1].iter().flat_map(|field| field.to_be_bytes()).collect()
}

/// What an attacker knows of the member it writes to.
#[derive(Clone, Copy)]
struct Situation {
    leader: u64,
    term: u64,
    last: u64,
}

struct Attack {
    story: &'static str,
    /// The leader is written to, or one that follows it.
    on_leader: bool,
    /// Without the check it ends the process.
    is_deadly: bool,
    messages: fn(Situation) -> Vec<Forged>,
}

const ATTACKS: &[Attack] = &[
    Attack {
        story: "a heartbeat of term 0 that commits what is not there",
        on_leader: false,
        is_deadly: true,
        messages: |now| {
            vec![Forged {
                from: now.leader,
                kind: HEARTBEAT,
                commit: 1_000_000_000,
                ..Forged::default()
            }]
        },
    },
    Attack {
        story: "an append behind an entry that is not there, which it gives no term",
        on_leader: false,
        is_deadly: true,
        messages: |now| {
            vec![Forged {
                from: now.leader,
                kind: APPEND,
                term: now.term,
                index: now.last + 1000,
                commit: now.last + 1000,
                ..Forged::default()
            }]
        },
    },
    Attack {
        story: "entries behind a gap",
        on_leader: false,
        is_deadly: true,
        messages: |now| {
            vec![Forged {
                from: now.leader,
                kind: APPEND,
                term: now.term,
                index: now.last + 5,
                entries: vec![(now.term, now.last + 6, false, Vec::new())],
                ..Forged::default()
            }]
        },
    },
    Attack {
        story: "a proposal with a term, to be forwarded",
        on_leader: false,
        is_deadly: true,
        messages: |now| {
            vec![Forged {
                from: now.leader,
                kind: PROPOSE,
                term: now.term,
                entries: vec![(0, 0, false, proposal(now.leader, &[1; 8]))],
                ..Forged::default()
            }]
        },
    },
    Attack {
        story: "a read with a term, to be forwarded",
        on_leader: false,
        is_deadly: true,
        messages: |now| {
            vec![Forged {
                from: now.leader,
                kind: READ,
                term: now.term,
                entries: vec![(0, 0, false, read_name(now.leader))],
                ..Forged::default()
            }]
        },
    },
    Attack {
        story: "an office that is given away, and the votes for it, behind an entry that is not synced",
        on_leader: false,
        is_deadly: true,
        messages: |now| {
            let from_leader = Forged {
                from: now.leader,
                term: now.term,
                ..Forged::default()
            };
            vec![
                Forged {
                    kind: APPEND,
                    index: now.last,
                    log_term: now.term,
                    entries: vec![(now.term, now.last + 1, false, Vec::new())],
                    ..from_leader.clone()
                },
                Forged {
                    kind: TIMEOUT_NOW,
                    ..from_leader.clone()
                },
                Forged {
                    kind: VOTE_RESPONSE,
                    term: now.term + 1,
                    ..from_leader
                },
            ]
        },
    },
    Attack {
        story: "a snapshot whose table of proposals ends too early",
        on_leader: false,
        is_deadly: true,
        messages: |now| {
            vec![Forged {
                from: now.leader,
                kind: SNAPSHOT,
                term: now.term,
                snapshot: Some((now.last + 5, now.term, vec![1, 2, 3], vec![0, 0, 0, 9])),
                ..Forged::default()
            }]
        },
    },
    Attack {
        story: "a command that the machine cannot read",
        on_leader: true,
        is_deadly: true,
        messages: |now| {
            let other = if now.leader == 1 { 2 } else { 1 };
            vec![Forged {
                from: other,
                kind: PROPOSE,
                entries: vec![(0, 0, false, proposal(other, b"bad"))],
                ..Forged::default()
            }]
        },
    },
    Attack {
        story: "terms that are almost used up",
        on_leader: false,
        is_deadly: false,
        messages: |now| {
            let forged = Forged {
                from: now.leader,
                term: 1 << 62,
                context: b"CampaignTransfer".to_vec(),
                ..Forged::default()
            };
            let kinds = [
                VOTE,
                VOTE_RESPONSE,
                HEARTBEAT,
                APPEND,
                READ_RESPONSE,
                TIMEOUT_NOW,
                ACKNOWLEDGE,
            ];
            let of_kind = |kind: u8| Forged { kind, ..forged.clone() };
            kinds.into_iter().map(of_kind).collect()
        },
    },
    Attack {
        story: "acknowledgements of what is not there, and wishes for a snapshot of it",
        on_leader: true,
        is_deadly: false,
        messages: |now| {
            let other = if now.leader == 1 { 2 } else { 1 };
            let forged = Forged {
                from: other,
                kind: ACKNOWLEDGE,
                term: now.term,
                index: now.last + 1000,
                ..Forged::default()
            };
            vec![
                forged.clone(),
                Forged {
                    reject: true,
                    reject_hint: u64::MAX >> 2,
                    log_term: now.term,
                    ..forged.clone()
                },
                Forged {
                    reject: true,
                    request_snapshot: now.last + 1000,
                    ..forged
                },
            ]
        },
    },
    Attack {
        story: "strangers, other groups and other epochs",
        on_leader: false,
        is_deadly: false,
        messages: |now| {
            let forged = Forged {
                from: 9,
                kind: HEARTBEAT,
                term: now.term,
                ..Forged::default()
            };
            vec![
                Forged {
                    epoch: 1,
                    ..forged.clone()
                },
                Forged {
                    epoch: u64::MAX,
                    from: now.leader,
                    ..forged.clone()
                },
                Forged {
                    group: 1,
                    from: now.leader,
                    ..forged.clone()
                },
                Forged { from: 0, ..forged },
            ]
        },
    },
    Attack {
        story: "a proposal in another member's name that would settle all of its own",
        on_leader: true,
        is_deadly: false,
        messages: |now| {
            let others = if now.leader == 1 { [2, 3] } else { [1, 5 - now.leader] };
            vec![Forged {
                from: others[0],
                kind: PROPOSE,
                entries: vec![(0, 0, false, proposal(now.leader, &[0xff; 8]))],
                ..Forged::default()
            }]
        },
    },
];

/// Writes to one member of three; then the group has to work.
fn play(seed: u64, attack: &Attack) {
    let mut cluster = Cluster::start(Setup::calm(seed, 3, 3));
    let leader = cluster.wait_for_leader();
    for id in 1..=3 {
        cluster.propose(id, 5 * SECOND).expect("nothing is wrong yet");
    }
    cluster.sim.run_for(SECOND);
    let target = if attack.on_leader { leader } else { leader % 3 + 1 };
    let status = cluster.status(target).expect("it runs");
    assert_eq!(status.leader, Some(leader), "{}: the leader moved", attack.story);
    let now = Situation {
        leader,
        term: status.term,
        last: status.last,
    };
    let messages = (attack.messages)(now);
    cluster.ask(target, SECOND, async move |consensus| {
        for message in messages {
            consensus.receive(message.from, message.encode(target));
        }
    });
    cluster.sim.run_for(5 * SECOND);
    for id in 1..=3 {
        let status = cluster.status(id).expect("it runs");
        assert!(
            status.term < 1000,
            "{}: member {id} is in term {}",
            attack.story,
            status.term
        );
        assert_eq!(status.superseded_by, None, "{}: member {id} is out", attack.story);
        let proposed = cluster.propose(id, 5 * SECOND);
        assert!(proposed.is_ok(), "{}: member {id} proposes: {proposed:?}", attack.story);
    }
    cluster.heal_and_check();
}

#[test]
fn no_message_of_a_peer_ends_a_member_or_the_work_of_its_group() {
    for (seed, attack) in (100..).zip(ATTACKS) {
        play(seed, attack);
    }
}

#[test]
fn without_the_check_each_deadly_message_is_found() {
    for (seed, attack) in (100..).zip(ATTACKS).filter(|(_, attack)| attack.is_deadly) {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            let _planted = Planted::new(Some(Bug::UncheckedPeer));
            play(seed, attack);
        }));
        assert!(ended.is_err(), "{}: it does no harm", attack.story);
    }
}

/// Both followers get forged messages in the leader's name, which say that its log differs from theirs: they take
/// nothing of it, and keep running.
#[test]
fn a_lie_of_another_history_ends_no_member() {
    for leader_dies in [false, true] {
        let mut cluster = Cluster::start(Setup::calm(200, 3, 3));
        let leader = cluster.wait_for_leader();
        for id in 1..=3 {
            cluster.propose(id, 5 * SECOND).expect("nothing is wrong yet");
        }
        cluster.sim.run_for(SECOND);
        let followers: Vec<u64> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
        for id in &followers {
            let id = *id;
            let status = cluster.status(id).expect("it runs");
            assert_eq!(status.committed, status.last);
            let said = Forged {
                from: leader,
                term: status.term + 1,
                ..Forged::default()
            };
            // The first message of a term makes its leader known.
            let hello = Forged {
                kind: HEARTBEAT,
                ..said.clone()
            };
            let lie = Forged {
                kind: APPEND,
                entries: vec![(said.term, status.last, false, Vec::new())],
                index: status.last - 1,
                log_term: status.term,
                ..said
            };
            cluster.ask(id, SECOND, async move |consensus| {
                consensus.receive(leader, hello.encode(id));
                consensus.receive(leader, lie.encode(id));
            });
            cluster.sim.run_for(Duration::from_millis(20));
            let status = cluster.status(id).expect("it runs");
            assert!(status.diverged.is_some(), "member {id} believed it: {status:?}");
        }
        if leader_dies {
            let node = cluster.node(leader);
            cluster.sim.crash(node, CrashKind::Kill);
        }
        cluster.sim.run_for(5 * SECOND);
        for id in followers {
            let proposed = cluster.propose(id, 5 * SECOND);
            assert!(proposed.is_ok(), "member {id} proposes: {proposed:?}");
            assert_eq!(cluster.status(id).expect("it runs").diverged, None);
        }
        cluster.heal_and_check();
    }
}

/// One member hears of election after election, until its log is made short with its last vote in it.
#[test]
fn a_vote_binds_a_member_that_made_its_log_short_since() {
    let mut cluster = Cluster::start(Setup {
        log_bytes_max: 2000,
        ..Setup::calm(201, 3, 3)
    });
    let leader = cluster.wait_for_leader();
    cluster.propose(leader, 5 * SECOND).expect("nothing is wrong yet");
    cluster.sim.run_for(SECOND);
    let (voter, other) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    for id in [leader, other] {
        cluster.sim.crash(cluster.node(id), CrashKind::Kill);
    }
    cluster.sim.run_for(5 * SECOND);
    let before = cluster.status(voter).expect("it runs");
    let ask_for_vote = |cluster: &mut Cluster, candidate: u64, term: u64| {
        let message = Forged {
            from: candidate,
            kind: VOTE,
            term,
            log_term: before.term,
            index: before.last,
            ..Forged::default()
        };
        cluster.ask(voter, SECOND, async move |consensus| {
            consensus.receive(candidate, message.encode(voter));
        });
        cluster.sim.run_for(Duration::from_millis(100));
        let status = cluster.status(voter).expect("it runs");
        (cluster.record.borrow().votes[&voter], status.file_bytes)
    };
    let (mut term, mut file_bytes) = (before.term, 0);
    loop {
        term += 1;
        let (vote, bytes) = ask_for_vote(&mut cluster, leader, term);
        assert_eq!(vote, (term, leader), "the candidate has all of the log");
        if bytes < file_bytes {
            break;
        }
        file_bytes = bytes;
    }
    let node = cluster.node(voter);
    cluster.sim.crash(node, CrashKind::PowerLoss);
    cluster.sim.restart(node);
    cluster.sim.run_for(Duration::from_millis(100));
    let (vote, _) = ask_for_vote(&mut cluster, other, term);
    assert_eq!(vote, (term, leader), "it voted twice in a term");
    let (vote, _) = ask_for_vote(&mut cluster, other, term + 1);
    assert_eq!(vote, (term + 1, other), "it votes again in the next term");
}

#[test]
fn a_member_that_restores_a_snapshot_stands_for_no_election() {
    let mut cluster = Cluster::start(Setup::calm(7, 3, 3));
    let leader = cluster.wait_for_leader();
    let (other, behind) = (leader % 3 + 1, (leader + 1) % 3 + 1);
    cluster.sim.crash(cluster.node(behind), CrashKind::Kill);
    for _ in 0..200 {
        cluster
            .propose(leader, 5 * SECOND)
            .expect("two of three are a majority");
    }
    cluster.record.borrow_mut().restore_takes = 8 * SECOND;
    let before = cluster.record.borrow().snapshots_restored;
    cluster.sim.restart(cluster.node(behind));
    let record = cluster.record.clone();
    // Once from its own file, then the leader's.
    let is_restoring = cluster
        .sim
        .run_until(60 * SECOND, move || record.borrow().snapshots_restored >= before + 2);
    assert!(is_restoring, "the member that was away gets no snapshot");
    cluster.sim.crash(cluster.node(leader), CrashKind::Kill);
    cluster.sim.crash(cluster.node(other), CrashKind::Kill);
    // Several election timeouts without a leader, in the middle of the restoration.
    cluster.sim.run_for(6 * SECOND);
    cluster.record.borrow_mut().restore_takes = Duration::ZERO;
    cluster.heal_and_check();
}
