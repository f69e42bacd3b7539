//! The system tables of a whole node, as its clients read them.
//!
//! A case is a statement, or `contents KEYSPACE`, which asks for all rows of all tables of a keyspace. `page N` in
//! front of a statement asks for it page by page. What differs from run to run (random UUIDs and tokens, versions of
//! the schema) is written as a name.

use sim::client::Answer;
use sim::model::Value;
use sim::story::{ONE, Story};
use testkit::Case;

/// Columns whose values are random, or depend on what is.
const RANDOM_COLUMNS: [&str; 18] = [
    "capacity_bytes",
    "completed_tasks",
    "count",
    "dropped_time",
    "max_ms",
    "mean_partition_size",
    "owns",
    "p50th_ms",
    "p99th_ms",
    "partitions_count",
    "port",
    "queued_micros",
    "replicas",
    "running_micros",
    "schema_version",
    "shard_id",
    "size_bytes",
    "value",
];

/// Names for UUIDs that differ in each run, in the order in which the answers show them.
#[derive(Default)]
struct Names(Vec<String>);

impl Names {
    /// A text without what differs from run to run.
    fn normalise(&mut self, text: &str) -> String {
        let text = &RANDOM_COLUMNS.iter().fold(text.to_owned(), |text, column| {
            let start = format!("\"{column}\": ");
            let mut parts = text.split(&start);
            let first = parts.next().unwrap_or_default().to_owned();
            parts.fold(first, |out, rest| {
                let ends = [rest.find(", \""), rest.find('}')];
                let end = ends.into_iter().flatten().min().unwrap_or(rest.len());
                out + &start + "random" + &rest[end..]
            })
        });
        let mut out = String::new();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let mut rest: &str = text;
        while let Some(start) = rest.find(is_word) {
            let (before, from) = rest.split_at(start);
            let (word, behind) = from.split_at(from.find(|c| !is_word(c)).unwrap_or(from.len()));
            out.push_str(before);
            out.push_str(&self.word(word));
            rest = behind;
        }
        out + rest
    }

    fn word(&mut self, word: &str) -> String {
        let is_uuid = word.len() == 36 && word.matches('-').count() == 4;
        // Those with a name-based version are the same in each run.
        if is_uuid && word.as_bytes()[14] != b'3' {
            let known = self.0.iter().position(|known| known == word);
            let number = known.unwrap_or_else(|| {
                self.0.push(word.to_owned());
                self.0.len() - 1
            });
            return format!("uuid {}", number + 1);
        }
        let digits = word.strip_prefix('-').unwrap_or(word);
        if digits.len() >= 14 && digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return "token".to_owned();
        }
        word.to_owned()
    }
}

fn print_value(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::Int(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

fn print(answer: &Answer) -> String {
    match answer {
        Answer::Rows(rows, _) => {
            let row = |row: &std::collections::BTreeMap<String, Value>| {
                row.values().map(print_value).collect::<Vec<_>>().join(" | ") + "\n"
            };
            rows.iter().map(row).collect()
        }
        Answer::Error { code, message } => format!("error {code:04x}: {message}\n"),
        Answer::Done => "done\n".to_owned(),
        Answer::Prepared(_) => "prepared\n".to_owned(),
    }
}

fn ask(story: &mut Story, statement: &str) -> Answer {
    let answer = story.ask(0, statement, ONE);
    answer.unwrap_or_else(|| panic!("{statement}: the node does not answer"))
}

/// The names of all tables of a keyspace.
fn tables_of(story: &mut Story, keyspace: &str) -> Vec<String> {
    let mut names = Vec::new();
    for schema in ["system_schema", "system_virtual_schema"] {
        let statement = format!("SELECT table_name FROM {schema}.tables WHERE keyspace_name = '{keyspace}'");
        names.extend(print(&ask(story, &statement)).lines().map(str::to_owned));
    }
    names
}

fn answer(story: &mut Story, case: &Case) -> String {
    match case.command() {
        "contents" => {
            let mut out = String::new();
            for table in tables_of(story, case.arguments()) {
                let statement = format!("SELECT JSON * FROM {}.\"{table}\"", case.arguments());
                out += &format!("{table}:\n{}", print(&ask(story, &statement)));
            }
            out
        }
        "page" => {
            let rows = case.arguments().parse().expect("page N");
            let (mut pages, mut state) = (Vec::new(), None);
            loop {
                let answer = story.ask_page(0, case.input(), ONE, rows, state);
                let answer = answer.expect("the node answers");
                pages.push(print(&answer));
                match answer {
                    Answer::Rows(_, Some(next)) => state = Some(next),
                    _ => return pages.join("next page\n"),
                }
            }
        }
        _ => print(&ask(story, &case.text)),
    }
}

/// Lines that differ in nothing but chance, once: how many ranges the random tokens make is chance, too.
fn without_repeats(text: &str) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.dedup();
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn run(mut story: Story, path: &str) {
    let mut names = Names::default();
    testkit::run(path, |case| {
        let answer = answer(&mut story, case);
        without_repeats(&names.normalise(&answer))
    });
}

#[test]
fn a_node_alone_shows_what_it_always_showed() {
    let mut setup = Story::setup(1);
    setup.shards = vec![2];
    run(Story::begin(1, &setup), testkit::path!("tests/system_tables/alone.txt"));
}

#[test]
fn a_node_with_peers_shows_them() {
    let story = Story::begin(2, &Story::setup(3));
    run(story, testkit::path!("tests/system_tables/cluster.txt"));
}
