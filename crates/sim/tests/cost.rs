//! What a cluster costs that has nothing to do: hours of simulated clusters are mostly such.

use std::time::Duration;

use sim::story::Story;

/// Simulated time that is looked at.
const SECONDS: u64 = 60;
/// Events and turns of a simulated second of three nodes, at most; they take 1,300. Pings of the failure detector and
/// heartbeats of the metadata group are most of them.
const STEPS_MAX: u64 = 2_000;

#[test]
fn an_idle_cluster_takes_few_steps() {
    let mut story = Story::begin(1, &Story::setup(3));
    story.cluster.set_rest(true);
    let before = story.cluster.sim.steps();
    story.cluster.sim.run_for(Duration::from_secs(SECONDS));
    let steps = (story.cluster.sim.steps() - before) / SECONDS;
    assert!(steps > 0 && steps <= STEPS_MAX, "{steps} steps a simulated second");
}
