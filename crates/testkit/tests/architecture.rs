//! ARCHITECTURE.md speaks of files and constants that are there, and lists every file with `unsafe` code outside of
//! `runtime`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PAGE: &str = "ARCHITECTURE.md";

fn root() -> PathBuf {
    PathBuf::from(testkit::path!("../.."))
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

/// What the page has between backticks.
fn quoted(page: &str) -> BTreeSet<&str> {
    let text = page.split("```");
    // Without the drawings.
    let text = text.step_by(2);
    text.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

#[test]
fn what_the_page_names_is_there() {
    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page");
    let mut files = Vec::new();
    sources(&root().join("crates"), &mut files);
    let is_constant = |name: &str| {
        name.contains('_')
            && name.len() > 5
            && name
                .chars()
                .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
    };
    let mut missing = Vec::new();
    for name in quoted(&page) {
        let name = name.strip_prefix("crates/").unwrap_or(name);
        let is_known = match name.ends_with(".rs") {
            true => files.iter().any(|(path, _)| path.ends_with(name)),
            false if is_constant(name) => files
                .iter()
                .any(|(path, text)| !path.starts_with("testkit/") && text.contains(name)),
            false => true,
        };
        if !is_known {
            missing.push(name);
        }
    }
    assert!(missing.is_empty(), "{PAGE} names what no source has: {missing:?}");
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
