//! The files that come with Cassandra and ScyllaDB, as names and values: a node starts with each, and says what it does
//! not do.

use super::tests::outcome;
use super::{table, wishes};

/// The warnings of a file, without its lines' numbers.
fn warnings(yaml: &str) -> Vec<String> {
    let outcome = outcome(yaml, "");
    assert!(!outcome.starts_with("error"), "{outcome}");
    let warnings = outcome
        .lines()
        .filter_map(|line| line.strip_prefix("warning: ceto.yaml: "));
    warnings.map(str::to_owned).collect()
}

#[test]
fn a_node_starts_with_the_file_of_each_release_and_names_what_it_does_not_do() {
    let cassandra = ["commit_failure_policy"];
    let cases: [(&str, &str, &[&str]); 5] = [
        ("3.11", include_str!("stock/cassandra-3.11.yaml"), &cassandra),
        ("4.0", include_str!("stock/cassandra-4.0.yaml"), &cassandra),
        ("4.1", include_str!("stock/cassandra-4.1.yaml"), &cassandra),
        ("5.0", include_str!("stock/cassandra-5.0.yaml"), &cassandra),
        ("scylla.yaml", include_str!("stock/scylla.yaml"), &["audit"]),
    ];
    for (release, yaml, not_done) in cases {
        let warnings = warnings(yaml);
        let (last, lines) = warnings
            .split_last()
            .expect("each file has options that have no meaning here");
        assert!(last.contains("options have no meaning here: "), "{release}: {last}");
        assert_eq!(lines.len(), not_done.len(), "{release}: {lines:#?}");
        for name in not_done {
            let found = lines.iter().any(|line| line.starts_with(&format!("option '{name}")));
            assert!(found, "{release}: nothing is said of {name}: {lines:#?}");
        }
    }
}

#[test]
fn a_name_of_either_file_is_never_unknown() {
    for name in wishes::names() {
        let is_option = table::find(name).is_some();
        let outcome = outcome(&format!("{name}:"), "");
        assert!(outcome.is_empty(), "{name} without a value asks for nothing: {outcome}");
        if !is_option {
            let outcome = super::tests::outcome(&format!("{name}: 'some value'"), "");
            assert!(!outcome.contains("unknown option"), "{name}: {outcome}");
            assert!(!outcome.is_empty(), "{name} is ignored in silence");
        }
    }
}
