//! What texts mean, told by the files in `testdata`.
//!
//! A file is a sequence of cases: the text, a line `----`, and what is expected; an empty line ends the case. Lines that
//! begin with `#` before a case are its comment. The expectation is the canonical form of the statement and, when there
//! are any, its bind markers; or the error. In `tree.txt` it is the tree itself. `CETO_REWRITE=1 cargo test -p cql` writes
//! what the parser answers into the files; read the difference before believing it.

use std::fmt::Write;
use std::path::Path;

struct Case {
    comment: String,
    text: String,
    expected: String,
}

fn read_cases(content: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for block in content
        .split("\n\n")
        .map(|block| block.trim_matches('\n'))
        .filter(|block| !block.is_empty())
    {
        let comment_bytes: usize = block
            .split_inclusive('\n')
            .take_while(|line| line.starts_with('#'))
            .map(str::len)
            .sum();
        let (comment, rest) = block.split_at(comment_bytes);
        let (text, expected) = rest.split_once("\n----").unwrap_or((rest, ""));
        cases.push(Case {
            comment: comment.to_owned(),
            text: text.to_owned(),
            expected: expected.trim_matches('\n').to_owned(),
        });
    }
    cases
}

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

#[expect(
    clippy::disallowed_methods,
    reason = "rewrites its own expectations, outside any simulation"
)]
fn check(name: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    let content = std::fs::read_to_string(&path).expect("the file is part of the crate");
    let cases = read_cases(&content);
    assert!(!cases.is_empty(), "{name} has no cases");
    if std::env::var_os("CETO_REWRITE").is_some() {
        let mut rewritten = String::new();
        for case in &cases {
            let answer = answer(&case.text, name == "tree.txt");
            write!(rewritten, "{}{}\n----\n{answer}\n\n", case.comment, case.text).expect("a string takes all text");
        }
        std::fs::write(&path, rewritten.trim_end().to_owned() + "\n").expect("the source tree is writable");
        return;
    }
    for case in cases {
        assert_eq!(
            answer(&case.text, name == "tree.txt"),
            case.expected,
            "{name}: {}",
            case.text
        );
    }
}

#[test]
fn select_statements() {
    check("select.txt");
}

#[test]
fn modifications() {
    check("modify.txt");
}

#[test]
fn keyspaces_and_tables() {
    check("table.txt");
}

#[test]
fn types_indexes_views_and_functions() {
    check("schema.txt");
}

#[test]
fn roles_and_permissions() {
    check("auth.txt");
}

#[test]
fn describe_statements() {
    check("describe.txt");
}

#[test]
fn names_comments_and_literals() {
    check("lexical.txt");
}

#[test]
fn trees() {
    check("tree.txt");
}

#[test]
fn errors_name_their_place_and_token() {
    check("errors.txt");
}
