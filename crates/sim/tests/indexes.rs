//! Secondary indexes on whole nodes: each node finds rows by their values wherever they are, in memory and in files,
//! overwritten and deleted, while tables are split, nodes are killed and indexes are built. And clusters whose clients
//! read by values while all that strikes nodes strikes them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use runtime::sim::CrashKind;
use sim::client::Answer;
use sim::cluster::ClusterSetup;
use sim::model::Value;
use sim::story::{ALL, ONE, QUORUM, Story};
use sim::{ClusterFaults, ClusterScenario, Workload};

const SECOND: Duration = Duration::from_secs(1);
const PARTITIONS: i32 = 10;
/// Clustering rows of a partition.
const ROWS: i32 = 6;
const VALUES: i32 = 8;

/// Three nodes with three copies, and what their one table has.
struct Sea {
    story: Story,
    /// By partition and clustering key, the value.
    rows: BTreeMap<(i32, i32), i32>,
}

impl Sea {
    fn begin(seed: u64) -> Self {
        let setup = ClusterSetup {
            shards: vec![1; 3],
            ..Story::setup(3)
        };
        let mut story = Story::begin(seed, &setup);
        let replication = "{'class': 'NetworkTopologyStrategy', 'datacenter1': 3}";
        let keyspace = format!("CREATE KEYSPACE sea WITH replication = {replication} AND tablets = {{'initial': 2}}");
        story.must(0, &keyspace, ALL);
        // Each step says what is compacted.
        let compaction = "{'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}";
        let table = "CREATE TABLE sea.t (k int, c int, v int, PRIMARY KEY (k, c))";
        story.must(0, &format!("{table} WITH compaction = {compaction}"), ALL);
        Self {
            story,
            rows: BTreeMap::new(),
        }
    }

    /// Writes every third row, from the one of that number on, and deletes some.
    fn write(&mut self, round: i32) {
        for at in (round % 3..PARTITIONS * ROWS).step_by(3) {
            let (k, c) = (at % PARTITIONS, at / PARTITIONS);
            if (at + round) % 7 == 0 {
                self.must(&format!("DELETE FROM sea.t WHERE k = {k} AND c = {c}"));
                self.rows.remove(&(k, c));
                continue;
            }
            let v = (at + round * 3) % VALUES;
            self.must(&format!("INSERT INTO sea.t (k, c, v) VALUES ({k}, {c}, {v})"));
            self.rows.insert((k, c), v);
        }
    }

    fn must(&mut self, statement: &str) {
        self.story.must(0, statement, ALL);
    }

    fn operate(&mut self, request: &str) {
        for node in 0..3 {
            self.story.operate(node, request);
        }
    }

    /// Every node finds the rows of every value, by what it has itself and at QUORUM.
    fn check(&mut self, when: &str) -> Result<(), String> {
        for (node, level) in [(0, ONE), (1, ONE), (2, ONE), (1, QUORUM)] {
            for value in 0..VALUES {
                let read = format!("SELECT k, c, v FROM sea.t WHERE v = {value} ALLOW FILTERING");
                let Some(Answer::Rows(rows, _)) = self.story.ask(node, &read, level) else {
                    return Err(format!("{when}: node {node} does not answer {read}"));
                };
                let int = |row: &BTreeMap<String, Value>, name: &str| match row.get(name) {
                    Some(Value::Int(n)) => *n,
                    _ => -1,
                };
                let found: BTreeSet<(i32, i32)> = rows.iter().map(|row| (int(row, "k"), int(row, "c"))).collect();
                let expected = self.rows.iter().filter(|(_, v)| **v == value);
                let expected: BTreeSet<(i32, i32)> = expected.map(|(key, _)| *key).collect();
                if found != expected {
                    let missing: Vec<_> = expected.difference(&found).collect();
                    let stale: Vec<_> = found.difference(&expected).collect();
                    return Err(format!("{when}: missing {missing:?}, stale {stale:?}"));
                }
            }
        }
        Ok(())
    }

    /// Splits each tablet in two, and waits until all nodes agree.
    fn split(&mut self, tablets: u32) {
        let request = format!("POST /ceto/tasks/resize_table?ks=sea&table=t&tablet_count={tablets}");
        self.story.cluster.order(0, &request);
        let read =
            "SELECT last_token FROM system.tablets WHERE keyspace_name = 'sea' AND table_name = 't' ALLOW FILTERING";
        for node in 0..3 {
            let is_split = (0..60).any(|_| {
                self.story.cluster.sim.run_for(SECOND);
                let answer = self.story.ask(node, read, ONE);
                matches!(answer, Some(Answer::Rows(rows, _)) if rows.len() == tablets as usize)
            });
            assert!(is_split, "node {node} has {tablets} tablets");
        }
    }
}

/// What rows are found by their values after each step; the first step after which a row is missing or stale.
fn story(seed: u64) -> Result<(), String> {
    let mut sea = Sea::begin(seed);
    sea.must("CREATE INDEX by_v ON sea.t (v)");
    // Memory is short, so some rows may be in files before anything is flushed. Here some are.
    sea.write(1);
    sea.operate("POST /storage_service/flush");
    sea.check("a third in files")?;
    sea.write(0);
    sea.write(2);
    sea.check("the rest in memory")?;
    sea.write(3);
    sea.check("overwritten in memory")?;
    sea.operate("POST /storage_service/flush");
    sea.check("flushed")?;
    (4..6).for_each(|round| sea.write(round));
    sea.check("overwritten in memory, with older values in files")?;
    sea.operate("POST /storage_service/flush");
    sea.check("overwritten in files")?;
    sea.operate("POST /storage_service/compact");
    sea.check("compacted")?;
    sea.write(6);
    sea.split(4);
    sea.check("split")?;
    sea.must("DROP INDEX sea.by_v");
    sea.write(7);
    sea.must("CREATE INDEX by_v ON sea.t (v)");
    sea.check("as soon as the index is created again")?;
    sea.story.cluster.sim.run_for(10 * SECOND);
    sea.check("when the index is built")?;
    sea.write(8);
    sea.story.cluster.crash(1, CrashKind::Kill);
    sea.story
        .restart(1)
        .map_err(|why| format!("node 1 does not start: {why}"))?;
    sea.story.cluster.sim.run_for(5 * SECOND);
    sea.check("after a node was killed")
}

#[test]
fn every_node_finds_rows_by_their_values_wherever_they_are() {
    story(70).expect("nothing is missing or stale");
}

/// A cluster whose clients create and drop indexes and read by values.
fn indexed(faults: ClusterFaults) -> ClusterScenario {
    ClusterScenario {
        faults,
        rounds: 3,
        workload: Workload {
            indexes: true,
            ..Workload::default()
        },
        ..ClusterScenario::new(3)
    }
}

const KILLS: ClusterFaults = ClusterFaults {
    kills: true,
    power_losses: true,
    splits: true,
    ..ClusterFaults::NONE
};

#[test]
fn clients_find_rows_by_their_values_while_nodes_fail() {
    for seed in 0..2 {
        let report = indexed(KILLS).run(seed).unwrap_or_else(|failure| panic!("{failure}"));
        assert!(
            report.counts.by_value > 20 && report.counts.index_changes > 0,
            "{report:?}"
        );
    }
}

#[test]
fn a_query_that_is_planned_with_an_index_is_answered_where_the_index_is_dropped() {
    let scenario = ClusterScenario::of_seed(5_000_063);
    assert!(scenario.workload.indexes);
    scenario.run(5_000_063).unwrap_or_else(|failure| panic!("{failure}"));
}

#[cfg(debug_assertions)]
mod planted {
    use stdx::planted::{Bug, Planted};

    use super::story;

    #[track_caller]
    fn is_found(bug: Bug, when: &str) {
        let _planted = Planted::new(Some(bug));
        let why = story(70).expect_err("the planted bug is found");
        assert!(why.starts_with(when), "{bug:?} is found at another step: {why}");
    }

    #[test]
    fn a_row_that_a_flush_does_not_list_is_found() {
        is_found(Bug::LostPosting, "a third in files: missing");
    }

    #[test]
    fn a_value_that_overwrites_another_one_and_is_not_listed_is_found() {
        is_found(Bug::UnlistedOverwrite, "overwritten in memory: missing");
    }

    #[test]
    fn a_stale_row_is_found() {
        is_found(Bug::StaleRowReturned, "overwritten in memory: missing [], stale");
    }

    #[test]
    fn rows_that_a_compaction_lists_wrongly_are_found() {
        // The first files have deletions that may be purged, so they are rewritten at once.
        is_found(Bug::MisplacedTerms, "a third in files: missing");
    }

    #[test]
    fn rows_in_memory_from_before_the_index_are_found() {
        is_found(Bug::UnscannedMemtable, "as soon as the index is created again: missing");
    }

    #[test]
    fn a_build_that_leaves_out_the_end_of_an_sstable_is_found() {
        is_found(Bug::UnfinishedBuild, "as soon as the index is created again: missing");
    }
}
