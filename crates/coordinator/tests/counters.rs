//! Counters whose data comes and goes: no addition that was acknowledged is lost.

use crate::support::{Cluster, SECOND, Shape, addition, addressed, counters, partition, sum};
use replica::TokenRange;
use tasks::{Origin, Spec};
use topology::Consistency::{self, All, Quorum};

const KEY: &[u8] = b"key";

fn add(cluster: &mut Cluster, level: Consistency) {
    let added = cluster.on(0, move |local| async move {
        local
            .coordinator
            .counters
            .add(vec![addressed(addition(KEY, 1))], &local.dated(level))
            .await
    });
    assert_eq!(added, Ok(()));
}

fn counted(cluster: &mut Cluster, node: usize, level: Consistency) -> i64 {
    let blocks = cluster.on(node, move |local| async move {
        let mut read = local
            .read(&counters(), partition(KEY), level, 100)
            .expect("enough live");
        let mut blocks = Vec::new();
        while let Some(block) = read.next_block().await.expect("enough answer") {
            blocks.push(block);
        }
        blocks
    });
    sum(&blocks)
}

#[test]
fn no_addition_is_lost_when_a_tablet_comes_back_by_way_of_a_replica_that_missed_one() {
    let mut cluster = Cluster::new(1, Shape::default());
    add(&mut cluster, All);
    // Node 2 misses the second addition of node 0 permanently.
    let (zero, two) = (cluster.id(0), cluster.id(2));
    cluster.simulation.set_link_up(zero, two, false);
    add(&mut cluster, Quorum);
    cluster.simulation.run_for(10 * SECOND);
    cluster.simulation.set_link_up(zero, two, true);
    // The tablet leaves node 0 and comes back, with what node 2 has.
    cluster.on(0, |local| async move {
        let store = local.shard.store(counters().id).expect("the table is open");
        store.set_awaited(vec![TokenRange::ALL]);
        let task = local
            .shard
            .tasks()
            .start(Spec::of(&replica::kinds::RESHARD), &Origin::Node);
        local
            .shard
            .discard_ranges(&store, &[TokenRange::ALL], &task)
            .await
            .expect("the disk works");
        task.end(&Ok::<(), String>(()));
    });
    cluster.set_live(1, false);
    assert_eq!(
        counted(&mut cluster, 0, Quorum),
        1,
        "the read has repaired node 0 from node 2"
    );
    cluster.set_live(1, true);
    cluster.on(0, |local| async move {
        let store = local.shard.store(counters().id).expect("the table is open");
        store.set_awaited(Vec::new());
    });
    add(&mut cluster, All);
    for node in 0..3 {
        assert_eq!(counted(&mut cluster, node, All), 3, "by node {node}");
    }
}
