//! The YAML file as a list of options with their lines, before any of them is understood.
//!
//! Scalars become the text that a person would write for them, so that a value from the file and one from the command
//! line go through the same parser.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::Spanned;

/// One option of the file.
#[derive(Debug)]
pub(super) struct Entry {
    /// As written.
    pub name: String,
    /// Counted from 1.
    pub line: u64,
    /// Its value.
    pub value: Node,
}

/// A YAML value.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Node {
    /// Nothing, which leaves the default.
    Null,
    /// A number, a switch or a text.
    Scalar(String),
    /// A sequence.
    List(Vec<Node>),
    /// A mapping.
    Map(Vec<(String, Node)>),
}

/// Parses a file.
///
/// # Errors
/// The message of the YAML parser, which names line and column.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, String> {
    let options = serde_saphyr::options! { with_snippet: false };
    let Entries(entries) =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string().replace('\n', " "))?;
    Ok(entries)
}

/// The top level of a file.
struct Entries(Vec<Entry>);

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Top;
        impl<'de> Visitor<'de> for Top {
            type Value = Entries;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("options, one in a line: `name: value`")
            }

            fn visit_unit<E>(self) -> Result<Entries, E> {
                Ok(Entries(Vec::new()))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                while let Some((name, value)) = map.next_entry::<Spanned<String>, Node>()? {
                    entries.push(Entry {
                        line: name.referenced.line(),
                        name: name.value,
                        value,
                    });
                }
                Ok(Entries(entries))
            }
        }
        deserializer.deserialize_any(Top)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;
        impl<'de> Visitor<'de> for Any {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a YAML value")
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Scalar(value.to_string()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Scalar(value.to_string()))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Scalar(value.to_string()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Node::Scalar(value.to_string()))
            }

            fn visit_str<E>(self, value: &str) -> Result<Node, E> {
                Ok(Node::Scalar(value.to_owned()))
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_none<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Node::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node, A::Error> {
                let mut map = Vec::new();
                while let Some(entry) = entries.next_entry()? {
                    map.push(entry);
                }
                Ok(Node::Map(map))
            }
        }
        deserializer.deserialize_any(Any)
    }
}
