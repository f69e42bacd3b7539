//! Files and functions stay short enough to be read: no file above [`FILE_LINES_MAX`] lines, no function above
//! [`FUNCTION_LINES_MAX`], and few above [`LONG_LINES`].
//!
//! The lines of a function are those from its `fn` to its closing brace. Functions that a macro writes (`proptest!`)
//! are not seen.

use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

const FILE_LINES_MAX: usize = 900;
const FUNCTION_LINES_MAX: usize = 120;
/// A function of more lines is long,
const LONG_LINES: usize = 70;
/// and of so many functions one may be.
const FUNCTIONS_FOR_A_LONG_ONE: usize = 100;

/// A function and how many lines it has.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

#[derive(Default)]
struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let (from, to) = (
            signature.fn_token.span.start().line,
            block.brace_token.span.close().end().line,
        );
        self.0.push(Function {
            name: signature.ident.to_string(),
            line: from,
            lines: to + 1 - from,
        });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

fn functions(source: &str) -> Result<Vec<Function>, syn::Error> {
    let mut found = Functions::default();
    found.visit_file(&syn::parse_file(source)?);
    Ok(found.0)
}

/// What is too long in one file, a sentence each, and how many functions it has and how many of them are long.
fn judge(path: &str, source: &str) -> (Vec<String>, usize, Vec<String>) {
    let mut faults = Vec::new();
    let lines = source.lines().count();
    if lines > FILE_LINES_MAX {
        faults.push(format!("{path} has {lines} lines: cut it by concern"));
    }
    let functions = functions(source).unwrap_or_else(|e| panic!("{path}:{}: {e}", e.span().start().line));
    let mut long = Vec::new();
    for function in &functions {
        let place = format!(
            "{path}:{}: {} has {} lines",
            function.line, function.name, function.lines
        );
        if function.lines > FUNCTION_LINES_MAX {
            faults.push(place);
        } else if function.lines > LONG_LINES {
            long.push(place);
        }
    }
    (faults, functions.len(), long)
}

/// All Rust files below a directory, but for what a build writes.
fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).expect("the tree can be read") {
        let path = entry.expect("the tree can be read").path();
        if path.is_dir() && !path.ends_with("target") {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_file_and_no_function_is_too_long_to_read() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut paths = Vec::new();
    sources(&crates, &mut paths);
    assert!(paths.len() > 300, "only {} files were found", paths.len());
    let (mut faults, mut count, mut long) = (Vec::new(), 0, Vec::new());
    for path in &paths {
        let source = std::fs::read_to_string(path).expect("a source file is UTF-8");
        let name = path.strip_prefix(&crates).expect("it is below").display().to_string();
        let (its_faults, its_count, its_long) = judge(&name, &source);
        faults.extend(its_faults);
        count += its_count;
        long.extend(its_long);
    }
    assert!(faults.is_empty(), "too long:\n{}", faults.join("\n"));
    assert!(
        long.len() * FUNCTIONS_FOR_A_LONG_ONE <= count,
        "{} of {count} functions have more than {LONG_LINES} lines:\n{}",
        long.len(),
        long.join("\n")
    );
}

#[test]
fn what_is_too_long_is_named_with_its_place() {
    let body = |lines: usize| "    step();\n".repeat(lines);
    let source = format!(
        "//! A module.\n\n/// Documented.\n#[inline]\nfn short() {{\n{}}}\n\nimpl A {{\n    fn long(&self) {{\n{}    }}\n}}\n\ntrait B {{\n    fn \
         declared(&self);\n    fn too_long(&self) {{\n{}    }}\n}}\n",
        body(3),
        body(LONG_LINES),
        body(FUNCTION_LINES_MAX)
    );
    let (faults, count, long) = judge("a.rs", &source);
    assert_eq!(faults, ["a.rs:88: too_long has 122 lines"]);
    assert_eq!(count, 3);
    assert_eq!(long, ["a.rs:12: long has 72 lines"]);
    let (faults, ..) = judge("b.rs", &"// A line.\n".repeat(FILE_LINES_MAX + 1));
    assert_eq!(faults, ["b.rs has 901 lines: cut it by concern"]);
    let (faults, ..) = judge("c.rs", &"// A line.\n".repeat(FILE_LINES_MAX));
    assert!(faults.is_empty());
}
