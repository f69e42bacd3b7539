//! The crate answers what the emulator dynoxide was recorded to answer (`record.py`), but for the cases of
//! `differences.txt`: there the comment of each case has the emulator's answer and why this one differs.

use std::collections::BTreeMap;

use dynamodb::expression::{ExpressionKind, Placeholders, parse_condition, parse_projection, parse_update};
use dynamodb::legacy::{self, ConditionalOperator, Legacy, LegacyMap, LegacySeed};
use dynamodb::projection::project;
use dynamodb::update::{self, ReturnValues, Updated};
use dynamodb::value::json::{ItemSeed, Problems, read_value, write_item, write_value};
use dynamodb::{AttributeValue, Error, Item};
use serde::de::DeserializeSeed;
use testkit::Case;

/// The lines of a case: `key JSON`.
struct Members<'c>(BTreeMap<&'c str, &'c str>);

impl<'c> Members<'c> {
    fn of(case: &'c Case) -> Self {
        let lines = case.text.lines().skip(1);
        Self(lines.filter_map(|line| line.split_once(' ')).collect())
    }

    fn read<'de, S: DeserializeSeed<'de>>(
        &self,
        key: &str,
        seed: S,
        problems: &Problems,
    ) -> Option<Result<S::Value, Error>>
    where
        'c: 'de,
    {
        let mut deserializer = serde_json::Deserializer::from_str(self.0.get(key)?);
        Some(
            seed.deserialize(&mut deserializer)
                .map_err(|e| problems.serialization_error(&e)),
        )
    }

    fn item(&self, key: &str) -> Option<Item> {
        let problems = Problems::default();
        if self.0.get(key) == Some(&"null") {
            return None;
        }
        self.read(key, ItemSeed(&problems), &problems)
            .map(|item| item.expect("the item is valid"))
    }

    fn text(&self, key: &str) -> Option<String> {
        self.0
            .get(key)
            .map(|json| serde_json::from_str(json).expect("it is a string"))
    }

    fn names(&self) -> Option<BTreeMap<String, String>> {
        self.0
            .get("names")
            .map(|json| serde_json::from_str(json).expect("they are strings"))
    }

    fn values(&self) -> Result<Option<Item>, Error> {
        let problems = Problems::default();
        let Some(values) = self.read("values", ItemSeed(&problems), &problems) else {
            return Ok(None);
        };
        let values = values?;
        match problems.take() {
            Some(problem) => Err(problem.in_expression_values()),
            None => Ok(Some(values)),
        }
    }

    fn legacy(&self, key: &str) -> Option<Result<LegacyMap, Error>> {
        let problems = Problems::default();
        let map = self.read(key, LegacySeed(&problems), &problems)?;
        Some(map.and_then(|map| problems.check().map(|()| map)))
    }

    fn operator(&self) -> Option<ConditionalOperator> {
        self.text("operator").map(|name| match name.as_str() {
            "AND" => ConditionalOperator::And,
            "OR" => ConditionalOperator::Or,
            other => panic!("no operator: {other}"),
        })
    }
}

fn key() -> Item {
    Item::from([("k".to_owned(), AttributeValue::S("1".to_owned()))])
}

/// The item of a case with its key.
fn stored(members: &Members<'_>) -> Option<Item> {
    let mut item = members.item("item")?;
    item.extend(key());
    Some(item)
}

fn item_text(item: &Item) -> String {
    let mut out = Vec::new();
    write_item(&mut out, item);
    String::from_utf8(out).expect("JSON is UTF-8")
}

fn condition(members: &Members<'_>) -> Result<bool, Error> {
    let (names, values) = (members.names(), members.values()?);
    let mut placeholders = Placeholders::new(names.as_ref(), values.as_ref())?;
    let text = members.text("expression").expect("there is an expression");
    let parsed = parse_condition(ExpressionKind::Condition, &text)?;
    let bindings = placeholders.bind(ExpressionKind::Condition, &parsed)?;
    placeholders.finish()?;
    Ok(parsed.tree.holds(&stored(members).unwrap_or_default(), &bindings))
}

fn projection(members: &Members<'_>) -> Result<String, Error> {
    let names = members.names();
    let (parsed, values) = match members.0.get("attributes") {
        Some(json) => {
            let names: Vec<String> = serde_json::from_str(json).expect("they are strings");
            let Legacy { expression, values } = legacy::attributes_to_get(&names)?;
            (expression, values)
        }
        None => (
            parse_projection(&members.text("expression").expect("there is an expression"))?,
            None,
        ),
    };
    let mut placeholders = Placeholders::new(names.as_ref(), values.as_ref())?;
    let bindings = placeholders.bind(ExpressionKind::Projection, &parsed)?;
    placeholders.finish()?;
    let item = stored(members).expect("there is an item");
    Ok(item_text(&project(&parsed.tree, &item, &bindings)))
}

fn update(members: &Members<'_>) -> Result<String, Error> {
    let names = members.names();
    let (parsed, values) = match members.legacy("updates") {
        Some(updates) => {
            let Legacy { expression, values } = legacy::attribute_updates(&updates?)?;
            (Ok(expression), values)
        }
        None => {
            let text = members.text("expression").expect("there is an expression");
            (parse_update(&text), members.values()?)
        }
    };
    let mut placeholders = Placeholders::new(names.as_ref(), values.as_ref())?;
    let parsed = parsed?;
    let bindings = placeholders.bind(ExpressionKind::Update, &parsed)?;
    placeholders.finish()?;
    let returns = members.text("returns").unwrap_or_else(|| "ALL_NEW".to_owned());
    let returns = ReturnValues::from_name(&returns).expect("it is one");
    let Updated { attributes, .. } = update::apply(&parsed.tree, stored(members), &key(), &bindings, returns)?;
    Ok(attributes.map_or("null".to_owned(), |attributes| item_text(&attributes)))
}

fn legacy_condition(members: &Members<'_>, parameter: &str) -> Result<bool, Error> {
    let map = members.legacy(parameter).expect("there is a map")?;
    let operator = members.operator();
    legacy::check_operator(operator, Some(&map))?;
    let join = operator.unwrap_or_default();
    let made = match parameter {
        "expected" => legacy::expected(&map, join)?,
        _ => legacy::filter("scanFilter", &map, join)?,
    };
    let Some(Legacy { expression, values }) = made else {
        return Ok(true);
    };
    let mut placeholders = Placeholders::new(None, values.as_ref())?;
    let bindings = placeholders.bind(ExpressionKind::Condition, &expression)?;
    placeholders.finish()?;
    Ok(expression.tree.holds(&stored(members).unwrap_or_default(), &bindings))
}

fn value(members: &Members<'_>) -> Result<String, Error> {
    let value = read_value(members.0["value"].as_bytes())?;
    let mut out = Vec::new();
    write_value(&mut out, &value);
    Ok(String::from_utf8(out).expect("JSON is UTF-8"))
}

fn answer(case: &Case) -> String {
    let members = Members::of(case);
    let answer = match case.command() {
        "condition" => condition(&members).map(|holds| holds.to_string()),
        "update" => update(&members),
        "projection" => projection(&members),
        "expected" | "filter" => legacy_condition(&members, case.command()).map(|holds| holds.to_string()),
        "value" => value(&members),
        other => panic!("no command: {other}"),
    };
    answer.unwrap_or_else(|e| e.to_string())
}

macro_rules! suites {
    ($($name:ident: $file:literal),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                testkit::run(testkit::path!($file), answer);
            }
        )*
    };
}

suites! {
    conditions: "tests/recorded/conditions.txt",
    updates: "tests/recorded/updates.txt",
    projections: "tests/recorded/projections.txt",
    values: "tests/recorded/values.txt",
    expected_conditions: "tests/recorded/expected.txt",
    filters: "tests/recorded/filters.txt",
    attribute_updates: "tests/recorded/attribute_updates.txt",
    differences: "tests/differences.txt",
}
