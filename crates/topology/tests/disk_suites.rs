//! The level of a node's disks, as text: the suite in tests/disk.
//!
//! A case begins with `judge`, and has the thresholds in percent as arguments: `warn=`, `critical=`. Each line after it
//! is what a file system has used and what it has available, in GiB; the answer has for each the utilisation, the
//! level, and how long the node waits before it looks again.

use testkit::Case;
use topology::{DiskLevel, DiskLimits, Utilization};

fn threshold(case: &Case, name: &str) -> Option<Utilization> {
    let mut words = case.arguments().split_whitespace();
    let text = words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?;
    let percent: f64 = text.parse().expect("a percentage");
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a percentage is between 0 and 100"
    )]
    Some(Utilization((percent * 10_000.0).round() as u32))
}

fn judge(case: &Case) -> String {
    let limits = DiskLimits {
        warn: threshold(case, "warn"),
        critical: threshold(case, "critical"),
    };
    let mut level = DiskLevel::Normal;
    let line = |line: &str| {
        let mut gib = line
            .split_whitespace()
            .map(|n| n.parse::<f64>().expect("a number of GiB"));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the suite has small numbers"
        )]
        let mut bytes = || (gib.next().expect("two numbers") * f64::from(1 << 30)) as u64;
        let (used, available) = (bytes(), bytes());
        let now = Utilization::of(used, available);
        level = limits.judge(level, now);
        format!("{now} {} {:?}", level.name(), limits.look_after(now, available))
    };
    case.input().lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn levels_begin_at_their_thresholds_and_end_below_them() {
    testkit::run("tests/disk/level.txt", |case| match case.command() {
        "judge" => judge(case),
        other => panic!("line {}: no command is called {other}", case.line),
    });
}
