//! Futures dropped at every point: many tasks start operations with timeouts of chance, and afterwards everything must
//! be whole.

use crate::{Scratch, on_every_backend};
use runtime::fs::{File, OpenOptions};
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::{Notify, Semaphore, ShardId, random_u64, sleep, spawn, submit_async_to, submit_to, timeout};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

const TASKS: u64 = 30;
const ROUNDS: u64 = 15;
const UNITS: usize = 5;

/// Awaits the future for a random time of at most half a millisecond, often for none.
async fn a_while<F: Future>(future: F) -> Option<F::Output> {
    let micros = if random_u64().is_multiple_of(3) {
        0
    } else {
        random_u64() % 500
    };
    timeout(Duration::from_micros(micros), future).await.ok()
}

/// Awaits the future as [`a_while`] does, and ignores the result.
async fn give_up_soon<F: Future>(future: F) {
    a_while(future).await;
}

#[test]
fn a_storm_of_dropped_futures_leaves_everything_whole() {
    on_every_backend(2, async |own| {
        if own == ShardId(1) {
            return;
        }
        let scratch = Scratch::new("storm");
        let file = File::open(scratch.path("data"), OpenOptions::CREATE_NEW).expect("a new file in an empty directory");
        let (semaphore, notify) = (Semaphore::new(UNITS), Notify::new());
        let tasks: Vec<_> = (0..TASKS)
            .map(|task| {
                let (semaphore, notify, file) = (semaphore.clone(), notify.clone(), file.clone());
                spawn(async move {
                    for round in 0..ROUNDS {
                        let permit = a_while(semaphore.acquire(1 + (random_u64() % UNITS as u64) as usize)).await;
                        give_up_soon(submit_to(ShardId(1), move || round)).await;
                        give_up_soon(submit_async_to(ShardId(1), || sleep(Duration::from_micros(100)))).await;
                        give_up_soon(notify.notified()).await;
                        notify.notify_one();
                        give_up_soon(file.write_at(vec![1; 3000], task * 4096)).await;
                        give_up_soon(file.read_at(Vec::new(), 0, 8192)).await;
                        give_up_soon(file.sync_data()).await;
                        drop(permit);
                    }
                })
            })
            .collect();
        let stream_task = spawn(hurried_stream());
        for task in tasks {
            task.await;
        }
        stream_task.await;
        assert_eq!(semaphore.available(), UNITS, "units of the semaphore were lost or made");
        assert_eq!(semaphore.waiting(), 0, "a waiter that is gone stands in line");
        assert_eq!(
            submit_to(ShardId(1), || 7).await,
            7,
            "the mailboxes do not work any more"
        );
        for task in 0..TASKS {
            let (written, _) = file.write_at(vec![2; 4096], task * 4096).await;
            written.expect("the disk has room");
        }
    });
}

/// A stream whose reader gives up again and again still gives every byte in order.
async fn hurried_stream() {
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let listener = TcpListener::bind(any, ListenOptions::default()).expect("a free port exists");
    let address = listener.local_addr().expect("it is bound");
    let writer = spawn(async move {
        let mut stream = TcpStream::connect(address).await.expect("the listener is there");
        for start in 0..200_u32 {
            let bytes = (0..97).map(|offset| ((start * 97 + offset) % 251) as u8).collect();
            let (written, _) = stream.write_all(bytes).await;
            written.expect("the connection is up");
            if start % 16 == 0 {
                sleep(Duration::from_micros(300)).await;
            }
        }
    });
    let mut stream = loop {
        if let Some(accepted) = a_while(listener.accept()).await {
            break accepted.expect("the connection is up");
        }
    };
    let mut position = 0;
    while position < 200 * 97 {
        let room = 1 + (random_u64() % 500) as usize;
        let Some((read, bytes)) = a_while(stream.read(Vec::with_capacity(room))).await else {
            continue;
        };
        assert!(
            read.expect("the connection is up") > 0,
            "the stream ended after {position} bytes"
        );
        for byte in bytes {
            assert_eq!(u32::from(byte), position % 251, "byte {position} is wrong");
            position += 1;
        }
    }
    writer.await;
}
