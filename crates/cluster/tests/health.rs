//! Nodes whose wall clock jumps and nodes whose log takes no writes: what they and their peers make of it, under the
//! simulator.

use crate::support::{SECOND, Sea, host};
use runtime::sim::CrashKind;
use std::rc::Rc;
use std::time::Duration;
use stdx::planted::{Bug, Planted};
use topology::{ClockDoubt, ClockState, DiskLevel};

const DAY_US: i64 = 86_400_000_000;

/// Three nodes that serve clients and say how they are.
fn serving(seed: u64) -> Sea {
    let mut sea = Sea::formed(seed, 3);
    for number in 0..3 {
        sea.on(number, |cluster| async move { cluster.open() });
    }
    sea.expect("all clocks are trusted", |views| {
        views.iter().all(|view| view.clock().state == ClockState::Trusted)
    });
    sea
}

/// How far the time of a node is from the right one, in seconds.
fn off_s(sea: &mut Sea, number: usize) -> i64 {
    let id = sea.nodes[number].id;
    let right = sea.nodes[(number + 1) % 3].id;
    let told = sea.sim.on_node(id, runtime::wall_clock_us);
    (told - sea.sim.on_node(right, runtime::system_clock_us) + 500_000).div_euclid(1_000_000)
}

fn is_trusted(sea: &mut Sea, number: usize) -> bool {
    let id = sea.nodes[number].id;
    sea.sim.on_node(id, runtime::is_clock_trusted)
}

#[test]
fn a_node_whose_clock_jumps_keeps_the_time_leaves_service_and_returns() {
    for (seed, day_us) in [(1, DAY_US), (2, -DAY_US)] {
        let mut sea = serving(seed);
        let id = sea.nodes[2].id;
        sea.sim.set_clock_skew_us(id, day_us);
        // At this very moment, before any node has looked.
        assert_eq!((off_s(&mut sea, 2), is_trusted(&mut sea, 2)), (0, false), "by {day_us}");
        sea.expect("its peers take it for down", |views| {
            views[..2].iter().all(|view| !view.is_live(host(2))) && !views[2].is_in_service()
        });
        assert_eq!(sea.cluster(2).clock().state, ClockState::OutOfService);
        sea.sim.run_for(20 * SECOND);
        assert_eq!((off_s(&mut sea, 2), is_trusted(&mut sea, 2)), (0, false), "by {day_us}");
        assert!(!sea.cluster(0).is_live(host(2)), "it does not come and go");
        assert_eq!(*sea.nodes[2].seen.told_service.borrow(), [false]);
        sea.create(0, "two_of_three").expect("a majority is in service");
        sea.sim.set_clock_skew_us(id, 0);
        sea.expect("it is back for clients", |views| {
            views[2].is_in_service() && views[..2].iter().all(|view| view.serves_clients(host(2)))
        });
        assert_eq!(*sea.nodes[2].seen.told_service.borrow(), [false, true]);
        assert!(is_trusted(&mut sea, 2));
    }
}

#[test]
fn all_nodes_that_jump_together_keep_the_time_and_serve_until_one_operator_says_that_it_is_right() {
    let mut sea = serving(3);
    for number in 0..3 {
        let id = sea.nodes[number].id;
        sea.sim.set_clock_skew_us(id, DAY_US);
    }
    sea.sim.run_for(20 * SECOND);
    for number in 0..3 {
        assert_eq!(
            sea.cluster(number).clock().state,
            ClockState::Suspect(ClockDoubt::Stepped)
        );
        assert_eq!(off_s(&mut sea, number), -86_400, "the time goes on from before");
        assert!(sea.cluster(number).is_in_service());
    }
    let confirmed = sea.on(1, |cluster| async move { cluster.confirm_clock() });
    assert_eq!(confirmed, Ok(()));
    sea.expect("the others follow", |views| {
        views.iter().all(|view| view.clock().state == ClockState::Trusted)
    });
    assert_eq!(off_s(&mut sea, 0), 0);
}

#[test]
fn a_node_that_starts_with_a_wrong_clock_takes_the_time_of_its_peers() {
    let mut sea = serving(4);
    sea.crash(2, CrashKind::Kill);
    let id = sea.nodes[2].id;
    sea.sim.set_clock_skew_us(id, DAY_US);
    sea.restart(2);
    let seen = sea.nodes[2].seen.clone();
    let doubts = || {
        let cluster = seen.cluster.borrow();
        cluster.as_ref().is_some_and(|c| c.clock().ahead_us > DAY_US / 2)
    };
    assert!(sea.sim.run_until(3 * SECOND, doubts), "it has met its peers by then");
    assert_eq!((off_s(&mut sea, 2), is_trusted(&mut sea, 2)), (0, false));
    let refused = sea.on(2, |cluster| async move { cluster.confirm_clock() });
    let refused = refused.expect_err("the others say otherwise");
    assert!(refused.contains("86400.0 s ahead"), "{refused}");
}

#[test]
fn a_node_that_hears_nobody_after_its_start_trusts_no_clock() {
    let mut sea = serving(5);
    for number in 0..3 {
        sea.crash(number, CrashKind::Kill);
    }
    sea.restart(2);
    sea.sim.run_for(10 * SECOND);
    assert_eq!(sea.cluster(2).clock().state, ClockState::Suspect(ClockDoubt::Unheard));
    assert!(!is_trusted(&mut sea, 2));
    assert_eq!(off_s(&mut sea, 2), 0, "there is no better time");
    sea.restart(0);
    sea.expect("two agree", |views| {
        views.iter().all(|view| view.clock().state == ClockState::Trusted)
    });
}

#[test]
fn a_node_that_follows_its_clock_is_found_out() {
    let _planted = Planted::new(Some(Bug::UntrustedClock));
    let mut sea = Sea::formed(6, 3);
    let id = sea.nodes[2].id;
    sea.sim.set_clock_skew_us(id, DAY_US);
    sea.sim.run_for(SECOND);
    assert_eq!((off_s(&mut sea, 2), is_trusted(&mut sea, 2)), (86_400, true));
}

#[test]
fn a_node_whose_log_takes_no_writes_says_so_stays_up_and_leads_no_more() {
    let mut sea = serving(7);
    let leader = sea.cluster(0).status().leader.expect("a group that works has a leader");
    let number = (0..3)
        .find(|number| host(*number) == leader)
        .expect("it is one of them");
    let others: Vec<usize> = (0..3).filter(|other| *other != number).collect();
    sea.on(number, |cluster| async move {
        cluster.set_write_trouble(Some("the disk is full".to_owned())).await;
    });
    let knows = |views: &[Rc<cluster::Cluster>], takes| {
        let told = |view: &Rc<cluster::Cluster>| {
            let members = view.status().members;
            members
                .iter()
                .all(|m| m.takes_writes == (takes || m.host_id != leader) && m.is_live)
        };
        views.iter().all(told)
    };
    sea.expect("all know", |views| knows(views, false));
    sea.expect("another leads", |views| {
        views
            .iter()
            .all(|view| view.status().leader.is_some_and(|id| id != leader))
    });
    for other in &others {
        assert_eq!(*sea.nodes[*other].seen.told_writes.borrow(), [(leader, false)]);
    }
    sea.on(number, |cluster| async move { cluster.set_write_trouble(None).await });
    sea.expect("all know that it is back", |views| knows(views, true));
    for other in 0..3 {
        assert_eq!(
            *sea.nodes[other].seen.told_writes.borrow(),
            [(leader, false), (leader, true)]
        );
    }
}

#[test]
fn a_node_whose_disks_are_full_says_so_and_stays_up() {
    use DiskLevel::{Critical, Normal, Warning};
    let mut sea = serving(9);
    for level in [Warning, Critical, Normal] {
        sea.on(2, move |cluster| async move { cluster.set_disk_level(level) });
        sea.expect("all know", |views| {
            let told = |view: &Rc<cluster::Cluster>| {
                let members = view.status().members;
                let level_of = |host_id| if host_id == host(2) { level } else { Normal };
                members
                    .iter()
                    .all(|m| m.disk == level_of(m.host_id) && m.is_live && m.takes_writes)
            };
            views.iter().all(told)
        });
    }
    for node in &sea.nodes {
        let told = [Warning, Critical, Normal].map(|level| (host(2), level));
        assert_eq!(*node.seen.told_disks.borrow(), told);
    }
}

#[test]
fn a_node_that_restarts_with_room_is_full_no_more() {
    let mut sea = serving(10);
    sea.on(2, |cluster| async move { cluster.set_disk_level(DiskLevel::Critical) });
    let is_full = |views: &[Rc<cluster::Cluster>]| {
        let members = views[0].status().members;
        members.iter().any(|m| !m.disk.takes_growth())
    };
    sea.expect("it is known", is_full);
    let id = sea.nodes[2].id;
    sea.sim.crash(id, CrashKind::Kill);
    sea.restart(2);
    sea.expect("it has room", |views| !is_full(views));
}

/// Three members and one machine more, whose clocks may differ by less than a fifth of a second.
fn strict(seed: u64) -> Sea {
    let mut sea = Sea::new(seed, 4);
    for node in &sea.nodes {
        node.config.borrow_mut().clock_limits.suspect = Duration::from_millis(200);
    }
    (0..3).for_each(|number| sea.start(number));
    sea.expect_normal(0..3);
    sea.expect_voters(3);
    sea
}

/// Messages between two nodes take so long, both ways.
fn delay(sea: &mut Sea, one: usize, other: usize, millis: u64) {
    let (one, other) = (sea.nodes[one].id, sea.nodes[other].id);
    for (from, to) in [(one, other), (other, one)] {
        sea.sim.set_delay(from, to, Duration::from_millis(millis));
    }
}

/// A request to join names the time at which it was sent. Members that take longer to agree than clocks may differ must
/// not take that for a wrong clock.
#[test]
fn a_node_with_a_right_clock_is_let_in_by_members_that_take_long_to_agree() {
    for seed in 700..704 {
        let mut sea = strict(seed);
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            delay(&mut sea, one, other, 150);
        }
        sea.start(3);
        sea.expect_normal(0..4);
    }
}

#[test]
fn a_node_with_a_right_clock_is_let_in_when_its_messages_are_in_time_again() {
    for seed in 710..714 {
        let mut sea = strict(seed);
        (0..3).for_each(|member| delay(&mut sea, member, 3, 250));
        sea.start(3);
        sea.sim.run_for(10 * SECOND);
        (0..3).for_each(|member| delay(&mut sea, member, 3, 0));
        sea.expect_normal(0..4);
    }
}
