//! Seeds of clusters that grow, shrink, heal and change their replication, each of which has found something.

use sim::ClusterScenario;

fn must_pass(seed: u64) {
    if let Err(failure) = ClusterScenario::elastic_of_seed(seed).run(seed) {
        panic!("{failure}");
    }
}

#[test]
fn a_write_that_a_quorum_has_outlives_a_factor_that_falls_and_rises() {
    must_pass(117);
}

#[test]
fn a_node_restarts_with_fewer_shards_while_the_ring_goes_to_other_owners() {
    must_pass(159);
}

#[test]
fn a_repair_goes_on_with_the_other_replicas_when_one_leaves() {
    must_pass(149);
}

#[test]
fn a_node_joins_though_everybodys_first_seeds_have_left() {
    must_pass(173);
}
