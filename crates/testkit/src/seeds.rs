//! The seeds of simulated tests.

/// The seeds of this run: the fixed ones, and as many more as `CETO_SIM_SEEDS` in the environment asks for.
pub fn seeds(fixed: std::ops::Range<u64>) -> impl Iterator<Item = u64> {
    let more: u64 = std::env::var("CETO_SIM_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let first = 1_000_000 + fixed.start;
    fixed.chain(first..first + more)
}
