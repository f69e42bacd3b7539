//! Plays scenarios for a long time: `cargo run --release -p sim --example run -- [--seeds N] [--minutes M] [--first SEED] [--verbose]`.

use std::time::Duration;

use sim::{Durability, Faults, Scenario};

/// The scenario that a seed chooses.
fn scenario(seed: u64) -> Scenario {
    let bit = |n: u64| seed >> n & 1 == 1;
    let durability = if bit(0) {
        Durability::Batch
    } else {
        Durability::Periodic(Duration::from_millis(20 + seed % 7 * 30))
    };
    let faults = Faults {
        kills: bit(1) || !bit(2),
        power_losses: bit(2),
        full_disks: seed % 5 == 1,
        failing_operations: seed % 5 == 2,
        slow_disks: seed % 5 == 3,
        rude_clients: seed % 5 == 4,
    };
    let shards = u32::try_from(1 + seed % 3).expect("at most 3");
    Scenario {
        shards,
        durability,
        faults,
        lives: 8,
        operations: 500 + seed % 11 * 500,
        acknowledgements: 20 + seed % 13 * 30,
        reshards: bit(3),
        ..Scenario::new(shards, durability)
    }
}

/// Prints what the node logs.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        println!(
            "{} {} {}",
            runtime::now().as_nanos() / 1000,
            record.level(),
            record.args()
        );
    }

    fn flush(&self) {}
}

fn argument(name: &str) -> Option<u64> {
    let mut arguments = std::env::args().skip_while(|a| a != name).skip(1);
    arguments.next().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} wants a number, not '{text}'"))
    })
}

fn main() {
    let first = argument("--first").unwrap_or(0);
    let seeds = argument("--seeds").unwrap_or(u64::MAX - first);
    let minutes = argument("--minutes").unwrap_or(10);
    if std::env::args().any(|a| a == "--verbose") {
        log::set_logger(&Logger).expect("there is no other logger");
        log::set_max_level(log::LevelFilter::Info);
    }
    let start = runtime::now();
    let (mut hours, mut faults, mut checked, mut played, mut failed) = (0.0, 0, 0, 0, Vec::new());
    let (mut batches, mut pages, mut prepared) = (0, 0, 0);
    for seed in first..first + seeds {
        if start.elapsed() > Duration::from_secs(minutes * 60) {
            break;
        }
        played += 1;
        match scenario(seed).run(seed) {
            Ok(report) => {
                hours += report.time.as_secs_f64() / 3600.0;
                faults += report.faults;
                checked += report.counts.partitions_checked;
                batches += report.counts.batches_checked;
                pages += report.counts.pages_resumed;
                prepared += report.counts.prepared_again;
            }
            Err(failure) => {
                println!("FAILED {:?}\n{failure}\n", scenario(seed));
                failed.push(seed);
            }
        }
    }
    println!("{played} seeds, {hours:.2} simulated hours, {faults} faults, {checked} partitions checked");
    println!("{batches} batches checked, {pages} walks by page resumed, {prepared} statements prepared again");
    if !failed.is_empty() {
        println!("failing seeds: {failed:?}");
        std::process::exit(1);
    }
}
