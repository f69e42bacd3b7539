//! Directories that are restored from an earlier time, emptied, not mounted, or lost, step by step on three whole
//! nodes: what the node says, what the other two still serve, and where the remedy that it names leads.

use node::Directory;
use runtime::sim::{CrashKind, DirectoryCopy};
use sim::client::Answer;
use sim::model::Value;
use sim::story::{ALL, ONE, QUORUM, Story};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Until the hints for a node that is back are handed over.
const HINTS_WAIT: Duration = Duration::from_secs(20);
/// Until the others take a node for down.
const DOWN_WAIT: Duration = Duration::from_secs(40);
/// More file operations than a start has until it reports an accepted loss.
const CRASHES: u64 = 60;
/// The node to whose directory it happens.
const HIT: usize = 2;

/// Three nodes, each a seed, and a table with three copies on the token ring.
fn three_nodes(seed: u64) -> Story {
    let mut setup = Story::setup(3);
    setup.seeds = 3;
    let mut story = Story::begin(seed, &setup);
    let replication = "{'class': 'SimpleStrategy', 'replication_factor': 3} AND tablets = {'enabled': false}";
    story.must(0, &format!("CREATE KEYSPACE sea WITH replication = {replication}"), ALL);
    story.must(0, "CREATE TABLE sea.t (k int PRIMARY KEY, n int)", ALL);
    story
}

/// Writes rows by these nodes in turn; every third row is then changed by a conditional statement.
fn write(story: &mut Story, rows: std::ops::Range<i32>, nodes: &[usize], level: u16) {
    for k in rows {
        let node = nodes[k as usize % nodes.len()];
        let first = if k % 3 == 0 { -k } else { k };
        story.must(node, &format!("INSERT INTO sea.t (k, n) VALUES ({k}, {first})"), level);
        if k % 3 == 0 {
            let update = format!("UPDATE sea.t SET n = {k} WHERE k = {k} IF n = {first}");
            let answer = story.ask(node, &update, level);
            let Some(Answer::Rows(rows, _)) = &answer else {
                panic!("{update}: {answer:?}");
            };
            assert_eq!(rows[0].get("[applied]"), Some(&Value::Int(1)), "{update}");
        }
    }
}

/// The rows that a node does not answer as they were written.
fn missing(story: &mut Story, node: usize, rows: std::ops::Range<i32>, level: u16) -> Vec<i32> {
    let read = |k: &i32| story.must(node, &format!("SELECT n FROM sea.t WHERE k = {k}"), level) != Some(*k);
    rows.filter(read).collect()
}

#[track_caller]
fn must_have(story: &mut Story, nodes: &[usize], rows: std::ops::Range<i32>, level: u16) {
    for node in nodes {
        let missing = missing(story, *node, rows.clone(), level);
        assert!(missing.is_empty(), "node {node} at {level} misses {missing:?}");
    }
}

/// Removes the node that is down, and starts a new one on an empty workdir in its place.
fn replace(story: &mut Story, gone: &str) {
    story.cluster.crash(HIT, CrashKind::Kill);
    story.empty_directory(HIT, "");
    story.cluster.sim.run_for(DOWN_WAIT);
    let removed = story.operate(0, &format!("POST /storage_service/remove_node?host_id={gone}"));
    assert!(removed.contains(" 200 "), "{removed}");
    story.restart(HIT).expect("a new node joins");
    assert_ne!(story.host_id(HIT), gone);
}

/// What a story of an older directory ends with.
struct Older {
    story: Story,
    /// The host id of the node.
    host_id: String,
    /// All files of the node, as they were when it ran last.
    newest: DirectoryCopy,
    /// Whether it starts from the older ones.
    start: Result<(), String>,
}

/// The directory of a node is put back as it was before the node's last start. Rows 0 to 9 were written before, 10 to
/// 19 by all three afterwards, 20 to 29 at QUORUM by the other two.
fn put_back_an_older_directory() -> Older {
    let mut story = three_nodes(1);
    write(&mut story, 0..10, &[0, 1, 2], ALL);
    story.stop(HIT);
    let older = story.copy_workdir(HIT);
    story.restart(HIT).expect("nothing has changed");
    // Until the group has noted this start, and all nodes trust each other.
    story.cluster.sim.run_for(10 * SECOND);
    let host_id = story.host_id(HIT);
    write(&mut story, 10..20, &[0, 1, 2], ALL);
    story.must(1, "CREATE TABLE sea.later (k int PRIMARY KEY, n int)", ALL);
    story.stop(HIT);
    let newest = story.copy_workdir(HIT);
    story.put_back(HIT, &older);
    story.cluster.sim.run_for(5 * SECOND);
    write(&mut story, 20..30, &[0, 1], QUORUM);
    let start = story.restart(HIT);
    Older {
        story,
        host_id,
        newest,
        start,
    }
}

#[test]
fn an_older_directory_is_refused_and_the_newest_one_serves() {
    let mut older = put_back_an_older_directory();
    let reason = older.start.expect_err("it lacks what it has acknowledged");
    let tells = |part| reason.contains(part);
    assert!(tells("older than what ran last") && tells("removenode"), "{reason}");
    let story = &mut older.story;
    must_have(story, &[0, 1], 0..30, QUORUM);
    story.cluster.crash(HIT, CrashKind::Kill);
    story.put_back(HIT, &older.newest);
    story.restart(HIT).expect("it is the directory that ran last");
    story.cluster.sim.run_for(HINTS_WAIT);
    must_have(story, &[HIT], 0..30, ONE);
    must_have(story, &[0, 1, 2], 0..30, QUORUM);
    write(story, 30..40, &[0, 1, 2], ALL);
}

#[test]
fn an_older_directory_is_refused_and_a_new_node_takes_the_place_of_the_lost_one() {
    let mut older = put_back_an_older_directory();
    older.start.expect_err("it lacks what it has acknowledged");
    let story = &mut older.story;
    replace(story, &older.host_id);
    must_have(story, &[0, 1, 2], 0..30, QUORUM);
    write(story, 30..40, &[0, 1, 2], QUORUM);
    must_have(story, &[0, 1, 2], 30..40, QUORUM);
}

#[test]
#[cfg(debug_assertions)]
fn without_the_check_of_runs_an_older_directory_serves_and_lacks_rows() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::UncheckedRun));
    let mut older = put_back_an_older_directory();
    assert_eq!(older.start, Ok(()));
    let missing = missing(&mut older.story, HIT, 10..20, ONE);
    assert!(!missing.is_empty(), "rows that it had acknowledged are there");
}

#[test]
fn a_node_that_lost_its_metadata_rejoins_with_its_identity_and_its_rows() {
    let mut story = three_nodes(2);
    write(&mut story, 0..20, &[0, 1, 2], ALL);
    let host_id = story.host_id(HIT);
    story.cluster.crash(HIT, CrashKind::Kill);
    story.empty_directory(HIT, "metadata");
    let reason = story.restart(HIT).expect_err("nobody knows what it had promised");
    assert!(
        reason.contains("recover-metadata") && reason.contains("--rejoin"),
        "{reason}"
    );
    must_have(&mut story, &[0, 1], 0..20, QUORUM);
    story.must(0, "CREATE TABLE sea.later (k int PRIMARY KEY, n int)", QUORUM);
    write(&mut story, 20..30, &[0, 1], QUORUM);
    story.cluster.crash(HIT, CrashKind::Kill);
    let printed = story.rejoin(HIT).expect("a majority is there");
    assert!(printed.contains("another Raft id"), "{printed}");
    story.restart(HIT).expect("it has the metadata of the others");
    assert_eq!(story.host_id(HIT), host_id);
    // What it had is there before any repair.
    must_have(&mut story, &[HIT], 0..20, ONE);
    story.cluster.sim.run_for(HINTS_WAIT);
    must_have(&mut story, &[HIT], 0..30, ONE);
    must_have(&mut story, &[0, 1, 2], 0..30, QUORUM);
    story.must(HIT, "CREATE TABLE sea.last (k int PRIMARY KEY, n int)", ALL);
    write(&mut story, 30..40, &[0, 1, 2], ALL);
}

#[test]
fn a_node_that_lost_everything_is_refused_until_it_is_removed_and_joins_as_a_new_one() {
    let mut story = three_nodes(3);
    write(&mut story, 0..20, &[0, 1, 2], ALL);
    let gone = story.host_id(HIT);
    story.cluster.crash(HIT, CrashKind::PowerLoss);
    story.empty_directory(HIT, "");
    write(&mut story, 20..30, &[0, 1], QUORUM);
    story.cluster.sim.run_for(DOWN_WAIT);
    let reason = story.restart(HIT).expect_err("the address is that of a member");
    assert!(reason.contains(&gone) && reason.contains("remove"), "{reason}");
    must_have(&mut story, &[0, 1], 0..30, QUORUM);
    replace(&mut story, &gone);
    must_have(&mut story, &[0, 1, 2], 0..30, QUORUM);
    write(&mut story, 30..40, &[0, 1, 2], QUORUM);
    must_have(&mut story, &[0, 1, 2], 0..40, QUORUM);
}

#[test]
fn the_first_seed_that_lost_everything_forms_no_cluster_of_its_own_while_another_seed_is_there() {
    let mut story = three_nodes(4);
    write(&mut story, 0..20, &[0, 1, 2], ALL);
    story.cluster.crash(0, CrashKind::PowerLoss);
    story.empty_directory(0, "");
    story.cluster.sim.run_for(DOWN_WAIT);
    let reason = story.restart(0).expect_err("a member has its address");
    assert!(reason.contains("remove"), "{reason}");
    must_have(&mut story, &[1, 2], 0..20, QUORUM);
    // No node takes it for a seed of another cluster.
    for node in [1, 2] {
        story.stop(node);
        story.restart(node).expect("it goes on from its files");
        story.cluster.sim.run_for(10 * SECOND);
    }
    must_have(&mut story, &[1, 2], 0..20, QUORUM);
}

/// A voter's files are put back as they were earlier in its present run, so that its start is not refused; with another
/// voter, which was down, it decides what the third one knows to be decided otherwise. What that one says of other
/// members' metadata, and why it makes no change, if it does not.
fn two_histories() -> (Story, String, Option<String>) {
    let mut story = three_nodes(5);
    let [whole, restored, away] = [0, 1, 2];
    write(&mut story, 0..20, &[0, 1, 2], ALL);
    // Until all three vote.
    story.cluster.sim.run_for(10 * SECOND);
    let copy = story.copy_workdir(restored);
    story.cluster.crash(away, CrashKind::Kill);
    let create = |story: &mut Story, node: usize, name: &str| {
        story.must(
            node,
            &format!("CREATE TABLE sea.{name} (k int PRIMARY KEY, n int)"),
            QUORUM,
        );
    };
    for name in ["a", "b", "c"] {
        create(&mut story, whole, name);
    }
    story.cluster.split(&[whole], &[restored, away]);
    story.cluster.crash(restored, CrashKind::Kill);
    story.put_back(restored, &copy);
    for node in [restored, away] {
        story.restart(node).expect("its last start is noted");
    }
    for name in ["x", "y", "z", "u", "v"] {
        create(&mut story, restored, name);
    }
    story.cluster.set_links(whole, true, true);
    story.cluster.sim.run_for(20 * SECOND);
    let told = story.operate(whole, "GET /storage_service/metadata_differences");
    let refusal = match story.ask(whole, "CREATE TABLE sea.d (k int PRIMARY KEY, n int)", QUORUM) {
        Some(Answer::Error { message, .. }) => Some(message),
        _ => None,
    };
    (story, told, refusal)
}

#[test]
fn a_node_whose_metadata_differs_from_that_of_the_others_withdraws_and_rejoins() {
    let (mut story, told, refusal) = two_histories();
    assert!(told.contains("they applied different changes"), "{told}");
    let refusal = refusal.expect("it changes nothing");
    assert!(refusal.contains("ceto page metadata-differs"), "{refusal}");
    // Reads and writes continue, and the majority changes the schema.
    must_have(&mut story, &[0, 1, 2], 0..20, QUORUM);
    write(&mut story, 20..30, &[0, 1, 2], QUORUM);
    story.must(2, "CREATE TABLE sea.e (k int PRIMARY KEY, n int)", QUORUM);
    story.cluster.crash(0, CrashKind::Kill);
    story.rejoin(0).expect("a majority is there");
    story.restart(0).expect("it has the metadata of the others");
    story.cluster.sim.run_for(10 * SECOND);
    for node in 0..3 {
        let told = story.operate(node, "GET /storage_service/metadata_differences");
        assert!(
            told.contains("\"members\":[]") && told.contains("\"withdrawn\":null"),
            "{told}"
        );
    }
    story.must(0, "CREATE TABLE sea.f (k int PRIMARY KEY, n int)", ALL);
    must_have(&mut story, &[0, 1, 2], 0..30, QUORUM);
}

#[test]
#[cfg(debug_assertions)]
fn without_the_comparison_of_histories_no_operator_is_told() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::UncomparedHistory));
    let (_, told, _) = two_histories();
    assert!(
        told.contains("\"members\":[]") && told.contains("\"withdrawn\":null"),
        "{told}"
    );
}

#[test]
fn members_of_a_first_seed_that_lost_everything_and_formed_a_cluster_are_told_to_keep_their_files() {
    let mut story = three_nodes(6);
    write(&mut story, 0..20, &[0, 1, 2], ALL);
    let gone = story.host_id(0);
    for node in 0..3 {
        story.cluster.crash(node, CrashKind::PowerLoss);
    }
    story.empty_directory(0, "");
    story.restart(0).expect("no other seed answers, so it forms a cluster");
    for node in [1, 2] {
        let reason = story.restart(node).expect_err("its seed is in another cluster");
        assert!(
            reason.contains("Do not empty") && reason.contains(&gone) && !reason.contains("start it on an empty"),
            "{reason}"
        );
        story.cluster.crash(node, CrashKind::Kill);
    }
    // The remedy that it names.
    story.cluster.crash(0, CrashKind::Kill);
    story.empty_directory(0, "");
    for node in [1, 2] {
        story.cluster.restart(node);
    }
    for node in [1, 2] {
        story.until_served(node);
    }
    story.cluster.sim.run_for(DOWN_WAIT);
    let removed = story.operate(1, &format!("POST /storage_service/remove_node?host_id={gone}"));
    assert!(removed.contains(" 200 "), "{removed}");
    story.restart(0).expect("it joins as a new node");
    must_have(&mut story, &[0, 1, 2], 0..20, QUORUM);
}

/// Whether a node reports that some node missed all writes.
fn reports_everything_missed(story: &mut Story, node: usize) -> bool {
    let told = story.operate(node, "GET /storage_service/missed_writes");
    assert!(told.contains(" 200 "), "{told}");
    told.contains("\"first_s\":1,")
}

/// Rows 0 to 19 are on all nodes. Then a node is killed, and one of its directories is emptied.
fn empty_one(seed: u64, directory: &str) -> (Story, DirectoryCopy) {
    let mut story = three_nodes(seed);
    write(&mut story, 0..10, &[0, 1, 2], ALL);
    story.operate(HIT, "POST /storage_service/flush");
    write(&mut story, 10..20, &[0, 1, 2], ALL);
    story.cluster.crash(HIT, CrashKind::Kill);
    let whole = story.copy_workdir(HIT);
    story.empty_directory(HIT, directory);
    (story, whole)
}

#[track_caller]
fn must_be_refused(story: &mut Story, node: usize, directory: &str) {
    let reason = story.restart(node).expect_err("a directory is not the node's");
    let tells = |part: &str| reason.contains(part);
    assert!(
        tells(&format!("the {directory} directory /ceto/{directory}"))
            && tells("is empty")
            && tells("recover-directory"),
        "{reason}"
    );
    story.cluster.crash(node, CrashKind::Kill);
}

#[test]
fn a_directory_that_is_not_mounted_is_refused_and_the_node_serves_when_it_is_mounted_again() {
    for (seed, directory) in (10..).zip(["data", "commitlog", "hints"]) {
        let (mut story, whole) = empty_one(seed, directory);
        must_be_refused(&mut story, HIT, directory);
        must_have(&mut story, &[0, 1], 0..20, QUORUM);
        write(&mut story, 20..30, &[0, 1], QUORUM);
        story.put_back(HIT, &whole);
        story.restart(HIT).expect("it is the one that ran");
        // Before any repair.
        must_have(&mut story, &[HIT], 0..20, ONE);
        story.cluster.sim.run_for(HINTS_WAIT);
        must_have(&mut story, &[HIT], 0..30, ONE);
        assert!(!reports_everything_missed(&mut story, HIT));
    }
}

#[test]
fn a_node_whose_operator_accepts_the_loss_lacks_rows_until_all_are_read_at_all() {
    for (seed, directory, name) in [(20, Directory::Data, "data"), (21, Directory::Commitlog, "commitlog")] {
        let (mut story, _) = empty_one(seed, name);
        must_be_refused(&mut story, HIT, name);
        story.accept_loss(HIT, directory).expect("the directory is lost");
        story.restart(HIT).expect("its operator accepted the loss");
        let missing = missing(&mut story, HIT, 0..20, ONE);
        assert!(!missing.is_empty(), "{name}: nothing was lost");
        story.cluster.sim.run_for(30 * SECOND);
        for node in 0..3 {
            assert!(reports_everything_missed(&mut story, node), "{name}: node {node}");
        }
        must_have(&mut story, &[0, 1, HIT], 0..20, QUORUM);
        must_have(&mut story, &[HIT], 0..20, ALL);
        must_have(&mut story, &[HIT], 0..20, ONE);
        write(&mut story, 20..30, &[0, 1, 2], ALL);
        // The directory is the node's now, and the loss is reported until the operator releases the tombstones.
        story.stop(HIT);
        story.restart(HIT).expect("the directory is the one that ran");
        story.cluster.sim.run_for(30 * SECOND);
        assert!(reports_everything_missed(&mut story, HIT));
        story.operate(HIT, "POST /storage_service/release_tombstones");
        story.cluster.sim.run_for(30 * SECOND);
        for node in 0..3 {
            assert!(!reports_everything_missed(&mut story, node), "{name}: node {node}");
        }
        must_have(&mut story, &[0, 1, 2], 0..30, QUORUM);
    }
}

#[test]
fn an_accepted_loss_is_reported_whatever_file_operation_of_the_next_start_loses_power() {
    let (mut story, _) = empty_one(50, "data");
    let machine = story.cluster.machine(HIT);
    for operations in 0..CRASHES {
        story.empty_directory(HIT, "data");
        story.accept_loss(HIT, Directory::Data).expect("the directory is lost");
        story.cluster.restart(HIT);
        story
            .cluster
            .sim
            .crash_after_file_ops(machine, operations, CrashKind::PowerLoss);
        story.cluster.sim.run_for(5 * SECOND);
        story.cluster.crash(HIT, CrashKind::PowerLoss);
        story.restart(HIT).expect("its operator accepted the loss");
        assert!(
            reports_everything_missed(&mut story, HIT),
            "after {operations} operations"
        );
        story.operate(HIT, "POST /storage_service/release_tombstones");
        assert!(!reports_everything_missed(&mut story, HIT));
        story.cluster.crash(HIT, CrashKind::Kill);
    }
}

#[test]
fn a_node_whose_hints_are_lost_reports_that_every_node_missed_everything() {
    let mut story = three_nodes(30);
    story.cluster.crash(HIT, CrashKind::Kill);
    story.cluster.sim.run_for(DOWN_WAIT);
    write(&mut story, 0..20, &[0], QUORUM);
    story.stop(0);
    story.empty_directory(0, "hints");
    must_be_refused(&mut story, 0, "hints");
    story.accept_loss(0, Directory::Hints).expect("they are lost");
    story.restart(0).expect("its operator accepted the loss");
    story.restart(HIT).expect("nothing of it is lost");
    story.cluster.sim.run_for(HINTS_WAIT + 30 * SECOND);
    let missing = missing(&mut story, HIT, 0..20, ONE);
    assert!(!missing.is_empty(), "the hints were not lost");
    for node in 0..3 {
        assert!(reports_everything_missed(&mut story, node), "node {node}");
    }
    must_have(&mut story, &[0, 1, 2], 0..20, QUORUM);
    must_have(&mut story, &[0], 0..20, ALL);
    must_have(&mut story, &[0, 1, HIT], 0..20, ONE);
}

/// A node's sstables are put back as they were before a deletion that all nodes had acknowledged, without their marker,
/// and its operator accepts the loss. The others compact when the grace is over. What reads at ALL then say of the
/// deleted row, by each node.
fn accept_older_sstables() -> [Option<i32>; 3] {
    let mut story = three_nodes(40);
    let create = "CREATE TABLE sea.d (k int PRIMARY KEY, n int) WITH gc_grace_seconds = 600";
    story.must(0, create, ALL);
    story.must(0, "INSERT INTO sea.d (k, n) VALUES (1, 1)", ALL);
    story.stop(HIT);
    let machine = story.cluster.machine(HIT);
    let older = story.cluster.sim.copy_directory(machine, "/ceto/data");
    story.restart(HIT).expect("nothing has changed");
    story.must(0, "DELETE FROM sea.d WHERE k = 1", ALL);
    // Until every report is beyond it, and the grace is not over.
    story.cluster.sim.run_for(180 * SECOND);
    story.stop(HIT);
    story.cluster.sim.put_directory(machine, &older);
    story.cluster.sim.on_node(machine, || {
        runtime::fs::remove_file("/ceto/data/data-directory-id").expect("it is there");
        runtime::fs::sync_dir("/ceto/data").expect("the disk works");
    });
    let reason = story.restart(HIT).expect_err("nobody knows what the directory is");
    assert!(reason.contains("has files, but no marker"), "{reason}");
    story.cluster.crash(HIT, CrashKind::Kill);
    story.accept_loss(HIT, Directory::Data).expect("it may lack something");
    story.restart(HIT).expect("its operator accepted the loss");
    story.cluster.sim.run_for(900 * SECOND);
    for node in [0, 1] {
        for order in ["flush", "compact"] {
            story.operate(node, &format!("POST /storage_service/{order}"));
        }
    }
    [0, 1, HIT].map(|node| story.must(node, "SELECT n FROM sea.d WHERE k = 1", ALL))
}

#[test]
fn a_deleted_row_does_not_come_back_with_older_sstables_whose_loss_was_accepted() {
    assert_eq!(accept_older_sstables(), [None; 3]);
}

#[test]
#[cfg(debug_assertions)]
fn without_holding_tombstones_a_deleted_row_comes_back_with_older_sstables() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::ForgottenMiss));
    assert_eq!(accept_older_sstables(), [Some(1); 3]);
}

#[test]
#[cfg(debug_assertions)]
fn without_the_check_of_directories_a_node_serves_without_its_rows() {
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::UncheckedDirectory));
    for (seed, directory) in [(20, "data"), (21, "commitlog")] {
        let (mut story, _) = empty_one(seed, directory);
        assert_eq!(story.restart(HIT), Ok(()), "{directory}");
        let missing = missing(&mut story, HIT, 0..20, ONE);
        assert!(
            !missing.is_empty(),
            "{directory}: rows that it had acknowledged are there"
        );
    }
}
