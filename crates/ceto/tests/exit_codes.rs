//! What a person or a script sees of the binary when it does not serve: exit code, and one line that says why.

use std::process::{Command, Output};

fn ceto(words: &str) -> Output {
    let binary = env!("CARGO_BIN_EXE_ceto");
    Command::new(binary)
        .args(words.split_whitespace())
        .output()
        .expect("the binary was built for this test")
}

/// Standard error of a command that must fail.
fn refusal(words: &str) -> String {
    let output = ceto(words);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.code(),
        Some(1),
        "exit code of 'ceto {words}', which said {error:?}"
    );
    assert!(
        output.stdout.is_empty(),
        "'ceto {words}' failed and still printed {:?}",
        output.stdout
    );
    assert_eq!(error.lines().count(), 1, "'ceto {words}' said {error:?}");
    error
}

#[test]
fn help_and_version_are_no_errors() {
    let version = ceto("--version");
    assert_eq!(version.status.code(), Some(0));
    let expected = format!("ceto {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8_lossy(&version.stdout), expected);
    for (words, told) in [
        (
            "--help",
            vec![
                "Commands:",
                "perf",
                "sstable",
                "nodetool",
                "--workdir",
                "--native-transport-port",
            ],
        ),
        ("perf --help", vec!["simple-query", "memory-footprint", "cql", "redis"]),
        ("sstable --help", vec!["dump", "verify", "metadata"]),
        ("nodetool --help", vec!["--workdir"]),
        ("recover-metadata --help", vec!["--workdir", "--confirm", "--follow"]),
        (
            "recover-directory --help",
            vec!["--workdir", "--confirm", "--accept", "commitlog"],
        ),
    ] {
        let help = ceto(words);
        let text = String::from_utf8_lossy(&help.stdout).into_owned();
        assert_eq!(help.status.code(), Some(0), "exit code of 'ceto {words}'");
        for word in told {
            assert!(text.contains(word), "'ceto {words}' does not tell of {word}:\n{text}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_told_in_one_line() {
    let nowhere = std::env::temp_dir().join(format!("ceto-nowhere-{:016x}", runtime::random_u64()));
    let nowhere = nowhere.display();
    let cases = [
        (
            "--smpp 1".to_owned(),
            "ceto: unexpected argument '--smpp' found; tip: a similar argument exists: '--smp'",
        ),
        (
            "--memory lots".to_owned(),
            "ceto: --memory: 'lots' given, expected a size such as 512M or 1.5G",
        ),
        (
            format!("--options-file {nowhere}.yaml"),
            "ceto: cannot read the options file ",
        ),
        ("-W /proc/ceto --smp 1".to_owned(), "ceto: "),
        (format!("nodetool -W {nowhere} info"), "ceto: no node runs on "),
        (format!("recover-metadata -W {nowhere}"), "ceto: "),
        (format!("recover-directory -W {nowhere} --accept data"), "ceto: /"),
        (
            format!("recover-directory -W {nowhere} --accept everything"),
            "ceto: invalid value 'everything' for '--accept <DIRECTORY>'",
        ),
        (
            "recover-metadata".to_owned(),
            "ceto: the following required arguments were not provided: --workdir <DIR>",
        ),
        (format!("sstable verify {nowhere}/me-1-big-Data.db"), "ceto: "),
        (format!("sstable metadata {nowhere}/strange"), "ceto: "),
        (
            "perf simple-query --smp 0".to_owned(),
            "ceto: invalid value '0' for '--smp <SMP>'",
        ),
    ];
    for (words, expected) in cases {
        let error = refusal(&words);
        assert!(
            error.starts_with(expected),
            "'ceto {words}' said {error:?}, expected {expected:?}"
        );
    }
}

#[test]
fn figures_are_printed() {
    let footprint = ceto("perf memory-footprint --row-count=2 --partition-count=3 --data-size=8 --column-count=4");
    let text = String::from_utf8_lossy(&footprint.stdout).into_owned();
    assert_eq!(footprint.status.code(), Some(0), "{text}");
    for place in ["in memtable:", "held by memtable:", "in sstable me:"] {
        assert!(text.contains(place), "no '{place}' in:\n{text}");
    }
    let read = ceto("perf simple-query --overprovisioned --memory 256M --partitions 100 --operations 1000");
    let text = String::from_utf8_lossy(&read.stdout).into_owned();
    assert_eq!(
        read.status.code(),
        Some(0),
        "{text}{}",
        String::from_utf8_lossy(&read.stderr)
    );
    let allocations = text
        .split_once("(1000 operations, ")
        .and_then(|(_, rest)| rest.split_once(" allocs/op"));
    let allocations = allocations.and_then(|(count, _)| count.parse::<f64>().ok());
    assert!(
        allocations.is_some_and(|count| count <= 4.0),
        "more than 4 allocations for a read from memory:\n{text}"
    );
}
