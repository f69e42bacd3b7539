//! A front door in one file: HTTP over a map of rows, for principals that may not do everything.
//!
//! It has from the front what `cql_server` has: listeners, admission, sessions with their principal, memory of requests
//! and answers, requests in flight, the lists of clients and of running requests, drain. Its own are the requests it
//! cuts out of its input, what it does with them, and its answers. `GET /k` reads a row, `PUT /k` with a body writes
//! one, and `GET /k?slowly` is a read that takes a task.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use front::{
    Accepted, Access, ClientMemory, Door, Endpoints, Framer, Front, Input, Listeners, NodeState, Operation, Options,
    Permissions, Plain, Principal, RunningRequest, RunningTask, Session, Slots, TASK_BYTES, Unauthorized,
};
use runtime::net::TcpStream;
use runtime::sim::Simulation;

/// The server of the protocol on one shard.
struct Http {
    front: Rc<Front>,
    endpoints: Endpoints,
    /// The principal of its clients.
    principal: Principal,
    rows: Rc<RefCell<BTreeMap<String, String>>>,
}

/// A client's connection.
struct Connection {
    session: Session,
    server: Rc<Http>,
    running: Rc<Slots<RunningTask<String>>>,
}

/// A request, and how many bytes it is.
struct Request<'a> {
    method: &'a str,
    key: &'a str,
    body: &'a str,
    bytes: usize,
}

/// The request that input begins with, once it is whole.
fn request(input: &[u8]) -> Option<Request<'_>> {
    let text = std::str::from_utf8(input).expect("this test sends text");
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let mut lines = head.lines();
    let (method, key) = lines.next()?.strip_suffix(" HTTP/1.1")?.split_once(" /")?;
    let length = lines.find_map(|line| line.strip_prefix("Content-Length: "));
    let length = length.map_or(0, |length| length.parse().expect("this test sends numbers"));
    Some(Request {
        method,
        key,
        body: rest.get(..length)?,
        bytes: head.len() + 4 + length,
    })
}

fn answer(out: &mut Vec<u8>, status: &str, body: &str) {
    let text = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    out.extend_from_slice(text.as_bytes());
}

/// Requests are short here: the buffer that each connection has suffices.
struct Short;

impl Framer for Short {
    fn wanted_bytes(&self) -> usize {
        0
    }
}

impl Door for Http {
    fn front(&self) -> &Rc<Front> {
        &self.front
    }

    fn endpoints(&self) -> &Endpoints {
        &self.endpoints
    }

    async fn serve(self: Rc<Self>, connection: Accepted) {
        let Accepted {
            stream,
            peer,
            client,
            uninitialized,
        } = connection;
        // This protocol has no handshake.
        uninitialized.become_ready();
        client.started(1, BTreeMap::new());
        let (mut reader, writer) = stream.into_split();
        let (session, writer) = Session::begin(&self.front, peer, self.principal.clone(), (writer, Plain));
        let connection = Rc::new(Connection {
            session,
            server: self.clone(),
            running: Rc::default(),
        });
        self.front.note_connection(&connection);
        let mut input = Input::new(Vec::new());
        let session = &connection.session;
        while let Ok(true) = session.read(&mut input, &mut reader, &mut Short, false).await {
            let (mut out, mut consumed) = (Vec::new(), 0);
            while let Some(request) = request(&input.bytes()[consumed..]) {
                consumed += request.bytes;
                client.add_requests(1);
                connection.execute(&request, &mut out);
            }
            session.outbox.push(&mut out);
            input.consume(consumed, &mut Short);
        }
        drop(input);
        session.end(writer).await;
    }
}

impl Connection {
    fn execute(self: &Rc<Self>, request: &Request<'_>, out: &mut Vec<u8>) {
        match self.try_execute(request, out) {
            Ok(()) => {}
            Err(Unauthorized(why)) => answer(out, "403 Forbidden", &why),
        }
    }

    fn try_execute(self: &Rc<Self>, request: &Request<'_>, out: &mut Vec<u8>) -> Result<(), Unauthorized> {
        let operation = match request.method {
            "GET" => Operation::Read,
            _ => Operation::Write,
        };
        self.session.permits(|| Access {
            operation,
            table: Some(("http", "rows")),
        })?;
        let rows = &self.server.rows;
        match (operation, request.key.strip_suffix("?slowly")) {
            (Operation::Read, Some(key)) => self.read_slowly(key.to_owned()),
            (Operation::Read, None) => match rows.borrow().get(request.key) {
                Some(row) => answer(out, "200 OK", row),
                None => answer(out, "404 Not Found", ""),
            },
            _ => {
                rows.borrow_mut()
                    .insert(request.key.to_owned(), request.body.to_owned());
                answer(out, "204 No Content", "");
            }
        }
        Ok(())
    }

    /// A read that waits for something, in a task.
    fn read_slowly(self: &Rc<Self>, key: String) {
        let memory = self.session.try_reserve(key.len() + TASK_BYTES);
        let connection = self.clone();
        let came = runtime::now();
        self.session.spawn(memory, |permits| async move {
            let _permits = permits;
            let task = RunningTask::new(format!("GET /{key}"), (came, runtime::now()));
            let _running = connection.running.hold(task);
            let _reserved = connection.session.reserve_answer(1000, 0).await;
            runtime::sleep(Duration::from_secs(2)).await;
            let mut out = Vec::new();
            let row = connection.server.rows.borrow().get(&key).cloned();
            answer(&mut out, "200 OK", &row.unwrap_or_default());
            connection.session.outbox.push(&mut out);
        });
    }
}

impl front::Connection for Connection {
    fn session(&self) -> &Session {
        &self.session
    }

    fn running(&self, show: &mut dyn FnMut(RunningRequest)) {
        self.running.each(|task| {
            show(RunningRequest {
                name: "request 1".to_owned(),
                queued: task.queued,
                running: task.began.elapsed(),
                text: task.asked.clone(),
            });
        });
    }
}

/// A client of a front door.
struct Client(TcpStream);

impl Client {
    async fn send(&mut self, request: &str) {
        let (sent, _) = self.0.write_all(request.as_bytes().to_vec()).await;
        sent.expect("the connection is open");
    }

    /// Sends requests; what comes back.
    async fn ask(&mut self, request: &str) -> String {
        self.send(request).await;
        self.answers().await
    }

    async fn answers(&mut self) -> String {
        let (read, bytes) = self.0.read(Vec::with_capacity(1000)).await;
        read.expect("the connection is open");
        String::from_utf8(bytes).expect("answers are text")
    }
}

/// A shard with front doors.
struct Server {
    front: Rc<Front>,
    address: IpAddr,
}

impl Server {
    async fn connect(&self, port: u16) -> Option<Client> {
        let stream = TcpStream::connect(SocketAddr::new(self.address, port)).await;
        stream.ok().map(Client)
    }
}

const EVERYTHING: u16 = 8000;
const READS_ALONE: u16 = 8001;

/// Runs a test on one shard with two front doors over the same rows: one whose clients may do everything, and one whose
/// clients may only read.
fn with_doors(test: impl AsyncFn(Server) + Copy + 'static) {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    let address = sim.address(node);
    sim.start(node, move |_| {
        Box::pin(async move {
            let options = Options {
                connections_max: 10,
                handshakes_max: front::HANDSHAKES_MAX,
                uninitialized_max: front::UNINITIALIZED_MAX,
                shards: 1,
                memory: ClientMemory::of_shard(64 << 20),
            };
            let front = Front::new(NodeState::new(1), options);
            let rows = Rc::default();
            let reader = Principal::new("reader", Permissions::only(&[Operation::Read]));
            let doors = [(EVERYTHING, Principal::anonymous()), (READS_ALONE, reader)];
            let doors = doors.map(|(port, principal)| {
                let endpoints = Endpoints {
                    protocol: "HTTP",
                    address: Some(SocketAddr::new(address, port)),
                    maintenance_socket: None,
                    shard_aware_address: None,
                    proxied_address: None,
                    proxied_shard_aware_address: None,
                };
                let door = Rc::new(Http {
                    front: front.clone(),
                    endpoints,
                    principal,
                    rows: Rc::clone(&rows),
                });
                let listeners = Listeners::bind(&door.endpoints).expect("the ports are free");
                front::listeners::open(&door, listeners).expect("the ports are free");
                door
            });
            test(Server { front, address }).await;
            drop(doors);
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(300)), "it did not end");
}

#[test]
fn a_front_door_that_permits_reads_alone_refuses_writes() {
    with_doors(async |server| {
        let front = &server.front;
        let mut writer = server.connect(EVERYTHING).await.expect("it listens");
        let written = writer.ask("PUT /k HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello").await;
        assert_eq!(written, "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n");
        let mut reader = server.connect(READS_ALONE).await.expect("it listens");
        let read = reader.ask("GET /k HTTP/1.1\r\n\r\n").await;
        assert_eq!(read, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello");
        let answered = reader.ask("PUT /k HTTP/1.1\r\nContent-Length: 3\r\n\r\nbye").await;
        let refused = "User reader may not write <table http.rows>";
        assert_eq!(
            answered,
            format!(
                "HTTP/1.1 403 Forbidden\r\nContent-Length: {}\r\n\r\n{refused}",
                refused.len()
            )
        );
        let read = reader.ask("GET /k HTTP/1.1\r\n\r\n").await;
        assert_eq!(
            read, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            "it was written"
        );
        let clients = front.node.clients.list();
        let listed: Vec<_> = clients
            .iter()
            .map(|client| (client.protocol, client.request_count))
            .collect();
        assert_eq!(listed, [("HTTP", 1), ("HTTP", 3)]);
        assert_eq!((front.connections(), front.arrivals().handshakes), (2, 2));
    });
}

#[test]
fn what_was_read_is_answered_before_the_node_stops_serving_and_it_serves_again() {
    with_doors(async |server| {
        let front = &server.front;
        let mut reader = server.connect(READS_ALONE).await.expect("it listens");
        reader.send("GET /k?slowly HTTP/1.1\r\n\r\n").await;
        runtime::sleep(Duration::from_secs(1)).await;
        let running = front.running_requests();
        assert_eq!(running.len(), 1, "{running:?}");
        assert_eq!(running[0].text, "GET /k");
        assert!(running[0].name.starts_with("shard 0, client "), "{running:?}");
        let taken = front.memory.taken();
        assert!(taken.requests > TASK_BYTES && taken.results >= 1000, "{taken:?}");
        front.close(Duration::from_secs(10)).await;
        assert_eq!(reader.answers().await, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(reader.answers().await, "", "the connection ends");
        assert_eq!((front.connections(), front.running_requests()), (0, Vec::new()));
        assert_eq!(front.memory.taken().requests, 0, "memory is not given back");
        assert!(server.connect(READS_ALONE).await.is_none(), "it listens");
        front.reopen().expect("the ports are free");
        let mut reader = server.connect(READS_ALONE).await.expect("it listens");
        let read = reader.ask("GET /k HTTP/1.1\r\n\r\n").await;
        assert_eq!(read, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        front.drain(Duration::from_secs(10)).await;
        front.reopen().expect("a node that ends listens no more");
        assert!(server.connect(EVERYTHING).await.is_none(), "it listens");
    });
}
