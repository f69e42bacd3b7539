//! Every file of tests is compiled: a crate whose tests are one program names each of them in `tests/all.rs`.

use std::collections::BTreeSet;
use std::path::Path;

/// The modules that a crate's `tests/all.rs` names, and the files beside it.
fn named_and_there(tests: &Path) -> Option<(BTreeSet<String>, BTreeSet<String>)> {
    let whole = std::fs::read_to_string(tests.join("all.rs")).ok()?;
    let parsed = syn::parse_file(&whole).expect("all.rs is Rust");
    let named = parsed.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) => Some(module.ident.to_string()),
        _ => None,
    });
    let files = std::fs::read_dir(tests).expect("the directory was just read");
    let there = files.filter_map(|file| {
        let path = file.expect("the directory is read").path();
        let name = path.file_stem()?.to_str()?.to_owned();
        (path.extension().is_some_and(|ending| ending == "rs") && name != "all").then_some(name)
    });
    Some((named.collect(), there.collect()))
}

#[test]
fn no_file_of_tests_is_left_out() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut checked = 0;
    for directory in std::fs::read_dir(crates).expect("the crates are there") {
        let tests = directory.expect("the directory is read").path().join("tests");
        if let Some((named, there)) = named_and_there(&tests) {
            let left_out: Vec<&String> = there.difference(&named).collect();
            assert!(
                left_out.is_empty(),
                "{}/all.rs does not name {left_out:?}",
                tests.display()
            );
            checked += 1;
        }
    }
    assert!(checked >= 10, "only {checked} crates have their tests in one program");
}
