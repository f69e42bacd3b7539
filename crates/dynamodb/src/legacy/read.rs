//! Reading legacy maps from JSON.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use stdx::preempt;

use super::{LegacyEntry, LegacyMap, LegacySeed};
use crate::value::AttributeValue;
use crate::value::json::{Problems, Skip, ValueSeed};

impl<'de> DeserializeSeed<'de> for LegacySeed<'_> {
    type Value = LegacyMap;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LegacyMap, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for LegacySeed<'_> {
    type Value = LegacyMap;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of conditions or updates by attribute")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LegacyMap, A::Error> {
        let mut all = LegacyMap::new();
        while let Some(name) = map.next_key::<String>()? {
            preempt::point();
            let entry = map.next_value_seed(EntrySeed(self.0))?;
            all.insert(name, entry);
        }
        Ok(all)
    }
}

/// The members of entries.
#[derive(Deserialize)]
enum Member {
    Value,
    Exists,
    ComparisonOperator,
    AttributeValueList,
    Action,
    #[serde(other)]
    Other,
}

struct EntrySeed<'p>(&'p Problems);

impl<'de> DeserializeSeed<'de> for EntrySeed<'_> {
    type Value = LegacyEntry;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<LegacyEntry, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for EntrySeed<'_> {
    type Value = LegacyEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a condition or update")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LegacyEntry, A::Error> {
        let mut entry = LegacyEntry::default();
        while let Some(member) = map.next_key::<Member>()? {
            preempt::point();
            match member {
                Member::Value => entry.value = Some(map.next_value_seed(ValueSeed(self.0))?),
                Member::Exists => entry.exists = map.next_value()?,
                Member::ComparisonOperator => entry.comparison_operator = map.next_value()?,
                Member::AttributeValueList => entry.attribute_value_list = map.next_value_seed(ListSeed(self.0))?,
                Member::Action => entry.action = map.next_value()?,
                Member::Other => {
                    map.next_value_seed(Skip)?;
                }
            }
        }
        Ok(entry)
    }
}

/// A list of values, or null.
struct ListSeed<'p>(&'p Problems);

impl<'de> DeserializeSeed<'de> for ListSeed<'_> {
    type Value = Option<Vec<AttributeValue>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ListSeed<'_> {
    type Value = Option<Vec<AttributeValue>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of attribute values")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(value) = elements.next_element_seed(ValueSeed(self.0))? {
            preempt::push(&mut list, value);
        }
        Ok(Some(list))
    }
}
