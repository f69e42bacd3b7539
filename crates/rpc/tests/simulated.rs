//! Nodes under the simulator: what a caller learns when the other end dies, hangs, sends false answers or is far away.

#[path = "simulated/overload.rs"]
mod overload;
mod support;

use rpc::{Compression, Config, Limits, Peer, Purpose, RemoteError, RemoteErrorKind, Rpc, RpcError};
use runtime::ShardId;
use runtime::net::TcpStream;
use runtime::sim::{CrashKind, NodeId, Simulation, TaskQueue};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::rc::Rc;
use std::time::Duration;
#[cfg(debug_assertions)]
use stdx::planted::{Bug, Planted};
use support::{COUNT, ECHO, ECHO_LATER, FAIL, HANG, LARGE, LEFT, LONG, Service, TRACE, WHO, config, host, long_answer};

const SECOND: Duration = Duration::from_secs(1);
const PORT: u16 = 7000;

/// A node as the test sees it.
#[derive(Default)]
struct Seen {
    /// Of shard 0.
    rpc: RefCell<Option<Rc<Rpc>>>,
    service: Rc<Service>,
    /// What shard 0 is to run.
    tasks: TaskQueue<Rc<Rpc>>,
}

impl Seen {
    /// Runs the tasks that the test brings.
    async fn run(&self, rpc: Rc<Rpc>) {
        *self.rpc.borrow_mut() = Some(rpc.clone());
        self.tasks.serve(rpc).await;
    }
}

struct Cluster {
    simulation: Simulation,
    seen: Vec<Rc<Seen>>,
    ids: Vec<NodeId>,
}

fn short_limits() -> Limits {
    Limits {
        ping_interval: SECOND,
        ..Limits::default()
    }
}

impl Cluster {
    /// Nodes that serve, with these shards each.
    fn new(seed: u64, shards: &[u32], change: impl Fn(u32, &mut Config)) -> Self {
        let mut cluster = Self {
            simulation: Simulation::new(seed),
            seen: Vec::new(),
            ids: Vec::new(),
        };
        for (number, &shards) in (0..).zip(shards) {
            let id = cluster.simulation.add_node(shards);
            let mut config = config(number);
            config.limits = short_limits();
            config.listen = Some(SocketAddr::new(cluster.simulation.address(id), PORT));
            change(number, &mut config);
            cluster.ids.push(id);
            let seen = Rc::new(Seen::default());
            cluster.seen.push(seen.clone());
            cluster.simulation.start(id, move |shard| {
                let (seen, config) = (seen.clone(), config.clone());
                Box::pin(async move {
                    let rpc = Rpc::start(config, seen.service.clone()).expect("the port is free");
                    if shard == ShardId(0) {
                        seen.run(rpc).await;
                    }
                    std::future::pending::<()>().await;
                })
            });
        }
        cluster.simulation.run_for(Duration::from_millis(10));
        cluster
    }

    fn peer(&self, number: u32) -> Peer {
        let id = self.ids[number as usize];
        Peer::new(host(number), SocketAddr::new(self.simulation.address(id), PORT))
    }

    fn rpc(&self, number: u32) -> Rc<Rpc> {
        self.seen[number as usize].rpc.borrow().clone().expect("the node runs")
    }

    fn service(&self, number: u32) -> Rc<Service> {
        self.seen[number as usize].service.clone()
    }

    /// Begins a task on shard 0 of a node; the cell gets its output.
    fn spawn<T: 'static, Fut: Future<Output = T> + 'static>(
        &mut self,
        number: u32,
        task: impl FnOnce(Rc<Rpc>) -> Fut + 'static,
    ) -> Rc<RefCell<Option<T>>> {
        let number = number as usize;
        self.simulation.spawn(self.ids[number], &self.seen[number].tasks, task)
    }

    /// Runs a task on shard 0 of a node to its end.
    fn on<T: 'static, Fut: Future<Output = T> + 'static>(
        &mut self,
        number: u32,
        task: impl FnOnce(Rc<Rpc>) -> Fut + 'static,
    ) -> T {
        let (id, tasks) = (self.ids[number as usize], &self.seen[number as usize].tasks);
        self.simulation.run_task(id, tasks, Duration::from_mins(10), task)
    }

    fn call(&mut self, from: u32, to: u32, verb: u16, body: &[u8], timeout: Duration) -> Result<Vec<u8>, RpcError> {
        let (peer, body) = (self.peer(to), body.to_vec());
        self.on(
            from,
            move |rpc| async move { rpc.call(&peer, 0, verb, body, timeout).await },
        )
    }

    fn echo(&mut self, from: u32, to: u32) -> Result<Vec<u8>, RpcError> {
        self.call(from, to, ECHO, b"hello", SECOND)
    }
}

fn disconnected(may_have_run: bool) -> Result<Vec<u8>, RpcError> {
    Err(RpcError::Disconnected { may_have_run })
}

fn timed_out(may_have_run: bool) -> Result<Vec<u8>, RpcError> {
    Err(RpcError::Timeout { may_have_run })
}

#[test]
fn a_call_reaches_the_shard_it_names_though_the_nodes_have_different_shards() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed, &[2, 3], |_, _| {});
        let peer = cluster.peer(1);
        for shard in 0..3 {
            let answer = cluster.on(0, move |rpc| async move {
                rpc.call(&peer, shard, WHO, vec![], SECOND).await
            });
            assert_eq!(answer, Ok(format!("{shard} from 0").into_bytes()));
        }
    }
}

#[test]
fn the_answers_of_a_handler_come_back_whatever_they_are() {
    let mut cluster = Cluster::new(1, &[1, 1], |_, _| {});
    assert_eq!(cluster.echo(0, 1), Ok(b"hello".to_vec()));
    assert_eq!(cluster.call(0, 1, ECHO, b"", SECOND), Ok(vec![]));
    assert_eq!(cluster.call(0, 1, ECHO_LATER, &[9, 1], SECOND), Ok(vec![9, 1]));
    let failed = RemoteError::failed("the disk is full");
    assert_eq!(cluster.call(0, 1, FAIL, b"", SECOND), Err(RpcError::Remote(failed)));
    let unknown = cluster.call(0, 1, 999, b"", SECOND);
    assert_eq!(unknown, Err(RpcError::Remote(RemoteError::unknown_verb(999))));
    let none = cluster.call(0, 1, COUNT, b"", SECOND);
    assert!(
        matches!(none, Err(RpcError::Remote(_))),
        "a caller waits for a handler that has no answer"
    );
    let large = vec![0; rpc::BODY_BYTES_MAX + 1];
    assert!(matches!(
        cluster.call(0, 1, ECHO, &large, SECOND),
        Err(RpcError::TooLarge { .. })
    ));
    let largest = vec![3; rpc::BODY_BYTES_MAX];
    assert!(
        cluster.call(0, 1, ECHO, &largest, 60 * SECOND) == Ok(largest),
        "a large body is changed"
    );
}

#[test]
fn an_answer_that_is_longer_than_a_frame_comes_whole_and_short_ones_go_in_between() {
    let short = [ECHO, WHO];
    for seed in 0..6 {
        let compression = if seed % 2 == 0 { vec![] } else { vec![Compression::Lz4] };
        let mut cluster = Cluster::new(seed, &[1, 1], |_, config| {
            config.compression.clone_from(&compression);
        });
        // Some calls are handled twice, so that their answers are made twice.
        let (caller, callee) = (cluster.ids[0], cluster.ids[1]);
        cluster.simulation.set_message_faults(caller, callee, 500_000, 0);
        let mut peer = cluster.peer(1);
        peer.compress = true;
        let (long, order) = cluster.on(0, move |rpc| async move {
            let order = Rc::new(RefCell::new(Vec::new()));
            let calls: Vec<_> = [LONG, short[0], short[1]]
                .into_iter()
                .map(|verb| {
                    let (call, order) = (rpc.call(&peer, 0, verb, vec![20], 60 * SECOND), order.clone());
                    runtime::spawn(async move {
                        let answer = call.await;
                        order.borrow_mut().push(verb);
                        answer
                    })
                })
                .collect();
            let mut answers = VecDeque::new();
            for call in calls {
                answers.push_back(call.await);
            }
            let long = answers.pop_front().expect("three were called");
            (long, order.take())
        });
        assert!(
            long == Ok(long_answer(20)),
            "a long answer is changed: {:?}",
            long.map(|bytes| bytes.len())
        );
        assert_eq!(order.last(), Some(&LONG), "short answers waited for a long one");
    }
}

#[test]
fn an_answer_beyond_the_limit_is_an_error_that_says_that_the_request_ran() {
    let mut cluster = Cluster::new(3, &[1, 1], |_, config| config.limits.long_answer_bytes_max = 3 << 20);
    assert!(cluster.call(0, 1, LONG, &[2], SECOND) == Ok(long_answer(2)));
    let lost = cluster.call(0, 1, LONG, &[3], SECOND);
    let expected = format!(
        "an answer of {} bytes is above the {} that an answer may have",
        (3 << 20) + 1,
        3 << 20
    );
    assert_eq!(
        lost,
        Err(RpcError::Remote(RemoteError {
            kind: RemoteErrorKind::AnswerLost,
            message: expected
        }))
    );
    // One that believes that answers are shorter ends the connection, and the next call has another.
    let mut cluster = Cluster::new(4, &[1, 1], |number, config| {
        if number == 0 {
            config.limits.long_answer_bytes_max = 3 << 20;
        }
    });
    assert_eq!(cluster.call(0, 1, LONG, &[6], SECOND), disconnected(true));
    cluster.simulation.run_for(SECOND);
    assert_eq!(cluster.echo(0, 1), Ok(b"hello".to_vec()));
}

#[test]
fn a_long_answer_that_nobody_waits_for_is_not_sent_on() {
    let mut cluster = Cluster::new(5, &[1, 1], |_, _| {});
    let late = cluster.call(0, 1, LONG, &[200], Duration::from_millis(2));
    assert_eq!(late, timed_out(true));
    cluster.simulation.run_for(SECOND);
    let received: u64 = cluster
        .rpc(1)
        .served_metrics()
        .iter()
        .map(|served| served.sent_bytes)
        .sum();
    assert!(
        received < 100 << 20,
        "{received} bytes of an answer were sent after its call was given up"
    );
}

#[test]
fn whoever_is_at_an_address_says_who_it_is_and_other_connections_go_on() {
    let mut cluster = Cluster::new(2, &[1, 1], |_, _| {});
    let place = |cluster: &Cluster, number: u32| rpc::NodeAddress {
        address: cluster.peer(number).address,
        tls: false,
    };
    let (there, nowhere) = (
        place(&cluster, 1),
        rpc::NodeAddress {
            address: SocketAddr::new(cluster.peer(1).address.ip(), PORT + 1),
            tls: false,
        },
    );
    let peer = cluster.peer(1);
    // A call is under way on the connection of its own that it has to the same shard.
    let (slow, answers) = cluster.on(0, move |rpc| async move {
        let slow = rpc.call(&peer, 0, ECHO_LATER, vec![100], SECOND);
        runtime::sleep(Duration::from_millis(20)).await;
        let mut answers = Vec::new();
        for (place, verb) in [(there, ECHO), (there, FAIL), (nowhere, ECHO)] {
            answers.push(rpc.ask(place, verb, b"who".to_vec(), SECOND).await);
        }
        (slow.await, answers)
    });
    assert_eq!(slow, Ok(vec![100]), "the question ended another connection");
    assert_eq!(
        answers,
        [
            Ok((host(1), Ok(b"who".to_vec()))),
            Ok((host(1), Err(RemoteError::failed("the disk is full")))),
            Err(RpcError::Disconnected { may_have_run: false }),
        ]
    );
    cluster.simulation.run_for(SECOND);
    let served = cluster.rpc(1).served_metrics();
    assert_eq!(served.len(), 1, "questions leave no connection behind: {served:?}");
}

#[test]
fn who_is_not_meant_refuses_with_the_reason() {
    let mut cluster = Cluster::new(2, &[1, 1], |number, config| {
        if number == 0 {
            config.cluster_name = "lake".to_owned();
        }
    });
    let refused = |reason: &str| Err(RpcError::Refused(reason.to_owned()));
    assert_eq!(
        cluster.echo(0, 1),
        refused(
            "this node belongs to cluster \"sea\", and the one that connects to \"lake\": correct the cluster name (cluster_name) or the seeds of one of them"
        )
    );
    let mut cluster = Cluster::new(3, &[1, 1], |_, _| {});
    let mut peer = cluster.peer(1);
    let (first, second) = cluster.on(0, move |rpc| async move {
        let no_shard = rpc.call(&peer, 4, ECHO, vec![], SECOND).await;
        peer.host_id = host(8);
        (no_shard, rpc.call(&peer, 0, ECHO, vec![], SECOND).await)
    });
    assert_eq!(first, refused("this node has 1 shards, there is no shard 4"));
    assert!(
        matches!(&second, Err(RpcError::Refused(reason)) if reason.contains("was looked for")),
        "{second:?}"
    );
    assert_eq!(cluster.service(1).ran.get(), 0);
}

#[test]
fn a_node_that_hides_a_feature_is_at_the_older_level_for_both() {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let mut cluster = Cluster::new(4, &[1, 1, 1], |number, config| {
        config.features = vec!["digests".to_owned(), "tablets".to_owned()];
        if number == 1 {
            config.hidden_features = vec!["tablets".to_owned()];
        }
    });
    for (from, to, expected) in [
        (0, 1, names(&["digests"])),
        (1, 0, names(&["digests"])),
        (0, 2, names(&["digests", "tablets"])),
    ] {
        assert_eq!(
            cluster.rpc(from).features(host(to), 0),
            None,
            "there is no connection yet"
        );
        cluster.echo(from, to).expect("the node runs");
        let features = cluster.rpc(from).features(host(to), 0).expect("there is a connection");
        assert_eq!(features.to_vec(), expected, "from {from} to {to}");
    }
}

#[test]
fn who_stops_waiting_stops_the_work() {
    let mut cluster = Cluster::new(5, &[1, 1], |_, _| {});
    assert_eq!(cluster.call(0, 1, HANG, b"", SECOND), timed_out(true));
    let peer = cluster.peer(1);
    cluster.on(0, move |rpc| async move {
        let dropped = rpc.call(&peer, 0, HANG, vec![], 100 * SECOND);
        let _ = runtime::timeout(SECOND, dropped).await;
        // After the cancellation, on the same connection.
        rpc.call(&peer, 0, ECHO, vec![], SECOND).await.expect("the node runs");
    });
    let served = &cluster.rpc(1).served_metrics()[0];
    assert_eq!((served.handling, served.requests), (0, 3), "{served:?}");
    let link = &cluster.rpc(0).link_metrics()[0];
    assert_eq!(
        (link.in_flight, link.in_flight_bytes, link.timeouts),
        (0, 0, 1),
        "{link:?}"
    );
}

#[test]
fn when_a_node_is_killed_its_calls_fail_at_once_and_work_again_after_its_restart() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(seed, &[1, 1], |_, _| {});
        let peer = cluster.peer(1);
        cluster.echo(0, 1).expect("the node runs");
        let hanging = cluster.spawn(0, move |rpc| async move {
            let begun = runtime::now();
            let result = rpc.call(&peer, 0, HANG, vec![], 100 * SECOND).await;
            (result, begun.elapsed())
        });
        cluster.simulation.run_for(SECOND);
        cluster.simulation.crash(cluster.ids[1], CrashKind::Kill);
        cluster.simulation.run_for(SECOND);
        let (result, took) = hanging.take().expect("the call fails when the connection does");
        assert_eq!(result, disconnected(true));
        assert!(took < 2 * SECOND, "it took {took:?}");
        assert_eq!(cluster.echo(0, 1), disconnected(false), "nobody listens");
        assert_eq!(cluster.echo(0, 1), disconnected(false), "it is not tried again at once");
        cluster.simulation.restart(cluster.ids[1]);
        cluster.simulation.run_for(3 * SECOND);
        assert_eq!(cluster.echo(0, 1), Ok(b"hello".to_vec()));
    }
}

#[test]
fn a_node_that_came_back_is_called_at_once_when_it_has_called() {
    let mut cluster = Cluster::new(6, &[1, 1], |_, config| {
        config.limits.retry_after = 1000 * SECOND;
        config.limits.retry_after_max = 1000 * SECOND;
    });
    cluster.simulation.crash(cluster.ids[1], CrashKind::Kill);
    assert_eq!(cluster.echo(0, 1), disconnected(false));
    cluster.simulation.restart(cluster.ids[1]);
    cluster.simulation.run_for(SECOND);
    assert_eq!(cluster.echo(0, 1), disconnected(false), "it is not tried for 1,000 s");
    assert_eq!(cluster.echo(1, 0), Ok(b"hello".to_vec()));
    assert_eq!(cluster.echo(0, 1), Ok(b"hello".to_vec()));
}

#[test]
fn a_node_that_lost_power_is_noticed_and_called_again_after_its_restart() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed, &[1, 1], |_, _| {});
        cluster.echo(0, 1).expect("the node runs");
        cluster.simulation.crash(cluster.ids[1], CrashKind::PowerLoss);
        let result = cluster.call(0, 1, ECHO, b"", 20 * SECOND);
        assert_eq!(result, disconnected(true));
        cluster.simulation.restart(cluster.ids[1]);
        cluster.simulation.run_for(5 * SECOND);
        assert_eq!(cluster.echo(0, 1), Ok(b"hello".to_vec()));
    }
}

#[test]
fn calls_over_a_split_time_out_and_calls_after_it_work() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed, &[1, 1, 1], |_, _| {});
        cluster.echo(0, 1).expect("the node runs");
        let (one, other) = ([cluster.ids[0]], [cluster.ids[1]]);
        cluster.simulation.partition(&one, &other);
        assert_eq!(cluster.echo(0, 1), timed_out(true));
        assert_eq!(
            cluster.echo(0, 2),
            Ok(b"hello".to_vec()),
            "the third node is not split off"
        );
        cluster.simulation.run_for(30 * SECOND);
        let result = cluster.echo(0, 1);
        assert!(
            result == timed_out(false) || result == disconnected(false),
            "{result:?}"
        );
        cluster.simulation.heal(&one, &other);
        cluster.simulation.run_for(10 * SECOND);
        assert_eq!(cluster.echo(0, 1), Ok(b"hello".to_vec()));
    }
}

#[test]
fn a_bad_link_delays_answers_and_never_mixes_them_up() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed, &[2, 2], |_, config| {
            config.compression = vec![Compression::Lz4];
        });
        let (one, other) = (cluster.ids[0], cluster.ids[1]);
        cluster.simulation.set_loss(one, other, 100_000);
        cluster.simulation.set_loss(other, one, 100_000);
        cluster.simulation.set_delay(one, other, Duration::from_millis(20));
        let mut peer = cluster.peer(1);
        peer.compress = true;
        cluster.on(0, move |rpc| async move {
            let callers: Vec<_> = (0..300_usize)
                .map(|number| {
                    let verb = if number % 3 == 0 { ECHO_LATER } else { ECHO };
                    let body = vec![(number % 251) as u8; 1 + number * 37];
                    let call = rpc.call(&peer, (number % 2) as u32, verb, body.clone(), 60 * SECOND);
                    runtime::spawn(async move { assert!(call.await == Ok(body), "an answer is another call's") })
                })
                .collect();
            for caller in callers {
                caller.await;
            }
        });
    }
}

#[test]
fn a_request_that_comes_again_runs_once_unless_its_verb_may_be_repeated() {
    let mut cluster = Cluster::new(27, &[1, 1], |_, _| {});
    let (from, to) = (cluster.ids[0], cluster.ids[1]);
    cluster.simulation.set_message_faults(from, to, 1_000_000, 0);
    for (verb, runs) in [(WHO, 20), (ECHO, 40)] {
        let before = cluster.service(1).ran.get();
        for _ in 0..20 {
            let answer = cluster.call(0, 1, verb, b"0 from 0", SECOND);
            assert_eq!(answer, Ok(b"0 from 0".to_vec()), "verb {verb}");
        }
        cluster.simulation.run_for(SECOND);
        let ran = cluster.service(1).ran.get() - before;
        assert_eq!(ran, runs, "20 requests of verb {verb} came twice, and so many ran");
    }
    let rpc = cluster.rpc(1);
    assert_eq!(rpc.served_metrics()[0].repeated, 20);
}

#[test]
fn a_trace_id_comes_with_its_request_and_with_no_other_wherever_they_wait() {
    // One request is in flight at a time: the others wait in line.
    let limits = Limits {
        in_flight_max: 1,
        ..short_limits()
    };
    let mut cluster = Cluster::new(29, &[1, 1], |_, config| config.limits = limits.clone());
    let (from, to) = (cluster.ids[0], cluster.ids[1]);
    cluster.simulation.set_message_faults(from, to, 300_000, 0);
    let (peer, body_bytes_max) = (cluster.peer(1), Limits::default().body_bytes_max);
    let (answers, too_long) = cluster.on(0, move |rpc| async move {
        let traced = |n: u8| Purpose {
            verb: TRACE,
            trace: n.is_multiple_of(3).then_some([n; 16]),
        };
        let calls: Vec<_> = (0..50)
            .map(|n| rpc.call(&peer, 0, traced(n), vec![n; usize::from(n)], 60 * SECOND))
            .collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await.expect("the node runs"));
        }
        (
            answers,
            rpc.call(&peer, 0, traced(0), vec![0; body_bytes_max - 15], SECOND)
                .await,
        )
    });
    for (n, answer) in (0_u8..).zip(answers) {
        let id = if n.is_multiple_of(3) { 16 } else { 0 };
        assert_eq!(answer, vec![n; id + usize::from(n)], "request {n}");
    }
    assert_eq!(
        too_long,
        Err(RpcError::TooLarge {
            bytes: body_bytes_max + 1,
            bytes_max: body_bytes_max
        })
    );
}

#[test]
fn requests_that_overtake_each_other_get_their_own_answers_and_run_once() {
    let mut cluster = Cluster::new(28, &[1, 1], |_, _| {});
    let (from, to) = (cluster.ids[0], cluster.ids[1]);
    cluster.simulation.set_message_faults(from, to, 300_000, 500_000);
    let peer = cluster.peer(1);
    let answers = cluster.on(0, move |rpc| async move {
        let call = |n: u8| rpc.call(&peer, 0, ECHO_LATER, vec![n], 5 * SECOND);
        let calls: Vec<_> = (0..200).map(call).collect();
        let mut answers = Vec::new();
        for call in calls {
            answers.push(call.await);
        }
        answers
    });
    for (n, answer) in (0..).zip(answers) {
        assert_eq!(answer, Ok(vec![n]), "call {n}");
    }
    assert_eq!(cluster.service(1).ran.get(), 200);
    let disturbed = cluster.simulation.disturbed_messages();
    assert!(disturbed > 100, "next to nothing was repeated or late: {disturbed}");
}

#[test]
fn only_nodes_that_know_the_same_secret_talk_to_each_other() {
    let secret = |text: &str| Some(rpc::JoinSecret::new(text).expect("it is long enough"));
    let (one, other) = ("a secret of the sea", "a secret of the lake");
    let cases = [
        (Some(one), Some(one), None),
        (Some(other), Some(one), Some("another join_secret")),
        (None, Some(one), Some("has none")),
        (Some(one), None, Some("does not show that it knows")),
        (None, None, None),
    ];
    for (ours, theirs, reason) in cases {
        let mut cluster = Cluster::new(22, &[1, 1], |number, config| {
            config.join_secret = if number == 0 { ours } else { theirs }.and_then(secret);
        });
        let answer = cluster.echo(0, 1);
        match (reason, answer) {
            (None, answer) => assert_eq!(answer, Ok(b"hello".to_vec()), "{ours:?} calls {theirs:?}"),
            (Some(reason), Err(RpcError::Refused(said))) => {
                assert!(said.contains(reason), "{ours:?} calls {theirs:?}: {said}");
            }
            (Some(_), answer) => panic!("{ours:?} calls {theirs:?}: {answer:?}"),
        }
        assert_eq!(
            cluster.service(1).ran.get(),
            u64::from(reason.is_none()),
            "a handler ran"
        );
    }
    assert!(rpc::JoinSecret::new("short").is_err(), "a short secret is taken");
}

#[test]
fn messages_without_an_answer_arrive() {
    let mut cluster = Cluster::new(8, &[1, 1], |_, _| {});
    let peer = cluster.peer(1);
    cluster.on(0, move |rpc| async move {
        for _ in 0..100 {
            rpc.send(&peer, 0, COUNT, vec![1], SECOND).expect("there is room");
        }
        rpc.call(&peer, 0, ECHO, vec![], SECOND).await.expect("the node runs");
    });
    assert_eq!(cluster.service(1).counted.get(), 100);
    let link = &cluster.rpc(0).link_metrics()[0];
    assert_eq!((link.one_way, link.waiting, link.in_flight), (100, 0, 0), "{link:?}");
}

#[test]
fn compression_is_used_when_both_want_it_and_saves_bytes() {
    use Compression::{Lz4, Zstd};
    let cases: &[(&[Compression], &[Compression], bool, bool)] = &[
        (&[Lz4], &[Lz4, Zstd], true, true),
        (&[Zstd], &[Zstd], true, true),
        (&[Zstd], &[Lz4], true, false),
        (&[Lz4], &[Lz4], false, false),
        (&[], &[Lz4], true, false),
    ];
    for &(ours, theirs, wanted, used) in cases {
        let mut cluster = Cluster::new(9, &[1, 1], |number, config| {
            config.compression = if number == 0 { ours.to_vec() } else { theirs.to_vec() };
        });
        let mut peer = cluster.peer(1);
        peer.compress = wanted;
        cluster.on(0, move |rpc| async move {
            for bytes in [10, 5_000, 3_000_000] {
                let body = vec![5; bytes];
                assert!(
                    rpc.call(&peer, 0, ECHO, body.clone(), 10 * SECOND).await == Ok(body),
                    "changed"
                );
            }
        });
        let link = &cluster.rpc(0).link_metrics()[0];
        let is_small = link.sent_bytes < 300_000 && link.received_bytes < 300_000;
        assert_eq!(is_small, used, "{ours:?} and {theirs:?}: {link:?}");
    }
}

#[test]
fn a_disconnected_node_is_connected_to_again_by_the_next_call() {
    let mut cluster = Cluster::new(10, &[1, 1], |_, _| {});
    let peer = cluster.peer(1);
    let (hanging, echo) = cluster.on(0, move |rpc| async move {
        let hanging = rpc.call(&peer, 0, HANG, vec![], 100 * SECOND);
        rpc.call(&peer, 0, ECHO, vec![], SECOND).await.expect("the node runs");
        rpc.disconnect(host(1));
        (hanging.await, rpc.call(&peer, 0, ECHO, vec![], SECOND).await)
    });
    assert_eq!(hanging, disconnected(true));
    assert_eq!(echo, Ok(vec![]));
    cluster.simulation.run_for(5 * SECOND);
    let served = cluster.rpc(1).served_metrics();
    assert_eq!((served.len(), served[0].handling), (1, 0), "{served:?}");
    cluster.rpc(0).stop();
    assert_eq!(cluster.echo(0, 1), disconnected(false));
}

#[test]
fn a_stranger_is_shown_the_door() {
    for seed in 0..20_u64 {
        let mut cluster = Cluster::new(seed, &[1, 1], |_, _| {});
        let address = cluster.peer(1).address;
        cluster.on(0, move |_| async move {
            let mut stream = TcpStream::connect(address).await.expect("somebody listens");
            let mut garbage = vec![0; 200];
            runtime::random_bytes(&mut garbage);
            if seed % 2 == 0 {
                garbage[..8].copy_from_slice(b"CETO-RPC");
            }
            let (sent, _) = stream.write_all(garbage).await;
            sent.expect("it is connected");
            let (read, _) = stream.read(Vec::with_capacity(10)).await;
            assert_eq!(read.unwrap_or(0), 0, "garbage is answered");
        });
        cluster.echo(0, 1).expect("the node serves others");
    }
}

#[test]
fn the_kind_of_a_remote_error_arrives() {
    let mut cluster = Cluster::new(13, &[1, 1], |_, _| {});
    let Err(RpcError::Remote(error)) = cluster.call(0, 1, 999, b"", SECOND) else {
        panic!("an unknown verb has an answer");
    };
    assert_eq!(error.kind, RemoteErrorKind::UnknownVerb);
}

#[test]
fn one_seed_is_one_run() {
    let run = |seed| {
        let mut cluster = Cluster::new(seed, &[2, 2], |_, _| {});
        for _ in 0..20 {
            cluster.echo(0, 1).expect("the node runs");
        }
        cluster.simulation.trace_hash()
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}
