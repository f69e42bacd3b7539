//! Nodes that have too much to do, or do it too late: what it costs others, and what does not run.

use super::*;

#[test]
fn a_node_that_stops_answering_costs_bounded_memory_and_nobody_else_anything() {
    let limits = Limits {
        in_flight_max: 50,
        in_flight_bytes_max: 1 << 20,
        waiting_max: 200,
        waiting_bytes_max: 1 << 20,
        outbox_bytes_max: 256 << 10,
        handling_max: 10,
        ..short_limits()
    };
    for seed in 0..3 {
        for is_split in [false, true] {
            let mut cluster = Cluster::new(seed, &[1, 1, 1], |_, config| config.limits = limits.clone());
            let (stalled, healthy) = (cluster.peer(1), cluster.peer(2));
            cluster.echo(0, 1).expect("the node runs");
            if is_split {
                let (one, other) = ([cluster.ids[0]], [cluster.ids[1]]);
                cluster.simulation.partition(&one, &other);
            }
            let limits = limits.clone();
            let overloads = cluster.on(0, move |rpc| async move {
                let overloads = Rc::new(Cell::new(0_u32));
                for round in 0..600_usize {
                    let flood = rpc.call(&stalled, 0, HANG, vec![0; round % 50 * 1000], SECOND);
                    let overloads = overloads.clone();
                    drop(runtime::spawn(async move {
                        if flood.await == Err(RpcError::Overloaded) {
                            overloads.set(overloads.get() + 1);
                        }
                    }));
                    let begun = runtime::now();
                    let echo = rpc.call(&healthy, 0, ECHO, vec![1], SECOND).await;
                    assert_eq!(echo, Ok(vec![1]), "another node suffers");
                    assert!(begun.elapsed() < Duration::from_millis(10), "another node waits");
                    let metrics = rpc.link_metrics();
                    let link = metrics
                        .iter()
                        .find(|link| link.host_id == host(1))
                        .expect("it was called");
                    assert!(link.in_flight <= limits.in_flight_max, "{link:?}");
                    assert!(link.in_flight_bytes <= limits.in_flight_bytes_max, "{link:?}");
                    assert!(link.waiting <= limits.waiting_max, "{link:?}");
                    assert!(link.waiting_bytes <= limits.waiting_bytes_max, "{link:?}");
                    assert!(link.outbox_bytes <= limits.outbox_bytes_max + 100 * 24, "{link:?}");
                }
                overloads.get()
            });
            assert!(overloads > 0, "nothing was refused, so nothing was tested");
            assert!(cluster.service(1).ran.get() <= 1 + 600);
        }
    }
}

#[test]
fn a_caller_that_does_not_take_its_answers_is_not_read_and_others_are_answered() {
    for seed in 0..3 {
        let mut cluster = Cluster::new(seed, &[1, 1, 1], |_, config| {
            config.limits.outbox_bytes_max = 1 << 20;
            config.limits.ping_interval = 1000 * SECOND;
        });
        cluster.echo(0, 1).expect("the node runs");
        // Requests arrive, answers do not.
        cluster.simulation.set_link_up(cluster.ids[1], cluster.ids[0], false);
        let peer = cluster.peer(1);
        drop(cluster.spawn(0, move |rpc| async move {
            for _ in 0..500 {
                let call = rpc.call(&peer, 0, LARGE, vec![200], 1000 * SECOND);
                drop(runtime::spawn(async move { drop(call.await) }));
            }
        }));
        cluster.simulation.run_for(5 * SECOND);
        let metrics = cluster.rpc(1).served_metrics();
        let served = metrics
            .iter()
            .find(|served| served.host_id == host(0))
            .expect("it is connected");
        assert!(served.outbox_bytes <= (1 << 20) + (201 << 10), "{served:?}");
        assert!(
            served.requests < 50,
            "a node runs more requests although its answers are not read: {served:?}"
        );
        assert_eq!(cluster.echo(2, 1), Ok(b"hello".to_vec()));
        cluster.simulation.set_link_up(cluster.ids[1], cluster.ids[0], true);
        cluster.simulation.run_for(60 * SECOND);
        assert_eq!(cluster.rpc(1).served_metrics()[0].requests, 501, "requests were lost");
    }
}

#[test]
fn what_comes_too_late_is_not_run() {
    let mut cluster = Cluster::new(8, &[1, 1], |_, config| config.limits.handling_max = 1);
    let peer = cluster.peer(1);
    let results = cluster.on(0, move |rpc| async move {
        let first = rpc.call(&peer, 0, ECHO_LATER, vec![200], SECOND);
        let late: Vec<_> = (0..5)
            .map(|_| rpc.call(&peer, 0, ECHO, vec![], Duration::from_millis(50)))
            .collect();
        let in_time = rpc.call(&peer, 0, ECHO, vec![7], SECOND);
        let mut results = Vec::new();
        for call in late {
            results.push(call.await);
        }
        assert_eq!(first.await, Ok(vec![200]));
        assert_eq!(in_time.await, Ok(vec![7]));
        results
    });
    assert_eq!(results, vec![timed_out(true); 5]);
    assert_eq!(cluster.service(1).ran.get(), 2, "requests ran after their deadline");
    assert_eq!(cluster.rpc(1).served_metrics()[0].expired, 5);
}

#[test]
fn control_verbs_pass_a_data_lane_that_is_full_and_not_read() {
    // Whether the verb has a lane of its own, and what becomes of it.
    let none = RangeInclusive::new(COUNT, WHO);
    for (verbs, passes) in [(WHO..=COUNT, true), (none, false)] {
        let mut cluster = Cluster::new(20, &[1, 1], |_, config| {
            config.control_verbs = verbs.clone();
            config.limits.handling_max = 4;
        });
        let peer = cluster.peer(1);
        let (answers, lost) = cluster.on(0, move |rpc| async move {
            let hanging: Vec<_> = (0..4).map(|_| rpc.call(&peer, 0, HANG, vec![], 5 * SECOND)).collect();
            // 16 MiB of data, of which the other end takes nothing.
            let data: Vec<_> = (0..16)
                .map(|_| rpc.call(&peer, 0, ECHO, vec![1; 1 << 20], 100 * SECOND))
                .collect();
            runtime::sleep(SECOND).await;
            let mut answers = Vec::new();
            for _ in 0..5 {
                rpc.send(&peer, 0, COUNT, vec![], SECOND).expect("there is room");
                answers.push(rpc.call(&peer, 0, WHO, vec![], SECOND / 5).await.is_ok());
            }
            drop(hanging);
            let mut lost = Vec::new();
            for call in data {
                lost.extend(call.await.err());
            }
            (answers, lost)
        });
        assert_eq!(answers, vec![passes; 5], "control verbs {verbs:?}");
        assert_eq!(lost, [], "control verbs {verbs:?}: data is lost");
        let lanes: Vec<bool> = cluster
            .rpc(1)
            .served_metrics()
            .iter()
            .map(|served| served.is_control)
            .collect();
        assert_eq!(lanes, if passes { vec![false, true] } else { vec![false] });
    }
}

#[test]
fn the_time_that_a_request_waits_in_the_outbox_counts() {
    let mut cluster = Cluster::new(21, &[1, 1], |_, config| {
        config.limits.handling_max = 1;
    });
    let peer = cluster.peer(1);
    let left = cluster.on(0, move |rpc| async move {
        let hanging = rpc.call(&peer, 0, HANG, vec![], 5 * SECOND);
        // More than the network holds, and less than the outbox takes.
        let data: Vec<_> = (0..6)
            .map(|_| rpc.call(&peer, 0, ECHO, vec![1; 512 << 10], 100 * SECOND))
            .collect();
        let asked = rpc.call(&peer, 0, LEFT, vec![], 20 * SECOND);
        let _ = hanging.await;
        for call in data {
            call.await.expect("the target reads again");
        }
        asked.await.expect("there is time left")
    });
    let left = u64::from_be_bytes(left.try_into().expect("a number"));
    assert!(
        (14_000..=15_000).contains(&left),
        "{left} ms of 20 s are left after 5 s in the outbox"
    );
}

#[test]
fn a_busy_node_is_not_taken_for_a_dead_one() {
    let mut cluster = Cluster::new(11, &[1, 1], |_, config| config.limits.handling_max = 1);
    let peer = cluster.peer(1);
    let result = cluster.on(0, move |rpc| async move {
        let _hanging = rpc.call(&peer, 0, HANG, vec![], 30 * SECOND);
        rpc.call(&peer, 0, ECHO, vec![1], 60 * SECOND).await
    });
    assert_eq!(result, Ok(vec![1]), "30 s without reading are 30 ping intervals");
    let mut idle = Cluster::new(12, &[1, 1], |_, _| {});
    idle.echo(0, 1).expect("the node runs");
    idle.simulation.run_for(100 * SECOND);
    idle.echo(0, 1).expect("the node runs");
    assert_eq!(
        idle.rpc(0).link_metrics()[0].disconnects,
        0,
        "an idle connection is kept"
    );
}

#[test]
#[cfg(debug_assertions)]
fn a_request_that_comes_behind_its_deadline_does_not_run_whatever_held_it_up() {
    for (seed, is_stopped) in [(41, true), (42, false)] {
        for bug in [None, Some(Bug::LateRequestRuns)] {
            let _planted = Planted::new(bug);
            let mut cluster = Cluster::new(seed, &[1, 1], |_, _| {});
            assert!(cluster.echo(0, 1).is_ok());
            let (caller, called) = (cluster.ids[0], cluster.ids[1]);
            if is_stopped {
                cluster.simulation.pause_for(called, 30 * SECOND)
            } else {
                cluster.simulation.set_delay(caller, called, 3 * SECOND)
            }
            assert_eq!(cluster.call(0, 1, COUNT, b"", SECOND / 2), timed_out(true));
            cluster.simulation.set_delay(caller, called, Duration::ZERO);
            cluster.simulation.run_for(40 * SECOND);
            let ran = cluster.service(1).counted.get();
            assert_eq!(ran, u64::from(bug.is_some()), "stopped: {is_stopped}, {bug:?}");
            assert!(cluster.echo(0, 1).is_ok());
        }
    }
}
