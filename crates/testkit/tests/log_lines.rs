//! The log lines of the product and what is written about them agree:
//!
//! - `docs/logs.md` names every message at ERROR, WARN and INFO, in a table of a chapter or, without an explanation, in
//!   the list at its end, and names none that no source has;
//! - `crates/logging/src/modules.txt` names every module that logs, so that levels can be set for those and no others.
//!
//! `./dev rewrite testkit` writes that list and that file. A row of a table is a pattern: `…` matches anything, and the
//! rest must be as it is in the source. Messages that consist of a value alone (`log::error!("{reason}")`) are found by
//! the text of the value, wherever a source has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// Crates that are no part of a node.
const TOOLS: &[&str] = &["fuzz", "perf", "sim", "testkit"];
const PAGE: &str = "docs/logs.md";
const MODULES: &str = "crates/logging/src/modules.txt";
/// What begins the list of the page that is written by this test.
const REST: &str = "## All other lines\n";

/// A call of a macro of `log`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Message {
    level: String,
    module: String,
    /// The format, with `…` for each value.
    text: String,
}

/// What the sources say.
#[derive(Default)]
struct Sources {
    messages: Vec<Message>,
    /// Every text of a source as a format, those of messages too.
    texts: BTreeSet<String>,
}

struct Finder<'s> {
    module: String,
    sources: &'s mut Sources,
}

/// The first text of a macro's arguments that is no `target:`.
fn first_text(tokens: &TokenStream) -> Option<String> {
    let mut is_target = false;
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => is_target = ident == "target",
            TokenTree::Literal(_) if is_target => is_target = false,
            TokenTree::Literal(literal) => {
                let text = syn::parse_str::<syn::LitStr>(&literal.to_string());
                return text.ok().map(|text| text.value());
            }
            _ => {}
        }
    }
    None
}

/// A format with `…` for each value.
fn as_pattern(format: &str) -> String {
    let mut pattern = String::new();
    let mut rest = format.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '{' | '}' if rest.next_if_eq(&c).is_some() => pattern.push(c),
            '{' => {
                for inner in rest.by_ref() {
                    if inner == '}' {
                        break;
                    }
                }
                pattern.push('…');
            }
            c => pattern.push(c),
        }
    }
    pattern
}

impl Finder<'_> {
    fn add_texts(&mut self, tokens: TokenStream) {
        for token in tokens {
            match token {
                TokenTree::Group(group) => self.add_texts(group.stream()),
                TokenTree::Literal(literal) => {
                    if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                        self.sources.texts.insert(as_pattern(&text.value()));
                    }
                }
                _ => {}
            }
        }
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        let path: Vec<String> = called.path.segments.iter().map(|part| part.ident.to_string()).collect();
        if let [log, level] = path.as_slice()
            && log == "log"
        {
            let text = first_text(&called.tokens).unwrap_or_default();
            self.sources.messages.push(Message {
                level: level.to_ascii_uppercase(),
                module: self.module.clone(),
                text: as_pattern(&text),
            });
        }
        self.add_texts(called.tokens.clone());
        visit::visit_macro(self, called);
    }

    fn visit_lit_str(&mut self, text: &'ast syn::LitStr) {
        self.sources.texts.insert(as_pattern(&text.value()));
    }

    /// Comments are no texts of the program.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if item.ident != "tests" {
            visit::visit_item_mod(self, item);
        }
    }
}

fn root() -> PathBuf {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("crates are in a directory");
    crates.parent().expect("crates/ is in the tree").to_owned()
}

/// Every Rust file below a directory, in order.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("the directory can be read").path())
        .collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The path of a file's module.
fn module(name: &str, relative: &Path) -> String {
    let mut parts = vec![name.to_owned()];
    for part in relative.with_extension("").iter() {
        match part.to_string_lossy().as_ref() {
            "lib" | "main" | "mod" => {}
            part => parts.push(part.to_owned()),
        }
    }
    parts.join("::")
}

fn sources(root: &Path) -> Sources {
    let mut sources = Sources::default();
    let mut crates: Vec<PathBuf> = std::fs::read_dir(root.join("crates"))
        .expect("the tree has crates")
        .map(|entry| entry.expect("the directory can be read").path())
        .collect();
    crates.sort();
    for path in crates {
        let name = path
            .file_name()
            .expect("a crate has a name")
            .to_string_lossy()
            .into_owned();
        let source = path.join("src");
        if TOOLS.contains(&name.as_str()) || !source.is_dir() {
            continue;
        }
        let mut found = Vec::new();
        files(&source, &mut found);
        for file in found {
            let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            let relative = file.strip_prefix(&source).expect("it is below");
            let mut finder = Finder {
                module: module(&name, relative),
                sources: &mut sources,
            };
            finder.visit_file(&parsed);
        }
    }
    sources.messages.sort();
    sources.messages.dedup();
    sources
}

/// Whether a text is as a pattern says: its parts between `…` are there in their order, the first at the beginning and
/// the last at the end.
fn matches(pattern: &str, text: &str) -> bool {
    let parts: Vec<&str> = pattern.split('…').collect();
    let [first, middle @ .., last] = parts.as_slice() else {
        return pattern == text;
    };
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        match rest.find(part) {
            Some(position) => rest = &rest[position + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Whether it says anything besides a value.
fn has_words(text: &str) -> bool {
    text.chars().any(char::is_alphabetic)
}

/// The rows of the page's tables of lines: level and pattern.
fn rows(page: &str) -> Vec<(String, String)> {
    let rows = page.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (level, pattern) = (cells.next()?, cells.next()?);
        let pattern = pattern.strip_suffix(" |").unwrap_or(pattern);
        ["ERROR", "WARN", "INFO"]
            .contains(&level)
            .then(|| (level.to_owned(), pattern.trim().replace("\\|", "|")))
    });
    rows.collect()
}

/// The list of the messages that no row of a table has.
fn rest_of(sources: &Sources, told: &[(String, String)]) -> String {
    let mut by_module: BTreeMap<&str, BTreeSet<(&str, String)>> = BTreeMap::new();
    for message in &sources.messages {
        let is_shown = ["ERROR", "WARN", "INFO"].contains(&message.level.as_str()) && has_words(&message.text);
        let is_told = |(level, pattern): &(String, String)| *level == message.level && matches(pattern, &message.text);
        if is_shown && !told.iter().any(is_told) {
            let lines = by_module.entry(&message.module).or_default();
            lines.insert((&message.level, message.text.replace('|', "\\|").replace('\n', " ")));
        }
    }
    let mut text = format!(
        "{REST}\nWritten from the sources by `./dev rewrite testkit`.\n\n| level | line | module |\n|---|---|---|\n"
    );
    for (module, lines) in by_module {
        for (level, line) in lines {
            text.push_str(&format!("| {level} | {line} | `{module}` |\n"));
        }
    }
    text
}

/// Compares a file with what it should be, or writes it on demand.
#[expect(
    clippy::disallowed_methods,
    reason = "rewrites its own expectations, outside any simulation"
)]
fn check(path: &Path, is: &str, expected: &str) {
    if is == expected {
        return;
    }
    if std::env::var_os("CETO_REWRITE").is_some() {
        std::fs::write(path, expected).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let first = is.lines().zip(expected.lines()).find(|(is, expected)| is != expected);
    panic!(
        "{} does not follow the sources any more (first difference: {first:?}); run ./dev rewrite testkit",
        path.display()
    );
}

#[test]
fn the_page_of_log_lines_has_all_of_them_and_no_others() {
    let (root, path) = (root(), root().join(PAGE));
    let sources = sources(&root);
    let page = std::fs::read_to_string(&path).expect("the page is there");
    let (explained, _) = page.split_once(REST).unwrap_or((&page, ""));
    let told = rows(explained);
    assert!(told.len() > 30, "the tables of {PAGE} are not read: {told:?}");
    let unknown: Vec<String> =
        told.iter()
            .filter(|(level, pattern)| {
                let is_logged = sources.messages.iter().any(|message| {
                    message.level == *level && has_words(&message.text) && matches(pattern, &message.text)
                });
                !is_logged
                    && !sources
                        .texts
                        .iter()
                        .any(|text| has_words(text) && matches(pattern, text))
            })
            .map(|(level, pattern)| format!("{level} {pattern}"))
            .collect();
    assert!(
        unknown.is_empty(),
        "{PAGE} names lines that no source logs at that level:\n{}",
        unknown.join("\n")
    );
    check(&path, &page, &format!("{explained}{}", rest_of(&sources, &told)));
}

#[test]
fn the_modules_that_log_are_listed() {
    let (root, path) = (root(), root().join(MODULES));
    let modules: BTreeSet<String> = sources(&root)
        .messages
        .into_iter()
        .map(|message| message.module)
        .collect();
    let expected = modules.iter().map(|module| format!("{module}\n")).collect::<String>();
    let is = std::fs::read_to_string(&path).expect("the file is there");
    check(&path, &is, &expected);
}

#[test]
fn a_row_is_a_pattern() {
    let cases = [
        ("drained", "drained", true),
        ("drained", "drained; the node ends", false),
        ("drained…", "drained; the node ends", true),
        ("node … is up", "node … is …", false),
        ("shard …: replayed …", "shard …: replayed … mutations", true),
        ("…; hints are lost", "a: …; hints are lost", true),
        ("a … c", "a b d", false),
    ];
    for (pattern, text, expected) in cases {
        assert_eq!(matches(pattern, text), expected, "{pattern} and {text}");
    }
    assert_eq!(as_pattern("a {b:?} {{c}} {}"), "a … {c} …");
    let call: syn::Macro = syn::parse_str("log::info!(target: \"t\", \"a {b}\", b = 1)").expect("it is a macro");
    assert_eq!(first_text(&call.tokens).as_deref(), Some("a {b}"));
}
