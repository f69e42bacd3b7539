//! Comments, pages and texts use the words of the field: a test finds the words that make a sentence hard to read, and
//! comment lines that are too wide. What is left may only become less: lower the limit when it does.
//!
//! A relative pronoun in place of a noun ("who does not answer"), "behind" for "after", "stands" for "is stored",
//! "told" for "notified", "goes on" for "continues", "comes to" for "reaches" and "meanwhile" for what happens at that
//! time each make a reader parse a sentence twice.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Columns of a comment line, its indentation included.
const WIDTH_MAX: usize = 120;
/// No comment is hard to read.
const COMMENTS_MAX: usize = 0;
/// No comment line is too wide.
const WIDE_LINES_MAX: usize = 0;
/// What is left: texts of logs, errors and answers that are hard to read, in `coordinator` and `query`.
const TEXTS_MAX: usize = 18;

/// Words in place of the field's: a pronoun for a node or a request, "behind" for "after", "told" for "notified",
/// "wanted" for "requested".
const DENIED: [&str; 17] = [
    "who",
    "whoever",
    "whom",
    "nobody",
    "somebody",
    "anybody",
    "everybody",
    "behind",
    "stands",
    "stood",
    "tell",
    "tells",
    "told",
    "wanted",
    "wish",
    "anew",
    "meanwhile",
];
/// Second words, each with the first words that it must not follow.
const DENIED_PAIRS: [(&str, &[&str]); 4] = [
    ("ever", &["for"]),
    ("on", &["go", "goes", "going", "went", "gone"]),
    ("to", &["come", "comes", "came", "coming"]),
    ("then", &["by"]),
];
/// What no comment begins with: it does not say what it is about.
const HARD_OPENINGS: [&str; 2] = ["The same ", "To be "];

/// Names that say how a value came about and not what it is. `TYPES_MAX` of them are left.
const DENIED_TYPES: [&str; 19] = [
    "Agreed", "Between", "Came", "CameTo", "Figure", "Found", "Goal", "Heirs", "How", "Later", "Manner", "Met",
    "Passed", "Place", "Stretch", "Taken", "Until", "Wanted", "Whom",
];
const TYPES_MAX: usize = 14;

/// The words of a text, without what is in backticks and without names of values in braces.
fn words(text: &str) -> Vec<String> {
    let plain: String = text.split('`').step_by(2).collect::<Vec<_>>().join(" x ");
    let mut parts = plain.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    let plain = parts.fold(first, |text, part| {
        text + " x " + part.split_once('}').map_or(part, |(_, rest)| rest)
    });
    let is_of_word = |c: char| c.is_alphanumeric() || c == '_' || c == '\'';
    let parts = plain.split(|c: char| !is_of_word(c)).filter(|word| !word.is_empty());
    parts.map(str::to_lowercase).collect()
}

/// The first denied word of a text.
fn denied(text: &str) -> Option<String> {
    let words = words(text);
    if let Some(word) = words.iter().find(|word| DENIED.contains(&word.as_str())) {
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

/// The texts of a program, each with its line: its string literals but for comments and what only tests compile.
fn texts(tokens: TokenStream, found: &mut Vec<(usize, String)>) {
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                tokens.next_if(|next| matches!(next, TokenTree::Punct(mark) if mark.as_char() == '!'));
                let Some(TokenTree::Group(attribute)) = tokens.next() else {
                    continue;
                };
                let attribute = attribute.stream();
                match attribute.to_string().replace(' ', "").as_str() {
                    "cfg(test)" => skip_item(&mut tokens),
                    doc if doc.starts_with("doc=") => {}
                    _ => texts(attribute, found),
                }
            }
            TokenTree::Group(group) => texts(group.stream(), found),
            TokenTree::Literal(literal) => {
                if let Ok(text) = syn::parse_str::<syn::LitStr>(&literal.to_string()) {
                    found.push((literal.span().start().line, text.value()));
                }
            }
            _ => {}
        }
    }
}

/// Skips the rest of an item: to its block or its semicolon.
fn skip_item(tokens: &mut impl Iterator<Item = TokenTree>) {
    let is_end = |token: &TokenTree| match token {
        TokenTree::Group(group) => group.delimiter() == Delimiter::Brace,
        TokenTree::Punct(mark) => mark.as_char() == ';',
        _ => false,
    };
    tokens.by_ref().find(is_end);
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

/// The type that a line declares, if its name is denied.
fn denied_type(line: &str) -> Option<&str> {
    let mut words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.find(|word| ["struct", "enum", "trait", "type"].contains(word))?;
    let name = words.next()?;
    DENIED_TYPES.contains(&name).then_some(name)
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
struct Findings {
    comments: Vec<String>,
    wide: Vec<String>,
    types: Vec<String>,
    texts: Vec<String>,
}

/// The comments of a source, each with its first line. The lines of one are one text: a pair of words may be on two.
fn comments(source: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut is_comment = false;
    for (number, line) in (1..).zip(source.lines()) {
        let before = is_comment;
        let line = line.trim().strip_prefix("//");
        is_comment = line.is_some();
        let Some(line) = line else { continue };
        match found.last_mut().filter(|_| before) {
            Some((_, text)) => text.push_str(line.trim_start_matches(['/', '!'])),
            None => found.push((number, line.to_owned())),
        }
    }
    found
}

/// What a source file has. This file names the words.
fn look_at_source(path: &Path, found: &mut Findings) {
    if path.ends_with("testkit/tests/words.rs") {
        return;
    }
    let source = std::fs::read_to_string(path).expect("a source file is UTF-8");
    let place = |line: usize, what: &str, text: &str| format!("{}:{line}: {what}: {text}", path.display());
    for (number, line) in (1..).zip(source.lines()) {
        if !line.trim_start().starts_with("//") {
            found
                .types
                .extend(denied_type(line).map(|name| place(number, "type", name)));
        } else if line.chars().count() > WIDTH_MAX {
            found.wide.push(place(number, "wide", line.trim()));
        }
    }
    for (number, comment) in comments(&source) {
        let opening = comment.trim_start_matches(['/', '!', ' ']);
        let opening = HARD_OPENINGS.iter().find(|hard| opening.starts_with(*hard));
        let hard = opening.map(|hard| (*hard).to_owned());
        if let Some(hard) = hard.or_else(|| denied(&comment)) {
            found.comments.push(place(number, &hard, &comment));
        }
    }
    let part = |part: std::path::Component<'_>| part.as_os_str().to_string_lossy().into_owned();
    let is_test = |part: String| ["tests", "examples"].contains(&part.as_str()) || part.ends_with("tests.rs");
    if path.components().map(part).any(is_test) {
        return;
    }
    let tokens = TokenStream::from_str(&source).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut all = Vec::new();
    texts(tokens, &mut all);
    for (number, text) in all.iter().filter(|(_, text)| text.contains(' ')) {
        if let Some(word) = denied(text) {
            found.texts.push(place(*number, &word, text));
        }
    }
}

#[test]
fn comments_and_texts_use_the_words_of_the_field() {
    let mut sources = Vec::new();
    files(&root().join("crates"), "rs", &mut sources);
    assert!(sources.len() > 300, "only {} files were found", sources.len());
    let mut found = Findings::default();
    sources.iter().for_each(|path| look_at_source(path, &mut found));
    let Findings {
        comments,
        wide,
        types,
        texts,
    } = found;
    at_most(COMMENTS_MAX, "comments are hard to read", &comments);
    at_most(WIDE_LINES_MAX, "comment lines are too wide", &wide);
    at_most(TYPES_MAX, "types have no noun of the field as their name", &types);
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
    at_most(0, "lines of pages are hard to read", &found);
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
        "of {who}",
    ] {
        assert_eq!(denied(plain), None, "{plain}");
    }
    assert_eq!(denied_type("pub(crate) enum Wanted<'a> {"), Some("Wanted"));
    assert_eq!(denied_type("struct WantedTablet; // not Wanted"), None);
}

#[test]
fn texts_are_literals_without_comments_and_tests() {
    let source = r#"
        //! of a module
        /// of a function
        fn f() { say("one \" two \
            three", x) }
        #[expect(lint, reason = "four")]
        #[cfg(test)]
        mod tests { fn g() { say("five") } }
    "#;
    let mut found = Vec::new();
    texts(TokenStream::from_str(source).expect("it is Rust"), &mut found);
    assert_eq!(found, [(4, "one \" two three".to_owned()), (6, "four".to_owned())]);
}
