//! The port with TLS, on a simulated shard and a client of rustls.

use std::future::{Future, ready};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dynamodb_server::{
    Api, ApiAnswer, ApiRequest, Nodes, Parts, Secret, Secrets, SecretsUnavailable, Server, Settings,
};
use front::{ClientMemory, Endpoints, Front, Listeners, NodeState, Options, Tls, TlsFiles};
use runtime::Instant;
use runtime::net::TcpStream;
use runtime::sim::Simulation;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

struct Mirror;

impl Api for Mirror {
    fn execute(&self, request: ApiRequest) -> Pin<Box<dyn Future<Output = ApiAnswer>>> {
        Box::pin(ready(ApiAnswer {
            status: 200,
            body: request.body,
        }))
    }
}

impl Secrets for Mirror {
    fn secret(&self, _: &str, _: Instant) -> Pin<Box<dyn Future<Output = Result<Secret, SecretsUnavailable>>>> {
        Box::pin(ready(Ok(Secret::Unknown)))
    }
}

impl Nodes for Mirror {
    fn addresses(&self, _: Option<&str>, _: Option<&str>) -> Vec<String> {
        Vec::new()
    }
}

/// A client's end of TLS.
struct Client {
    stream: TcpStream,
    tls: ClientConnection,
}

impl Client {
    async fn connect(address: SocketAddr, certificate: &rcgen::Certificate) -> Self {
        let mut trust = RootCertStore::empty();
        trust.add(certificate.der().clone()).expect("it is a certificate");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("rustls has it")
            .with_root_certificates(trust)
            .with_no_client_auth();
        let name = ServerName::try_from("node").expect("it is a name");
        Self {
            stream: TcpStream::connect(address).await.expect("it listens"),
            tls: ClientConnection::new(Arc::new(config), name).expect("the options fit"),
        }
    }

    /// Sends what is written, and reads until the server ends the connection or is silent.
    async fn exchange(&mut self, request: &[u8], bytes_at_least: usize) -> Result<Vec<u8>, rustls::Error> {
        let mut left = request;
        let mut out = Vec::new();
        loop {
            let written = self.tls.writer().write(left).unwrap_or(0);
            left = &left[written..];
            let mut wire = Vec::new();
            while self.tls.wants_write() {
                self.tls.write_tls(&mut wire).expect("memory");
            }
            if !wire.is_empty() {
                let _ = self.stream.write_all(wire).await;
            }
            if out.len() >= bytes_at_least && left.is_empty() {
                return Ok(out);
            }
            if !left.is_empty() && !self.tls.is_handshaking() {
                continue;
            }
            let read = self.stream.read(Vec::with_capacity(64 << 10));
            let Ok((Ok(1..), bytes)) = runtime::timeout(Duration::from_secs(5), read).await else {
                return Ok(out);
            };
            let mut bytes = &bytes[..];
            while !bytes.is_empty() {
                self.tls.read_tls(&mut bytes).expect("it is in memory");
                self.tls.process_new_packets()?;
                let mut plain = [0; 16 << 10];
                while let Ok(count @ 1..) = self.tls.reader().read(&mut plain) {
                    out.extend_from_slice(&plain[..count]);
                }
            }
        }
    }
}

fn files() -> (TlsFiles, rcgen::Certificate) {
    let made = rcgen::generate_simple_self_signed(["node".to_owned()]).expect("rcgen makes certificates");
    let path = |name: &str| PathBuf::from(name);
    let files = TlsFiles {
        certificate: path("certificate.pem"),
        key: path("key.pem"),
        client_trust: None,
    };
    let write = |path: &Path, text: String| runtime::fs::write(path, text.as_bytes()).expect("the disk works");
    write(&files.certificate, made.cert.pem());
    write(&files.key, made.signing_key.serialize_pem());
    (files, made.cert)
}

fn on_shard(test: impl AsyncFn(Rc<Server>, Rc<Front>, SocketAddr) + Copy + 'static) {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    let address = SocketAddr::new(sim.address(node), 8043);
    sim.start(node, move |_| {
        Box::pin(async move {
            let options = Options {
                connections_max: 10,
                handshakes_max: 1,
                uninitialized_max: 10,
                shards: 1,
                memory: ClientMemory::of_shard(1 << 30),
            };
            let front = Front::new(NodeState::new(1), options);
            let parts = Parts {
                api: Rc::new(Mirror),
                secrets: Rc::new(Mirror),
                nodes: Rc::new(Mirror),
            };
            let server = Server::new(front.clone(), parts, Settings::default());
            let endpoints = Endpoints {
                protocol: "DynamoDB",
                address: Some(address),
                maintenance_socket: None,
                shard_aware_address: None,
                proxied_address: None,
                proxied_shard_aware_address: None,
            };
            let listeners = Listeners::bind(&endpoints).expect("the port is free");
            let port = server.tls_port(endpoints);
            front::listeners::open(&port, listeners).expect("the port is free");
            test(server, front, address).await;
            drop(port);
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(300)), "it did not end");
}

fn post(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST / HTTP/1.1\r\nContent-Type: application/json\r\nX-Amz-Target: DynamoDB_20120810.PutItem\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

#[test]
fn operations_of_any_length_are_encrypted_both_ways() {
    on_shard(async |server, front, address| {
        let (files, certificate) = files();
        server.set_tls(Tls::load(&files).expect("the files fit"));
        let mut client = Client::connect(address, &certificate).await;
        for length in [0, 2, 2_000, 15_999, 16_000, 40_000, 3_000_000] {
            let body: Vec<u8> = (0..length)
                .map(|n: u32| u8::try_from(n % 251).expect("small"))
                .collect();
            let answer = client.exchange(&post(&body), body.len() + 100).await.expect("TLS");
            assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"), "{length} bytes");
            assert!(answer.ends_with(&body), "{length} bytes: the body differs");
        }
        let listed = front.node.clients.list();
        assert_eq!(
            listed[0].tls.as_ref().map(|(protocol, _)| protocol.as_str()),
            Some("TLSv1.3")
        );
        let last = client
            .exchange(b"GET / HTTP/1.0\r\n\r\n", usize::MAX)
            .await
            .expect("TLS");
        assert!(last.ends_with(b":8043"), "the connection ends by a notice of TLS");
        assert_eq!((front.connections(), front.memory.taken().unsent), (0, 0));
        assert_eq!(front.memory.taken().frames, 0, "memory is not given back");
    });
}

#[test]
fn clients_that_do_not_finish_a_handshake_keep_no_place() {
    on_shard(async |server, front, address| {
        // Without a certificate connections end.
        let mut early = TcpStream::connect(address).await.expect("it listens");
        assert_eq!(early.read(Vec::with_capacity(10)).await.0.ok(), Some(0));
        let (files, certificate) = files();
        server.set_tls(Tls::load(&files).expect("the files fit"));
        // There is one place.
        let silent = TcpStream::connect(address).await.expect("it listens");
        let mut plain = TcpStream::connect(address).await.expect("it listens");
        plain
            .write_all(b"GET / HTTP/1.1\r\n\r\n".to_vec())
            .await
            .0
            .expect("it is there");
        let mut client = Client::connect(address, &certificate).await;
        let began = runtime::now();
        let answer = client.exchange(&post(b"{}"), 100).await.expect("TLS");
        assert!(answer.ends_with(b"{}"));
        assert!(began.elapsed() < Duration::from_secs(1), "it waits for others");
        runtime::sleep(Duration::from_secs(20)).await;
        assert_eq!(front.connections(), 1, "those without a handshake stay");
        drop((silent, plain));
        let missing = TlsFiles {
            key: PathBuf::from("none.pem"),
            ..files
        };
        let refused = Tls::load(&missing).expect_err("there is no such key");
        assert!(refused.starts_with("cannot use none.pem"), "{refused}");
    });
}
