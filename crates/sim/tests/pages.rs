//! Pages of one node's tables, while tablets go from one of its shards to another.

use std::time::Duration;

use sim::client::Answer;
use sim::cluster::ClusterSetup;
use sim::story::{ALL, ONE, Story};

const MILLI: Duration = Duration::from_millis(1);
const PARTITIONS: usize = 8;
const ROWS: usize = 16;
/// A partition is more than a block, so that its rest is read from the disk.
const VALUE_BYTES: usize = 8_000;
/// A token of each of four tablets.
const TOKENS: [i64; 4] = [-7 << 60, -3 << 60, 3 << 60, 7 << 60];
const READ: &str = "SELECT k, c FROM sea.w BYPASS CACHE";

/// One node of two shards. The first has all four tablets, whose rows are in files of a slow disk.
fn begin() -> Story {
    let setup = ClusterSetup {
        shards: vec![2],
        ..Story::setup(1)
    };
    let mut story = Story::begin(7, &setup);
    story.operate(0, "POST /storage_service/tablets/balancing?enabled=false");
    let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}";
    let keyspace = format!("CREATE KEYSPACE sea WITH replication = {replication} AND tablets = {{'initial': 4}}");
    story.must(0, &keyspace, ALL);
    story.must(0, "CREATE TABLE sea.w (k int, c int, v text, PRIMARY KEY (k, c))", ALL);
    for token in TOKENS {
        move_to(&mut story, token, 0);
        story.cluster.sim.run_for(2_000 * MILLI);
    }
    let value = "x".repeat(VALUE_BYTES);
    for (k, c) in (0..PARTITIONS).flat_map(|k| (0..ROWS).map(move |c| (k, c))) {
        story.must(
            0,
            &format!("INSERT INTO sea.w (k, c, v) VALUES ({k}, {c}, '{value}')"),
            ALL,
        );
    }
    story.operate(0, "POST /storage_service/flush");
    let machine = story.cluster.machine(0);
    story.cluster.sim.set_disk_delay(machine, MILLI);
    story
}

/// An operator moves a tablet to a shard, where it is not there.
fn move_to(story: &mut Story, token: i64, shard: u32) {
    let what = format!("ks=sea&table=w&token={token}&dst_shard={shard}");
    let _ = story
        .cluster
        .order_apart(0, &format!("POST /ceto/tasks/move_tablet?{what}"));
}

/// How many rows a page has, and the state from which the next continues.
fn page(story: &mut Story, rows: i32, state: Option<Vec<u8>>) -> (usize, Option<Vec<u8>>) {
    match story.ask_page(0, READ, ONE, rows, state) {
        Some(Answer::Rows(rows, next)) => (rows.len(), next),
        other => panic!("{READ}: {other:?}"),
    }
}

#[test]
fn a_page_that_goes_on_inside_a_partition_has_all_rows_while_a_tablet_leaves_its_shard() {
    let mut story = begin();
    for attempt in 0..160_u32 {
        let (mut count, mut state) = page(&mut story, 1, None);
        // The last tablet moves back and forth, and some page is read in the moment in which it leaves the first shard.
        move_to(&mut story, TOKENS[3], 1 - attempt % 2);
        story.cluster.sim.run_for(MILLI / 4 * (attempt / 2));
        while state.is_some() {
            let (more, next) = page(&mut story, 1_000, state);
            (count, state) = (count + more, next);
        }
        assert_eq!(count, PARTITIONS * ROWS, "attempt {attempt}");
        story.cluster.sim.run_for(500 * MILLI);
    }
}
