//! Plays scenarios for a long time: `./dev sim [--seeds N] [--minutes M | --seconds S] [--first SEED] [--only
//! node|cluster] [--progress] [--verbose]`. With `--elastic` operators change all clusters while they work; with
//! `--items` clients use the DynamoDB API in all that have one datacenter. Each seed
//! is played with one node and with a cluster; `--planted BUG` plants a bug of `stdx::planted` in the clusters, which
//! should be found. With `--progress` each run prints a line with the sums so far, so that a process that is stopped
//! has said what it played.

use std::time::Duration;

use sim::{ClusterScenario, Durability, FAULTS, Failure, Faults, Scenario};
use stdx::planted::Bug;

/// A sixth of the time of a run goes into memory of the system's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The scenario of one node that a seed chooses.
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
        // Without the time: asking for it moves it, and the run would be another one.
        println!("{} {}", record.level(), record.args());
    }

    fn flush(&self) {}
}

fn words(name: &str) -> Option<String> {
    std::env::args().skip_while(|a| a != name).nth(1)
}

fn argument(name: &str) -> Option<u64> {
    let parse = |text: String| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} wants a number, not '{text}'"))
    };
    words(name).map(parse)
}

/// Options with a value, and those without.
const VALUES: [&str; 6] = ["--seeds", "--minutes", "--seconds", "--first", "--only", "--planted"];
const SWITCHES: [&str; 4] = ["--elastic", "--items", "--progress", "--verbose"];

/// Refuses an option that is not known: a run that was asked for otherwise would take its time for nothing.
fn check_options() {
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let is_value = VALUES.contains(&&*word);
        let is_known = is_value || SWITCHES.contains(&&*word);
        assert!(
            is_known,
            "expected one of {VALUES:?} with a value, or of {SWITCHES:?}, not '{word}'"
        );
        assert!(!is_value || words.next().is_some(), "{word} wants a value");
    }
}

/// What all runs have seen.
#[derive(Default)]
struct Sum {
    played: u64,
    hours: f64,
    faults: u64,
    disturbed_messages: u64,
    partitions_checked: u64,
    batches_checked: u64,
    pages_resumed: u64,
    requests: u64,
    errors: u64,
    on_items: u64,
    schema_changes: u64,
    conditional: u64,
    increments: u64,
    serial_reads: u64,
    acknowledgements: u64,
    partitions_compared: u64,
    faults_by_kind: [u64; FAULTS.len()],
    walks: u64,
    failed: Vec<String>,
    prints_progress: bool,
}

impl Sum {
    /// A run that broke no promise.
    fn add(&mut self, name: &str, time: Duration, faults: u64, trace_hash: u64) {
        self.played += 1;
        self.hours += time.as_secs_f64() / 3600.0;
        self.faults += faults;
        if self.prints_progress {
            println!(
                "{name}: {:.0} simulated seconds, {faults} faults, trace {trace_hash:016x}; so far {}",
                time.as_secs_f64(),
                self.so_far()
            );
        }
    }

    fn so_far(&self) -> String {
        format!(
            "{} runs without a failure, {:.2} simulated hours, {} faults; {} failures",
            self.played,
            self.hours,
            self.faults,
            self.failed.len()
        )
    }

    fn node(&mut self, seed: u64) {
        match scenario(seed).run(seed) {
            Ok(report) => {
                let name = format!("seed {seed}, one node");
                self.add(&name, report.time, report.faults, report.trace_hash);
                self.partitions_checked += report.counts.partitions_checked;
                self.batches_checked += report.counts.batches_checked;
                self.pages_resumed += report.counts.pages_resumed;
            }
            Err(failure) => self.failed("node", &format!("{:?}", scenario(seed)), &failure),
        }
    }

    fn cluster(&mut self, seed: u64, planted: Option<Bug>, (is_elastic, has_items): (bool, bool)) {
        let mut scenario = if is_elastic {
            ClusterScenario::elastic_of_seed(seed)
        } else {
            ClusterScenario::of_seed(seed)
        };
        scenario.planted = planted;
        scenario.workload.items |= has_items && scenario.may_have_items();
        match scenario.run(seed) {
            Ok(report) => {
                let name = format!("seed {seed}, cluster");
                self.add(&name, report.time, report.faults, report.trace_hash);
                self.disturbed_messages += report.disturbed_messages;
                self.requests += report.counts.acknowledged + report.counts.reads;
                self.errors += report.counts.errors;
                self.on_items += report.counts.on_items;
                self.schema_changes += report.counts.schema_changes;
                self.increments += report.counts.increments;
                self.conditional += report.counts.conditional;
                self.serial_reads += report.counts.serial_reads;
                self.walks += report.counts.walks;
                self.acknowledgements += report.counts.acknowledgements;
                self.partitions_compared += report.counts.partitions_compared;
                for (sum, struck) in self.faults_by_kind.iter_mut().zip(report.faults_by_kind) {
                    *sum += struck;
                }
            }
            Err(failure) => {
                let kind = match (is_elastic, has_items) {
                    (false, false) => "cluster",
                    (true, false) => "cluster --elastic",
                    (false, true) => "cluster --items",
                    (true, true) => "cluster --elastic --items",
                };
                self.failed(kind, &format!("{scenario:?}"), &failure);
            }
        }
    }

    /// What struck clusters, by kind.
    fn struck(&self) -> String {
        let kinds = FAULTS.iter().zip(self.faults_by_kind).filter(|(_, count)| *count > 0);
        let kinds: Vec<String> = kinds.map(|(name, count)| format!("{count} {name}")).collect();
        kinds.join(", ")
    }

    fn failed(&mut self, kind: &str, scenario: &str, failure: &Failure) {
        println!("FAILED {scenario}\n{failure}\n");
        let again = format!("./dev sim --seeds 1 --first {} --only {kind} --verbose", failure.seed);
        println!("to see it again: {again}\n");
        self.failed.push(again);
    }
}

fn main() {
    check_options();
    let first = argument("--first").unwrap_or(0);
    let seeds = argument("--seeds").unwrap_or(u64::MAX - first);
    let seconds = argument("--seconds")
        .or(argument("--minutes").map(|m| m * 60))
        .unwrap_or(600);
    let only = words("--only");
    let named = |bug: &Bug| words("--planted").is_some_and(|name| name == format!("{bug:?}"));
    let planted = Bug::ALL.into_iter().find(named);
    assert!(
        planted.is_some() || words("--planted").is_none(),
        "the bugs that can be planted are {:?}",
        Bug::ALL
    );
    let plays = |kind: &str| only.as_ref().is_none_or(|only| only == kind);
    if std::env::args().any(|a| a == "--verbose") {
        log::set_logger(&Logger).expect("there is no other logger");
        log::set_max_level(log::LevelFilter::Info);
    }
    let has = |switch: &str| std::env::args().any(|a| a == switch);
    let kinds = (has("--elastic"), has("--items"));
    let start = runtime::now();
    let is_time_left = || start.elapsed() < Duration::from_secs(seconds);
    let mut sum = Sum {
        prints_progress: std::env::args().any(|a| a == "--progress"),
        ..Sum::default()
    };
    let mut next = first;
    while next - first < seeds && is_time_left() {
        if plays("node") {
            sum.node(next);
        }
        if plays("cluster") && is_time_left() {
            sum.cluster(next, planted, kinds);
        }
        next += 1;
    }
    println!("seeds {first} to {}: {}", next - 1, sum.so_far());
    println!(
        "one node: {} partitions checked, {} batches checked, {} walks by page resumed",
        sum.partitions_checked, sum.batches_checked, sum.pages_resumed
    );
    println!(
        "clusters: {} requests answered and checked, {} errors that a fault explains, {} schema changes, {} messages repeated or overtaken",
        sum.requests, sum.errors, sum.schema_changes, sum.disturbed_messages
    );
    println!(
        "clusters: {} conditional statements and {} serial reads in one order, {} requests for items in one order, \
         {} increments of counters, {} walks by page",
        sum.conditional, sum.serial_reads, sum.on_items, sum.increments, sum.walks
    );
    println!(
        "clusters: {} acknowledgements of distinct replicas, {} partitions whose replicas hold the same; faults: {}",
        sum.acknowledgements,
        sum.partitions_compared,
        sum.struck()
    );
    if !sum.failed.is_empty() {
        println!("failed; to see each again:\n{}", sum.failed.join("\n"));
        std::process::exit(1);
    }
}
