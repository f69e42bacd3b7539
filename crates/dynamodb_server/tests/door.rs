//! Clients of the front door on a simulated shard: what they send, and what they get.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use dynamodb_server::{
    Api, ApiAnswer, ApiRequest, Nodes, Parts, Secret, Secrets, SecretsUnavailable, Server, Settings,
};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::{GzEncoder, ZlibEncoder};
use front::{ClientMemory, Endpoints, Front, Listeners, NodeState, Options};
use runtime::Instant;
use runtime::net::TcpStream;
use runtime::sim::Simulation;

const PORT: u16 = 8000;
const EXAMPLE: &str = "AKIDEXAMPLE";
/// From the time of the simulation to that of the signed requests.
const SIGNED_SKEW_US: i64 = (1_709_251_198 - 1_767_225_600) * 1_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// Answers with what it was asked. `Sleep` takes two seconds, `Zeros` answers with as many bytes as the body says.
#[derive(Clone, Default)]
struct Echo(Rc<RefCell<Vec<String>>>);

impl Api for Echo {
    fn execute(&self, request: ApiRequest) -> Pin<Box<dyn Future<Output = ApiAnswer>>> {
        let (echo, body) = (self.clone(), request.body);
        Box::pin(async move {
            let text = String::from_utf8_lossy(&body[..body.len().min(40)]).into_owned();
            echo.0.borrow_mut().push(format!("{} begins", request.operation));
            let body = match request.operation.as_str() {
                "Zeros" => vec![b'0'; text.parse().expect("a number")],
                "Sleep" => {
                    runtime::sleep(2 * SECOND).await;
                    b"slept".to_vec()
                }
                "Whole" => body,
                operation => format!("{operation} {} {text}", body.len()).into_bytes(),
            };
            echo.0.borrow_mut().push(format!("{} ends", request.operation));
            ApiAnswer { status: 200, body }
        })
    }
}

/// A table of keys; a read takes some time, and may fail.
#[derive(Default)]
struct Keys {
    secrets: RefCell<HashMap<String, Secret>>,
    time: Cell<Duration>,
    fails: Cell<bool>,
    /// The keys that were read.
    reads: RefCell<Vec<String>>,
}

impl Keys {
    fn with_examples() -> Rc<Self> {
        let keys = Self::default();
        keys.make_example();
        keys.secrets
            .borrow_mut()
            .insert("cassandra".to_owned(), Secret::Expired);
        Rc::new(keys)
    }

    fn make_example(&self) {
        let secret = Secret::Known("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned());
        self.secrets.borrow_mut().insert(EXAMPLE.to_owned(), secret);
    }

    /// How often a key was read.
    fn reads_of(&self, access_key: &str) -> usize {
        self.reads.borrow().iter().filter(|read| *read == access_key).count()
    }
}

struct Table(Rc<Keys>);

impl Secrets for Table {
    fn secret(
        &self,
        access_key: &str,
        deadline: Instant,
    ) -> Pin<Box<dyn Future<Output = Result<Secret, SecretsUnavailable>>>> {
        let keys = self.0.clone();
        keys.reads.borrow_mut().push(access_key.to_owned());
        let secret = keys
            .secrets
            .borrow()
            .get(access_key)
            .cloned()
            .unwrap_or(Secret::Unknown);
        Box::pin(async move {
            let read = runtime::timeout_at(deadline, runtime::sleep(keys.time.get())).await;
            if read.is_err() || keys.fails.get() {
                return Err(SecretsUnavailable("no replica answers".to_owned()));
            }
            Ok(secret)
        })
    }
}

struct ThreeNodes;

impl Nodes for ThreeNodes {
    fn addresses(&self, datacenter: Option<&str>, rack: Option<&str>) -> Vec<String> {
        match (datacenter, rack) {
            (Some("dc2"), _) => vec!["10.0.0.9".to_owned()],
            (_, Some("r1")) => vec!["10.0.0.1".to_owned()],
            _ => vec!["10.0.0.1".to_owned(), "10.0.0.2".to_owned()],
        }
    }
}

/// A shard with the front door, and its address.
struct Shard {
    front: Rc<Front>,
    server: Rc<Server>,
    echo: Echo,
    keys: Rc<Keys>,
    address: SocketAddr,
}

impl Shard {
    async fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.address).await.expect("it listens");
        Client(stream, Vec::new())
    }

    /// The answers to requests of a new connection, until the server has nothing to add for a second or ends the
    /// connection.
    async fn ask(&self, request: &[u8]) -> Vec<Answer> {
        let mut client = self.connect().await;
        client.send(request).await;
        client.answers().await
    }

    /// The status and the type of the error of so many answers, without waiting for more.
    async fn first_kinds(&self, request: &[u8], count: usize) -> Vec<String> {
        let mut client = self.connect().await;
        client.send(request).await;
        let mut kinds = Vec::new();
        for _ in 0..count {
            kinds.push(client.answer(30 * SECOND).await.expect("it is answered").kind());
        }
        kinds
    }

    async fn kind(&self, request: &[u8]) -> String {
        self.first_kinds(request, 1).await.remove(0)
    }
}

struct Client(TcpStream, Vec<u8>);

/// An answer as it came.
#[derive(Debug)]
struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    /// The status, and the type of the error.
    fn kind(&self) -> String {
        let text = self.text();
        let kind = text.split_once('#').map_or("", |(_, rest)| rest);
        let kind = kind.split('"').next().unwrap_or_default();
        format!("{} {kind}", self.status()).trim_end().to_owned()
    }

    fn status(&self) -> u16 {
        self.head[9..12].parse().expect("a status")
    }

    fn header(&self, name: &str) -> Option<&str> {
        let start = format!("{name}: ");
        self.head.lines().find_map(|line| line.strip_prefix(start.as_str()))
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Client {
    async fn send(&mut self, bytes: &[u8]) {
        // A server that refuses a request may not take the rest of it.
        let _ = self.0.write_all(bytes.to_vec()).await;
    }

    async fn answer(&mut self, patience: Duration) -> Option<Answer> {
        loop {
            if let Some(end) = self.1.windows(4).position(|four| four == b"\r\n\r\n") {
                let head = String::from_utf8(self.1[..end + 2].to_vec()).expect("heads are text");
                let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
                let length = length.map_or(0, |length| length.parse().expect("a number"));
                if self.1.len() >= end + 4 + length {
                    let body = self.1[end + 4..end + 4 + length].to_vec();
                    self.1.drain(..end + 4 + length);
                    return Some(Answer { head, body });
                }
            }
            let read = runtime::timeout(patience, self.0.read(Vec::with_capacity(64 << 10)));
            match read.await {
                Ok((Ok(1..), bytes)) => self.1.extend(bytes),
                _ => return None,
            }
        }
    }

    async fn answers(&mut self) -> Vec<Answer> {
        let mut answers = Vec::new();
        while let Some(answer) = self.answer(5 * SECOND).await {
            answers.push(answer);
        }
        answers
    }

    /// Whether the server has ended the connection.
    async fn is_ended(&mut self, patience: Duration) -> bool {
        let read = runtime::timeout(patience, self.0.read(Vec::with_capacity(100))).await;
        matches!(read, Ok((Ok(0) | Err(_), _)))
    }
}

fn on_shard(test: impl AsyncFn(Shard) + Copy + 'static) {
    on_shard_at(0, test);
}

/// Runs a test where the wall clock is ahead.
fn on_shard_at(skew_us: i64, test: impl AsyncFn(Shard) + Copy + 'static) {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    sim.set_clock_skew_us(node, skew_us);
    let address = SocketAddr::new(sim.address(node), PORT);
    sim.start(node, move |_| {
        Box::pin(async move {
            let options = Options {
                connections_max: 100,
                handshakes_max: front::HANDSHAKES_MAX,
                uninitialized_max: front::UNINITIALIZED_MAX,
                shards: 1,
                memory: ClientMemory::of_shard(1 << 30),
            };
            let front = Front::new(NodeState::new(1), options);
            let echo = Echo::default();
            let keys = Keys::with_examples();
            let parts = Parts {
                api: Rc::new(echo.clone()),
                secrets: Rc::new(Table(keys.clone())),
                nodes: Rc::new(ThreeNodes),
            };
            let server = Server::new(front.clone(), parts, Settings::default());
            let port = server.plain_port(endpoints(address));
            open(&port, address);
            test(Shard {
                front,
                server,
                echo,
                keys,
                address,
            })
            .await;
            drop(port);
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(600)), "it did not end");
}

fn endpoints(address: SocketAddr) -> Endpoints {
    Endpoints {
        protocol: "DynamoDB",
        address: Some(address),
        maintenance_socket: None,
        shard_aware_address: None,
        proxied_address: None,
        proxied_shard_aware_address: None,
    }
}

fn open(port: &Rc<dynamodb_server::Port>, address: SocketAddr) {
    let listeners = Listeners::bind(&endpoints(address)).expect("the port is free");
    front::listeners::open(port, listeners).expect("the port is free");
}

/// A request for an operation with more headers, each with its line end.
fn post(operation: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: node:8000\r\nContent-Type: application/x-amz-json-1.0\r\n\
         X-Amz-Target: DynamoDB_20120810.{operation}\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn texts(answers: &[Answer]) -> Vec<String> {
    answers
        .iter()
        .map(|answer| format!("{} {}", answer.status(), answer.text()))
        .collect()
}

#[test]
fn an_operation_is_answered_with_its_checksum_and_an_id() {
    on_shard(async |shard| {
        let mut client = shard.connect().await;
        for number in 0..3 {
            client
                .send(&post("GetItem", "", format!("{{\"k\": {number}}}").as_bytes()))
                .await;
            let answer = client.answer(SECOND).await.expect("an answer");
            assert_eq!(
                texts(std::slice::from_ref(&answer)),
                [format!("200 GetItem 8 {{\"k\": {number}}}")]
            );
            let crc = crc32fast::hash(&answer.body).to_string();
            assert_eq!(answer.header("x-amz-crc32"), Some(crc.as_str()));
            assert_eq!(answer.header("Content-Type"), Some("application/x-amz-json-1.0"));
            assert_eq!(answer.header("x-amzn-RequestId").map(str::len), Some(52));
            assert_eq!(answer.header("Date").map(str::len), Some(29));
            assert_eq!((answer.header("Connection"), answer.header("Server")), (None, None));
        }
        let listed = shard.front.node.clients.list();
        assert_eq!((listed[0].protocol, listed[0].request_count), ("DynamoDB", 3));
        shard.server.set_settings(Settings {
            server_header: Some("ceto".to_owned()),
            sends_date: false,
            sends_content_type: false,
            ..Settings::default()
        });
        client.send(&post("GetItem", "Connection: close\r\n", b"{}")).await;
        let answer = client.answer(SECOND).await.expect("an answer");
        assert_eq!(answer.header("Server"), Some("ceto"));
        assert_eq!((answer.header("Date"), answer.header("Content-Type")), (None, None));
        assert_eq!(answer.header("Connection"), Some("close"));
        assert!(client.is_ended(SECOND).await, "the client asked for an end");
        let counted = shard.server.counts().operations().find(|(_, count)| *count > 0);
        assert_eq!(counted, Some(("GetItem", 4)));
    });
}

#[test]
fn requests_that_are_sent_ahead_are_done_one_by_one_and_answered_in_order() {
    on_shard(async |shard| {
        let mut ahead = post("Sleep", "", b"{}");
        ahead.extend(post("GetItem", "", b"1"));
        ahead.extend(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n");
        ahead.extend(post("GetItem", "", b"22"));
        let answers = shard.ask(&ahead).await;
        assert_eq!(
            texts(&answers),
            ["200 slept", "200 GetItem 1 1", "200 healthy: here", "200 GetItem 2 22"]
        );
        let order = shard.echo.0.borrow().clone();
        assert_eq!(order[..3], ["Sleep begins", "Sleep ends", "GetItem begins"]);
        // Nothing keeps the operations of other connections.
        let (mut first, mut second) = (shard.connect().await, shard.connect().await);
        let began = runtime::now();
        first.send(&post("Sleep", "", b"{}")).await;
        second.send(&post("Sleep", "", b"{}")).await;
        assert!(first.answer(5 * SECOND).await.is_some() && second.answer(5 * SECOND).await.is_some());
        assert!(began.elapsed() < 3 * SECOND, "one waits for the other");
    });
}

#[test]
fn bodies_arrive_in_pieces_in_chunks_and_after_100_continue() {
    on_shard(async |shard| {
        let mut client = shard.connect().await;
        let request = post("GetItem", "", &[b'x'; 3000]);
        for piece in request.chunks(700) {
            client.send(piece).await;
            runtime::sleep(SECOND).await;
        }
        let answer = client.answer(SECOND).await.expect("an answer");
        assert!(answer.text().starts_with("GetItem 3000 xxx"), "{}", answer.text());
        let head = "POST / HTTP/1.1\r\nContent-Type: application/json\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\n";
        client
            .send(format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes())
            .await;
        for _ in 0..200 {
            client.send(&[b"400\r\n", &[b'y'; 1024][..], b"\r\n"].concat()).await;
        }
        client.send(b"0\r\n\r\n").await;
        let answer = client.answer(SECOND).await.expect("an answer");
        assert!(answer.text().starts_with("PutItem 204800 yyy"), "{}", answer.text());
        client
            .send(format!("{head}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n").as_bytes())
            .await;
        let interim = client.answer(SECOND).await.expect("an interim answer");
        assert_eq!(interim.head, "HTTP/1.1 100 Continue\r\n");
        client.send(b"{}").await;
        assert_eq!(texts(&client.answers().await), ["200 PutItem 2 {}"]);
        assert_eq!(shard.front.memory.taken().requests, 0, "memory is not given back");
        assert_eq!(shard.front.memory.taken().frames, 0, "memory is not given back");
    });
}

#[test]
fn compressed_bodies_are_taken_and_bombs_are_refused() {
    on_shard(async |shard| {
        let body = "{\"a\": \"long\"}".repeat(1000);
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        gzip.write_all(body.as_bytes()).expect("memory");
        let gzip = gzip.finish().expect("memory");
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::best());
        zlib.write_all(body.as_bytes()).expect("memory");
        let zlib = zlib.finish().expect("memory");
        for (coding, sent) in [("gzip", &gzip), ("deflate", &zlib)] {
            let request = post("Whole", &format!("Content-Encoding: {coding}\r\n"), sent);
            assert_eq!(texts(&shard.ask(&request).await), [format!("200 {body}")]);
        }
        let request = post("Whole", "Accept-Encoding: gzip\r\n", body.as_bytes());
        let answer = shard.ask(&request).await.remove(0);
        assert_eq!(answer.header("Content-Encoding"), Some("gzip"));
        assert!(answer.body.len() < body.len() / 10, "{} bytes", answer.body.len());
        let crc = crc32fast::hash(&answer.body).to_string();
        assert_eq!(answer.header("x-amz-crc32"), Some(crc.as_str()));
        let mut plain = String::new();
        GzDecoder::new(&answer.body[..])
            .read_to_string(&mut plain)
            .expect("it is gzip");
        assert_eq!(plain, body);
        // A short answer is not worth it.
        let short = shard.ask(&post("GetItem", "Accept-Encoding: gzip\r\n", b"{}")).await;
        assert_eq!(short[0].header("Content-Encoding"), None);

        let mut bomb = ZlibEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&vec![0; 17 << 20]).expect("memory");
        let bomb = bomb.finish().expect("memory");
        let refused = shard.ask(&post("Whole", "Content-Encoding: deflate\r\n", &bomb)).await;
        assert_eq!(refused[0].status(), 413, "{}", refused[0].text());
        let damaged = shard
            .ask(&post("Whole", "Content-Encoding: gzip\r\n", b"no gzip at all"))
            .await;
        assert_eq!(damaged[0].status() / 100, 4, "{}", damaged[0].text());
        let unknown = shard.ask(&post("Whole", "Content-Encoding: br\r\n", b"x")).await;
        assert_eq!(unknown[0].status(), 415);
        assert_eq!(shard.front.memory.taken().requests, 0, "memory is not given back");
    });
}

#[test]
fn what_cannot_be_read_is_refused_and_ends_the_connection() {
    on_shard(async |shard| {
        let long_head = format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(20_000));
        let cases = [
            ("POST / HTTP/1.1\r\nContent-Length: 16777217\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n", 400),
            (&long_head, 431),
            ("\u{16}\u{3}\u{1}hello", 400),
        ];
        for (request, status) in cases {
            let mut client = shard.connect().await;
            client.send(request.as_bytes()).await;
            let answer = client.answer(SECOND).await.expect("an answer");
            assert_eq!((answer.status(), answer.header("Connection")), (status, Some("close")));
            assert!(answer.text().contains("__type"), "{}", answer.text());
            assert!(client.is_ended(10 * SECOND).await, "it stays open");
        }
        // Half a request, short and long, and then nothing.
        for request in ["GET / HT", "POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\nx"] {
            let mut client = shard.connect().await;
            client.send(request.as_bytes()).await;
            let answer = client.answer(60 * SECOND).await.expect("an answer");
            assert_eq!(answer.status(), 408, "{request}");
            assert!(client.is_ended(10 * SECOND).await, "it stays open");
        }
        // A connection that waits between requests stays.
        let mut idle = shard.connect().await;
        assert!(!idle.is_ended(100 * SECOND).await);
        assert_eq!(shard.front.memory.taken().frames, 0, "memory is not given back");
    });
}

#[test]
fn a_long_body_waits_for_memory_in_the_socket() {
    on_shard(async |shard| {
        // The memory of long requests is a twentieth of a gigabyte, half of it for long ones.
        let head = "POST / HTTP/1.1\r\nContent-Length: 16000000\r\n\r\n";
        let mut waiting = Vec::new();
        for _ in 0..10 {
            let mut client = shard.connect().await;
            client.send(head.as_bytes()).await;
            waiting.push(client);
        }
        runtime::sleep(SECOND).await;
        let (taken, limits) = (shard.front.memory.taken(), shard.front.memory.limits());
        assert!((16_000_000..=limits.frames).contains(&taken.frames), "{taken:?}");
        runtime::sleep(100 * SECOND).await;
        let mut statuses = Vec::new();
        for client in &mut waiting {
            statuses.push(client.answer(10 * SECOND).await.expect("an answer").status());
        }
        assert!(statuses.contains(&408) && statuses.contains(&503), "{statuses:?}");
        assert_eq!(shard.front.memory.taken().frames, 0, "memory is not given back");
    });
}

#[test]
fn what_was_read_is_answered_before_the_node_stops_serving() {
    on_shard(async |shard| {
        let (mut client, mut idle) = (shard.connect().await, shard.connect().await);
        client.send(&post("Sleep", "", b"{\"slow\": true}")).await;
        runtime::sleep(SECOND).await;
        let running = shard.front.running_requests();
        assert_eq!(running.len(), 1, "{running:?}");
        assert_eq!(running[0].text, "Sleep {\"slow\": true}");
        assert!(shard.front.memory.taken().requests >= front::TASK_BYTES);
        shard.front.close(10 * SECOND).await;
        assert_eq!(texts(&client.answers().await), ["200 slept"]);
        assert!(idle.is_ended(SECOND).await);
        assert_eq!(
            (shard.front.connections(), shard.front.running_requests()),
            (0, Vec::new())
        );
        assert!(TcpStream::connect(shard.address).await.is_err(), "it listens");
        shard.front.reopen().expect("the port is free");
        assert_eq!(
            texts(&shard.ask(&post("GetItem", "", b"{}")).await),
            ["200 GetItem 2 {}"]
        );
    });
}

#[test]
fn a_client_that_leaves_gives_everything_back() {
    on_shard(async |shard| {
        let mut client = shard.connect().await;
        client.send(&post("Sleep", "", b"{}")).await;
        runtime::sleep(SECOND).await;
        drop(client);
        runtime::sleep(5 * SECOND).await;
        assert_eq!(*shard.echo.0.borrow(), ["Sleep begins", "Sleep ends"], "it was cut off");
        assert_eq!((shard.front.connections(), shard.front.memory.taken().requests), (0, 0));
        // A client that reads nothing is not read from.
        let mut client = shard.connect().await;
        for _ in 0..20 {
            client.send(&post("Zeros", "", b"4000000")).await;
        }
        runtime::sleep(5 * SECOND).await;
        let begun = shard
            .echo
            .0
            .borrow()
            .iter()
            .filter(|line| *line == "Zeros begins")
            .count();
        assert!((1..10).contains(&begun), "{begun} answers wait");
        drop(client);
        runtime::sleep(30 * SECOND).await;
        assert_eq!((shard.front.connections(), shard.front.memory.taken().unsent), (0, 0));
    });
}

#[test]
fn pages_beside_the_operations() {
    on_shard(async |shard| {
        let get = async |text: &str| shard.ask(format!("{text}\r\n\r\n").as_bytes()).await.remove(0);
        assert_eq!(get("GET / HTTP/1.1\r\nHost: a:1").await.text(), "healthy: a:1");
        let own = format!("healthy: {}", shard.address);
        assert_eq!(get("GET / HTTP/1.0").await.text(), own);
        let nodes = get("GET /localnodes HTTP/1.1").await;
        assert_eq!(nodes.text(), r#"["10.0.0.1","10.0.0.2"]"#);
        assert_eq!(get("GET /localnodes?rack=r1 HTTP/1.1").await.text(), r#"["10.0.0.1"]"#);
        assert_eq!(get("GET /localnodes?dc=dc2 HTTP/1.1").await.text(), r#"["10.0.0.9"]"#);
        let from_page = get("GET / HTTP/1.1\r\nOrigin: https://x").await;
        assert_eq!(from_page.header("Access-Control-Allow-Origin"), Some("*"));
        let preflight = get(
            "OPTIONS / HTTP/1.1\r\nOrigin: x\r\nAccess-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: x-amz-target",
        )
        .await;
        assert_eq!(preflight.status(), 200);
        assert_eq!(preflight.header("Access-Control-Allow-Methods"), Some("POST"));
        assert_eq!(preflight.header("Access-Control-Allow-Headers"), Some("x-amz-target"));
        let unknown = get("DELETE /x HTTP/1.1").await;
        assert_eq!(
            (unknown.status(), unknown.text().as_str()),
            (404, "<UnknownOperationException/>\n")
        );
        let without_target = shard.ask(b"POST / HTTP/1.1\r\n\r\n").await;
        assert_eq!(
            texts(&without_target),
            [r#"400 {"__type":"com.amazon.coral.service#UnknownOperationException"}"#]
        );
    });
}

/// A request that botocore has signed: by [`EXAMPLE`], by a key that has expired, and by one that is not known.
fn signed(number: usize) -> Vec<u8> {
    let line = include_str!("sigv4_vectors.txt").lines().nth(number);
    testkit::from_hex(line.and_then(|line| line.rsplit(' ').next()).expect("the request"))
}

/// A request with a part of it replaced.
fn changed(request: &[u8], from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(request.to_vec()).expect("it is text");
    assert!(text.contains(from), "{from} is not in the request");
    text.replace(from, to).into_bytes()
}

fn enforcing() -> Settings {
    Settings {
        enforces_authorization: true,
        ..Settings::default()
    }
}

fn warning() -> Settings {
    Settings {
        warns_authorization: true,
        ..Settings::default()
    }
}

#[test]
fn operations_are_signed_where_that_is_enforced() {
    on_shard_at(SIGNED_SKEW_US, async |shard| {
        shard.server.set_settings(enforcing());
        let refused = [
            (post("GetItem", "", b"{}"), "MissingAuthenticationTokenException"),
            (
                changed(&signed(0), "\r\n\r\n{}", "\r\n\r\n[]"),
                "InvalidSignatureException",
            ),
            (
                changed(&signed(0), "20240229T235958Z", "20240229T233958Z"),
                "InvalidSignatureException",
            ),
            (changed(&signed(0), "/us-east-1/", "/"), "IncompleteSignatureException"),
            (signed(1), "ExpiredTokenException"),
            (signed(2), "UnrecognizedClientException"),
            (changed(&signed(0), EXAMPLE, ""), "UnrecognizedClientException"),
            (
                changed(&signed(0), EXAMPLE, &"A".repeat(200)),
                "UnrecognizedClientException",
            ),
        ];
        for (request, kind) in &refused {
            let expected = format!("400 {kind}");
            let text = String::from_utf8_lossy(request);
            assert_eq!(shard.kind(request).await, expected, "{text}");
        }
        assert_eq!(
            shard.server.counts().authentication_failures.get(),
            refused.len() as u64
        );
        assert_eq!(shard.echo.0.borrow().len(), 0, "an operation ran");
        assert_eq!(shard.kind(&signed(0)).await, "200");
        // Pages need no signature.
        assert_eq!(shard.ask(b"GET / HTTP/1.0\r\n\r\n").await[0].status(), 200);
        assert_eq!(shard.keys.reads_of(""), 0, "what is no name of a key was looked up");
    });
}

#[test]
fn a_key_is_read_once_in_ten_seconds_and_one_that_does_not_exist_once_in_two() {
    on_shard_at(SIGNED_SKEW_US, async |shard| {
        shard.server.set_settings(enforcing());
        for _ in 0..5 {
            assert_eq!(shard.kind(&signed(0)).await, "200");
        }
        shard.keys.secrets.borrow_mut().remove(EXAMPLE);
        runtime::sleep(9 * SECOND).await;
        assert_eq!(shard.kind(&signed(0)).await, "200", "it is still remembered");
        assert_eq!(shard.keys.reads_of(EXAMPLE), 1);
        runtime::sleep(2 * SECOND).await;
        for _ in 0..5 {
            assert_eq!(shard.kind(&signed(0)).await, "400 UnrecognizedClientException");
        }
        assert_eq!(shard.keys.reads_of(EXAMPLE), 2);
        shard.keys.make_example();
        runtime::sleep(3 * SECOND).await;
        assert_eq!(shard.kind(&signed(0)).await, "200");
        assert_eq!(shard.keys.reads_of(EXAMPLE), 3);
        assert_eq!(shard.server.counts().access_key_lookups.get(), 3);
    });
}

#[test]
fn names_that_are_no_keys_do_not_displace_keys_and_are_not_all_remembered() {
    on_shard_at(SIGNED_SKEW_US, async |shard| {
        shard.server.set_settings(enforcing());
        assert_eq!(shard.kind(&signed(0)).await, "200");
        let guess = |number: u32| changed(&signed(0), EXAMPLE, &format!("GUESS{number}"));
        for from in (0..6000).step_by(500) {
            let guesses: Vec<u8> = (from..from + 500).flat_map(guess).collect();
            assert_eq!(shard.first_kinds(&guesses, 500).await.len(), 500);
        }
        assert_eq!(shard.kind(&signed(0)).await, "200");
        assert_eq!(shard.keys.reads_of(EXAMPLE), 1);
        // The newest is remembered, the oldest is not.
        shard.first_kinds(&[guess(5999), guess(0)].concat(), 2).await;
        assert_eq!(
            (shard.keys.reads_of("GUESS5999"), shard.keys.reads_of("GUESS0")),
            (1, 2)
        );
    });
}

#[test]
fn requests_that_need_a_key_at_the_same_time_share_one_read() {
    on_shard_at(SIGNED_SKEW_US, async |shard| {
        shard.server.set_settings(enforcing());
        shard.keys.time.set(SECOND);
        for (fails, expected, reads) in [(true, "503 ServiceUnavailableException", 1), (false, "200", 2)] {
            shard.keys.fails.set(fails);
            let mut clients = Vec::new();
            for _ in 0..3 {
                let mut client = shard.connect().await;
                client.send(&signed(0)).await;
                clients.push(client);
            }
            for mut client in clients {
                let answer = client.answer(5 * SECOND).await.expect("it is answered");
                assert_eq!(answer.kind(), expected);
            }
            assert_eq!(shard.keys.reads_of(EXAMPLE), reads);
        }
        let counts = shard.server.counts();
        assert_eq!(counts.authentication_failures.get(), 0, "their signatures are right");
        assert_eq!(
            (counts.server_errors.get(), counts.access_key_lookup_failures.get()),
            (3, 1)
        );
    });
}

#[test]
fn keys_that_cannot_be_read_in_time_are_an_error_of_the_server() {
    on_shard_at(SIGNED_SKEW_US, async |shard| {
        shard.server.set_settings(enforcing());
        shard.keys.time.set(60 * SECOND);
        let began = runtime::now();
        assert_eq!(shard.kind(&signed(0)).await, "503 ServiceUnavailableException");
        assert!(
            began.elapsed() <= 11 * SECOND,
            "it waited longer than the operation may take"
        );
        assert_eq!(shard.echo.0.borrow().len(), 0, "an operation ran");
    });
}

#[test]
fn operations_that_are_not_signed_run_and_are_counted_where_the_node_only_warns() {
    on_shard_at(SIGNED_SKEW_US, async |shard| {
        shard.server.set_settings(warning());
        let unsigned = post("GetItem", "", b"{}");
        let wrong = changed(&signed(0), "\r\n\r\n{}", "\r\n\r\n[]");
        for request in [&unsigned, &wrong, &signed(2), &signed(0)] {
            assert_eq!(shard.kind(request).await, "200");
        }
        let counts = shard.server.counts();
        assert_eq!(
            (
                counts.authentication_warnings.get(),
                counts.authentication_failures.get()
            ),
            (3, 0)
        );
        // Keys that cannot be read do not delay operations by more than a second.
        shard.keys.time.set(60 * SECOND);
        runtime::sleep(20 * SECOND).await;
        let began = runtime::now();
        assert_eq!(shard.kind(&signed(0)).await, "200");
        assert!(began.elapsed() < 2 * SECOND);
        assert_eq!(counts.authentication_warnings.get(), 4);
        // Both options: refused, and logged.
        shard.server.set_settings(Settings {
            warns_authorization: true,
            ..enforcing()
        });
        assert_eq!(shard.kind(&unsigned).await, "400 MissingAuthenticationTokenException");
        assert_eq!(
            (
                counts.authentication_warnings.get(),
                counts.authentication_failures.get()
            ),
            (4, 1)
        );
    });
}
