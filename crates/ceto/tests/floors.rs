//! A crate depends only on crates of lower floors, and only `runtime` on the crates that reach the operating system.
//!
//! The floor of a crate is in its Cargo.toml: `[package.metadata.ceto] floor = N`. Crates under `[dev-dependencies]`
//! follow the same rule, because tests are code that people read. A crate with `tests_only = true` is the exception:
//! the tests of every floor may depend on it, and no crate depends on it but for its tests.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// External crates that only `runtime` may use: each would reach the operating system and bypass the simulator.
const WORLDLY: &[&str] = &[
    "io-uring",
    "libc",
    "tokio",
    "mio",
    "async-std",
    "smol",
    "nix",
    "rustix",
    "getrandom",
    "rand",
];

/// Crate, what it uses all the same, and why it may.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

/// Crate, what it must not use though that is on a lower floor, and what it uses instead.
const CLOSED: &[(&str, &str, &str)] = &[
    (
        "query",
        "replica",
        "coordinator, which reads and writes here, on other shards and on other nodes",
    ),
    ("query", "commitlog", "coordinator::Logged"),
    ("query", "sstable", "coordinator"),
    ("query", "memtable", "coordinator"),
    ("ddl", "cql", "ddl::Definition, a value that every front end can make"),
];

/// What a Cargo.toml says that matters here.
#[derive(Debug)]
struct Manifest {
    floor: Option<u32>,
    /// Only tests may depend on the crate.
    tests_only: bool,
    dependencies: Vec<String>,
    /// Those of them that the crate itself needs, and not its tests alone.
    own: Vec<String>,
}

/// Reads the tables of a Cargo.toml that this tree writes: one dependency in a line, or in a table of its own.
fn read_manifest(text: &str) -> Manifest {
    let mut manifest = Manifest {
        floor: None,
        tests_only: false,
        dependencies: Vec::new(),
        own: Vec::new(),
    };
    let mut table = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name.to_owned();
            if let Some((list, name)) = table.rsplit_once('.')
                && is_dependency_list(list)
            {
                manifest.dependencies.push(name.to_owned());
                if list == "dependencies" {
                    manifest.own.push(name.to_owned());
                }
            }
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        if line.starts_with('#') {
            continue;
        }
        if table == "package.metadata.ceto" && key.trim() == "floor" {
            manifest.floor = value.trim().parse().ok();
        } else if table == "package.metadata.ceto" && key.trim() == "tests_only" {
            manifest.tests_only = value.trim() == "true";
        } else if is_dependency_list(&table) {
            let name = key.split('.').next().unwrap_or(key);
            manifest.dependencies.push(name.trim().to_owned());
            if table == "dependencies" {
                manifest.own.push(name.trim().to_owned());
            }
        }
    }
    manifest
}

fn is_dependency_list(table: &str) -> bool {
    let last = table.rsplit('.').next().unwrap_or(table);
    matches!(last, "dependencies" | "dev-dependencies" | "build-dependencies")
}

/// What is wrong, a sentence each.
fn faults(manifests: &BTreeMap<String, Manifest>) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, manifest) in manifests {
        let Some(floor) = manifest.floor else {
            faults.push(format!(
                "{name} has no floor: add [package.metadata.ceto] floor = N to its Cargo.toml"
            ));
            continue;
        };
        for (_, closed, instead) in CLOSED.iter().filter(|(of, ..)| of == name) {
            if manifest.own.iter().any(|own| own == closed) {
                faults.push(format!("{name} depends on {closed}: use {instead}"));
            }
        }
        for dependency in &manifest.dependencies {
            let other = manifests.get(dependency);
            let is_for_tests = !manifest.own.contains(dependency);
            if other.is_some_and(|other| other.tests_only) && !manifest.tests_only {
                if !is_for_tests {
                    faults.push(format!("{name} depends on {dependency}, which only tests may use"));
                }
            } else if let Some(below) = other.and_then(|other| other.floor)
                && below >= floor
            {
                faults.push(format!(
                    "{name} (floor {floor}) depends on {dependency} (floor {below}), which is not on a lower floor"
                ));
            }
            let is_exception = EXCEPTIONS
                .iter()
                .any(|(who, what, _)| who == name && what == dependency);
            if WORLDLY.contains(&dependency.as_str()) && name != "runtime" && !is_exception {
                faults.push(format!("{name} depends on {dependency}, which only runtime may use"));
            }
        }
    }
    faults
}

fn crates() -> BTreeMap<String, Manifest> {
    let crates: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let entries = runtime::fs::read_dir(&crates).expect("the crates' directory can be read");
    let dirs = entries.into_iter().filter(|entry| entry.is_dir);
    dirs.filter_map(|entry| {
        let bytes = runtime::fs::read(crates.join(&entry.name).join("Cargo.toml")).ok()?;
        let text = String::from_utf8(bytes).expect("a Cargo.toml is UTF-8");
        Some((entry.name, read_manifest(&text)))
    })
    .collect()
}

#[test]
fn every_crate_depends_on_lower_floors_only() {
    let manifests = crates();
    assert!(manifests.len() >= 17, "only {} crates were found", manifests.len());
    assert!(
        manifests["node"].dependencies.iter().any(|d| d == "query"),
        "dependencies of node were not found"
    );
    let faults = faults(&manifests);
    assert!(
        faults.is_empty(),
        "the floors of ARCHITECTURE.md do not hold:\n{}",
        faults.join("\n")
    );
}

/// Work goes to other shards by way of the coordinator, which gives it a trace and lets long work be preempted.
#[test]
fn the_engine_submits_nothing_to_shards_by_itself() {
    fn look(dir: &Path, found: &mut Vec<String>) {
        for entry in runtime::fs::read_dir(dir).expect("the sources can be read") {
            let path = dir.join(&entry.name);
            if entry.is_dir {
                look(&path, found);
                continue;
            }
            let bytes = runtime::fs::read(&path).expect("the sources can be read");
            let text = String::from_utf8(bytes).expect("sources are UTF-8");
            if text.contains("runtime::submit") {
                found.push(path.display().to_string());
            }
        }
    }
    let mut found = Vec::new();
    look(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../query/src"), &mut found);
    assert!(found.is_empty(), "use coordinator::trace::submit: {found:?}");
}

#[test]
fn a_crate_that_reaches_up_or_out_is_named_with_what_it_reaches() {
    let read = |texts: &[(&str, &str)]| {
        texts
            .iter()
            .map(|(name, text)| ((*name).to_owned(), read_manifest(text)))
            .collect::<BTreeMap<_, _>>()
    };
    let low = "[package.metadata.ceto]\nfloor = 10\n[dependencies]\n";
    let high = "[package.metadata.ceto]\nfloor = 20\n[dependencies]\n";
    let for_tests = "[package.metadata.ceto]\nfloor = 15\ntests_only = true\n[dependencies]\n".to_owned();
    type Texts = Vec<(&'static str, String)>;
    let cases: &[(&str, Texts, &str)] = &[
        (
            "nothing wrong",
            vec![
                ("a", low.to_owned()),
                ("b", format!("{high}a = {{ workspace = true }}")),
            ],
            "",
        ),
        (
            "up",
            vec![("a", format!("{low}b.workspace = true")), ("b", high.to_owned())],
            "a (floor 10) depends on b (floor 20), which is not on a lower floor",
        ),
        (
            "sideways, in tests only",
            vec![
                ("a", format!("{low}[dev-dependencies]\nb = {{ path = \"../b\" }}")),
                ("b", low.to_owned()),
            ],
            "a (floor 10) depends on b (floor 10), which is not on a lower floor",
        ),
        (
            "up, in a table of its own",
            vec![
                ("a", format!("{low}[dependencies.b]\nworkspace = true")),
                ("b", high.to_owned()),
            ],
            "a (floor 10) depends on b (floor 20), which is not on a lower floor",
        ),
        (
            "to what is closed to it, and in tests, where it is not",
            vec![
                ("replica", low.to_owned()),
                ("commitlog", low.to_owned()),
                (
                    "query",
                    format!("{high}replica.workspace = true\n[dev-dependencies]\ncommitlog.workspace = true"),
                ),
            ],
            "query depends on replica: use coordinator, which reads and writes here, on other shards and on other nodes",
        ),
        (
            "up to a crate for tests, in tests",
            vec![
                ("a", format!("{low}[dev-dependencies]\nb.workspace = true")),
                ("b", format!("{for_tests}a.workspace = true")),
            ],
            "",
        ),
        (
            "down to a crate for tests, not in tests",
            vec![("a", for_tests.clone()), ("b", format!("{high}a.workspace = true"))],
            "b depends on a, which only tests may use",
        ),
        (
            "out, on one target",
            vec![
                ("a", format!("{low}[target.'cfg(unix)'.dependencies]\nlibc = \"0.2\"")),
                ("runtime", format!("{low}libc = \"0.2\"")),
            ],
            "a depends on libc, which only runtime may use",
        ),
        (
            "nowhere",
            vec![("a", "[dependencies]\n".to_owned())],
            "a has no floor: add [package.metadata.ceto] floor = N to its Cargo.toml",
        ),
    ];
    for (story, texts, expected) in cases {
        let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
        assert_eq!(faults(&read(&texts)).join("\n"), *expected, "{story}");
    }
}
