//! The table that is written: its key, and how it is created.

use std::str::FromStr;
use std::time::Duration;

use dynamodb::{Item, ValueType};
use serde_json::{Value, json};

use crate::client::{Client, Failure};

/// How often, and how long apart, a table that is not `ACTIVE` is described again.
const DESCRIBED_MAX: usize = 120;
const DESCRIBE_PERIOD: Duration = Duration::from_millis(500);

/// An attribute of a key as options give it: `NAME:S`, `NAME:N` or `NAME:B`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyOption {
    /// The attribute.
    pub name: String,
    /// S, N or B.
    pub value_type: ValueType,
}

impl FromStr for KeyOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.rsplit_once(':').filter(|(name, _)| !name.is_empty());
        let (name, value_type) = parts.ok_or("expected NAME:TYPE, such as artist:S")?;
        let value_type = key_type(value_type).ok_or("expected a type of a key after the name: S, N or B")?;
        Ok(Self {
            name: name.to_owned(),
            value_type,
        })
    }
}

fn key_type(name: &str) -> Option<ValueType> {
    match name {
        "S" => Some(ValueType::S),
        "N" => Some(ValueType::N),
        "B" => Some(ValueType::B),
        _ => None,
    }
}

/// The key of a table: the partition key, and the sort key if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Key(Vec<KeyOption>);

impl Key {
    pub(crate) fn of_options(attributes: &[KeyOption]) -> Self {
        Self(attributes.to_vec())
    }

    /// The key's attributes of an item.
    ///
    /// # Errors
    /// When one is missing or has another type.
    pub(crate) fn of(&self, item: &Item) -> Result<Item, String> {
        let attributes = self.0.iter().map(|attribute| {
            let (name, value_type) = (&attribute.name, attribute.value_type);
            let value = item.get(name).filter(|value| value.value_type() == value_type);
            let value = value.ok_or_else(|| {
                let type_name = value_type.name();
                format!("no attribute '{name}' of type {type_name}, which the table has in its key")
            })?;
            Ok((name.clone(), value.clone()))
        });
        attributes.collect()
    }

    /// The key of a description of a table.
    fn of_description(description: &Value) -> Option<Self> {
        let type_of = |name: &str| {
            let definitions = description["AttributeDefinitions"].as_array()?;
            let definition = definitions
                .iter()
                .find(|it| it["AttributeName"].as_str() == Some(name))?;
            key_type(definition["AttributeType"].as_str()?)
        };
        let schema = description["KeySchema"].as_array()?;
        let attribute = |kind: &str| {
            let element = schema
                .iter()
                .find(|element| element["KeyType"].as_str() == Some(kind))?;
            let name = element["AttributeName"].as_str()?;
            Some(KeyOption {
                name: name.to_owned(),
                value_type: type_of(name)?,
            })
        };
        let partition = attribute("HASH")?;
        let sort = attribute("RANGE");
        let is_whole = schema.len() == 1 + usize::from(sort.is_some());
        is_whole.then(|| Self(std::iter::once(partition).chain(sort).collect()))
    }

    fn create_request(&self, table: &str) -> Value {
        let definitions: Vec<Value> = self
            .0
            .iter()
            .map(|it| json!({ "AttributeName": it.name, "AttributeType": it.value_type.name() }))
            .collect();
        let kinds = ["HASH", "RANGE"];
        let schema: Vec<Value> = self
            .0
            .iter()
            .zip(kinds)
            .map(|(it, kind)| json!({ "AttributeName": it.name, "KeyType": kind }))
            .collect();
        json!({
            "TableName": table,
            "AttributeDefinitions": definitions,
            "KeySchema": schema,
            "BillingMode": "PAY_PER_REQUEST",
        })
    }
}

/// The key of the table, which is created first if it is not there and `created` says with which key.
///
/// # Errors
/// When it is not there and not to be created, has another key than `created`, or the node refuses.
pub(crate) async fn prepare(client: &mut Client, table: &str, created: Option<&Key>) -> Result<Key, String> {
    let mut has_created = false;
    for _ in 0..DESCRIBED_MAX {
        let request = json!({ "TableName": table }).to_string();
        let described = match client.call("DescribeTable", request.as_bytes()).await {
            Ok(described) => described,
            Err(Failure::Refused { name, .. }) if name == "ResourceNotFoundException" => {
                let key = created.ok_or_else(|| {
                    format!("there is no table {table}; create it, or give --create-table with --partition-key")
                })?;
                if !has_created {
                    let request = key.create_request(table).to_string();
                    let answer = client.call("CreateTable", request.as_bytes()).await;
                    answer.map_err(|failure| format!("creating table {table}: {failure}"))?;
                    has_created = true;
                } else {
                    runtime::sleep(DESCRIBE_PERIOD).await;
                }
                continue;
            }
            Err(failure) => return Err(format!("describing table {table}: {failure}")),
        };
        let description = &described["Table"];
        if description["TableStatus"].as_str() != Some("ACTIVE") {
            runtime::sleep(DESCRIBE_PERIOD).await;
            continue;
        }
        let key = Key::of_description(description);
        let key = key.ok_or_else(|| format!("the description of table {table} has no key"))?;
        return match created.filter(|created| **created != key) {
            Some(_) => Err(format!(
                "table {table} is there, with another key than --partition-key and --sort-key"
            )),
            None => Ok(key),
        };
    }
    Err(format!("table {table} does not become ACTIVE"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_name_and_a_type() {
        let key: KeyOption = "a:b:N".parse().expect("the type is after the last colon");
        assert_eq!((key.name.as_str(), key.value_type), ("a:b", ValueType::N));
        for wrong in ["artist", ":S", "artist:SS", "artist:"] {
            assert!(wrong.parse::<KeyOption>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_key_of_a_created_table_is_the_key_of_its_description() {
        let attributes = ["p:S", "s:N"].map(|text| text.parse().expect("a name and a type"));
        let key = Key::of_options(&attributes);
        let request = key.create_request("music");
        assert_eq!(Key::of_description(&request), Some(key));
        let mut unordered = request.clone();
        unordered["KeySchema"].as_array_mut().expect("a list").reverse();
        assert_eq!(Key::of_description(&unordered), Key::of_description(&request));
        assert_eq!(Key::of_description(&json!({})), None);
    }
}
