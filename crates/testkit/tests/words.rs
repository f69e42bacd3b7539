//! Comments, pages and texts use the words of the field: a test counts the words that make a sentence hard to read, and
//! comment lines that are too wide. Counts may only fall; lower the limit when they do.
//!
//! A relative pronoun in place of a noun ("who does not answer"), "behind" for "after", "stands" for "is stored",
//! "is told" for "receives" and "goes on" for "continues" each make a reader parse a sentence twice.

use std::path::{Path, PathBuf};

/// Columns of a comment line, its indentation included.
const WIDTH_MAX: usize = 120;
/// Wider ones: tables and byte formats.
const WIDE_LINES_MAX: usize = 56;
/// Lines of pages with a denied word: headings, and the page of options, which its texts make.
const PAGE_LINES_MAX: usize = 24;
/// Texts of logs, errors and answers with a denied word.
const TEXTS_MAX: usize = 100;

const DENIED: [&str; 8] = [
    "who",
    "whoever",
    "whom",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "behind",
];
const DENIED_PAIRS: [(&str, &[&str]); 3] = [
    ("ever", &["for"]),
    ("told", &["is", "are", "was", "were", "be", "been"]),
    ("on", &["go", "goes", "going", "went", "gone"]),
];

/// The words of a text, without what is in backticks.
fn words(text: &str) -> Vec<String> {
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" x ");
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '\'';
    let parts = plain.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty());
    parts.map(str::to_lowercase).collect()
}

/// The first denied word of a text.
fn denied(text: &str) -> Option<String> {
    let words = words(text);
    let alone = |word: &&String| DENIED.contains(&word.as_str()) || word.as_str() == "stands";
    if let Some(word) = words.iter().find(alone) {
        return Some(word.clone());
    }
    let pair = |pair: &&[String]| {
        let (first, second) = (pair[0].as_str(), pair[1].as_str());
        DENIED_PAIRS
            .iter()
            .any(|(last, firsts)| *last == second && firsts.contains(&first))
    };
    words.windows(2).find(pair).map(|pair| pair.join(" "))
}

/// The texts between quotation marks on a line of code.
fn texts(line: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = line;
    while let Some(begin) = rest.find('"') {
        let text = &rest[begin + 1..];
        let mut is_escaped = false;
        let end = text.find(|c: char| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let Some(end) = end else { break };
        found.push(&text[..end]);
        rest = &text[end + 1..];
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// All files below a directory with an ending, but for what a build writes.
fn files(dir: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("the tree can be read") {
        let path = entry.expect("the tree can be read").path();
        if path.is_dir() && !path.ends_with("target") {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

/// Fails if there are more of these lines than may be.
fn at_most(most: usize, what: &str, lines: &[String]) {
    let count = lines.len();
    assert!(
        count <= most,
        "{count} {what}, at most {most} may be:\n{}",
        lines.join("\n")
    );
}

#[derive(Default)]
struct Found {
    comments: Vec<String>,
    wide: Vec<String>,
    texts: Vec<String>,
}

/// What a source file has. This file names the words.
fn look_at_source(path: &Path, found: &mut Found) {
    if path.ends_with("testkit/tests/words.rs") {
        return;
    }
    let source = std::fs::read_to_string(path).expect("a source file is UTF-8");
    let part = |part: std::path::Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    let is_test = |part: String| ["tests", "examples"].contains(&part.as_str()) || part.ends_with("tests.rs");
    let is_test = path.components().map(part).any(is_test);
    let mut is_code = !is_test;
    for (number, line) in (1..).zip(source.lines()) {
        is_code &= line.trim() != "#[cfg(test)]";
        let place = |what: &str| format!("{}:{number}: {what}: {}", path.display(), line.trim());
        if let Some(comment) = line.trim_start().strip_prefix("//") {
            let begins_as_the_same = comment.trim_start_matches(['/', '!']).starts_with(" The same");
            if begins_as_the_same && comment.starts_with(['/', '!']) {
                found.comments.push(place("The same"));
            } else if let Some(word) = denied(comment) {
                found.comments.push(place(&word));
            }
            if line.chars().count() > WIDTH_MAX {
                found.wide.push(place("wide"));
            }
        } else if is_code {
            let hard = texts(line)
                .into_iter()
                .filter(|text| text.contains(' '))
                .find_map(denied);
            found.texts.extend(hard.map(|word| place(&word)));
        }
    }
}

#[test]
fn comments_and_texts_use_the_words_of_the_field() {
    let mut sources = Vec::new();
    files(&root().join("crates"), "rs", &mut sources);
    assert!(sources.len() > 300, "only {} files were found", sources.len());
    let mut found = Found::default();
    sources.iter().for_each(|path| look_at_source(path, &mut found));
    let Found { comments, wide, texts } = found;
    at_most(0, "comments are hard to read", &comments);
    at_most(WIDE_LINES_MAX, "comment lines are too wide", &wide);
    at_most(TEXTS_MAX, "texts are hard to read", &texts);
}

#[test]
fn pages_use_the_words_of_the_field() {
    let mut pages = Vec::new();
    files(&root().join("docs"), "md", &mut pages);
    pages.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md"].map(|name| root().join(name)));
    let mut found = Vec::new();
    for path in &pages {
        let page = std::fs::read_to_string(path).expect("a page is UTF-8");
        let mut is_code = false;
        for (number, line) in (1..).zip(page.lines()) {
            is_code ^= line.starts_with("```");
            if let Some(word) = denied(line).filter(|_| !is_code) {
                found.push(format!("{}:{number}: {word}: {line}", path.display()));
            }
        }
    }
    at_most(PAGE_LINES_MAX, "lines of pages are hard to read", &found);
}

#[test]
fn hard_words_are_found_alone_and_in_pairs_and_not_in_names() {
    for hard in [
        "Who waits here?",
        "It stands there",
        "clients are told of it",
        "the read goes on",
        "after it, or behind",
        "it waits for ever",
    ] {
        assert!(denied(hard).is_some(), "{hard}");
    }
    for plain in [
        "`whom` is a name",
        "for every row",
        "it goes well; on Mondays",
        "the whole",
        "understands",
        "told",
    ] {
        assert_eq!(denied(plain), None, "{plain}");
    }
    assert_eq!(texts(r#"say("one \" two", x, "three")"#), [r#"one \" two"#, "three"]);
}
