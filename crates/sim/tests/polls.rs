//! No statement keeps its shard, however many values its client sends: it gives way, in parsing, binding, reading,
//! merging and writing alike.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::NodeId;
use sim::client::{Answer, Client, query_of_version_5};
use sim::story::Story;
use sim::{Durability, Machines, Setup};
use stdx::random::SplitMix64;

/// The machine of the node, which is the first.
const NODE: NodeId = NodeId(0);
/// Values on each side of an operator.
const VALUES: usize = 20_000;
/// What is less than this part of all that a statement takes is no loop over its values.
const PART_MAX: u32 = 4;
/// Steps of a computation that takes about 8 ms. No statement is blamed for a shorter poll: a copy of all bytes, the
/// first touch of their memory, a new segment of the log, which the simulated disk fills with zeros.
const STEPS: u64 = 8_000_000;
const QUORUM: u16 = 4;
/// Requests that a client sends at once.
const FLOOD_REQUESTS: usize = 40_000;

fn joined(begin: &str, separator: &str, end: &str, value: impl Fn(usize) -> String) -> String {
    let values: Vec<String> = (0..VALUES).map(value).collect();
    format!("{begin}{}{end}", values.join(separator))
}

/// Statements, each with a name, in an order in which they can run.
type Statements = Vec<(&'static str, String)>;

/// Changes of collections.
fn changes_of_collections() -> Statements {
    let number = |n: usize| n.to_string();
    let list = joined("[", ",", "]", number);
    let set = joined("{", ",", "}", number);
    let map = joined("{", ",", "}", |n| format!("{n}:{n}"));
    let few = VALUES / 10;
    let changes = |change: &dyn Fn(usize) -> String| (0..few).map(change).collect::<Vec<_>>().join(",");
    let row = "WHERE k = 1 AND c = 1";
    vec![
        (
            "a list, a set and a map",
            format!("INSERT INTO ks.t (k, c, l, s, m) VALUES (1, 1, {list}, {set}, {map})"),
        ),
        (
            "again over them",
            format!("INSERT INTO ks.t (k, c, l, s, m) VALUES (1, 1, {list}, {set}, {map})"),
        ),
        ("frozen", format!("INSERT INTO ks.t (k, c, f) VALUES (1, 1, {list})")),
        (
            "JSON",
            format!("INSERT INTO ks.t JSON '{{\"k\": 1, \"c\": 2, \"l\": {list}, \"f\": {list}}}'"),
        ),
        ("list and more", format!("UPDATE ks.t SET l = l + {list} {row}")),
        ("more and list", format!("UPDATE ks.t SET l = {list} + l {row}")),
        ("list less list", format!("UPDATE ks.t SET l = l - {list} {row}")),
        ("a list again", format!("UPDATE ks.t SET l = {list} {row}")),
        ("set and more", format!("UPDATE ks.t SET s = s + {set} {row}")),
        ("set less set", format!("UPDATE ks.t SET s = s - {{1,2,3}} {row}")),
        ("map and more", format!("UPDATE ks.t SET m = m + {map} {row}")),
        ("map less keys", format!("UPDATE ks.t SET m = m - {{1,2,3}} {row}")),
        (
            "elements of a list",
            format!("UPDATE ks.t SET {} {row}", changes(&|n| format!("l[{n}] = {n}"))),
        ),
        (
            "entries of a map",
            format!("UPDATE ks.t SET {} {row}", changes(&|n| format!("m[{n}] = {n}"))),
        ),
        (
            "deleted elements",
            format!("DELETE {} FROM ks.t {row}", changes(&|_| "l[0]".to_owned())),
        ),
        (
            "deleted entries",
            format!("DELETE {} FROM ks.t {row}", changes(&|n| format!("m[{n}]"))),
        ),
    ]
}

/// Reads of collections, and conditions on them.
fn reads_of_collections() -> Statements {
    let number = |n: usize| n.to_string();
    let list = joined("[", ",", "]", number);
    let set = joined("{", ",", "}", number);
    let map = joined("{", ",", "}", |n| format!("{n}:{n}"));
    let names = joined("(", ",", ")", number);
    let row = "WHERE k = 1 AND c = 1";
    vec![
        ("read", "SELECT * FROM ks.t WHERE k = 1".to_owned()),
        ("read as JSON", "SELECT JSON * FROM ks.t WHERE k = 1".to_owned()),
        (
            "a slice",
            format!("SELECT s[0..{VALUES}], m[5..{VALUES}] FROM ks.t {row}"),
        ),
        (
            "contains",
            "SELECT c FROM ks.t WHERE k = 1 AND l CONTAINS -1 ALLOW FILTERING".to_owned(),
        ),
        (
            "contains key",
            "SELECT c FROM ks.t WHERE k = 1 AND m CONTAINS KEY -1 ALLOW FILTERING".to_owned(),
        ),
        (
            "equal",
            format!("SELECT c FROM ks.t WHERE k = 1 AND f = {list} ALLOW FILTERING"),
        ),
        ("if equal", format!("UPDATE ks.t SET v = 1 {row} IF s = {set}")),
        ("if equal map", format!("UPDATE ks.t SET v = 1 {row} IF m = {map}")),
        (
            "if an entry in",
            format!("UPDATE ks.t SET v = 1 {row} IF m[1] IN {names}"),
        ),
        ("if in", format!("UPDATE ks.t SET v = 1 {row} IF v IN {names}")),
    ]
}

/// Changes and reads of many rows and partitions.
fn many_rows() -> Statements {
    let number = |n: usize| n.to_string();
    let names = joined("(", ",", ")", number);
    let few = VALUES / 10;
    let rows = |begin: &str, row: &dyn Fn(usize) -> String| {
        let rows: String = (0..few).map(row).collect();
        format!("BEGIN {begin}BATCH {rows}APPLY BATCH")
    };
    vec![
        (
            "many rows",
            rows("UNLOGGED ", &|n| {
                format!("INSERT INTO ks.w (k, c, v) VALUES (1, {n}, 1); ")
            }),
        ),
        (
            "many partitions",
            rows("", &|n| format!("INSERT INTO ks.w (k, c, v) VALUES ({n}, 1, 1); ")),
        ),
        (
            "many ranges",
            rows("UNLOGGED ", &|n| {
                format!("DELETE FROM ks.w WHERE k = 5 AND c > {} AND c < {}; ", 2 * n, 2 * n + 2)
            }),
        ),
        (
            "many ranges, the last first",
            rows("UNLOGGED ", &|n| {
                let n = few - n;
                format!("DELETE FROM ks.w WHERE k = 6 AND c > {} AND c < {}; ", 2 * n, 2 * n + 2)
            }),
        ),
        (
            "many conditions",
            rows("", &|n| {
                format!("INSERT INTO ks.w (k, c, v) VALUES (1, {n}, 1) IF NOT EXISTS; ")
            }),
        ),
        (
            "rows by name",
            format!("SELECT c FROM ks.w WHERE k = 1 AND c IN {names}"),
        ),
        (
            "rows by tuple",
            joined("SELECT c FROM ks.w WHERE k = 1 AND (c) IN (", ",", ")", |n| {
                format!("({n})")
            }),
        ),
        (
            "partitions by name",
            format!(
                "SELECT c FROM ks.w WHERE k IN ({})",
                (0..few).map(number).collect::<Vec<_>>().join(",")
            ),
        ),
        (
            "filtered by values",
            format!("SELECT c FROM ks.w WHERE k = 1 AND v IN {names} ALLOW FILTERING"),
        ),
        (
            "rows of several partitions in order",
            format!("SELECT c FROM ks.w WHERE k IN (1, 2) AND c IN {names} ORDER BY c DESC"),
        ),
        ("deleted rows", format!("DELETE FROM ks.w WHERE k = 2 AND c IN {names}")),
        (
            "deleted partitions",
            format!(
                "DELETE FROM ks.w WHERE k IN ({})",
                (0..few).map(number).collect::<Vec<_>>().join(",")
            ),
        ),
        (
            "very many deleted partitions",
            format!("DELETE FROM ks.w WHERE k IN {names}"),
        ),
        ("counted", "SELECT count(*) FROM ks.w".to_owned()),
    ]
}

/// Combinations of the values of several columns, patterns, and numbers of very many digits.
fn products_patterns_and_numbers() -> Statements {
    let number = |n: usize| n.to_string();
    let few = |value: &dyn Fn(usize) -> String| (0..300).map(value).collect::<Vec<_>>().join(",");
    let (numbers, texts) = (few(&number), few(&|n| format!("'{n}'")));
    let all = joined("", ",", "", number);
    let row = "a = '1' AND b = 1 AND c = '1' AND d = 1";
    let (letters, odd) = ("a".repeat(1_000_000), "a_".repeat(2_000));
    let (ones, half) = ("1".repeat(9_000), "1".repeat(4_500));
    vec![
        (
            "partitions by two columns",
            format!(
                "SELECT v FROM ks.p WHERE a IN ({texts}) AND b IN ({numbers}) AND token(a, b) > 1 AND token(a, b) < 3"
            ),
        ),
        (
            "rows by two columns",
            format!("SELECT v FROM ks.p WHERE a = '1' AND b = 1 AND c IN ('1', '2') AND d IN ({all})"),
        ),
        (
            "deleted rows by two columns",
            format!("DELETE FROM ks.p WHERE a = '1' AND b = 1 AND c IN ('1', '2', '3') AND d IN ({all})"),
        ),
        (
            "long values",
            format!(
                "INSERT INTO ks.p (a, b, c, d, v, x, n, e) VALUES ('1', 1, '1', 1, 1, '{letters}', {ones}, {half}.{half})"
            ),
        ),
        (
            "like a text",
            format!(
                "SELECT v FROM ks.p WHERE a = '1' AND x LIKE '%{}b' ALLOW FILTERING",
                &letters[..4_000]
            ),
        ),
        (
            "like a text within",
            format!(
                "SELECT v FROM ks.p WHERE a = '1' AND x LIKE '%{}b%' ALLOW FILTERING",
                &letters[..4_000]
            ),
        ),
        (
            "like a text of any characters",
            format!("SELECT v FROM ks.p WHERE a = '1' AND x LIKE '%{odd}b%' ALLOW FILTERING"),
        ),
        (
            "like many texts",
            format!(
                "SELECT v FROM ks.p WHERE a = '1' AND x LIKE '{}b' ALLOW FILTERING",
                "%a".repeat(2_000)
            ),
        ),
        (
            "if like",
            format!("UPDATE ks.p SET v = 2 WHERE {row} IF x LIKE '%{}b%'", &letters[..4_000]),
        ),
        (
            "if like any characters",
            format!("UPDATE ks.p SET v = 2 WHERE {row} IF x LIKE '%{odd}b%'"),
        ),
        (
            "arithmetic of long numbers",
            format!("SELECT n * n, n / 7, n % 7, e * e, e / e, e % e, e + n FROM ks.p WHERE {row}"),
        ),
        (
            "conversions of long numbers",
            format!(
                "SELECT CAST(e AS int), CAST(e AS varint), CAST(e AS double), CAST(n AS text) FROM ks.p WHERE {row}"
            ),
        ),
    ]
}

/// What [`STEPS`] take on this machine, at best.
#[expect(clippy::disallowed_methods, reason = "polls are measured in real time")]
fn calibrated() -> Duration {
    let time = |_| {
        let began = std::time::Instant::now();
        let mut random = SplitMix64::new(1);
        for _ in 0..STEPS {
            std::hint::black_box(random.draw());
        }
        began.elapsed()
    };
    (0..5).map(time).min().expect("several")
}

/// What of a statement kept its shard too long: the longest poll, and all together.
fn too_long(polls: &[Duration], short: Duration) -> Option<(Duration, Duration)> {
    let (longest, all) = (
        polls.iter().max().copied().unwrap_or_default(),
        polls.iter().sum::<Duration>(),
    );
    (longest > short && longest > all / PART_MAX).then_some((longest, all))
}

fn tables(copies: u32) -> [String; 4] {
    [
        format!("CREATE KEYSPACE ks WITH replication = {{'class': 'NetworkTopologyStrategy', 'replication_factor': {copies}}}"),
        "CREATE TABLE ks.t (k int, c int, v int, l list<int>, s set<int>, m map<int, int>, f frozen<list<int>>, PRIMARY KEY (k, c))".to_owned(),
        "CREATE TABLE ks.w (k int, c int, v int, PRIMARY KEY (k, c))".to_owned(),
        "CREATE TABLE ks.p (a text, b int, c text, d int, v int, x text, n varint, e decimal, PRIMARY KEY ((a, b), c, d))"
            .to_owned(),
    ]
}

fn statements() -> impl Iterator<Item = (&'static str, String)> {
    [
        changes_of_collections(),
        reads_of_collections(),
        many_rows(),
        products_patterns_and_numbers(),
    ]
    .into_iter()
    .flatten()
}

/// What kept a shard too long: the statement, the machine, the longest poll, and all polls together.
type Kept = BTreeMap<(&'static str, NodeId), (Duration, Duration)>;

/// How often the statements are played at most.
const PLAYS: usize = 4;

/// Fails if a statement keeps a shard. All plays have one seed and do the same. Only the time of a poll differs: other
/// tests use the processor's caches too. What keeps a shard does so in each play.
fn check(mut play: impl FnMut() -> Kept) {
    let mut kept = play();
    for _ in 1..PLAYS {
        if kept.is_empty() {
            return;
        }
        let again = play();
        kept.retain(|which, _| again.contains_key(which));
    }
    assert!(kept.is_empty(), "statements that kept a shard: {kept:#?}");
}

async fn story(address: SocketAddr, short: Duration) -> Kept {
    let mut client = loop {
        match Client::connect(address).await {
            Ok(client) => break client,
            Err(_) => runtime::sleep(Duration::from_millis(5)).await,
        }
    };
    for text in tables(1) {
        let answer = client.ask(&text).await.expect("the node answers");
        assert!(!matches!(answer, Answer::Error { .. }), "{text}: {answer:?}");
    }
    let mut kept = Kept::new();
    for (name, text) in statements() {
        drop(runtime::sim::measured_polls(NODE));
        let answer = client.ask(&text).await.expect("the node answers");
        assert!(!matches!(answer, Answer::Error { .. }), "{name}: {answer:?}");
        let polls = runtime::sim::measured_polls(NODE);
        kept.extend(too_long(&polls, short).map(|long| ((name, NODE), long)));
    }
    kept
}

/// Very many requests that come in a few bytes: segments of equal frames, compressed.
async fn flood(address: SocketAddr, short: Duration) -> Kept {
    let mut client = loop {
        match Client::connect(address).await {
            Ok(client) => break client,
            Err(_) => runtime::sleep(Duration::from_millis(5)).await,
        }
    };
    for text in tables(1) {
        client.ask(&text).await.expect("the node answers");
    }
    let mut sender = Client::connect_with_lz4(address).await.expect("the node answers");
    let request = query_of_version_5(1, "INSERT INTO ks.w (k, c, v) VALUES (1, 1, 1)");
    let mut segments = Vec::new();
    cql_protocol::encode_segments(&request.repeat(FLOOD_REQUESTS), true, &mut segments);
    assert!(
        segments.len() < 16 << 10,
        "one read of the socket: {} bytes",
        segments.len()
    );
    drop(runtime::sim::measured_polls(NODE));
    sender.send(segments).await.expect("the node listens");
    runtime::sleep(Duration::from_secs(1)).await;
    let answer = client.ask("SELECT v FROM ks.w").await.expect("the node answers");
    assert!(
        matches!(&answer, Answer::Rows(rows, _) if rows.len() == 1),
        "it wrote: {answer:?}"
    );
    let polls = runtime::sim::measured_polls(NODE);
    too_long(&polls, short)
        .map(|long| (("many requests", NODE), long))
        .into_iter()
        .collect()
}

/// Plays the story with a node of so many shards.
fn play(shards: u32, seed: u64) -> Kept {
    play_with(shards, seed, |address, short| Box::pin(story(address, short)))
}

/// What a client does with the node at an address, and what of it kept a shard.
type Told = fn(SocketAddr, Duration) -> Pin<Box<dyn Future<Output = Kept>>>;

fn play_with(shards: u32, seed: u64, story: Told) -> Kept {
    let short = calibrated();
    let setup = Setup {
        shards,
        durability: Durability::Periodic(Duration::from_millis(10)),
        shard_bytes: 4 << 30,
        // The simulated disk fills a new segment with zeros in one poll.
        segment_bytes: 4 << 20,
        log_bytes: 8 << 30,
    };
    let told: Rc<RefCell<Option<Kept>>> = Rc::default();
    let end = told.clone();
    let mut machines = Machines::new(seed, &setup, move |address| {
        let end = end.clone();
        Box::pin(async move {
            let kept = story(address, short).await;
            *end.borrow_mut() = Some(kept);
        })
    });
    assert_eq!(machines.node, NODE);
    let clients = machines.clients;
    machines.sim.run_until_ended(clients, Duration::from_mins(30));
    let kept = told.take();
    kept.unwrap_or_else(|| panic!("the story did not come to its end: {:?}", machines.failure()))
}

#[test]
fn no_connection_keeps_its_shard_however_many_requests_it_sends_at_once() {
    check(|| play_with(1, 1, |address, short| Box::pin(flood(address, short))));
}

#[test]
fn no_statement_keeps_its_shard_however_many_values_it_has() {
    check(|| play(1, 1));
}

/// The client's connection is of one shard, the partition of the other.
#[test]
fn no_statement_keeps_another_shard() {
    check(|| play(2, 1));
    check(|| play(2, 2));
}

#[test]
fn no_statement_keeps_the_shard_of_a_replica() {
    check(play_on_three);
}

fn play_on_three() -> Kept {
    let mut setup = Story::setup(3);
    setup.shard_bytes = 4 << 30;
    setup.segment_bytes = vec![4 << 20; 3];
    let mut story = Story::begin(3, &setup);
    for text in tables(3) {
        let answer = story.ask(0, &text, QUORUM);
        assert!(
            !matches!(answer, None | Some(Answer::Error { .. })),
            "{text}: {answer:?}"
        );
    }
    let machines: Vec<NodeId> = (0..3).map(|node| story.cluster.machine(node)).collect();
    let (mut kept, short) = (Kept::new(), calibrated());
    for (name, text) in statements() {
        for machine in &machines {
            drop(story.cluster.sim.measured_polls(*machine));
        }
        let answer = story.ask(0, &text, QUORUM);
        assert!(
            !matches!(answer, None | Some(Answer::Error { .. })),
            "{name}: {answer:?}"
        );
        for machine in &machines {
            let polls = story.cluster.sim.measured_polls(*machine);
            kept.extend(too_long(&polls, short).map(|long| ((name, *machine), long)));
        }
    }
    kept
}
