//! Clusters of two releases, step by step: upgrade, rollback, upgrade again.
//!
//! An *old* node is one whose configuration lacks the feature `per_partition_rate_limit`. It reads records exactly as a
//! build from before the feature does: the field is unknown to it, and it does not say that it has the feature.
//! Everything else is real: `rpc`, the metadata group, and the disk.

use crate::support;
use crate::support::{SECOND, Sea, dir};
use cluster::{ChangeError, Cluster, ClusterError, PER_PARTITION_RATE_LIMIT};
use record::Known;
use runtime::sim::CrashKind;
use schema::{Column, ColumnKind, Keyspace, RateLimits, Schema, Table, TableId, TableOptions};
use std::collections::BTreeMap;
use std::sync::Arc;
use types::CqlType;
use uuid::Uuid;

/// A rung of the ladder above that of this release.
const SECOND_RUNG: &str = "second_rung";

/// How a node is built.
#[derive(Clone, Copy, PartialEq)]
enum Build {
    Old,
    New,
    /// Of a release with one rung more.
    Newer,
}

fn set_build(sea: &Sea, number: usize, build: Build) {
    let mut config = sea.nodes[number].config.borrow_mut();
    let (release, features): (_, &[&str]) = match build {
        Build::Old => ("1.0", &[]),
        Build::New => ("1.1", &[PER_PARTITION_RATE_LIMIT]),
        Build::Newer => ("1.2", &[PER_PARTITION_RATE_LIMIT, SECOND_RUNG]),
    };
    release.clone_into(&mut config.release);
    config.features = features.iter().map(|feature| (*feature).to_owned()).collect();
}

/// A cluster whose nodes are all of one build.
fn formed(seed: u64, count: usize, build: Build) -> Sea {
    let mut sea = Sea::new(seed, count);
    for number in 0..count {
        set_build(&sea, number, build);
    }
    for number in 0..count {
        sea.start(number);
    }
    sea.expect_normal(0..count);
    sea
}

/// Stops a node and starts it as another build.
fn rebuild(sea: &mut Sea, number: usize, build: Build) {
    sea.crash(number, CrashKind::Kill);
    set_build(sea, number, build);
    sea.restart(number);
}

/// The members know which build a node is.
fn expect_build(sea: &mut Sea, number: usize, build: Build) {
    let (has_first, has_second) = (build != Build::Old, build == Build::Newer);
    sea.expect("the members know the build of a node", |views| {
        views.iter().all(|view| {
            let metadata = view.metadata();
            let node = metadata.topology.node(support::host(number));
            node.is_some_and(|node| {
                node.features.contains(PER_PARTITION_RATE_LIMIT) == has_first
                    && node.features.contains(SECOND_RUNG) == has_second
            })
        })
    });
}

fn table(name: &str, reads: Option<u32>) -> Table {
    let columns = vec![Column::new("k", CqlType::Int, ColumnKind::PartitionKey)];
    let options = TableOptions {
        rate_limits: RateLimits { reads, writes: None },
        ..TableOptions::default()
    };
    let (high, low) = types::token::murmur3_x64_128(name.as_bytes(), 0);
    Table::new("ks", name, TableId(Uuid::from_u64_pair(high, low)), columns, options)
}

/// The schema with one table more.
fn with_table(now: &Schema, table: Table) -> Schema {
    let mut next = now.clone();
    next.version = Uuid::from_u128(now.version.as_u128() + 1);
    let empty = || Keyspace {
        name: "ks".to_owned(),
        replication: BTreeMap::new(),
        durable_writes: true,
        tablets: None,
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: BTreeMap::new(),
    };
    let keyspace = next
        .keyspaces
        .entry("ks".to_owned())
        .or_insert_with(|| Arc::new(empty()));
    let tables = &mut Arc::make_mut(keyspace).tables;
    tables.insert(table.name.clone(), Arc::new(table));
    next
}

/// CREATE TABLE through a node, repeated while concurrent changes of the schema conflict with it.
fn create(sea: &mut Sea, number: usize, name: &str, reads: Option<u32>) -> Result<(), ChangeError> {
    let name = name.to_owned();
    sea.on(number, move |cluster: std::rc::Rc<Cluster>| async move {
        loop {
            let now = cluster.metadata().schema.clone();
            let next = Arc::new(with_table(&now, table(&name, reads)));
            match cluster.propose_schema(now.version, next).await {
                Err(ChangeError::Conflict) => runtime::sleep(SECOND / 50).await,
                result => return result,
            }
        }
    })
}

fn expect_table_everywhere(sea: &mut Sea, count: usize, name: &str, reads: Option<u32>) {
    let expected = table(name, reads);
    sea.expect(&format!("every node has {name}"), |views| {
        views.len() == count
            && views.iter().all(|view| {
                let schema = view.metadata().schema.clone();
                schema
                    .table("ks", &expected.name)
                    .is_some_and(|found| **found == expected)
            })
    });
}

fn expect_enabled(sea: &mut Sea, count: usize) {
    sea.expect("the feature is enabled", |views| {
        views.len() == count && views.iter().all(|view| view.has_feature(PER_PARTITION_RATE_LIMIT))
    });
}

#[track_caller]
fn expect_needs_feature(result: Result<(), ChangeError>, table: &str, address: &str) {
    let Err(ChangeError::NeedsFeature(why)) = result else {
        panic!("a table that an old node cannot read is not refused as that: {result:?}");
    };
    let expected =
        format!("table ks.{table}, options, per_partition_rate_limit needs feature 'per_partition_rate_limit'");
    assert!(why.starts_with(&expected), "{why}");
    assert!(
        why.contains(address) && why.contains("(release 1.0)"),
        "the node to upgrade is not named: {why}"
    );
}

fn address(sea: &Sea, number: usize) -> String {
    sea.nodes[number].config.borrow().internode.ip().to_string()
}

#[test]
fn a_rolling_upgrade_takes_the_new_option_only_when_the_last_node_knows_it() {
    for seed in 1..=3 {
        let mut sea = formed(seed, 3, Build::Old);
        create(&mut sea, 0, "before", None).expect("old nodes create tables");
        for upgraded in 0..3 {
            // The last node that is still old is named, whichever node is asked.
            let old = address(&sea, upgraded);
            for asked in 0..3 {
                let name = format!("early{upgraded}{asked}");
                let refused = create(&mut sea, asked, &name, Some(10));
                expect_needs_feature(refused, &name, &old);
            }
            create(&mut sea, upgraded, &format!("plain{upgraded}"), None).expect("other changes go on");
            rebuild(&mut sea, upgraded, Build::New);
            sea.expect_normal(0..3);
            expect_build(&mut sea, upgraded, Build::New);
            expect_table_everywhere(&mut sea, 3, &format!("plain{upgraded}"), None);
        }
        create(&mut sea, 0, "limited", Some(10)).expect("all nodes know the option");
        expect_table_everywhere(&mut sea, 3, "limited", Some(10));
        expect_enabled(&mut sea, 3);
        let schema = sea.cluster(0).metadata().schema.clone();
        assert!(
            schema.keyspaces["ks"]
                .tables
                .keys()
                .all(|name| !name.starts_with("early")),
            "a change that was refused was made: {:?}",
            schema.keyspaces["ks"].tables.keys()
        );
    }
}

#[test]
fn before_the_feature_is_enabled_any_node_goes_back_and_forth() {
    for seed in 1..=3 {
        let mut sea = formed(seed, 3, Build::Old);
        for number in [0, 1] {
            rebuild(&mut sea, number, Build::New);
            // What it says of itself is on its way until then, and may come after what it says when it is rolled back.
            expect_build(&mut sea, number, Build::New);
        }
        sea.expect_normal(0..3);
        create(&mut sea, 0, "by_new", None).expect("a change that all can read");
        for number in [0, 1] {
            rebuild(&mut sea, number, Build::Old);
            sea.expect_normal(0..3);
            expect_build(&mut sea, number, Build::Old);
        }
        expect_table_everywhere(&mut sea, 3, "by_new", None);
        create(&mut sea, 1, "by_old", None).expect("a node that was rolled back takes part");
        expect_table_everywhere(&mut sea, 3, "by_old", None);
        let old = address(&sea, 0);
        let refused = create(&mut sea, 1, "early", Some(1));
        expect_needs_feature(refused, "early", &old);
        for number in 0..3 {
            rebuild(&mut sea, number, Build::New);
            sea.expect_normal(0..3);
            expect_build(&mut sea, number, Build::New);
        }
        create(&mut sea, 2, "limited", Some(1)).expect("all nodes know the option");
        expect_table_everywhere(&mut sea, 3, "limited", Some(1));
    }
}

#[test]
fn after_the_feature_is_enabled_no_node_goes_back() {
    let mut sea = formed(1, 3, Build::New);
    expect_enabled(&mut sea, 3);
    // Nothing uses the feature yet: the file can be read, and the cluster refuses the node.
    rebuild(&mut sea, 2, Build::Old);
    let refused = sea.refusal(2);
    assert!(
        matches!(&refused, ClusterError::Refused(why) if why.contains(PER_PARTITION_RATE_LIMIT)),
        "{refused}"
    );
    rebuild(&mut sea, 2, Build::New);
    sea.expect_normal(0..3);

    create(&mut sea, 0, "limited", Some(10)).expect("all nodes know the option");
    expect_table_everywhere(&mut sea, 3, "limited", Some(10));
    rebuild(&mut sea, 2, Build::Old);
    let seen = sea.nodes[2].seen.clone();
    assert!(sea.sim.run_until(60 * SECOND, || seen.load_error.borrow().is_some()));
    let why = seen.load_error.take().expect("it is there");
    assert!(
        why.contains("table ks.limited, options has field 17, which this release does not know"),
        "{why}"
    );
    // It has changed nothing, so the newer build continues from the same files.
    rebuild(&mut sea, 2, Build::New);
    sea.expect_normal(0..3);
    expect_table_everywhere(&mut sea, 3, "limited", Some(10));
}

#[test]
fn a_second_rung_is_enabled_after_the_first_when_the_last_node_has_it_and_is_refused_by_name_where_it_is_unknown() {
    let mut sea = formed(1, 3, Build::New);
    expect_enabled(&mut sea, 3);
    let has_second = |view: &std::rc::Rc<Cluster>| view.has_feature(SECOND_RUNG);
    for number in 0..3 {
        assert!(!has_second(&sea.cluster(0)), "{number} of three nodes have it");
        rebuild(&mut sea, number, Build::Newer);
        sea.expect_normal(0..3);
        expect_build(&mut sea, number, Build::Newer);
    }
    sea.expect("the second rung is enabled", |views| {
        views.len() == 3 && views.iter().all(has_second)
    });
    create(&mut sea, 0, "limited", Some(10)).expect("what the first rung brought stays");
    expect_table_everywhere(&mut sea, 3, "limited", Some(10));
    rebuild(&mut sea, 2, Build::New);
    let refused = sea.refusal(2).to_string();
    let expected = format!(
        "The cluster has enabled features that the node's release lacks: {SECOND_RUNG}. The node has: {PER_PARTITION_RATE_LIMIT}."
    );
    assert!(refused.contains(&expected), "{refused}");
    rebuild(&mut sea, 2, Build::Newer);
    sea.expect_normal(0..3);
}

#[test]
fn an_old_node_does_not_join_a_cluster_that_has_enabled_the_feature() {
    let mut sea = Sea::new(1, 3);
    set_build(&sea, 2, Build::Old);
    sea.start(0);
    sea.start(1);
    sea.expect("two nodes have the feature enabled", |views| {
        views.len() == 2 && views.iter().all(|view| view.has_feature(PER_PARTITION_RATE_LIMIT))
    });
    sea.start(2);
    let refused = sea.refusal(2);
    assert!(
        matches!(&refused, ClusterError::Refused(why) if why.contains(PER_PARTITION_RATE_LIMIT)),
        "{refused}"
    );
    assert!(!sea.has_files(2), "a node that is refused has written something");
    set_build(&sea, 2, Build::New);
    sea.restart(2);
    sea.expect_normal(0..3);
}

/// A member says that it has the feature, goes down, and comes back as the old build: neither its file nor its log says
/// yet that the feature is enabled, so only the record itself can refuse it.
#[test]
fn an_old_member_that_meets_an_unknown_field_in_the_log_says_so_and_applies_nothing_of_it() {
    let mut sea = formed(1, 3, Build::Old);
    rebuild(&mut sea, 2, Build::New);
    expect_build(&mut sea, 2, Build::New);
    sea.crash(2, CrashKind::Kill);
    for number in 0..2 {
        rebuild(&mut sea, number, Build::New);
    }
    expect_enabled(&mut sea, 2);
    create(&mut sea, 0, "limited", Some(10)).expect("all members have the feature");
    set_build(&sea, 2, Build::Old);
    sea.restart(2);
    let seen = sea.nodes[2].seen.clone();
    let is_told = sea.sim.run_until(90 * SECOND, || {
        let cluster = seen.cluster.borrow();
        let unreadable = cluster.as_ref().and_then(|cluster| cluster.status().unreadable);
        unreadable.is_some()
    });
    assert!(
        is_told,
        "an old node does not say that it cannot read what was agreed on"
    );
    let why = sea.cluster(2).status().unreadable.expect("it is there");
    assert!(
        why.contains("table ks.limited, options has field 17, which this release does not know"),
        "{why}"
    );
    sea.sim.run_for(30 * SECOND);
    let schema = sea.cluster(2).metadata().schema.clone();
    assert!(
        schema.table("ks", "limited").is_none(),
        "the old node has a table of which it dropped a part"
    );
    sea.crash(2, CrashKind::Kill);
    let id = sea.nodes[2].id;
    let kept = sea.sim.on_node(id, || cluster::load(&dir(), &Known::everything()));
    let kept = kept.expect("the file is whole").expect("it is there");
    assert!(
        kept.schema.table("ks", "limited").is_none(),
        "the old node kept a table of which it dropped a part"
    );
    set_build(&sea, 2, Build::New);
    sea.restart(2);
    sea.expect_normal(0..3);
    expect_table_everywhere(&mut sea, 3, "limited", Some(10));
}
