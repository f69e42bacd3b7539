//! ARCHITECTURE.md and the pages of docs/dev speak of what is in the tree, and ARCHITECTURE.md lists every file with
//! `unsafe` code outside of `runtime`.
//!
//! A text between backticks is looked up if it has the shape of a name:
//!
//! - A path (`stdx/src/crc32c.rs`, `incoming/`) is the end of a path in the tree, or its last part is a literal of the
//!   code. Capital letters (`snapshots/TAG`) are for any value: such a path is not looked up. One that begins with a
//!   slash (`/ceto/tasks/compact`) is in the code as it is.
//! - A name (`Shard::write`, `IN_FLIGHT_MAX`, `system.peers`, `ceto_stalls_total`) has words that are all in the code.
//!   Comments do not count. The words of `a::b` are in one file. `*` after a word is for any further letters, `_`
//!   before it for any earlier ones.
//!
//! Statements, commands and values of options have other shapes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGE: &str = "ARCHITECTURE.md";
/// A design: it names what is not built yet, and what that will replace.
const DESIGN: &str = "docs/dev/request-path.md";
/// Names that are from outside.
const OUTSIDE: [(&str, &[&str]); 4] = [
    (
        "system calls",
        &["pwrite", "fallocate", "fdatasync", "fsync", "sched_setattr"],
    ),
    (
        "flags of io_uring",
        &["SINGLE_ISSUER", "DEFER_TASKRUN", "COOP_TASKRUN", "TASKRUN_FLAG"],
    ),
    ("a crate that decision 1 compares", &["arbitrary"]),
    ("a field of Cassandra's sstables", &["repairedAt"]),
];

fn root() -> PathBuf {
    PathBuf::from(testkit::path!("../.."))
}

/// What is in the tree.
#[derive(Default)]
struct Tree {
    /// Files and directories, from the root on, each with a slash before it.
    paths: BTreeSet<String>,
    /// The words of each source's code.
    words: Vec<BTreeSet<String>>,
    code: String,
}

/// The code of a file without its comments; None for a file that has no code, and for this test.
fn code_of(name: &str, path: &Path) -> Option<String> {
    let is_script = name == "/dev" || name == "/bench/run";
    let is_code = is_script || [".rs", ".py", ".toml"].iter().any(|ending| name.ends_with(ending));
    if !is_code || name.starts_with("/crates/testkit/tests/") {
        return None;
    }
    let text = std::fs::read_to_string(path).expect("a source is UTF-8");
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    Some(lines.collect::<Vec<_>>().join("\n"))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.filter(|word| !word.is_empty())
}

impl Tree {
    fn read() -> Self {
        let mut tree = Self::default();
        tree.add(&root(), "");
        tree
    }

    fn add(&mut self, dir: &Path, above: &str) {
        for entry in std::fs::read_dir(dir).expect("the tree is there") {
            let path = entry.expect("an entry").path();
            let part = path.file_name().expect("an entry has a name").to_string_lossy();
            let name = format!("{above}/{part}");
            if path.is_dir() {
                if part != "target" && part != ".git" {
                    self.add(&path, &name);
                }
            } else if let Some(code) = code_of(&name, &path) {
                self.words.push(words(&code).map(str::to_owned).collect());
                self.code.push_str(&code);
            }
            self.paths.insert(name);
        }
    }

    fn has_path(&self, text: &str) -> bool {
        let text = text.trim_end_matches('/');
        let end = format!("/{text}");
        let is_of_any = |part: &str| part.len() > 1 && part.chars().all(|c| c.is_ascii_uppercase());
        let literal = format!("\"{}\"", text.rsplit('/').next().unwrap_or(text));
        self.paths.iter().any(|path| path.ends_with(&end)) || words(text).any(is_of_any) || self.code.contains(&literal)
    }

    fn has_word(&self, word: &str, has_star: bool) -> bool {
        // Metrics have their prefix where they are written out.
        let bare = word.strip_prefix("ceto_").unwrap_or(word);
        let is_known = |known: &str| {
            if has_star {
                known.starts_with(bare)
            } else if word.starts_with('_') {
                known.ends_with(word)
            } else {
                known == bare || known == word
            }
        };
        self.words.iter().flatten().any(|known| is_known(known))
    }

    fn has_name(&self, name: &str) -> bool {
        let is_outside = |word: &str| OUTSIDE.iter().any(|(_, words)| words.contains(&word));
        let is_in_one_file = match words(name).collect::<Vec<_>>()[..] {
            [of, member] if name.starts_with(&format!("{of}::{member}")) => self
                .words
                .iter()
                .any(|words| words.contains(of) && words.contains(member)),
            _ => true,
        };
        let has_word = |word: &str| self.has_word(word, name.contains(&format!("{word}*")));
        is_in_one_file && words(name).all(|word| is_outside(word) || has_word(word))
    }

    /// Whether what is between backticks is there, if it has the shape of a name.
    fn has(&self, text: &str) -> bool {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_path = text.chars().all(|c| is_word(c) || "./-".contains(c));
        let endings = [".rs", ".txt", ".toml", ".py", ".md", ".json", ".yml", ".sh"];
        if is_path && text.starts_with('/') {
            return self.code.contains(text);
        }
        if is_path && (text.contains('/') || endings.iter().any(|ending| text.ends_with(ending))) {
            return self.has_path(text);
        }
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let is_name = begins && text.chars().all(|c| is_word(c) || ":.,<>(){}!*&\"'$".contains(c));
        !is_name || self.has_name(text)
    }
}

/// What a page has between backticks.
fn quoted(page: &str) -> BTreeSet<&str> {
    let text = page.split("```");
    // Without the drawings.
    let text = text.step_by(2);
    let quoted = text.flat_map(|text| text.split('`').skip(1).step_by(2));
    quoted.filter(|text| !text.is_empty()).collect()
}

#[test]
fn what_the_pages_name_is_there() {
    let tree = Tree::read();
    let pages = std::fs::read_dir(root().join("docs/dev")).expect("the pages");
    let pages = pages.map(|entry| entry.expect("an entry").path());
    let mut missing = Vec::new();
    for path in pages.chain([root().join(PAGE)]) {
        if path.ends_with(DESIGN) {
            continue;
        }
        let page = std::fs::read_to_string(&path).expect("a page is UTF-8");
        let names = quoted(&page).into_iter().filter(|name| !tree.has(name));
        missing.extend(names.map(|name| format!("{}: {name}", path.display())));
    }
    assert!(
        missing.is_empty(),
        "pages name what is not there:\n{}",
        missing.join("\n")
    );
}

#[test]
fn names_are_looked_up_by_their_shape() {
    let mut tree = Tree::default();
    tree.paths.insert("/crates/a/src/lib.rs".to_owned());
    tree.code = "impl Shard { fn write(&self) {} } const DIR: &str = \"incoming\"; get(\"/ceto/tasks\"); count(\"stalls_total\")".to_owned();
    tree.words.push(words(&tree.code).map(str::to_owned).collect());
    tree.words
        .push(BTreeSet::from(["Other".to_owned(), "read_blocking".to_owned()]));
    for there in [
        "a/src/lib.rs",
        "lib.rs",
        "incoming/",
        "snapshots/TAG",
        "/ceto/tasks",
        "Shard::write",
        "Shard",
        "write()",
        "ceto_stalls_total",
        "ceto_stalls_*",
        "_blocking",
        "pwrite",
        "SELECT it",
        "--flag",
        "500",
    ] {
        assert!(tree.has(there), "{there}");
    }
    for missing in [
        "b.rs",
        "/ceto/gone",
        "gone/",
        "Shard::gone",
        "Other::write",
        "Gone",
        "ceto_gone_*",
        "GONE_MAX",
    ] {
        assert!(!tree.has(missing), "{missing}");
    }
}

/// The sources below a directory: paths from `crates` on, and texts.
fn sources(dir: &Path, out: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(dir).expect("the tree is there") {
        let entry = entry.expect("an entry");
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" {
            sources(&path, out);
        } else if name.ends_with(".rs") {
            let below = path.strip_prefix(root().join("crates")).expect("it is below");
            let text = std::fs::read_to_string(&path).expect("a source");
            out.push((below.display().to_string(), text));
        }
    }
}

#[test]
fn unsafe_code_is_where_the_page_says() {
    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page");
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let has_unsafe = |text: &str| {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        code.clone().any(|line| {
            ["unsafe {", "unsafe fn", "unsafe impl", "unsafe extern"]
                .iter()
                .any(|word| line.contains(word))
        })
    };
    let found: Vec<&str> = files
        .iter()
        .filter(|(path, text)| !path.starts_with("runtime/") && !path.starts_with("testkit/") && has_unsafe(text))
        .map(|(path, _)| path.as_str())
        .collect();
    let unlisted: Vec<&&str> = found
        .iter()
        .filter(|path| !page.contains(&format!("`{path}`")))
        .collect();
    assert!(
        unlisted.is_empty(),
        "{PAGE} does not list the unsafe code of {unlisted:?}"
    );
}
