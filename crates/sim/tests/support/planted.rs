//! Bugs that are planted, and the seeds that find them.

use sim::ClusterScenario;
use stdx::planted::Bug;

/// Plays seeds until one of them finds the bug: by the promise that it breaks, not by an error that it causes.
///
/// Most tests say how often one seed finds it: with `CETO_MEASURE_SEEDS=30` in the environment a test plays so many
/// seeds, whatever they find, and prints how many did; with `CETO_MEASURE_HEALTHY=1` besides nothing is planted, and
/// none should. The ranges are so long that all seeds miss the bug with a probability far below one in a thousand, also
/// when a change of the workload has made it rarer; the seeds after the first that finds it cost nothing.
pub fn is_found(bug: Bug, scenario: &ClusterScenario, seeds: std::ops::Range<u64>, complaints: &[&str]) {
    let measured: Option<u64> = std::env::var("CETO_MEASURE_SEEDS").ok().and_then(|n| n.parse().ok());
    let is_healthy = std::env::var_os("CETO_MEASURE_HEALTHY").is_some();
    let planted = ClusterScenario {
        planted: (!is_healthy).then_some(bug),
        ..scenario.clone()
    };
    let finds = |seed: u64| match planted.run(seed) {
        Ok(_) => Err(None),
        Err(failure) => {
            let text = failure.to_string();
            let is_it = complaints.iter().any(|complaint| text.contains(complaint));
            if is_it { Ok(()) } else { Err(Some(text)) }
        }
    };
    if let Some(measured) = measured {
        let others: Vec<_> = (1000..1000 + measured).filter_map(|seed| finds(seed).err()).collect();
        let found = measured - others.len() as u64;
        let others: Vec<String> = others.into_iter().flatten().collect();
        println!(
            "{bug:?}: {found} of {measured} seeds find it; {} others: {others:?}",
            others.len()
        );
        return;
    }
    let mut others = Vec::new();
    for seed in seeds {
        match finds(seed) {
            Ok(()) => return,
            Err(other) => others.extend(other),
        }
    }
    panic!("{bug:?} was planted, and no seed complained of {complaints:?}, but of {others:?}");
}
