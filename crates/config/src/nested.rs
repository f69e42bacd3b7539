//! Options whose value has a structure, as the options that they consist of.
//!
//! `seed_provider` is a list of providers with parameters, of which one counts, its seeds. `server_encryption_options`
//! is a mapping; its keys are options named `server_encryption_options.KEY`. So is `alternator_encryption_options`.

use super::file::Node;

/// What an entry of the file is made of.
#[derive(Debug)]
pub(super) enum Parts {
    /// It has no structure that this module knows.
    One(Node),
    /// The options within, by their full names.
    Many(Vec<(String, Node)>),
    /// Not the structure that it should have.
    Wrong {
        /// What it is.
        given: String,
        /// What it should be.
        expected: &'static str,
    },
}

/// The mappings whose keys are options of their own.
pub(super) const ENCRYPTIONS: [&str; 2] = ["alternator_encryption_options", "server_encryption_options"];

/// The options of an entry.
pub(super) fn parts(name: &str, value: Node) -> Parts {
    match name {
        "seed_provider" => seed_provider(value),
        mapping if ENCRYPTIONS.contains(&mapping) => match value {
            Node::Null => Parts::Many(Vec::new()),
            Node::Map(entries) => {
                let full = |(key, value)| (format!("{mapping}.{key}"), value);
                Parts::Many(entries.into_iter().map(full).collect())
            }
            Node::Scalar(given) => wrong(given, "a mapping"),
            Node::List(_) => wrong("a list".to_owned(), "a mapping"),
        },
        "experimental_features"
        | "hinted_handoff_disabled_datacenters"
        | "hinted_handoff_enabled"
        | "initial_token"
        | "internode_compression_algorithms"
        | "seeds" => match value {
            Node::List(items) => joined(items),
            value => Parts::One(value),
        },
        "read_consistency_levels_disallowed"
        | "read_consistency_levels_warned"
        | "replication_strategy_fail_list"
        | "replication_strategy_warn_list"
        | "table_properties_disallowed"
        | "table_properties_warned"
        | "write_consistency_levels_disallowed"
        | "write_consistency_levels_warned" => match value {
            // Empty, it asks for none where the default has some.
            Node::List(items) if items.is_empty() => Parts::One(Node::Scalar("none".to_owned())),
            Node::List(items) => joined(items),
            value => Parts::One(value),
        },
        _ => Parts::One(value),
    }
}

fn wrong(given: String, expected: &'static str) -> Parts {
    Parts::Wrong { given, expected }
}

/// Converts a list to the text with commas that means the same.
fn joined(items: Vec<Node>) -> Parts {
    let texts = items.into_iter().map(|item| match item {
        Node::Scalar(text) => Some(text),
        _ => None,
    });
    match texts.collect::<Option<Vec<_>>>() {
        Some(texts) if texts.is_empty() => Parts::One(Node::Null),
        Some(texts) => Parts::One(Node::Scalar(texts.join(","))),
        None => wrong("a list of lists or mappings".to_owned(), "a list of single values"),
    }
}

fn seed_provider(value: Node) -> Parts {
    const EXPECTED: &str = "SimpleSeedProvider with the parameter seeds";
    let entries = match unlisted(value) {
        Node::Null => return Parts::One(Node::Null),
        Node::Map(entries) => entries,
        Node::Scalar(given) => return wrong(given, EXPECTED),
        Node::List(many) => return wrong(format!("{} providers", many.len()), EXPECTED),
    };
    let mut seeds = Node::Null;
    for (key, value) in entries {
        match (key.as_str(), unlisted(value)) {
            ("class_name", Node::Scalar(class)) if class.rsplit('.').next() == Some("SimpleSeedProvider") => {}
            ("class_name", Node::Scalar(class)) => return wrong(class, EXPECTED),
            ("parameters", Node::Null) => {}
            ("parameters", Node::Map(parameters)) => {
                for (parameter, value) in parameters {
                    if parameter != "seeds" {
                        return wrong(format!("the parameter {parameter}"), EXPECTED);
                    }
                    seeds = value;
                }
            }
            (key, _) => return wrong(format!("another {key}"), EXPECTED),
        }
    }
    match seeds {
        Node::List(items) => joined(items),
        seeds => Parts::One(seeds),
    }
}

/// The only item of a list of one.
fn unlisted(value: Node) -> Node {
    match value {
        Node::List(mut items) if items.len() == 1 => items.remove(0),
        value => value,
    }
}
