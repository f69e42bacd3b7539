//! Tablets that move to another node and back, on whole nodes.

use std::time::Duration;

use runtime::sim::CrashKind;
use sim::story::{ALL, Story};

const SECOND: Duration = Duration::from_secs(1);
/// More commands of the metadata than its log keeps before a snapshot, and more bytes than it has without one.
const COMMANDS: u32 = 700;
const COMMAND_BYTES: usize = 15_000;
/// The node that the tablet leaves, and to which it comes back.
const NODE: usize = 2;

/// Three nodes, and a table of one tablet with one copy, which is on the last of them.
struct Scene {
    story: Story,
    /// The host ids.
    hosts: Vec<String>,
}

impl Scene {
    fn new(seed: u64) -> Self {
        let mut story = Story::begin(seed, &Story::setup(3));
        let answer = story.operate(0, "POST /storage_service/tablets/balancing?enabled=false");
        assert!(answer.contains(" 200 "), "{answer}");
        let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 1}";
        let keyspace = format!("CREATE KEYSPACE sea WITH replication = {replication} AND tablets = {{'initial': 1}}");
        story.must(0, &keyspace, ALL);
        let table = "CREATE TABLE sea.t (k int PRIMARY KEY, n int) WITH gc_grace_seconds = 0";
        story.must(0, table, ALL);
        let hosts = (0..3).map(|node| story.host_id(node)).collect();
        let mut scene = Self { story, hosts };
        if let Some(other) = (0..NODE).find(|node| scene.is_on(*node)) {
            scene.begin_move(other, NODE);
            scene.story.cluster.sim.run_for(5 * SECOND);
        }
        assert!(scene.is_on(NODE));
        scene
    }

    /// An operator moves the tablet.
    fn begin_move(&mut self, from: usize, to: usize) {
        let (from, to) = (&self.hosts[from], &self.hosts[to]);
        let what = format!("ks=sea&table=t&token=0&host={from}&dst_host={to}&dst_shard=0");
        let cluster = &mut self.story.cluster;
        let _ = cluster.order_apart(0, &format!("POST /ceto/tasks/move_tablet?{what}"));
    }

    /// Whether the first node says that the tablet is on a node, and nowhere else.
    fn is_on(&mut self, node: usize) -> bool {
        let answer = self.story.operate(0, "GET /storage_service/describe_ring/sea?table=t");
        answer.contains(&format!("\"endpoints\":[\"10.0.0.{}\"]", node + 1))
    }
}

/// The node is killed when this has passed since the tablet began to leave it. None when the move does not end without
/// it.
fn killed_after(seed: u64, time: Duration) -> Option<Scene> {
    let mut scene = Scene::new(seed);
    scene.story.must(0, "INSERT INTO sea.t (k, n) VALUES (1, 1)", ALL);
    scene.begin_move(NODE, 0);
    scene.story.cluster.sim.run_for(time);
    scene.story.cluster.crash(NODE, CrashKind::Kill);
    scene.story.cluster.sim.run_for(3 * SECOND);
    scene.is_on(0).then_some(scene)
}

/// A row is deleted while the node is down, and its tombstone is gone. Then the tablet begins to come back, before the
/// node is started again: what it hears of the moves comes with a snapshot of the metadata. The node may be killed once
/// more soon after its start. What becomes of the row.
fn row_behind_a_jump(mut scene: Scene, killed_again: Option<Duration>) -> Option<i32> {
    let story = &mut scene.story;
    story.must(0, "DELETE FROM sea.t WHERE k = 1", ALL);
    story.operate(0, "POST /storage_service/flush");
    story.operate(0, "POST /storage_service/keyspace_compaction/sea");
    scene.begin_move(0, NODE);
    scene.story.cluster.sim.run_for(2 * SECOND);
    for command in 0..COMMANDS {
        let comment = format!("{command:03}").repeat(COMMAND_BYTES / 3);
        let alter = format!("ALTER TABLE sea.t WITH comment = '{comment}'");
        scene.story.must(0, &alter, ALL);
    }
    if let Some(time) = killed_again {
        scene.story.cluster.restart(NODE);
        scene.story.cluster.sim.run_for(time);
        scene.story.cluster.crash(NODE, CrashKind::Kill);
    }
    scene.story.restart(NODE).expect("nothing is wrong with it");
    scene.story.cluster.sim.run_for(30 * SECOND);
    assert!(scene.is_on(NODE), "the tablet did not come back");
    scene.story.must(0, "SELECT n FROM sea.t WHERE k = 1", ALL)
}

/// The earliest moment at which the move ends although the node is killed; microseconds.
fn earliest() -> u64 {
    let (mut early, mut late) = (0_u64, 2_000_000);
    while late - early > 10 {
        let between = early.midpoint(late);
        match killed_after(1, Duration::from_micros(between)) {
            Some(_) => late = between,
            None => early = between,
        }
    }
    late
}

fn scene(micros: u64) -> Scene {
    killed_after(1, Duration::from_micros(micros)).expect("it is killed later than at the earliest moment")
}

/// What becomes of the row when the node is killed at the earliest moment, and at moments soon after: it has heard of
/// the end or not.
fn rows_behind_a_jump() -> Vec<Option<i32>> {
    let earliest = earliest();
    let moments = (0..5).map(|step| earliest + 100 * step);
    moments.map(|micros| row_behind_a_jump(scene(micros), None)).collect()
}

/// The metadata of the move back may be durable when what the node has of the tablet has not left yet.
#[test]
fn a_tablet_that_comes_back_has_nothing_of_before_whenever_its_node_is_killed_once_more() {
    let earliest = earliest();
    for millis in (100..1_300).step_by(100) {
        let row = row_behind_a_jump(scene(earliest), Some(Duration::from_millis(millis)));
        assert_eq!(
            row, None,
            "a deleted row is back when the node is killed {millis} ms after its start"
        );
    }
}

#[test]
fn a_tablet_that_comes_back_while_its_node_is_away_has_nothing_of_before() {
    let rows = rows_behind_a_jump();
    assert!(rows.iter().all(Option::is_none), "a deleted row is back: {rows:?}");
}

#[test]
#[cfg(debug_assertions)]
fn a_tablet_that_is_kept_over_a_jump_of_the_metadata_is_found() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::KeepsTabletOverJump));
    let rows = rows_behind_a_jump();
    assert!(rows.iter().any(Option::is_some), "the planted bug did nothing");
}
