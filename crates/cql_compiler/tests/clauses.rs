//! Every clause of a statement that reads or writes is executed or refused: none is taken and ignored.

use crate::common;
use cql_compiler::compile;

/// What becomes of a clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Done,
    /// The refusal says this.
    Refused(&'static str),
}
use Fate::{Done, Refused};

const CLAUSES: &[(&str, Fate)] = &[
    ("SELECT JSON k FROM ks.t", Done),
    ("SELECT DISTINCT k FROM ks.t", Done),
    ("SELECT v AS w FROM ks.t WHERE k = 1", Done),
    ("SELECT v FROM ks.t WHERE k = 1 GROUP BY k", Done),
    ("SELECT v FROM ks.t WHERE k = 1 ORDER BY c DESC", Done),
    ("SELECT v FROM ks.t ORDER BY v ANN OF [1.0]", Refused("ANN ordering")),
    ("SELECT v FROM ks.t PER PARTITION LIMIT 1", Done),
    ("SELECT v FROM ks.t LIMIT 1", Done),
    ("SELECT v FROM ks.t WHERE v = 1 ALLOW FILTERING", Done),
    ("SELECT v FROM ks.t BYPASS CACHE", Done),
    ("SELECT value FROM MUTATION_FRAGMENTS(ks.t) WHERE k = 1", Done),
    (
        "SELECT value FROM MUTATION_FRAGMENTS(ks.t) WHERE k = 1 ORDER BY mutation_source DESC",
        Refused("ORDER BY is not supported on MUTATION_FRAGMENTS"),
    ),
    ("SELECT v FROM ks.t USING TIMEOUT 1s", Done),
    ("SELECT v FROM ks.t USING TIMEOUT ?", Done),
    ("SELECT v FROM ks.t WHERE v LIKE 'a%' ALLOW FILTERING", Refused("LIKE")),
    (
        "SELECT v FROM ks.t WHERE v NOT IN (1, 2) AND c BETWEEN 1 AND 2 ALLOW FILTERING",
        Done,
    ),
    (r#"INSERT INTO ks.t JSON '{"k": 1, "c": 2}'"#, Done),
    ("INSERT INTO ks.t JSON ? DEFAULT UNSET IF NOT EXISTS", Done),
    ("INSERT INTO ks.t JSON ? USING TTL ?", Done),
    ("INSERT INTO ks.t (k, c) VALUES (1, 1) IF NOT EXISTS", Done),
    (
        "INSERT INTO ks.t (k, c) VALUES (1, 1) USING TTL 5 AND TIMESTAMP 6 AND TIMEOUT 7s",
        Done,
    ),
    (
        "INSERT INTO ks.t (k, c) VALUES (1, 1) USING TTL ? AND TIMESTAMP ? AND TIMEOUT ?",
        Done,
    ),
    ("UPDATE ks.t USING TIMEOUT ? SET v = 1 WHERE k = 1 AND c = 1", Done),
    ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 1 IF EXISTS", Done),
    ("UPDATE ks.t SET v = 1 WHERE k = 1 AND c = 1 IF v = 2", Done),
    (
        "DELETE v FROM ks.t USING TIMESTAMP 5 AND TIMEOUT 6s WHERE k = 1 AND c = 1",
        Done,
    ),
    ("DELETE FROM ks.t USING TTL 5 WHERE k = 1", Refused("K_TIMESTAMP")),
    (
        "BEGIN BATCH USING TIMESTAMP 5 AND TIMEOUT ? DELETE FROM ks.t WHERE k = 1; APPLY BATCH",
        Done,
    ),
    (
        "BEGIN BATCH USING TTL 5 DELETE FROM ks.t WHERE k = 1; APPLY BATCH",
        Refused("TTL"),
    ),
    ("TRUNCATE ks.t USING TIMEOUT 5s", Done),
    ("TRUNCATE ks.t USING TIMEOUT ?", Done),
];

#[test]
fn no_clause_is_taken_and_ignored() {
    let schema = common::schema_of(&["CREATE TABLE ks.t (k int, c int, v int, PRIMARY KEY (k, c))"]);
    for (text, fate) in CLAUSES {
        let compiled = compile(text, &schema, None);
        match (fate, compiled) {
            (Done, Ok(compiled)) => assert!(compiled.warnings.is_empty(), "{text}: {:?}", compiled.warnings),
            (Refused(words), Err(error)) => {
                let error = format!("{error:?}");
                assert!(error.contains(words), "{text}: {error}");
            }
            (fate, other) => panic!("{text}: {other:?} instead of {fate:?}"),
        }
    }
}
