//! The file that `ceto --print-config` writes: every option with its meaning and its value.

use std::fmt::Write;

use super::args::ServerArgs;
use super::table::{DefaultValue, Group, Row, TABLE};

/// A ceto.yaml of all options with the values of the command line, else with their defaults. An option whose default
/// follows from others has no value, which leaves it the default.
#[must_use]
pub fn print(args: &ServerArgs) -> String {
    let mut text = "\
        # Options of a ceto node. A node reads this file as ceto.yaml in its workdir, or with --options-file.\n\
        # An option without a value has its default. The command line beats the file.\n"
        .to_owned();
    for group in Group::ALL {
        let _ = write!(text, "\n# --- {} ---\n", group.title());
        let mut last_mapping = None;
        for row in TABLE.iter().filter(|row| row.group == group) {
            // The keys of a mapping are options that have its name before a dot.
            let (mapping, indent, name) = match row.name.split_once('.') {
                Some((mapping, key)) => (Some(mapping), "  ", key),
                None => (None, "", row.name),
            };
            if let Some(mapping) = mapping.filter(|_| mapping != last_mapping) {
                let _ = write!(text, "\n{mapping}:\n");
            }
            last_mapping = mapping;
            for line in option(row, name, args) {
                let _ = writeln!(text, "{}", format!("{indent}{line}").trim_end());
            }
        }
    }
    text
}

/// The lines of an option, with an empty one before them.
fn option(row: &Row, name: &str, args: &ServerArgs) -> Vec<String> {
    let (value, changes) = (row.takes.words().replace('`', ""), row.changes.words().replace('`', ""));
    let mut lines = vec![
        String::new(),
        format!("# {}.", row.meaning),
        format!("# Value: {value}. May change: {changes}."),
    ];
    let default = match row.default {
        DefaultValue::Is(text) => text.to_owned(),
        DefaultValue::Follows(words) => {
            lines.push(format!("# Default: {words}."));
            String::new()
        }
    };
    let own = args.get(row.name).map(str::to_owned);
    let older = row
        .spellings
        .iter()
        .find_map(|(spelling, unit)| unit.apply(args.get(spelling)?));
    lines.push(format!("{name}: {}", quoted(&own.or(older).unwrap_or(default))));
    lines
}

/// A text that YAML reads as the same text.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./,".contains(c);
    let begins_plain = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/' || c == '.');
    let is_null = ["null", "~"].contains(&&*text.to_ascii_lowercase());
    if text.is_empty() || (text.chars().all(is_plain) && begins_plain && !is_null) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "''"))
}
