//! The page `docs/operating/configuration.md`, made from the same tables as everything else that speaks of options.

use std::fmt::Write;
use std::path::Path;

use runtime::fs;

use super::table::{DefaultValue, Group, Row, TABLE, Unit};
use super::wishes::{NOT_DONE, REFUSED, Wish};

const PATH: &str = testkit::path!("../../docs/operating/configuration.md");

#[test]
fn the_page_of_options_is_up_to_date() {
    let expected = page();
    if std::env::var_os(testkit::REWRITE).is_some() {
        fs::write(Path::new(PATH), expected.as_bytes()).expect("the page can be written");
        return;
    }
    let found = fs::read(Path::new(PATH)).unwrap_or_default();
    assert!(
        found == expected.as_bytes(),
        "docs/operating/configuration.md is out of date; `./dev rewrite config` writes it"
    );
}

fn page() -> String {
    let mut page = "\
# Configuration

<!-- Made from the tables in crates/config/src by `./dev rewrite config`; a test fails when it is out of date. -->

A node takes its options from the command line (`--listen-address 10.0.0.1`), from a YAML file (`listen_address: 10.0.0.1`), and from their
defaults; the first that has a value wins. The file is the one that `--options-file` names, else `ceto.yaml` in the workdir. A `cassandra.yaml`
(3.11 to 5.0) or a `scylla.yaml` can be given as it is. `ceto --print-config` prints a file of all options with their defaults.

The node checks all options before it starts and names everything that is wrong at once: file, line, option, value, and what was expected. Where an
address is taken, a host name is too. Names are resolved once at each start, and one that does not resolve stops the start, also as a seed: the first
seed forms the cluster, so that leaving one out could form two.

A value is given with its unit; old spellings have it in the name and take a whole number.
"
    .to_owned();
    for group in Group::ALL {
        let _ = write!(
            page,
            "\n## {}\n\n| option | meaning | value | default | may change | old spellings |\n|---|---|---|---|---|---|\n",
            group.title()
        );
        for row in TABLE.iter().filter(|row| row.group == group) {
            let _ = writeln!(page, "{}", line(row));
        }
    }
    page.push_str(
        "\n## Options of cassandra.yaml and scylla.yaml that are none here\n\n\
         The names of both files are known. One that is in none of the tables of this page has no meaning here; the log names those that a file has \
         in one line. An unknown name stops the start.\n\n\
         These stop the start unless they have the value in the second column, because data would be lost, a listener would accept every client, or answers would \
         be others:\n\n",
    );
    wishes(&mut page, REFUSED, "why it stops");
    page.push_str(
        "\nThese are warned of in the log, each in a line, unless they have the value in the second column:\n\n",
    );
    wishes(&mut page, NOT_DONE, "what happens instead");
    page.push_str(
        "\nThe same holds for every other limit (`*_fail_threshold`, `*_fail_threshold_mb`, `*_fail_list`, `*_disallowed`): it is not enforced.\n",
    );
    page
}

fn line(row: &Row) -> String {
    let default = match row.default {
        DefaultValue::Is(text) => format!("`{text}`"),
        DefaultValue::Follows(text) => text.to_owned(),
    };
    let spellings = row.spellings.iter().map(|(spelling, unit)| {
        let unit = match unit {
            Unit::Same => "",
            Unit::Milliseconds => " (ms)",
            Unit::Kibibytes => " (KiB)",
            Unit::Mebibytes => " (MiB)",
            Unit::MebibytesPerSecond => " (MiB/s)",
            Unit::MegabitsPerSecond => " (Mbit/s)",
        };
        format!("`{spelling}`{unit}")
    });
    format!(
        "| `{}` | {} | {} | {default} | {} | {} |",
        row.name,
        row.meaning,
        row.takes.words(),
        row.changes.words(),
        spellings.collect::<Vec<_>>().join(", ")
    )
}

fn wishes(page: &mut String, wishes: &[Wish], why: &str) {
    let _ = write!(page, "| option | value that is met | {why} |\n|---|---|---|\n");
    for (name, met, reason) in wishes {
        let met = met
            .split('|')
            .filter(|met| !met.is_empty())
            .map(|met| format!("`{met}`"));
        let met = met.collect::<Vec<_>>().join(", ");
        let _ = writeln!(page, "| `{name}` | {met} | {reason} |");
    }
}
