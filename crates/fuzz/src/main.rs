//! `fuzz [SECONDS] [--target NAME] [--seed SEED]`: each target for so many seconds (60), from a seed on (1), a round for each seed. See the crate.

use fuzz::{DECODERS, raft};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Duration;

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
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text} is no number"));
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--target" => wish.target = Some(value()?),
            "--seed" => wish.first = number(&value()?)?,
            seconds => wish.time = Duration::from_secs(number(seconds)?),
        }
    }
    Ok(wish)
}

/// Plays rounds until the time is over. False after a panic.
fn play(name: &str, wish: &Wish, mut round: impl FnMut(u64) -> (u64, bool)) -> bool {
    let begun = runtime::now();
    let (mut seed, mut inputs, mut broken) = (wish.first, 0, 0);
    while runtime::now() - begun < wish.time {
        let Ok((played, works)) = catch_unwind(AssertUnwindSafe(|| round(seed))) else {
            eprintln!("{name}: round {seed} panics; play it again with: fuzz 1 --target {name} --seed {seed}");
            return false;
        };
        inputs += played;
        broken += u64::from(!works);
        seed += 1;
    }
    let rounds = seed - wish.first;
    println!("{name}: {inputs} inputs in {rounds} rounds, no panic");
    if broken > 0 {
        println!(
            "{name}: after {broken} rounds no member could change anything, because one of them had been made to lie"
        );
    }
    true
}

fn main() -> ExitCode {
    let wish = match wish() {
        Ok(wish) => wish,
        Err(error) => {
            eprintln!("fuzz: {error}");
            return ExitCode::from(64);
        }
    };
    let is_wished = |name: &str| wish.target.as_deref().is_none_or(|target| target == name);
    let mut is_clean = true;
    for target in DECODERS.iter().filter(|target| is_wished(target.name)) {
        is_clean &= play(target.name, &wish, |seed| {
            target.play(seed);
            (fuzz::INPUTS_PER_ROUND, true)
        });
    }
    if is_wished("raft") {
        is_clean &= play("raft", &wish, |seed| {
            let played = raft::play(seed);
            (played.inputs, played.working > 0)
        });
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
