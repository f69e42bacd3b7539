//! Promises that are broken on purpose: each is found by one of a few seeds, which are played in every build.
#![cfg(debug_assertions)]

use std::time::Duration;

use sim::{ClusterFaults, ClusterScenario, Durability};
use stdx::planted::Bug;

/// The bug is found by one of the seeds, and by the promise that it breaks; without it none of these seeds finds anything.
fn is_found(bug: Bug, scenario: &ClusterScenario, seeds: &[u64], complaint: &str) {
    let planted = ClusterScenario {
        planted: Some(bug),
        ..scenario.clone()
    };
    let failures = seeds.iter().filter_map(|seed| planted.run(*seed).err());
    let texts: Vec<String> = failures.map(|failure| failure.to_string()).collect();
    assert!(
        texts.iter().any(|text| text.contains(complaint)),
        "{bug:?} was planted, and no seed of {seeds:?} complained of \"{complaint}\": {texts:?}"
    );
    for seed in seeds {
        let innocent = scenario.run(*seed);
        assert!(
            innocent.is_ok(),
            "without a bug: {scenario:?}\n{}",
            innocent.unwrap_err()
        );
    }
}
