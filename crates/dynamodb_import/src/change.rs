//! Lines of data files: an item of a full export, or a change of an incremental one.
//!
//! ```text
//! {"Item":{"id":{"S":"a"},"n":{"N":"1"}}}
//! {"Metadata":{"WriteTimestampMicros":{"N":"1680109764000000"}},"Keys":{"id":{"S":"a"}},"NewImage":{…}}
//! ```
//!
//! A change without a new image is a deletion. Old images are not looked at.

use std::fmt;

use dynamodb::value::json::{self, ItemSeed, Problems, Skip};
use dynamodb::{AttributeValue, Item};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

use crate::export::Kind;
use crate::table::Key;

/// What a line does to the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    Put,
    Delete,
}

/// A line, ready to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Change {
    pub action: Action,
    /// The key as JSON; equal keys have equal texts, because values are normalised.
    pub key: Vec<u8>,
    /// The request of BatchWriteItem as JSON.
    pub request: Vec<u8>,
    /// When the service wrote it, in microseconds since the Unix epoch; None in full exports.
    pub time_us: Option<i64>,
}

/// The members of a line that matter.
#[derive(Default)]
struct Line {
    item: Option<Item>,
    keys: Option<Item>,
    new_image: Option<Item>,
    metadata: Option<Item>,
}

impl Change {
    /// Reads a line.
    ///
    /// # Errors
    /// In words, when it is no line of such an export, or its item has no key of the table.
    pub(crate) fn read(line: &[u8], kind: Kind, table_key: &Key) -> Result<Self, String> {
        let problems = Problems::default();
        let mut deserializer = serde_json::Deserializer::from_slice(line);
        let read = LineSeed(&problems).deserialize(&mut deserializer);
        let line = read.and_then(|line| deserializer.end().map(|()| line));
        let line = line.map_err(|error| match error.classify() {
            serde_json::error::Category::Data => {
                format!("{error}: {}", problems.serialization_error(&error).message)
            }
            _ => format!("not JSON: {error}"),
        })?;
        problems.check().map_err(|error| error.message)?;
        match kind {
            Kind::Full => {
                let item = line.item.ok_or("no member Item, as lines of a full export have")?;
                let key = table_key.of(&item)?;
                Ok(Self::put(&key, &item, None))
            }
            Kind::Incremental => {
                let keys = line
                    .keys
                    .ok_or("no member Keys, as lines of an incremental export have")?;
                let key = table_key.of(&keys)?;
                let time_us = line.metadata.as_ref().and_then(time_us);
                let time_us = time_us.ok_or("no number Metadata.WriteTimestampMicros")?;
                match line.new_image {
                    None => Ok(Self::delete(&key, time_us)),
                    Some(image) if table_key.of(&image)? == key => Ok(Self::put(&key, &image, Some(time_us))),
                    Some(_) => Err("Keys are not those of NewImage".to_owned()),
                }
            }
        }
    }

    fn put(key: &Item, item: &Item, time_us: Option<i64>) -> Self {
        Self::new(Action::Put, ("PutRequest", "Item", item), key, time_us)
    }

    fn delete(key: &Item, time_us: i64) -> Self {
        Self::new(Action::Delete, ("DeleteRequest", "Key", key), key, Some(time_us))
    }

    /// `request`: its name and that of its one member, and the value of that.
    fn new(action: Action, (name, member, item): (&str, &str, &Item), key: &Item, time_us: Option<i64>) -> Self {
        let mut request = format!("{{\"{name}\":{{\"{member}\":").into_bytes();
        json::write_item(&mut request, item);
        request.extend_from_slice(b"}}");
        Self {
            action,
            key: text_of(key),
            request,
            time_us,
        }
    }
}

/// A key as JSON.
pub(crate) fn text_of(key: &Item) -> Vec<u8> {
    let mut text = Vec::new();
    json::write_item(&mut text, key);
    text
}

fn time_us(metadata: &Item) -> Option<i64> {
    let Some(AttributeValue::N(number)) = metadata.get("WriteTimestampMicros") else {
        return None;
    };
    let mut text = Vec::new();
    number.append_text(&mut text);
    std::str::from_utf8(&text).ok()?.parse().ok()
}

#[derive(Clone, Copy)]
struct LineSeed<'p>(&'p Problems);

impl<'de> DeserializeSeed<'de> for LineSeed<'_> {
    type Value = Line;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Line, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LineSeed<'_> {
    type Value = Line;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Line, A::Error> {
        let mut line = Line::default();
        while let Some(name) = members.next_key::<String>()? {
            let member = match name.as_str() {
                "Item" => &mut line.item,
                "Keys" => &mut line.keys,
                "NewImage" => &mut line.new_image,
                "Metadata" => &mut line.metadata,
                "OldImage" => {
                    members.next_value_seed(Skip)?;
                    continue;
                }
                _ => {
                    let name: String = name.chars().take(100).collect();
                    return Err(A::Error::custom(format_args!("member '{name}' is not of an export")));
                }
            };
            *member = Some(members.next_value_seed(ItemSeed(self.0))?);
        }
        Ok(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::of_options(&[
            "id:S".parse().expect("a name and a type"),
            "n:N".parse().expect("a name and a type"),
        ])
    }

    fn read(line: &str, kind: Kind) -> Result<Change, String> {
        Change::read(line.as_bytes(), kind, &key())
    }

    #[test]
    fn an_item_is_put_as_it_is() {
        let line = r#"{"Item":{"id":{"S":"a"},"n":{"N":"1.0"},"data":{"M":{"b":{"B":"AQI="},"e":{"NULL":true}}}}}"#;
        let change = read(line, Kind::Full).expect("a line of a full export");
        assert_eq!(change.action, Action::Put);
        assert_eq!(
            change.key, br#"{"id":{"S":"a"},"n":{"N":"1"}}"#,
            "numbers have one form"
        );
        let item = r#"{"data":{"M":{"b":{"B":"AQI="},"e":{"NULL":true}}},"id":{"S":"a"},"n":{"N":"1"}}"#;
        let expected = format!(r#"{{"PutRequest":{{"Item":{item}}}}}"#);
        assert_eq!(String::from_utf8_lossy(&change.request), expected);
    }

    #[test]
    fn a_change_without_a_new_image_is_a_deletion() {
        let old = r#""OldImage":{"id":{"S":"a"},"n":{"N":"1"},"x":{"S":"1"}}"#;
        let metadata = r#""Metadata":{"WriteTimestampMicros":{"N":"1680109764000000"}}"#;
        let keys = r#""Keys":{"id":{"S":"a"},"n":{"N":"1"}}"#;
        let deletion = read(&format!("{{{metadata},{keys},{old}}}"), Kind::Incremental).expect("a deletion");
        assert_eq!(deletion.action, Action::Delete);
        assert_eq!(
            deletion.request,
            br#"{"DeleteRequest":{"Key":{"id":{"S":"a"},"n":{"N":"1"}}}}"#
        );
        assert_eq!(deletion.time_us, Some(1_680_109_764_000_000));
        let new = r#""NewImage":{"id":{"S":"a"},"n":{"N":"1"},"x":{"S":"2"}}"#;
        let put = read(&format!("{{{metadata},{keys},{old},{new}}}"), Kind::Incremental).expect("an update");
        assert_eq!(put.action, Action::Put);
        assert!(put.request.ends_with(br#""x":{"S":"2"}}}}"#));
    }

    #[test]
    fn lines_that_are_none_of_an_export_are_refused() {
        let keys = r#""Keys":{"id":{"S":"a"},"n":{"N":"1"}}"#;
        let refused = [
            ("{\"Item\":{", Kind::Full, "not JSON: "),
            ("[]", Kind::Full, "expected a JSON object"),
            (r#"{"Item":{"id":{"S":"a"},"n":{"N":"1"}}} x"#, Kind::Full, "not JSON: "),
            (r#"{"Item":{"id":{"S":"a"},"n":{"N":"one"}}}"#, Kind::Full, "numeric"),
            (r#"{"Item":{"id":{"S":"a"},"n":{"N":1}}}"#, Kind::Full, "NUMBER_VALUE"),
            (r#"{"Item":{"id":{"S":"a"}}}"#, Kind::Full, "no attribute 'n' of type N"),
            (
                r#"{"Item":{"id":{"N":"1"},"n":{"N":"1"}}}"#,
                Kind::Full,
                "no attribute 'id' of type S",
            ),
            (&format!("{{{keys}}}"), Kind::Full, "no member Item"),
            (&format!("{{{keys}}}"), Kind::Incremental, "WriteTimestampMicros"),
            (
                r#"{"Item":{"id":{"S":"a"},"n":{"N":"1"}}}"#,
                Kind::Incremental,
                "no member Keys",
            ),
            (r#"{"Thing":{}}"#, Kind::Full, "member 'Thing'"),
        ];
        for (line, kind, expected) in refused {
            let error = read(line, kind).expect_err("it is no line of such an export");
            assert!(error.contains(expected), "{line}: {error} has not: {expected}");
        }
    }
}
