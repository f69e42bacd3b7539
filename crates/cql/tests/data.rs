//! What texts mean, listed by the files in `testdata`; `testkit` says how they are written.
//!
//! The expectation is the canonical form of the statement and, when there are any, its bind markers; or the error. In
//! `tree.txt` it is the tree itself. `CETO_REWRITE=1 cargo test -p cql` writes what the parser answers into the files.

use std::fmt::Write;

use testkit::path;

fn answer(text: &str, as_tree: bool) -> String {
    let parsed = match cql::parse(text) {
        Ok(parsed) => parsed,
        Err(error) => return format!("error: {error}"),
    };
    let canonical = parsed.statement.to_string();
    assert_eq!(
        cql::parse(&canonical).as_ref(),
        Ok(&parsed),
        "{text}\nis printed as\n{canonical}\nwhich reads otherwise"
    );
    let mut answer = if as_tree {
        format!("{:?}", parsed.statement)
    } else {
        canonical
    };
    if !parsed.bind_markers.is_empty() {
        let names: Vec<&str> = parsed
            .bind_markers
            .iter()
            .map(|name| name.as_deref().unwrap_or("?"))
            .collect();
        write!(answer, "\nmarkers: {}", names.join(", ")).expect("a string takes all text");
    }
    answer
}

fn check(path: &str) {
    testkit::run(path, |case| answer(&case.text, path.ends_with("tree.txt")));
}

#[test]
fn select_statements() {
    check(path!("testdata/select.txt"));
}

#[test]
fn modifications() {
    check(path!("testdata/modify.txt"));
}

#[test]
fn keyspaces_and_tables() {
    check(path!("testdata/table.txt"));
}

#[test]
fn types_indexes_views_and_functions() {
    check(path!("testdata/schema.txt"));
}

#[test]
fn roles_and_permissions() {
    check(path!("testdata/auth.txt"));
}

#[test]
fn describe_statements() {
    check(path!("testdata/describe.txt"));
}

#[test]
fn names_comments_and_literals() {
    check(path!("testdata/lexical.txt"));
}

#[test]
fn trees() {
    check(path!("testdata/tree.txt"));
}

#[test]
fn errors_name_their_place_and_token() {
    check(path!("testdata/errors.txt"));
}
