//! What background work in a shard costs the requests of the same shard: latency of a small request at an open loop,
//! with and without a task that never stops computing, on io_uring and on epoll.
//!
//!     cargo run --release -p runtime --example hog -- [REQUESTS_PER_SECOND [WINDOW_MS [WINDOWS]]]
//!
//! The shard is pinned to the first processor, the client to the second. A latency is counted from the moment the
//! request was due, so a server that cannot keep up cannot hide it. Of several windows the one with the lowest p99 is
//! printed: other work on the machine only ever adds latency.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark measures the real clock from a thread outside the runtime"
)]

use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::{Backend, Group, Options, ShardId, spawn, spawn_in};
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 64;
const REQUEST: usize = 69;
const REPLY: usize = 209;

fn main() {
    let arguments: Vec<u64> = std::env::args()
        .skip(1)
        .map(|argument| argument.parse().expect("arguments are numbers"))
        .collect();
    let [rate, window_ms, windows] =
        std::array::from_fn(|index| arguments.get(index).copied().unwrap_or([20_000, 250, 16][index]));
    println!("{rate} requests/s over {CONNECTIONS} connections, best of {windows} windows of {window_ms} ms");
    println!(
        "{:9} {:>14} {:>14} {:>10}",
        "backend", "p50/p99 alone", "with hog (us)", "p99 ratio"
    );
    for backend in [Backend::IoUring, Backend::Epoll] {
        let [alone, with_hog] = [false, true].map(|hog| {
            let (address, server) = start_server(backend, hog);
            let measured = (0..windows).map(|_| measure(address, rate, Duration::from_millis(window_ms)));
            let best = measured
                .min_by_key(|latencies| latencies.percentile(99.0))
                .expect("at least one window");
            drop(server);
            best
        });
        let [a50, a99, h50, h99] =
            [(&alone, 50.0), (&alone, 99.0), (&with_hog, 50.0), (&with_hog, 99.0)].map(|(set, at)| set.percentile(at));
        let ratio = h99 as f64 / a99 as f64;
        println!(
            "{:9} {:>14} {:>14} {ratio:>10.2}",
            format!("{backend:?}"),
            format!("{a50}/{a99}"),
            format!("{h50}/{h99}")
        );
    }
}

/// Stops its server when dropped.
struct Server {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server does not panic");
        }
    }
}

fn start_server(backend: Backend, hog: bool) -> (SocketAddr, Server) {
    let (stop, stopped) = mpsc::channel::<()>();
    let (send_address, address) = mpsc::channel();
    let stopped = std::sync::Mutex::new(Some(stopped));
    let thread = std::thread::spawn(move || {
        let options = Options {
            shards: 1,
            pin_cpus: Some(vec![0]),
            backend,
            spin: Duration::ZERO,
        };
        let main = move |_: ShardId| -> std::pin::Pin<Box<dyn Future<Output = ()>>> {
            let stopped = stopped
                .lock()
                .expect("nobody panics with it")
                .take()
                .expect("there is one shard");
            let send_address = send_address.clone();
            Box::pin(async move {
                let listener =
                    TcpListener::bind(SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0), ListenOptions::default())
                        .expect("a free port exists");
                send_address
                    .send(listener.local_addr().expect("it is bound"))
                    .expect("the client waits for it");
                drop(spawn(async move {
                    while let Ok(stream) = listener.accept().await {
                        drop(spawn(serve(stream)));
                    }
                }));
                if hog {
                    drop(spawn_in(Group::BACKGROUND, compute_for_ever()));
                }
                // An error says that the other end was dropped, which is the sign to stop.
                assert!(runtime::offload(move || stopped.recv()).await.is_err());
            })
        };
        runtime::run(options, main).expect("the backend works on this machine");
    });
    let address = address.recv().expect("the server starts");
    (
        address,
        Server {
            stop: Some(stop),
            thread: Some(thread),
        },
    )
}

/// Answers every request with a reply, all that came together in one write.
async fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("TCP has the option");
    let mut pending = 0;
    let mut input = Vec::with_capacity(8192);
    loop {
        let (read, buffer) = stream.read(input).await;
        let Ok(count @ 1..) = read else { return };
        pending += count;
        let replies = pending / REQUEST;
        pending %= REQUEST;
        let (written, _) = stream.write_all(vec![b'r'; replies * REPLY]).await;
        if written.is_err() {
            return;
        }
        input = buffer;
        input.clear();
    }
}

/// Imitates compaction: computes, and checks every microsecond or two whether to yield to other tasks.
async fn compute_for_ever() {
    let state = Rc::new(Cell::new(1_u64));
    loop {
        for _ in 0..1000 {
            state.set(std::hint::black_box(
                state.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1),
            ));
        }
        if runtime::should_yield() {
            runtime::yield_now().await;
        }
    }
}

/// Latencies in microseconds, sorted.
struct Latencies(Vec<u64>);

impl Latencies {
    fn percentile(&self, percent: f64) -> u64 {
        self.0[((self.0.len() - 1) as f64 * percent / 100.0) as usize]
    }
}

/// Sends requests when they are due, whatever the answers do.
fn measure(address: SocketAddr, rate: u64, duration: Duration) -> Latencies {
    pin_client();
    let connect = |_| {
        let stream = std::net::TcpStream::connect(address).expect("the server listens");
        stream
            .set_nodelay(true)
            .and_then(|()| stream.set_nonblocking(true))
            .expect("TCP has the options");
        stream
    };
    let mut connections: Vec<Connection> = (0..CONNECTIONS)
        .map(connect)
        .map(|stream| Connection {
            stream,
            due: Default::default(),
            partial: 0,
        })
        .collect();
    let mut latencies = Vec::new();
    let (start, total) = (Instant::now(), rate * duration.as_millis() as u64 / 1000);
    let mut sent = 0;
    while (latencies.len() as u64) < total {
        let now = start.elapsed();
        while sent < total && Duration::from_nanos(sent * 1_000_000_000 / rate) <= now {
            let due = Duration::from_nanos(sent * 1_000_000_000 / rate);
            connections[sent as usize % CONNECTIONS].send(due);
            sent += 1;
        }
        for connection in connections.iter_mut().filter(|connection| !connection.due.is_empty()) {
            connection.receive(|due| latencies.push((start.elapsed() - due).as_micros() as u64));
        }
    }
    latencies.drain(..latencies.len() / 10);
    latencies.sort_unstable();
    Latencies(latencies)
}

struct Connection {
    stream: std::net::TcpStream,
    /// When the requests in flight were due.
    due: std::collections::VecDeque<Duration>,
    /// Bytes of a reply that has not come whole.
    partial: usize,
}

impl Connection {
    fn send(&mut self, due: Duration) {
        self.stream
            .write_all(&[b'q'; REQUEST])
            .expect("small requests fit the socket");
        self.due.push_back(due);
    }

    fn receive(&mut self, mut answered: impl FnMut(Duration)) {
        let mut buffer = [0; 16 * REPLY];
        match self.stream.read(&mut buffer) {
            Ok(count) => self.partial += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => panic!("the server broke the connection: {error}"),
        }
        while self.partial >= REPLY {
            self.partial -= REPLY;
            answered(self.due.pop_front().expect("replies answer requests"));
        }
    }
}

fn pin_client() {
    // SAFETY: an all-zero cpu_set_t is the empty set; bit 1 is inside it; the set and its size are those of the local.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(1, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}
