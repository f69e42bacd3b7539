//! What a call costs: one shard calls itself over loopback, so the figures are of both ends together.
//!
//! ```text
//! cargo run --release -p rpc --example calls -- [calls] [in flight] [body bytes]
//! ```
//!
//! User instructions per call: count those of two runs with different numbers of calls, and divide the difference.

use rpc::{Config, Handler, Peer, Reply, Request, Rpc};
use runtime::{Backend, Options};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

struct Echo;

impl Handler for Echo {
    fn handle(&self, request: Request<'_>) -> Reply {
        Reply::Now(request.body.to_vec())
    }
}

fn main() -> std::io::Result<()> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let mut number = |default| match numbers.next() {
        Some(Ok(number)) => number,
        Some(Err(error)) => panic!("an argument is not a number: {error}"),
        None => default,
    };
    let (calls, in_flight, bytes) = (number(1_000_000), number(64), number(100));
    let options = Options {
        shards: 1,
        pin_cpus: None,
        backend: Backend::Auto,
        spin: Duration::ZERO,
    };
    runtime::run(options, move |_| Box::pin(measure(calls, in_flight.max(1), bytes)))
}

async fn measure(calls: usize, in_flight: usize, bytes: usize) {
    let mut config = Config::new("sea", Uuid::from_u128(1));
    config.listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let rpc = Rpc::start(config, Rc::new(Echo)).expect("a free port exists");
    let peer = Peer::new(Uuid::from_u128(1), rpc.address().expect("it listens"));
    let begun = runtime::now();
    let callers: Vec<_> = (0..in_flight)
        .map(|_| {
            let rpc = rpc.clone();
            runtime::spawn(async move {
                for _ in 0..calls / in_flight {
                    let call = rpc.call(&peer, 0, 1, vec![0; bytes], Duration::from_mins(1));
                    call.await.expect("the shard answers itself");
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await;
    }
    let took = begun.elapsed();
    println!(
        "{calls} calls of {bytes} bytes, {in_flight} in flight: {took:?}, {} ns each",
        took.as_nanos() / calls.max(1) as u128
    );
}
