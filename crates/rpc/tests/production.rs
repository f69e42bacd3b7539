//! Connections on io_uring and epoll, and with TLS: the simulator runs without these.

mod support;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rpc::{Compression, Config, Peer, Rpc, RpcError, StartError, Tls, TlsFiles};
use runtime::net::TcpStream;
use runtime::{Backend, Options, ShardId};
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use support::{COUNT, ECHO, ECHO_LATER, HANG, Service, WHO, config, host};

const MINUTE: Duration = Duration::from_mins(1);
const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Runs the test on a fresh node with so many shards, on each backend that this machine allows.
fn on_each_backend<F, Fut>(shards: u32, test: F)
where
    F: Fn(ShardId) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    for backend in [Backend::IoUring, Backend::Epoll] {
        let test = test.clone();
        let options = Options {
            shards,
            pin_cpus: None,
            backend,
            spin: Duration::ZERO,
        };
        match runtime::run(options, move |shard| Box::pin(test(shard))) {
            Ok(()) => {}
            Err(error) if backend == Backend::IoUring => eprintln!("io_uring is not tested on this machine: {error}"),
            Err(error) => panic!("a node on {backend:?} did not run: {error}"),
        }
    }
}

/// A directory with two authorities and a certificate of each, removed at the end.
struct Certificates(PathBuf);

impl Certificates {
    fn new() -> Self {
        let name = format!("ceto-rpc-{}-{:x}", std::process::id(), runtime::random_u64());
        let directory = std::env::temp_dir().join(name);
        runtime::fs::create_dir_all(&directory).expect("the temporary directory is writable");
        for authority in ["ours", "theirs"] {
            let mut params = CertificateParams::new(vec![]).expect("no names are valid names");
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key can be made");
            let root = params.self_signed(&key).expect("it signs itself");
            let issuer = Issuer::new(params, key);
            write(&directory, &format!("{authority}.ca"), &root.pem());
            for (name, address) in [("", "127.0.0.1"), (".elsewhere", "127.9.9.9")] {
                let key = KeyPair::generate().expect("a key can be made");
                let params = CertificateParams::new(vec![address.to_owned()]).expect("an address is a name");
                let certificate = params.signed_by(&key, &issuer).expect("the authority signs");
                write(
                    &directory,
                    &format!("{authority}{name}.certificate"),
                    &certificate.pem(),
                );
                write(&directory, &format!("{authority}{name}.key"), &key.serialize_pem());
            }
        }
        Self(directory)
    }

    fn files(&self, name: &str, authority: &str) -> TlsFiles {
        TlsFiles {
            certificate: self.0.join(format!("{name}.certificate")),
            key: self.0.join(format!("{name}.key")),
            trust: self.0.join(format!("{authority}.ca")),
            verify_endpoint: false,
        }
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = runtime::fs::remove_dir_all(&self.0);
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    runtime::fs::write(directory.join(name), text.as_bytes()).expect("the directory is writable");
}

fn start(change: impl FnOnce(&mut Config)) -> (Rc<Rpc>, Rc<Service>) {
    let mut config = config(0);
    config.listen = Some(ANY_PORT);
    change(&mut config);
    let service = Rc::new(Service::default());
    let rpc = Rpc::start(config, service.clone()).expect("a free port exists");
    (rpc, service)
}

async fn call_all_ways(rpc: &Rc<Rpc>, service: &Service, peer: Peer) {
    let callers: Vec<_> = (0..200_usize)
        .map(|number| {
            let rpc = rpc.clone();
            runtime::spawn(async move {
                let verb = if number % 5 == 0 { ECHO_LATER } else { ECHO };
                let body = vec![(number % 10) as u8; number * number * 5];
                let answer = rpc.call(&peer, 0, verb, body.clone(), MINUTE).await;
                answer.map(|answer| assert!(answer == body, "an answer is not what was sent"))
            })
        })
        .collect();
    for caller in callers {
        assert_eq!(caller.await, Ok(()));
    }
    rpc.send(&peer, 0, COUNT, vec![1; 100], MINUTE).expect("there is room");
    rpc.call(&peer, 0, ECHO, vec![], MINUTE).await.expect("the node runs");
    assert_eq!(service.counted.get(), 1);
    let short = Duration::from_millis(20);
    let late = rpc.call(&peer, 0, HANG, vec![], short).await;
    assert_eq!(late, Err(RpcError::Timeout { may_have_run: true }));
    let hanging = rpc.call(&peer, 0, HANG, vec![], MINUTE);
    rpc.disconnect(host(0));
    assert_eq!(hanging.await, Err(RpcError::Disconnected { may_have_run: true }));
    assert_eq!(rpc.call(&peer, 0, ECHO, vec![4], MINUTE).await, Ok(vec![4]));
}

#[test]
fn calls_work_on_each_backend_with_and_without_compression() {
    on_each_backend(1, async |_| {
        for compression in [vec![], vec![Compression::Lz4], vec![Compression::Zstd]] {
            let (rpc, service) = start(|config| config.compression = compression);
            let address = rpc.address().expect("it listens");
            let mut peer = Peer::new(host(0), address);
            peer.compress = true;
            call_all_ways(&rpc, &service, peer).await;
            rpc.stop();
        }
    });
}

#[test]
fn whichever_shard_accepts_a_connection_hands_it_to_the_one_it_is_for() {
    on_each_backend(3, async |shard| {
        let (rpc, _) = start(|_| {});
        let peer = Peer::new(host(0), rpc.address().expect("it listens"));
        for target in 0..3 {
            // Another shard may not have begun yet, and drops what it is handed: that is a connection lost.
            let answer = loop {
                match rpc.call(&peer, target, WHO, vec![], MINUTE).await {
                    Err(RpcError::Disconnected { .. }) => runtime::yield_now().await,
                    answer => break answer,
                }
            };
            assert_eq!(answer, Ok(format!("{target} from {}", shard.0).into_bytes()));
        }
        wait_for_all(3).await;
    });
}

/// Counts the shards that are done, on shard 0, until all are.
struct Done(std::cell::Cell<u32>);

/// Waits until each shard has come here: the node must not end below those that still call.
async fn wait_for_all(shards: u32) {
    let arrive = |by: u32| {
        runtime::submit_to(ShardId(0), move || {
            let done = runtime::local::<Done>().unwrap_or_else(|| {
                let done = Rc::new(Done(std::cell::Cell::new(0)));
                runtime::set_local(done.clone());
                done
            });
            done.0.set(done.0.get() + by);
            done.0.get()
        })
    };
    let mut arrived = arrive(1).await;
    while arrived < shards {
        runtime::yield_now().await;
        arrived = arrive(0).await;
    }
}

#[test]
fn tls_carries_calls_between_nodes_that_trust_the_same_authority() {
    on_each_backend(1, async |_| {
        let certificates = Certificates::new();
        for compression in [vec![], vec![Compression::Lz4]] {
            let (rpc, service) = start(|config| {
                config.tls = Some(certificates.files("ours", "ours"));
                config.listen_tls = Some(ANY_PORT);
                config.compression = compression;
            });
            let mut peer = Peer::new(host(0), rpc.tls_address().expect("it listens"));
            peer.tls = true;
            peer.compress = true;
            call_all_ways(&rpc, &service, peer).await;
            rpc.stop();
        }
    });
}

fn client_with(mut files: TlsFiles, verify_endpoint: bool) -> Rc<Rpc> {
    files.verify_endpoint = verify_endpoint;
    let mut config = config(1);
    config.tls = Some(files);
    Rpc::client(config).expect("the certificates are readable")
}

#[test]
fn tls_refuses_who_is_not_vouched_for() {
    on_each_backend(1, async |_| {
        let certificates = Certificates::new();
        let cases: &[(&str, &str, &str, bool, bool)] = &[
            ("a good certificate", "ours", "ours", false, true),
            (
                "a good certificate, and the server's names its address",
                "ours",
                "ours",
                true,
                true,
            ),
            ("a client of another authority", "theirs", "ours", false, false),
            ("a server of another authority", "ours", "theirs", false, false),
        ];
        let (server, service) = start(|config| {
            config.tls = Some(certificates.files("ours", "ours"));
            config.listen_tls = Some(ANY_PORT);
        });
        let mut peer = Peer::new(host(0), server.tls_address().expect("it listens"));
        peer.tls = true;
        for &(story, name, trust, verify_endpoint, is_good) in cases {
            let client = client_with(certificates.files(name, trust), verify_endpoint);
            let result = client.call(&peer, 0, ECHO, vec![1], MINUTE).await;
            if is_good {
                assert_eq!(result, Ok(vec![1]), "{story}");
            } else {
                assert!(
                    matches!(&result, Err(RpcError::Refused(reason)) if reason.starts_with("TLS")),
                    "{story}: {result:?}"
                );
            }
            client.stop();
        }
        assert_eq!(service.ran.get(), 2);

        let (elsewhere, _) = start(|config| {
            config.tls = Some(certificates.files("ours.elsewhere", "ours"));
            config.listen_tls = Some(ANY_PORT);
        });
        peer.address = elsewhere.tls_address().expect("it listens");
        for verify_endpoint in [false, true] {
            let client = client_with(certificates.files("ours", "ours"), verify_endpoint);
            let result = client.call(&peer, 0, ECHO, vec![1], MINUTE).await;
            assert_eq!(
                result.is_err(),
                verify_endpoint,
                "a certificate for another address: {result:?}"
            );
            client.stop();
        }

        let plain = Rpc::client(config(1)).expect("it needs no files");
        let result = plain.call(&peer, 0, ECHO, vec![1], MINUTE).await;
        assert!(
            matches!(result, Err(RpcError::Refused(_))),
            "without any certificate: {result:?}"
        );
        peer.tls = false;
        let result = plain.call(&peer, 0, ECHO, vec![1], MINUTE).await;
        assert!(result.is_err(), "plain bytes on the TLS port: {result:?}");
        plain.stop();
    });
}

/// Speaks TLS without a certificate of its own, until the server ends the connection or sends plain bytes. Whether it
/// did the latter.
async fn is_served_without_certificate(address: SocketAddr, trust: &Path) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    let root = runtime::fs::read(trust).expect("the file is there");
    let root = rustls::pki_types::CertificateDer::from_pem_slice(&root).expect("it is a certificate");
    roots.add(root).expect("it is an authority's");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider has a version")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::IpAddress(address.ip().into());
    let mut session = rustls::ClientConnection::new(Arc::new(client), name).expect("the settings fit");
    let mut stream = TcpStream::connect(address).await.expect("it listens");
    loop {
        let mut out = Vec::new();
        while session.wants_write() {
            session.write_tls(&mut out).expect("memory takes it");
        }
        if !out.is_empty() && stream.write_all(out).await.0.is_err() {
            return false;
        }
        let (read, bytes) = stream.read(Vec::with_capacity(16 << 10)).await;
        if read.unwrap_or(0) == 0 {
            return false;
        }
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            session.read_tls(&mut rest).expect("memory gives it");
            match session.process_new_packets() {
                Ok(state) if state.plaintext_bytes_to_read() > 0 => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}

#[test]
fn tls_refuses_who_shows_no_certificate() {
    on_each_backend(1, async |_| {
        let certificates = Certificates::new();
        let files = certificates.files("ours", "ours");
        let trust = files.trust.clone();
        let (rpc, service) = start(|config| {
            config.tls = Some(files);
            config.listen_tls = Some(ANY_PORT);
        });
        let address = rpc.tls_address().expect("it listens");
        let served = runtime::timeout(MINUTE, is_served_without_certificate(address, &trust)).await;
        assert_eq!(served, Ok(false));
        assert_eq!(service.ran.get(), 0);
    });
}

#[test]
fn new_connections_get_the_new_certificate_and_others_stay() {
    on_each_backend(1, async |_| {
        let certificates = Certificates::new();
        let (server, _) = start(|config| {
            config.tls = Some(certificates.files("ours", "ours"));
            config.listen_tls = Some(ANY_PORT);
        });
        let mut peer = Peer::new(host(0), server.tls_address().expect("it listens"));
        peer.tls = true;
        let call = async |client: &Rc<Rpc>| client.call(&peer, 0, ECHO, vec![1], MINUTE).await;
        let (ours, theirs) = (
            certificates.files("ours", "ours"),
            certificates.files("theirs", "theirs"),
        );
        let connected = client_with(ours.clone(), false);
        assert_eq!(call(&connected).await, Ok(vec![1]));

        server.set_tls(Tls::load(&theirs).expect("the files are good"));
        assert_eq!(call(&connected).await, Ok(vec![1]), "a connection that stands stays");
        assert_eq!(connected.link_metrics()[0].disconnects, 0);
        let late = client_with(ours, false);
        assert!(call(&late).await.is_err(), "a new one meets the new certificate");
        // Once it has the new ones too, it connects at once, although it was refused before.
        late.set_tls(Tls::load(&theirs).expect("the files are good"));
        assert_eq!(call(&late).await, Ok(vec![1]));
        for rpc in [connected, late, server] {
            rpc.stop();
        }
    });
}

#[test]
fn files_that_hold_no_certificate_are_named() {
    on_each_backend(1, async |_| {
        let certificates = Certificates::new();
        type Change = fn(&mut TlsFiles);
        let cases: &[(&str, Change)] = &[
            ("missing", |files| files.key.set_file_name("missing")),
            ("ours.key", |files| files.certificate.set_file_name("ours.key")),
            ("ours.ca", |files| files.key.set_file_name("ours.ca")),
            ("nothing", |files| files.trust.set_file_name("nothing")),
            ("theirs.key", |files| files.key.set_file_name("theirs.key")),
        ];
        write(&certificates.0, "nothing", "");
        for (name, change) in cases {
            let mut config = config(0);
            let mut files = certificates.files("ours", "ours");
            change(&mut files);
            config.tls = Some(files);
            match Rpc::client(config) {
                Err(StartError::TlsFile(path, _)) => assert!(path.ends_with(name), "{}", path.display()),
                Err(other) => panic!("{name} is not named: {other}"),
                Ok(_) => panic!("{name} is taken for a good file"),
            }
        }
    });
}
