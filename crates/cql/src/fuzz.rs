//! What the fuzzer needs of the language: statements to begin with, and every way to read a text.

use crate::{parse, parse_many, parse_type, split_statements};

/// The statements of the crate's own suites.
const SUITES: [&str; 8] = [
    include_str!("../testdata/auth.txt"),
    include_str!("../testdata/describe.txt"),
    include_str!("../testdata/errors.txt"),
    include_str!("../testdata/lexical.txt"),
    include_str!("../testdata/modify.txt"),
    include_str!("../testdata/schema.txt"),
    include_str!("../testdata/select.txt"),
    include_str!("../testdata/table.txt"),
];

/// Statements of every kind, right and wrong.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let cases = SUITES.iter().flat_map(|suite| suite.split("\n\n"));
    let inputs = cases.filter_map(|case| case.split_once("\n----").map(|(input, _)| input));
    let mut seeds: Vec<Vec<u8>> = inputs.map(|input| input.as_bytes().to_vec()).collect();
    seeds.push(b"map<text, frozen<tuple<int, list<uuid>, vector<float, 3>>>>".to_vec());
    seeds
}

/// Reads the bytes as a statement, a script and a type. What is read means the same when it is written and read again.
pub fn read(bytes: &[u8]) {
    let text = &String::from_utf8_lossy(bytes);
    if let Ok(parsed) = parse(text) {
        let written = parsed.statement.to_string();
        match parse(&written) {
            Ok(again) => assert_eq!(
                again.statement, parsed.statement,
                "{text:?} means something else when it is written as {written:?}"
            ),
            Err(error) => panic!("{text:?} is written as {written:?}, which is refused: {error}"),
        }
    }
    if let Ok(parsed) = parse_type(text) {
        let written = parsed.to_string();
        assert_eq!(
            parse_type(&written).as_ref(),
            Ok(&parsed),
            "the type {text:?} is written as {written:?}"
        );
    }
    let _ = parse_many(text);
    let mut rest = &**text;
    for statement in split_statements(text) {
        let at = rest
            .find(statement)
            .expect("a statement is a part of its script, after the previous one");
        rest = &rest[at + statement.len()..];
    }
}
