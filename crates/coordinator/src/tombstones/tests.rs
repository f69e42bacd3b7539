use stdx::planted::Planted;
use topology::{Topology, TopologyCommand};
use uuid::Uuid;

use super::*;
use crate::view::tests::node;

fn host(number: u128) -> HostId {
    HostId(Uuid::from_u128(number))
}

/// As node 1 sees the nodes 1, 2 and 3, of which the last has perhaps left.
fn view(has_left: bool) -> ClusterView {
    view_after(has_left.then_some(TopologyCommand::SetState {
        host_id: host(3),
        state: NodeState::Leaving,
    }))
}

/// As node 1 sees the nodes 1, 2 and 3; if there is a command, node 3 has left after it.
fn view_after(command: Option<TopologyCommand>) -> ClusterView {
    let mut topology = Topology::new("sea", Uuid::from_u128(1));
    let mut apply = |command| topology.apply(&command).expect("the nodes form a cluster");
    for number in 1..=3u8 {
        let host_id = host(u128::from(number));
        let state = match number {
            1 => NodeState::Normal,
            _ => NodeState::Joining,
        };
        let node = node(number, state);
        apply(TopologyCommand::AddNode(Box::new(node)));
        if state == NodeState::Joining {
            let state = NodeState::Normal;
            apply(TopologyCommand::SetState { host_id, state });
        }
    }
    if let Some(command) = command {
        apply(command);
        apply(TopologyCommand::RemoveNode { host_id: host(3) });
    }
    ClusterView::new(Arc::new(topology), host(1), std::iter::empty(), &BTreeMap::new()).expect("a member")
}

fn report(until: u32) -> Report {
    Report {
        until,
        ..Report::default()
    }
}

fn spans(missed: &Missed, of: HostId) -> Vec<(u32, u32)> {
    let spans = missed.get(&of).into_iter().flat_map(Spans::iter);
    spans.map(|span| (*span.start(), *span.end())).collect()
}

#[test]
fn nothing_is_purged_before_every_member_has_reported_and_what_waits_is_missed_for_a_while() {
    let (view, mut ledger) = (view(false), Ledger::default());
    ledger.others.insert(host(1), report(100));
    ledger.others.insert(host(2), report(200));
    assert_eq!(holds_of(&ledger, &view).until, 0, "node 3 has never reported");
    let mut last = report(150);
    last.waiting.insert(host(2), 120);
    last.missed.entry(host(1)).or_default().add(5, 7);
    ledger.others.insert(host(3), last);
    let holds = holds_of(&ledger, &view);
    assert_eq!(holds.until, 100, "the oldest of the reports");
    assert_eq!(spans(&holds.missed, host(1)), [(5, 7)]);
    assert_eq!(spans(&holds.waiting, host(2)), [(120, 150)]);
}

#[test]
fn a_repair_covers_what_was_missed_before_it_and_nothing_that_waits() {
    let mut holds = Holds {
        until: 1_000,
        ..Holds::default()
    };
    holds.missed.entry(host(2)).or_default().add(100, 200);
    holds.missed.entry(host(3)).or_default().add(500, 600);
    let hold = |holds: &Holds, repaired| {
        let hold = holds.of(host(1), repaired, 0);
        (hold.watermark, hold.spans.len(), hold.from)
    };
    assert_eq!(hold(&holds, 0), (100, 2, 1_000), "no repair");
    assert_eq!(
        hold(&holds, 200),
        (200, 2, 1_000),
        "the span ends with the repair's second: it may not cover that one"
    );
    assert_eq!(hold(&holds, 201), (500, 1, 1_000));
    assert_eq!(
        hold(&holds, 550),
        (550, 1, 1_000),
        "what was missed before the repair's second it has brought"
    );
    assert_eq!(hold(&holds, 601), (1_000, 0, 1_000));
    // A node that lost a directory also lacks what it had when it was repaired.
    holds.missed.entry(host(4)).or_default().add(FIRST_SECOND, 700);
    assert_eq!(hold(&holds, 650), (FIRST_SECOND, 1, 1_000));
    assert_eq!(hold(&holds, 701), (1_000, 0, 1_000));
    holds.missed.remove(&host(4));
    holds.waiting.entry(host(1)).or_default().add(300, 1_000);
    assert_eq!(
        hold(&holds, 601),
        (300, 0, 1_000),
        "a hint for this node itself may be older than a deletion here"
    );
    holds.waiting.entry(host(2)).or_default().add(150, 1_000);
    assert_eq!(hold(&holds, 601), (150, 1, 1_000));
    holds.until = 120;
    assert_eq!(
        hold(&holds, 601),
        (120, 1, 120),
        "a member that does not report may have hints"
    );
}

#[test]
fn what_a_member_held_that_is_forgotten_was_missed_where_all_replicas_refuse_it() {
    let forgotten = Forgotten {
        before: 5_000,
        version: 7,
    };
    let view = view(false).forgetting(BTreeMap::from([(host(3), forgotten)]));
    let mut ledger = Ledger::default();
    for number in [1, 2] {
        ledger.others.insert(host(number), report(9_000));
    }
    let mut last = report(150);
    last.waiting.insert(host(2), 120);
    ledger.others.insert(host(3), last.clone());
    let hold = |ledger: &Ledger, repaired, fence| {
        let hold = holds_of(ledger, &view).of(host(1), repaired, fence);
        (hold.from, hold.spans, hold.watermark)
    };
    for repaired in [0, 6_000] {
        assert_eq!(
            hold(&ledger, repaired, 6),
            (120, vec![], 120),
            "a replica takes what it sends still"
        );
    }
    assert_eq!(
        hold(&ledger, 0, 7),
        (5_000, vec![120..=5_000], 120),
        "nothing is repaired"
    );
    assert_eq!(hold(&ledger, 4_000, 7), (5_000, vec![4_000..=5_000], 4_000));
    assert_eq!(
        hold(&ledger, 6_000, 7),
        (5_000, vec![], 5_000),
        "it may have made something since"
    );
    // It is back, and says what it knows.
    last.fence = 7;
    last.until = 8_000;
    ledger.others.insert(host(3), last.clone());
    assert_eq!(
        hold(&ledger, 6_000, 7),
        (8_000, vec![120..=8_000], 120),
        "it has not dropped its hints yet"
    );
    last.waiting.clear();
    ledger.others.insert(host(3), last);
    assert_eq!(hold(&ledger, 6_000, 7), (8_000, vec![], 8_000));
    ledger.others.remove(&host(3));
    assert_eq!(
        hold(&ledger, 0, 7),
        (5_000, vec![FIRST_SECOND..=5_000], FIRST_SECOND),
        "nobody knows what it held"
    );
}

#[test]
fn a_member_that_hears_what_is_forgotten_counts_it_as_missed_once() {
    let forgotten = Forgotten {
        before: 5_000,
        version: 7,
    };
    let view = view(false).forgetting(BTreeMap::from([(host(1), forgotten)]));
    let mut own = report(150);
    let waiting = BTreeMap::from([(host(2), 120)]);
    count_forgotten(&mut own, &view, (6, &waiting));
    assert_eq!(
        (own.fence, own.missed.len()),
        (6, 0),
        "one of its shards has not heard of it"
    );
    count_forgotten(&mut own, &view, (7, &waiting));
    for number in 1..=3 {
        assert_eq!(spans(&own.missed, host(number)), [(120, 5_000)]);
    }
    own.missed.clear();
    count_forgotten(&mut own, &view, (9, &waiting));
    assert_eq!((own.fence, own.missed.len()), (9, 0));
}

#[test]
fn what_is_lost_with_a_directory_was_missed_since_the_first_second() {
    let writes = AcceptedLoss {
        writes: true,
        hints: false,
    };
    let hints = AcceptedLoss {
        writes: false,
        hints: true,
    };
    for (lost, nodes) in [
        (AcceptedLoss::default(), vec![]),
        (writes, vec![1]),
        (hints, vec![1, 2, 3]),
    ] {
        let mut ledger = Ledger::default();
        count_lost(&mut ledger, &view(false), lost, 300);
        let expected: Vec<HostId> = nodes.into_iter().map(host).collect();
        let missed = &ledger.own.missed;
        assert_eq!(missed.keys().copied().collect::<Vec<_>>(), expected, "{lost:?}");
        assert!(expected.iter().all(|host| spans(missed, *host) == [(1, 310)]));
    }
}

#[test]
fn what_a_node_reported_stays_when_it_is_removed_as_lost() {
    let lost = TopologyCommand::GiveUp {
        host_id: host(3),
        replaced_by: None,
    };
    for (is_final, since) in [(true, vec![]), (false, vec![(150, 310)])] {
        let (view, mut ledger) = (view_after(Some(lost.clone())), Ledger::default());
        let mut last = report(150);
        last.is_final = is_final;
        last.missed.entry(host(2)).or_default().add(5, 7);
        ledger.others.insert(host(3), last);
        inherit(&mut ledger, &view, 300);
        let all: Vec<(u32, u32)> = std::iter::once((5, 7)).chain(since.iter().copied()).collect();
        assert_eq!(spans(&ledger.own.missed, host(2)), all);
        assert_eq!(spans(&ledger.own.missed, host(1)), since);
        assert_eq!(spans(&ledger.own.missed, host(3)), []);
        assert!(!ledger.others.contains_key(&host(3)));
    }
}

#[test]
fn the_last_report_of_a_node_that_gave_its_data_to_others_is_awaited_and_holds_tombstones_until_then() {
    for (is_final, now, since) in [(true, 300, None), (false, 449, None), (false, 450, Some((150, 460)))] {
        let (view, mut ledger) = (view(true), Ledger::default());
        for (number, until) in [(1, 400), (2, 400), (3, 150)] {
            ledger.others.insert(host(number), report(until));
        }
        ledger.others.get_mut(&host(3)).expect("it has reported").is_final = is_final;
        assert_eq!(holds_of(&ledger, &view).until, 150, "nothing has taken its place yet");
        inherit(&mut ledger, &view, now);
        assert_eq!(spans(&ledger.own.missed, host(2)), Vec::from_iter(since));
        let until = if is_final || since.is_some() { 400 } else { 150 };
        assert_eq!(holds_of(&ledger, &view).until, until, "{is_final} at {now}");
    }
}

/// Node 3 misses a deletion permanently, comes back, and a tablet moves from it to node 2, which lacks the deletion
/// too. Then node 3 leaves, or its disk dies and it is removed or replaced.
fn spans_after_node_3_is_gone(command: TopologyCommand) -> Vec<Vec<(u32, u32)>> {
    let (view, mut ledger) = (view_after(Some(command)), Ledger::default());
    ledger.own.missed.entry(host(3)).or_default().add(20, 30);
    inherit(&mut ledger, &view, 300);
    (1..=3).map(|number| spans(&ledger.own.missed, host(number))).collect()
}

/// The ways in which node 3 is gone.
fn departures() -> [TopologyCommand; 3] {
    let lost = |replaced_by| TopologyCommand::GiveUp {
        host_id: host(3),
        replaced_by,
    };
    let left = TopologyCommand::SetState {
        host_id: host(3),
        state: NodeState::Leaving,
    };
    [left, lost(None), lost(Some(host(2)))]
}

#[test]
fn what_a_node_missed_that_is_gone_others_may_lack_that_copied_tablets_from_it() {
    for command in departures() {
        let spans = spans_after_node_3_is_gone(command.clone());
        assert_eq!(spans, [vec![(20, 30)], vec![(20, 30)], vec![]], "{command:?}");
    }
}

#[test]
fn if_a_lost_node_took_its_spans_with_it_what_others_copied_from_it_would_not_count() {
    let _planted = Planted::new(Some(Bug::LostNodeTakesSpans));
    for command in departures() {
        assert_eq!(spans_after_node_3_is_gone(command), [const { Vec::new() }; 3]);
    }
}
