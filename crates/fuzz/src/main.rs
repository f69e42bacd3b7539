//! `fuzz [SECONDS] [--target NAME] [--seed SEED]`: each target for so many seconds (60), from a seed on (1), a round
//! for each seed. See the crate.

use fuzz::{INPUTS_READ, TARGETS, raft};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The target of the metadata group.
const RAFT: &str = "raft";
/// An input that takes longer does not end.
const HANGS_AFTER: Duration = Duration::from_secs(60);

struct Wish {
    time: Duration,
    target: Option<String>,
    first: u64,
}

fn wish() -> Result<Wish, String> {
    let mut wish = Wish {
        time: Duration::from_secs(60),
        target: None,
        first: 1,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = |text: &str| {
            let expected = || format!("expected a number of seconds, --target NAME or --seed SEED, got '{text}'");
            text.parse::<u64>().map_err(|_| expected())
        };
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--target" => wish.target = Some(value()?),
            "--seed" => wish.first = number(&value()?)?,
            seconds => wish.time = Duration::from_secs(number(seconds)?),
        }
    }
    if let Some(name) = &wish.target
        && !names().any(|known| known == name)
    {
        let known: Vec<&str> = names().collect();
        return Err(format!("there is no target '{name}'; there are {}", known.join(", ")));
    }
    Ok(wish)
}

fn names() -> impl Iterator<Item = &'static str> {
    TARGETS.iter().map(|target| target.name).chain([RAFT])
}

/// What one round shows.
struct Round {
    inputs: u64,
    /// Whether the metadata group worked afterwards; a decoder always does.
    works: bool,
}

/// Plays rounds until the time is over. False after a find.
fn play(name: &str, wish: &Wish, mut round: impl FnMut(u64) -> Result<Round, String>) -> bool {
    let begun = runtime::now();
    let (mut seed, mut inputs, mut broken) = (wish.first, 0, 0);
    while runtime::now() - begun < wish.time {
        SEED.store(seed, Ordering::Relaxed);
        let played = catch_unwind(AssertUnwindSafe(|| round(seed)));
        match played.unwrap_or_else(|_| Err("it panics".to_owned())) {
            Ok(played) => {
                inputs += played.inputs;
                broken += u64::from(!played.works);
            }
            Err(find) => {
                eprintln!(
                    "{name}: round {seed}: {find}\nPlay it again with: ./dev fuzz 1 --target {name} --seed {seed}"
                );
                return false;
            }
        }
        seed += 1;
    }
    let rounds = seed - wish.first;
    println!("{name}: {inputs} inputs in {rounds} rounds, nothing found");
    if broken > 0 {
        println!(
            "{name}: after {broken} rounds no member could change anything, because one of them had been made to lie"
        );
    }
    true
}

/// The seed of the round that is played.
static SEED: AtomicU64 = AtomicU64::new(0);

/// Ends the process when an input does not end. Rounds of the metadata group count none: their members have timeouts of
/// their own.
fn end_when_an_input_hangs() {
    let mut last = (u64::MAX, u64::MAX);
    loop {
        #[expect(
            clippy::disallowed_methods,
            reason = "no shard runs on this thread, and none must be waited for"
        )]
        std::thread::sleep(HANGS_AFTER);
        let now = (SEED.load(Ordering::Relaxed), INPUTS_READ.load(Ordering::Relaxed));
        if now == last {
            eprintln!(
                "an input of round {} does not end in {} s",
                now.0,
                HANGS_AFTER.as_secs()
            );
            std::process::exit(1);
        }
        last = now;
    }
}

fn main() -> ExitCode {
    let wish = match wish() {
        Ok(wish) => wish,
        Err(error) => {
            eprintln!("fuzz: {error}");
            return ExitCode::from(64);
        }
    };
    #[expect(
        clippy::disallowed_methods,
        reason = "it watches the thread that reads, whatever that does"
    )]
    drop(std::thread::spawn(end_when_an_input_hangs));
    let is_wished = |name: &str| wish.target.as_deref().is_none_or(|target| target == name);
    let mut is_clean = true;
    for target in TARGETS.iter().filter(|target| is_wished(target.name)) {
        is_clean &= play(target.name, &wish, |seed| {
            target.play(seed).map_err(|find| find.to_string())?;
            Ok(Round {
                inputs: target.inputs_per_round,
                works: true,
            })
        });
    }
    if is_wished(RAFT) {
        is_clean &= play(RAFT, &wish, |seed| {
            let played = raft::play(seed);
            Ok(Round {
                inputs: played.inputs,
                works: played.working > 0,
            })
        });
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
