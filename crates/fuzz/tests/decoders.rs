//! The table of docs/dev/fuzzing.md against the tree: every file with a decoder has a target, or a reason why it has
//! none.

use fuzz::TARGETS;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const PAGE: &str = include_str!("../../../docs/dev/fuzzing.md");
/// Crates that read nothing from outside, or only for tests.
const WITHOUT_DECODERS: [&str; 6] = ["fuzz", "perf", "runtime", "sim", "stdx", "testkit"];
/// How the name of a function begins that may decode.
const VERBS: [&str; 10] = [
    "decode",
    "deserialize",
    "get_",
    "load",
    "open",
    "parse",
    "read",
    "split",
    "unpack",
    "validate",
];
/// The arguments of one that decodes bytes.
const BYTES: [&str; 4] = ["[u8]", "Reader<", "Decoder<", "IndexBytes"];
/// The target of the metadata group, which is no decoder of the registry.
const RAFT: &str = "raft";

/// The words of a cell that are in backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Each file of the table with its targets.
fn table() -> BTreeMap<&'static str, BTreeSet<&'static str>> {
    let section = PAGE
        .split("## Targets")
        .nth(1)
        .and_then(|rest| rest.split("\n## ").next());
    let rows = section
        .expect("the page has the section")
        .lines()
        .filter(|line| line.starts_with("| `"));
    let mut table = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [files, _, targets] = cells[..] else {
            panic!("a row of another shape: {row}");
        };
        let targets: BTreeSet<&str> = if targets.starts_with("none: ") {
            BTreeSet::new()
        } else {
            quoted(targets).collect()
        };
        assert!(
            targets.is_empty() == targets_are_refused(cells[2]),
            "neither a target nor a reason: {row}"
        );
        for file in quoted(files) {
            assert!(
                table.insert(file, targets.clone()).is_none(),
                "{file} stands there twice"
            );
        }
    }
    table
}

fn targets_are_refused(cell: &str) -> bool {
    cell.starts_with("none: ") && cell.len() > "none: ".len()
}

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("crates")
        .to_owned()
}

/// The sources below a directory.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").path())
    {
        if entry.is_dir() {
            sources(&entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry);
        }
    }
}

/// The functions of a source, without its tests, that seem to decode bytes.
fn decoders(source: &str) -> Vec<&str> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let functions = source.split("\n").enumerate().filter_map(|(number, line)| {
        let (_, name) = line.split_once("fn ")?;
        let is_item = line.trim_start().starts_with("pub") || line.trim_start().starts_with("fn ");
        VERBS
            .iter()
            .any(|verb| name.starts_with(verb))
            .then_some((number, name))
            .filter(|_| is_item)
    });
    let lines: Vec<&str> = source.split('\n').collect();
    let decodes = |number: usize| {
        let signature: String = lines[number..].iter().take(12).copied().collect::<Vec<_>>().join(" ");
        let signature = signature.split(['{', ';']).next().unwrap_or_default().to_owned();
        let Some((arguments, result)) = signature.split_once("->") else {
            return false;
        };
        BYTES.iter().any(|kind| arguments.contains(kind))
            && ["Result<", "Option<", "Decoded<"]
                .iter()
                .any(|kind| result.contains(kind))
    };
    functions
        .filter(|(number, _)| decodes(*number))
        .map(|(_, name)| name)
        .collect()
}

#[test]
fn every_file_with_a_decoder_stands_in_the_table_of_the_page() {
    let table = table();
    let mut files = Vec::new();
    for entry in std::fs::read_dir(crates()).expect("the crates") {
        let entry = entry.expect("a crate");
        if !WITHOUT_DECODERS.contains(&entry.file_name().to_str().expect("UTF-8")) {
            sources(&entry.path().join("src"), &mut files);
        }
    }
    let mut missing = Vec::new();
    for path in &files {
        let name = path.strip_prefix(crates()).expect("a crate").to_str().expect("UTF-8");
        let is_test = name.ends_with("tests.rs") || name.ends_with("fuzz.rs");
        let source = std::fs::read_to_string(path).expect("a source");
        let found = decoders(&source);
        if !found.is_empty() && !is_test && !table.contains_key(name) {
            missing.push(format!("{name}: {}", found.join("; ")));
        }
    }
    assert!(
        missing.is_empty(),
        "these read bytes and are not in the table of docs/dev/fuzzing.md:\n{}",
        missing.join("\n")
    );
}

#[test]
fn every_row_of_the_table_names_files_and_targets_that_exist() {
    let known: BTreeSet<&str> = TARGETS.iter().map(|target| target.name).chain([RAFT]).collect();
    let mut named = BTreeSet::new();
    for (file, targets) in table() {
        assert!(crates().join(file).is_file(), "{file} is not there");
        for target in targets {
            assert!(known.contains(target), "{file}: there is no target {target}");
            named.insert(target);
        }
    }
    assert_eq!(known, named, "targets that the table does not name");
}

#[test]
fn a_decoder_is_seen_by_its_signature() {
    let source = "impl A {\n    pub(crate) fn decode(\n        bytes: &[u8],\n    ) -> Result<Self, Malformed> {\n    }\n    fn encode(&self) -> Vec<u8> {\n    }\n}\n\
                  fn read_all(text: &str) -> Option<A> {\n}\n#[cfg(test)]\nmod tests {\n    fn decode(bytes: &[u8]) -> Option<A> {\n    }\n}\n";
    assert_eq!(decoders(source), ["decode("]);
}
