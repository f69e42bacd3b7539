//! Throughput of a wire echo: requests of 69 bytes, replies of 209, many connections with some requests in flight on
//! each.
//!
//!     cargo run --release -p runtime --example echo -- [SECONDS]
//!
//! The server's shard is pinned to the first processor, the client, which is a node of the same runtime, to the second.
//! Printed are requests per second and the processor time of the server's thread for each request.

use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::{Backend, Options, ShardId, sleep, spawn};
use std::cell::Cell;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

const REQUEST: usize = 69;
const REPLY: usize = 209;

type Main = Pin<Box<dyn Future<Output = ()>>>;

fn main() {
    let seconds = std::env::args().nth(1).map_or(1, |argument| {
        argument.parse().expect("the argument is a number of seconds")
    });
    println!(
        "{:9} {:>12} {:>6} {:>12} {:>14}",
        "backend", "connections", "depth", "requests/s", "server ns each"
    );
    for backend in [Backend::IoUring, Backend::Epoll] {
        for (connections, depth) in [(16, 1), (128, 1), (64, 8), (128, 32)] {
            let (rate, nanos) = measure(backend, connections, depth, Duration::from_secs(seconds));
            println!(
                "{:9} {connections:>12} {depth:>6} {rate:>12} {nanos:>14}",
                format!("{backend:?}")
            );
        }
    }
}

/// Requests per second, and nanoseconds of the server's processor for each.
fn measure(backend: Backend, connections: usize, depth: usize, duration: Duration) -> (u64, u64) {
    let (send_address, address) = mpsc::channel();
    let (stop, server_nanos) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (stopped, nanos) = (Arc::clone(&stop), Arc::clone(&server_nanos));
    let server = start(backend, 0, move |_| {
        let (send_address, stopped, nanos) = (send_address.clone(), Arc::clone(&stopped), Arc::clone(&nanos));
        Box::pin(async move {
            let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
            let listener = TcpListener::bind(any, ListenOptions::default()).expect("a free port exists");
            send_address
                .send(listener.local_addr().expect("it is bound"))
                .expect("the client waits for it");
            drop(spawn(async move {
                while let Ok(stream) = listener.accept().await {
                    drop(spawn(serve(stream)));
                }
            }));
            while !stopped.load(Ordering::Acquire) {
                sleep(Duration::from_millis(10)).await;
            }
            nanos.store(thread_nanos(), Ordering::Release);
        })
    });
    let address = address.recv().expect("the server starts");
    let total = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&total);
    let client = start(backend, 1, move |_| {
        let count = Arc::clone(&count);
        Box::pin(async move {
            let answered = Rc::new(Cell::new(0));
            for _ in 0..connections {
                let stream = TcpStream::connect(address).await.expect("the server listens");
                drop(spawn(ask(stream, depth, Rc::clone(&answered))));
            }
            sleep(duration).await;
            count.store(answered.get(), Ordering::Release);
        })
    });
    client.join().expect("the client does not panic");
    stop.store(true, Ordering::Release);
    server.join().expect("the server does not panic");
    let total = total.load(Ordering::Acquire);
    (
        total * 1000 / duration.as_millis() as u64,
        server_nanos.load(Ordering::Acquire) / total.max(1),
    )
}

fn start(backend: Backend, cpu: usize, main: impl Fn(ShardId) -> Main + Send + 'static) -> std::thread::JoinHandle<()> {
    let options = Options {
        shards: 1,
        pin_cpus: Some(vec![cpu]),
        backend,
        spin: Duration::ZERO,
    };
    let main = Mutex::new(main);
    let main = move |shard| (*main.lock().expect("nobody panics with it"))(shard);
    let body = move || runtime::run(options, main).expect("the backend works on this machine");
    std::thread::Builder::new().spawn(body).expect("threads can be started")
}

/// Answers every request with a reply, all that came together in one write.
async fn serve(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("TCP has the option");
    let (mut pending, mut input, mut output) = (0, Vec::with_capacity(8192), Vec::new());
    loop {
        let (read, buffer) = stream.read(input).await;
        let Ok(count @ 1..) = read else { return };
        pending += count;
        output.resize(pending / REQUEST * REPLY, b'r');
        pending %= REQUEST;
        let (written, sent) = stream.write_all(output).await;
        if written.is_err() {
            return;
        }
        (input, output) = (buffer, sent);
        input.clear();
    }
}

/// Keeps `depth` requests in flight: as many as were answered are asked again, in one write.
async fn ask(mut stream: TcpStream, depth: usize, answered: Rc<Cell<u64>>) {
    stream.set_nodelay(true).expect("TCP has the option");
    let (mut partial, mut to_send, mut input, mut output) = (0, depth, Vec::with_capacity(32 * 1024), Vec::new());
    loop {
        output.resize(to_send * REQUEST, b'q');
        let (written, sent) = stream.write_all(output).await;
        written.expect("the server is up");
        let (read, buffer) = stream.read(input).await;
        partial += read.expect("the server is up");
        to_send = partial / REPLY;
        partial %= REPLY;
        answered.set(answered.get() + to_send as u64);
        (input, output) = (buffer, sent);
        input.clear();
    }
}

fn thread_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux and the time is a valid local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
