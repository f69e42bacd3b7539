//! Many connections at once, and connections that do not say what they want.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use runtime::net::TcpStream;
use sim::client::{Answer, Client, frame, query};
use sim::model::Value;
use sim::{Durability, Machines, Setup};

/// What a simulated node takes.
const CONNECTIONS_MAX: usize = 100;
/// How long a client may be silent before its connection is ready.
const PATIENCE: Duration = Duration::from_secs(10);
const OPTIONS: u8 = 0x05;

/// Runs a story of clients against a node of one shard.
fn tell<F: Future<Output = ()> + 'static>(story: impl Fn(SocketAddr) -> F + 'static) {
    let setup = Setup {
        shards: 1,
        durability: Durability::Periodic(Duration::from_millis(10)),
        shard_bytes: 8 << 20,
        segment_bytes: 1 << 20,
        log_bytes: 16 << 20,
    };
    let told = Rc::new(RefCell::new(false));
    let (end, story) = (told.clone(), Rc::new(story));
    let mut machines = Machines::new(1, &setup, move |address| {
        let (end, story) = (end.clone(), story.clone());
        Box::pin(async move {
            while Client::connect(address).await.is_err() {
                runtime::sleep(Duration::from_millis(5)).await;
            }
            story(address).await;
            *end.borrow_mut() = true;
        })
    });
    let clients = machines.clients;
    machines.sim.run_until_ended(clients, Duration::from_mins(15));
    assert!(
        *told.borrow(),
        "the story did not come to its end: {:?}",
        machines.failure()
    );
}

/// Whether the node has closed the connection; what it said before is read.
async fn is_closed(stream: &mut TcpStream) -> bool {
    loop {
        let read = runtime::timeout(Duration::from_millis(1), stream.read(Vec::with_capacity(4096)));
        match read.await {
            Ok((Ok(0) | Err(_), _)) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

async fn silent(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(TcpStream::connect(address).await.expect("the node accepts"));
    }
    streams
}

#[test]
fn clients_that_say_nothing_keep_nobody_waiting_and_are_gone_after_a_while() {
    tell(async |address| {
        let began = runtime::now();
        let mut silent = silent(address, 50).await;
        for number in 0..20 {
            let ready = runtime::timeout(Duration::from_secs(1), Client::connect(address)).await;
            assert!(
                matches!(ready, Ok(Ok(_))),
                "connection {number} waited for clients that say nothing"
            );
        }
        for stream in &mut silent {
            assert!(!is_closed(stream).await, "closed after {:?}", began.elapsed());
        }
        runtime::sleep(PATIENCE).await;
        for stream in &mut silent {
            assert!(
                is_closed(stream).await,
                "it says nothing, and holds a connection indefinitely"
            );
        }
    });
}

#[test]
fn a_client_that_says_one_byte_at_a_time_is_gone_after_as_long() {
    tell(async |address| {
        let mut slow = TcpStream::connect(address).await.expect("the node accepts");
        let request = frame(0, OPTIONS, b"");
        let mut sent = 0;
        for byte in request.iter().take(4) {
            runtime::sleep(PATIENCE / 3).await;
            sent += usize::from(slow.write_all(vec![*byte]).await.0.is_ok() && !is_closed(&mut slow).await);
        }
        assert!(sent < 4, "each byte gave it more time");
    });
}

#[test]
fn a_client_that_asks_for_options_for_ever_is_refused() {
    tell(async |address| {
        let mut asking = TcpStream::connect(address).await.expect("the node accepts");
        for _ in 0..8 {
            assert!(asking.write_all(frame(0, OPTIONS, b"")).await.0.is_ok());
            assert!(!is_closed(&mut asking).await, "some are answered");
        }
        drop(asking.write_all(frame(0, OPTIONS, b"")).await);
        assert!(
            is_closed(&mut asking).await,
            "it asks on and on, and never becomes a connection"
        );
    });
}

#[test]
fn who_comes_when_there_are_too_many_is_closed_at_once_and_nobody_else() {
    tell(async |address| {
        let mut client = Client::connect(address).await.expect("nobody else is there");
        let others = CONNECTIONS_MAX - 1;
        let mut under_the_bound = silent(address, others).await;
        let mut above = silent(address, 30).await;
        runtime::sleep(Duration::from_millis(100)).await;
        for stream in &mut above {
            assert!(is_closed(stream).await, "it waits though it is one too many");
        }
        for stream in &mut under_the_bound {
            assert!(!is_closed(stream).await, "it was closed though it was under the bound");
        }
        let answer = client.ask("SELECT key FROM system.local").await;
        assert!(matches!(answer, Ok(Answer::Rows(..))), "{answer:?}");
        under_the_bound.clear();
        runtime::sleep(Duration::from_millis(100)).await;
        assert!(Client::connect(address).await.is_ok(), "there is room again");
    });
}

/// The texts that a statement of one column selects, in order.
async fn texts(client: &mut Client, statement: &str) -> Vec<String> {
    let rows = match client.ask(statement).await {
        Ok(Answer::Rows(rows, _)) => rows,
        other => panic!("{statement}: {other:?}"),
    };
    let values = rows.into_iter().flat_map(BTreeMap::into_values);
    let mut texts: Vec<_> = values
        .map(|value| match value {
            Value::Text(text) => text,
            other => panic!("{statement}: {other:?}"),
        })
        .collect();
    texts.sort();
    texts
}

/// Values of so many rows fill what the node keeps for clients that take no answers.
const TEXT_BYTES: usize = 16 << 10;
const TEXTS: usize = 40;

#[test]
fn the_first_small_result_of_a_client_does_not_wait_for_clients_that_take_no_answers() {
    tell(async |address| {
        let mut user = Client::connect(address).await.expect("the node serves");
        for statement in [
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c))",
        ] {
            user.ask(statement).await.expect("the node serves");
        }
        let text = "x".repeat(TEXT_BYTES);
        for row in 0..TEXTS {
            let insert = format!("INSERT INTO ks.t (k, c, v) VALUES (1, {row}, '{text}')");
            user.ask(&insert).await.expect("the node serves");
        }
        let all = "SELECT v FROM ks.t WHERE k = 1";
        let mut greedy = Vec::new();
        for _ in 0..8 {
            let mut client = Client::connect(address).await.expect("the node serves");
            for number in 0..8 {
                client.send(query(number, all)).await.expect("the node reads");
            }
            greedy.push(client);
        }
        runtime::sleep(Duration::from_secs(1)).await;
        for number in 0..20 {
            let mut client = Client::connect(address).await.expect("the node serves");
            let small = runtime::timeout(Duration::from_secs(1), client.ask("SELECT key FROM system.local")).await;
            assert!(matches!(small, Ok(Ok(Answer::Rows(..)))), "client {number}: {small:?}");
        }
        // A conditional statement that reads much finds no room in its time; one that reads little does.
        let mut client = Client::connect(address).await.expect("the node serves");
        for (rows, is_refused) in [(3, false), (TEXTS, true), (1, false)] {
            let changes =
                (0..rows).map(|row| format!("UPDATE ks.t SET v = 'new' WHERE k = 1 AND c = {row} IF v = '{row}';"));
            let batch = format!("BEGIN BATCH {} APPLY BATCH", changes.collect::<String>());
            let answer = client.ask(&batch).await.expect("the node serves");
            let refused = matches!(&answer, Answer::Error { code: 0x1001, message } if message.contains("conditional statement reads"));
            let answered = matches!(answer, Answer::Rows(..));
            assert_eq!(
                (refused, answered),
                (is_refused, !is_refused),
                "{rows} rows: {answer:?}"
            );
        }
        // A large one waits for room, and is whole.
        let began = runtime::now();
        assert_eq!(texts(&mut client, all).await, vec![text; TEXTS]);
        assert!(
            began.elapsed() > Duration::from_secs(1),
            "there was room: the test shows nothing"
        );
        drop(greedy);
    });
}

#[test]
fn a_connection_is_its_drivers_until_the_first_statement_of_a_user() {
    tell(async |address| {
        let ddl = async |client: &mut Client, statement: &str| {
            let answer = client.ask(statement).await.expect("the node serves");
            assert!(!matches!(answer, Answer::Error { .. }), "{statement}: {answer:?}");
        };
        let mut user = Client::connect(address).await.expect("the node serves");
        ddl(
            &mut user,
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        )
        .await;
        ddl(&mut user, "CREATE TABLE ks.t (k int PRIMARY KEY, v text)").await;
        ddl(&mut user, "INSERT INTO ks.t (k, v) VALUES (1, 'one')").await;
        drop(user);
        runtime::sleep(Duration::from_millis(10)).await;
        let of_user = [
            "SELECT v FROM ks.t WHERE k = 1",
            "SELECT count(*) FROM ks.t",
            "INSERT INTO ks.t (k, v) VALUES (1, 'one')",
            "USE ks",
            "CREATE TABLE IF NOT EXISTS ks.t (k int PRIMARY KEY, v text)",
        ];
        // The only connection but for one that this story keeps to look at it.
        let mut looks = Client::connect(address).await.expect("the node serves");
        for first in of_user {
            let mut client = Client::connect(address).await.expect("the node serves");
            for of_driver in [
                "SELECT cluster_name FROM system.local",
                "SELECT rack FROM system.peers",
                "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'ks'",
                "USE system",
            ] {
                client.ask(of_driver).await.expect("the node serves");
            }
            let group = "SELECT scheduling_group FROM system.clients";
            assert_eq!(texts(&mut looks, group).await, ["sl:driver"; 2], "before {first}");
            client.ask(first).await.expect("the node serves");
            texts(&mut client, "SELECT cluster_name FROM system.local").await;
            assert_eq!(
                texts(&mut looks, group).await,
                ["sl:driver", "statement"],
                "after {first}"
            );
            drop(client);
            runtime::sleep(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn the_tables_of_clients_tell_how_far_each_has_come() {
    tell(async |address| {
        let mut client = Client::connect(address).await.expect("the node serves");
        let silent = silent(address, 1).await;
        runtime::sleep(Duration::from_millis(10)).await;
        for (table, told) in [
            ("system.clients", ["ESTABLISHED", "READY"]),
            ("system_views.clients", ["established", "ready"]),
        ] {
            let stages = texts(&mut client, &format!("SELECT connection_stage FROM {table}")).await;
            assert_eq!(stages, told, "{table}");
        }
        drop(silent);
        runtime::sleep(Duration::from_millis(10)).await;
        let stages = texts(&mut client, "SELECT connection_stage FROM system.clients").await;
        assert_eq!(stages, ["READY"], "one that ended is listed");
    });
}

/// How long a frame waits for room, and how long it may take with room and so few bytes.
const FRAME_PATIENCE: Duration = Duration::from_secs(12);

/// A statement of at least so many bytes.
fn long_statement(bytes: usize) -> String {
    format!("SELECT key FROM system.local -- {}", "x".repeat(bytes))
}

/// What a well-behaved client sees at the same time, at most this long after its request.
async fn ask_often(client: &mut Client, period: Duration, answer_max: Duration) {
    let began = runtime::now();
    while began.elapsed() < period {
        let asked = runtime::now();
        let answer = client.ask("SELECT key FROM system.local").await;
        assert!(matches!(answer, Ok(Answer::Rows(..))), "{answer:?}");
        let took = asked.elapsed();
        assert!(took < answer_max, "it waited {took:?} for others");
        runtime::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn frames_that_stop_half_way_keep_nobody_waiting_and_end_their_connections() {
    tell(async |address| {
        const BYTES: usize = 300_000;
        let mut client = Client::connect(address).await.expect("the node serves");
        let mut half = Vec::new();
        for _ in 0..20 {
            let mut sender = Client::connect(address).await.expect("the node serves");
            let frame = query(0, &long_statement(BYTES));
            sender
                .send(frame[..BYTES / 2].to_vec())
                .await
                .expect("the window is large");
            half.push(sender);
        }
        ask_often(&mut client, FRAME_PATIENCE, Duration::from_millis(100)).await;
        for sender in &mut half {
            let ended = runtime::timeout(Duration::from_secs(1), async {
                let (_, error) = sender.answer().await.expect("it gets the reason");
                assert!(matches!(error, Answer::Error { code: 0x1001, .. }), "{error:?}");
                sender.answer().await
            });
            assert!(matches!(ended.await, Ok(Err(_))), "it keeps its room indefinitely");
        }
        let mut whole = Client::connect(address).await.expect("the node serves");
        let answer = whole.ask(&long_statement(BYTES)).await;
        assert!(
            matches!(answer, Ok(Answer::Rows(..))),
            "no room is given back: {answer:?}"
        );
    });
}

#[test]
fn clients_that_take_no_answers_keep_nobody_waiting_and_are_closed() {
    tell(async |address| {
        let mut client = Client::connect(address).await.expect("the node serves");
        for statement in [
            "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE ks.t (k int, c int, v text, PRIMARY KEY (k, c))",
        ] {
            client.ask(statement).await.expect("the node serves");
        }
        for row in 0..8 {
            let insert = format!(
                "INSERT INTO ks.t (k, c, v) VALUES (0, {row}, '{}')",
                "v".repeat(100_000)
            );
            client.ask(&insert).await.expect("the node serves");
        }
        // The node knows from now on that what it asks is small.
        ask_often(&mut client, Duration::from_millis(1), Duration::from_secs(1)).await;
        let mut silent = Vec::new();
        for _ in 0..20 {
            let mut other = Client::connect(address).await.expect("the node serves");
            for stream in 0..10 {
                other
                    .send(query(stream, "SELECT * FROM ks.t WHERE k = 0"))
                    .await
                    .expect("it is small");
            }
            silent.push(other);
        }
        ask_often(&mut client, Duration::from_secs(25), Duration::from_millis(200)).await;
        let mut closed = 0;
        for other in &mut silent {
            // One result fills the room of this small node. The node closes a client that takes nothing 10 to 20 s
            // later, and only then begins the next result.
            let all = runtime::timeout(Duration::from_secs(20 * 20), async {
                let mut answers = 0;
                while let Ok((_, answer)) = other.answer().await {
                    answers += usize::from(matches!(answer, Answer::Rows(..)));
                    if answers == 10 {
                        break;
                    }
                }
                answers
            });
            closed += usize::from(all.await.expect("it is answered or closed") < 10);
        }
        assert!(closed > 0, "no connection was closed");
        assert!(closed < 20, "connections that take their answers were closed, too");
    });
}
