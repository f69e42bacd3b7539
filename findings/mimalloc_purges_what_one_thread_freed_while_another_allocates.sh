#!/usr/bin/env bash
# mimalloc 3 (crate mimalloc 0.1.52 with libmimalloc-sys 0.1.49, default options, Linux).
#
# Guess: memory that a thread has freed goes back to the system after the purge delay (1 s), by itself.
# Seen: nothing gives it back while no thread allocates. The next thread that allocates does, inside its allocation, for
# the frees of all threads of the process. So a thread with short deadlines pays for the memory of others: the script
# prints how long the longest of its allocations took. Source: mi_arenas_try_purge in src/arena.c, called by
# _mi_arenas_collect in src/page.c.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf -- "$dir"' EXIT
cd "$dir"
mkdir src
cat >Cargo.toml <<'TOML'
[package]
name = "purge"
version = "0.0.0"
edition = "2021"

[dependencies]
mimalloc = { version = "=0.1.52", default-features = false }
libmimalloc-sys = { version = "=0.1.49", default-features = false }
TOML
cat >src/main.rs <<'RUST'
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MIB: usize = 1 << 20;

fn resident_mib() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages: usize = statm.split(' ').nth(1).expect("a second number").parse().expect("a number");
    pages * 4096 / MIB
}

fn main() {
    // One thread fills and frees 256 MiB, and stays.
    let (freed, has_freed) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        drop(black_box((0..64).map(|_| vec![1_u8; 4 * MIB]).collect::<Vec<_>>()));
        freed.send(()).expect("the main thread waits");
        let _ = ended.recv();
    });
    has_freed.recv().expect("it sends");
    std::thread::sleep(Duration::from_secs(4));
    let after_delay = resident_mib();
    // This thread needs little, as a server does that answers small requests.
    let mut longest = Duration::ZERO;
    for _ in 0..1_000 {
        let began = Instant::now();
        drop(black_box(Vec::<u8>::with_capacity(black_box(MIB))));
        longest = longest.max(began.elapsed());
    }
    let after_allocations = resident_mib();
    println!("resident 4 s after the free: {after_delay} MiB; after small allocations of another thread: {after_allocations} MiB");
    println!("the longest of those allocations took {longest:?}");
    drop(end);
    other.join().expect("it ends");
    assert!(after_delay >= 200, "freed memory goes back by itself now");
    assert!(after_allocations <= 100, "another thread's allocations do not purge any more");
}
RUST
cargo run --quiet --release
