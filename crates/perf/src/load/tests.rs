//! The loops against a server of our own, which is as slow and as broken as the test wants. It speaks the simplest
//! protocol: a request is its slot, two bytes, and the answer is the same.

use std::time::Duration;

use runtime::net::{ListenOptions, TcpListener};
use stdx::random::SplitMix64;

use super::*;

/// Requests and answers are two bytes: the slot.
struct Echo;

impl Protocol for Echo {
    fn append_request(&mut self, out: &mut Vec<u8>, slot: u16, _key: u64) {
        out.extend_from_slice(&slot.to_be_bytes());
    }

    fn next_answer(&mut self, input: &[u8]) -> Result<Option<Answer>, LoadError> {
        let answer = |bytes: &[u8; 2]| Answer {
            bytes: 2,
            slot: u16::from_be_bytes(*bytes),
            outcome: Outcome::Done,
        };
        Ok(input.first_chunk().map(answer))
    }
}

/// How the server misbehaves.
#[derive(Clone, Copy)]
enum Server {
    Prompt,
    /// Keeps the first answer for this long.
    StallsOnce(Duration),
    /// Closes the connection after this many bytes.
    HangsUp(usize),
    /// Answers with a slot that no request has.
    Lies,
}

async fn serve(listener: TcpListener, server: Server) {
    let mut stall = match server {
        Server::StallsOnce(stall) => Some(stall),
        Server::Prompt | Server::HangsUp(_) | Server::Lies => None,
    };
    while let Ok(mut stream) = listener.accept().await {
        let stall = stall.take();
        drop(runtime::spawn(async move {
            let mut seen = 0;
            if let Some(stall) = stall {
                runtime::sleep(stall).await;
            }
            loop {
                let (result, mut request) = stream.read(Vec::with_capacity(65536)).await;
                let Ok(1..) = result else { return };
                seen += request.len();
                match server {
                    Server::HangsUp(after) if seen >= after => return,
                    Server::Lies => request = vec![0xff, 0xff],
                    Server::HangsUp(_) | Server::Prompt | Server::StallsOnce(_) => {}
                }
                if stream.write_all(request).await.0.is_err() {
                    return;
                }
            }
        }));
    }
}

fn options() -> LoadOptions {
    LoadOptions {
        connections: 3,
        depth: 4,
        rate: None,
        duration: 0.05,
        operations: None,
        warm_up: 0.0,
        interval: None,
        seed: 1,
        server_pid: Vec::new(),
        pin: None,
        spin_us: 0,
        json_result: None,
    }
}

fn run(options: LoadOptions, server: Server) -> Result<Report, LoadError> {
    let told = options.clone();
    run_on_shard(&options, move || {
        let told = told.clone();
        async move { run_on(told, server).await }
    })
}

async fn run_on(options: LoadOptions, server: Server) -> Result<Report, LoadError> {
    let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
    let io_error = |error| LoadError::Io("the test's server".to_string(), error);
    let listener = TcpListener::bind(any_port, ListenOptions::default()).map_err(io_error)?;
    let address = listener.local_addr().map_err(io_error)?;
    drop(runtime::spawn(serve(listener, server)));
    let mut clients = Vec::new();
    for state in 0..u64::from(options.connections) {
        let stream = TcpStream::connect(address).await.map_err(io_error)?;
        clients.push(Client {
            stream,
            protocol: Echo,
            keys: Keys::Uniform {
                random: SplitMix64::new(state),
                below: 100,
            },
        });
    }
    drive("echo".to_string(), clients, options.plan()?).await
}

#[test]
fn a_closed_loop_does_exactly_the_operations_it_was_told() {
    let report = run(
        LoadOptions {
            operations: Some(5_000),
            ..options()
        },
        Server::Prompt,
    )
    .expect("a prompt server");
    assert_eq!((report.operations, report.errors_total(), report.unsent), (5_000, 0, 0));
    let slowest = report.answers_of_slowest_client.expect("told of a closed loop");
    assert!(
        slowest <= 5_000 / 12,
        "12 clients got 5,000 answers, each at least {slowest}"
    );
    assert!(
        report.rate > 0.0 && report.latency.p50_us <= report.latency.max_us,
        "{report}"
    );
}

#[test]
fn an_open_loop_sends_at_its_rate_and_no_faster() {
    let told = LoadOptions {
        rate: Some(20_000.0),
        operations: Some(1_000),
        ..options()
    };
    let report = run(told, Server::Prompt).expect("a prompt server");
    assert_eq!((report.operations, report.unsent), (1_000, 0));
    // The last of 1,000 requests is due after 50 ms; a loaded machine may take longer, but never less.
    assert!(
        report.seconds >= 0.049,
        "1,000 requests at 20,000/s took {} s",
        report.seconds
    );
}

#[test]
fn a_duration_ends_both_loops() {
    for rate in [None, Some(5_000.0)] {
        let report = run(LoadOptions { rate, ..options() }, Server::Prompt).expect("a prompt server");
        assert!(report.operations > 0 && report.seconds >= 0.05, "{report}");
    }
}

#[test]
fn a_stall_is_seen_by_every_request_it_delays() {
    let told = LoadOptions {
        connections: 1,
        depth: 1,
        rate: Some(10_000.0),
        operations: Some(400),
        ..options()
    };
    let report = run(told, Server::StallsOnce(Duration::from_millis(60))).expect("a server that stalls");
    assert_eq!(report.operations, 400);
    // All 400 were due within 40 ms, and none could be answered before 60 ms: the quickest waited 20 ms. Counted from
    // when they could leave, all but the first would look quick.
    assert!(report.latency.p50_us >= 20_000.0, "the stall is hidden: {report}");
}

#[test]
fn a_stall_shows_in_the_interval_in_which_requests_were_due() {
    let told = LoadOptions {
        connections: 1,
        depth: 1,
        rate: Some(10_000.0),
        operations: Some(800),
        interval: Some(0.04),
        ..options()
    };
    let report = run(told, Server::StallsOnce(Duration::from_millis(60))).expect("a server that stalls");
    // Requests 0 to 399 are due in the first 40 ms, the others in the next; the last of the first interval waited 20 ms
    // at least.
    assert_eq!(report.intervals.len(), 2, "{report}");
    let [first, second] = [&report.intervals[0], &report.intervals[1]];
    assert!(first.p50_us >= 20_000.0, "{first:?}");
    assert!(second.p50_us < first.p50_us, "{second:?} after {first:?}");
    let greatest = first.max_us.max(second.max_us);
    assert!((greatest - report.latency.max_us).abs() < 1.0, "{report}");
}

#[test]
fn requests_that_a_stalled_server_kept_us_from_sending_are_told() {
    let told = LoadOptions {
        connections: 1,
        depth: 1,
        rate: Some(10_000.0),
        ..options()
    };
    let report = run(told, Server::StallsOnce(Duration::from_millis(80))).expect("a server that stalls");
    assert!(
        report.unsent >= 400,
        "500 were due in 50 ms, and one could be sent: {} were told",
        report.unsent
    );
}

#[test]
fn a_server_that_breaks_off_or_lies_ends_the_run_with_an_error() {
    for rate in [None, Some(100_000.0)] {
        let told = LoadOptions {
            connections: 1,
            rate,
            operations: Some(10_000),
            ..options()
        };
        let error = run(told.clone(), Server::HangsUp(100))
            .expect_err("the server hung up")
            .to_string();
        assert!(error.contains("connection to the server"), "{error}");
        let error = run(told, Server::Lies).expect_err("the server lied").to_string();
        assert_eq!(
            error,
            "not an answer of this protocol: an answer to request 65535, which was not sent"
        );
    }
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let told = LoadOptions {
        interval: Some(0.001),
        ..options()
    };
    let refused = told.plan().expect_err("too short");
    assert_eq!(refused.to_string(), "--interval 0.001: expected at least 0.01 s");
    for (name, told) in [
        (
            "--rate 0",
            LoadOptions {
                rate: Some(0.0),
                ..options()
            },
        ),
        (
            "--rate NaN",
            LoadOptions {
                rate: Some(f64::NAN),
                ..options()
            },
        ),
        (
            "--duration -1",
            LoadOptions {
                duration: -1.0,
                ..options()
            },
        ),
        (
            "--warm-up inf",
            LoadOptions {
                warm_up: f64::INFINITY,
                ..options()
            },
        ),
    ] {
        let error = told.plan().expect_err(name).to_string();
        assert!(error.starts_with(name), "{error}");
    }
}

#[test]
fn uniform_keys_are_below_the_bound_and_all_come() {
    let mut keys = Keys::Uniform {
        random: SplitMix64::new(7),
        below: 10,
    };
    let mut seen = [0_u32; 10];
    for _ in 0..10_000 {
        let key = keys.next(0).expect("there is always another");
        seen[usize::try_from(key).expect("small")] += 1;
    }
    assert!(
        seen.iter().all(|count| (800..1200).contains(count)),
        "not uniform: {seen:?}"
    );
}

#[test]
fn a_sequence_is_shared_and_ends() {
    let next = Rc::new(Cell::new(0));
    let mut first = Keys::Sequence {
        next: Rc::clone(&next),
        end: 3,
    };
    let mut second = Keys::Sequence { next, end: 3 };
    let keys = [
        first.next(0),
        second.next(0),
        first.next(0),
        second.next(0),
        first.next(0),
    ];
    assert_eq!(keys, [Some(0), Some(1), Some(2), None, None]);
}

#[test]
fn clients_with_keys_of_their_own_never_meet() {
    let (connections, depth, below) = (3_u64, 4_u16, 30);
    let mut owner_of = std::collections::BTreeMap::new();
    for connection in 0..connections {
        let mut keys = Keys::Own {
            random: SplitMix64::new(connection),
            client_of_slot_0: connection * u64::from(depth),
            clients: connections * u64::from(depth),
            below,
        };
        for slot in (0..depth).cycle().take(1_000) {
            let key = keys.next(slot).expect("30 keys are enough for 12 clients");
            assert!(key < below);
            let owner = *owner_of.entry(key).or_insert((connection, slot));
            assert_eq!(owner, (connection, slot), "key {key} has two clients");
        }
    }
    assert_eq!(owner_of.len() as u64, below, "a key that no client asks for");
    let mut too_few = Keys::Own {
        random: SplitMix64::new(0),
        client_of_slot_0: 0,
        clients: 12,
        below: 2,
    };
    let keys: Vec<bool> = (0..4).map(|slot| too_few.next(slot).is_some()).collect();
    assert_eq!(
        keys,
        [true, true, false, false],
        "a client without a key of its own asks for nothing"
    );
}
