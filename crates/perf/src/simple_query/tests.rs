//! The bench on a real node, with few operations.

use clap::Parser;

use super::*;

#[derive(Parser)]
#[command(args_override_self = true)]
struct CommandLine {
    #[command(flatten)]
    options: Options,
}

fn options(words: &str) -> Options {
    let common = "simple-query --overprovisioned --runtime-backend epoll --memory 256M --partitions 50 --concurrency 7";
    let words = common.split_whitespace().chain(words.split_whitespace());
    CommandLine::try_parse_from(words)
        .unwrap_or_else(|error| panic!("{error}"))
        .options
}

#[test]
fn each_workload_does_all_its_operations_on_every_shard() {
    for (words, name) in [
        ("", "read"),
        ("--flush", "read"),
        ("--write", "write"),
        ("--delete", "delete"),
        ("--values counters", "read"),
        ("--values counters --write", "write"),
        ("--values map", "read"),
        ("--values map --write", "write"),
        ("--values udt --delete", "delete"),
        ("--values udt --conditional", "conditional write"),
        ("--conditional", "conditional write"),
        ("--prepare", "prepare"),
        ("--scan count", "scan"),
        ("--scan group", "scan"),
        ("--scan filter", "scan"),
    ] {
        let report =
            run(&options(&format!("{words} --smp 2 --operations 101"))).unwrap_or_else(|e| panic!("{name}: {e}"));
        let text = report.to_string();
        assert!(
            text.starts_with(&format!("{name}: 2 shards, 50 partitions, concurrency 7")),
            "{text}"
        );
        assert!(text.contains("(101 operations, not counted"), "{name}: {text}");
        assert!(
            text.contains("shard 0: ") && text.contains("shard 1: "),
            "{name}: {text}"
        );
        assert!(report.operations_per_second() > 0.0, "{name}: {text}");
    }
}

#[test]
fn a_run_leaves_its_result_and_nothing_else() {
    let parent = Directory::create(None).expect("the temporary directory takes directories");
    let json = parent.path().join("result.json");
    let words = format!(
        "--operations 10 --workdir {} --json-result {}",
        parent.path().display(),
        json.display()
    );
    run(&options(&words)).expect("one shard fits any machine");
    let names = runtime::fs::read_dir(parent.path()).expect("the directory is there");
    let names: Vec<String> = names.into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["result.json"], "the node's own directory is removed");
    let text = runtime::fs::read(&json).expect("the result was written");
    let value: serde_json::Value = serde_json::from_slice(&text).expect("the result is JSON");
    assert_eq!(value["parameters"]["workload"], "read");
    assert_eq!(value["stats"]["operations"], 10);
}

#[test]
fn options_that_cannot_be_met_are_told() {
    let cases = [
        (
            "--consistency-level TWO --operations 1",
            "Cannot achieve consistency level TWO",
        ),
        (
            "--partitions 1 --smp 2 --operations 1",
            "owns none of the keys; give more --partitions",
        ),
        (
            "--memory 1 --operations 1",
            "--memory: '1' given, expected a size such as 512M or 1.5G, at least 128M",
        ),
    ];
    for (words, expected) in cases {
        let error = run(&options(words)).expect_err("these options cannot be met");
        assert!(error.contains(expected), "'{words}' gave: {error}");
    }
}
