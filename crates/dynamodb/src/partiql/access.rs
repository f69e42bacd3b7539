//! Which keys the WHERE clause of a statement selects.

use std::cmp::Ordering;

use super::{Delete, Insert, Select, Update};
use crate::error::Error;
use crate::expression::{Bindings, Comparison, Condition, Operand};
use crate::request::{Clause, KeyRange, SortRange, Substitutions, check_no_key_update};
use crate::table::{
    Key, KeySchema, KeyType, SecondaryIndex, TableDefinition, check_index_keys, has_type, key_of_request,
};
use crate::value::{AttributeValue, Item, copy_value};

/// How the items of a SELECT are found. The condition of the statement is evaluated on each of them.
#[derive(Clone, PartialEq, Debug)]
pub enum Access {
    /// The partitions of these keys are read in order, each within its range of sort keys.
    Ranges(Vec<KeyRange>),
    /// The whole table or index is read.
    Scan,
}

/// Statements have no placeholders but their own.
static NO_SUBSTITUTIONS: Substitutions = Substitutions {
    names: None,
    values: None,
};

fn wrong_type(name: &str) -> Error {
    Error::validation(format!(
        "Key attribute's data type should match its data type in table's schema: Key {name}"
    ))
}

/// The conditions that must all hold.
fn conjuncts(condition: &Condition) -> &[Condition] {
    match condition {
        Condition::And(parts) => parts,
        single => std::slice::from_ref(single),
    }
}

/// Whether an operand is an attribute of a name.
fn is_attribute(operand: &Operand, name: &str, bindings: &Bindings) -> bool {
    matches!(operand, Operand::Path(path) if path.is_top_level() && bindings.name(path.attribute) == name)
}

/// The values that an attribute must have one of, by `=` or `IN`.
fn values_of<'r>(parts: &[Condition], name: &str, bindings: &Bindings<'r>) -> Option<Vec<&'r AttributeValue>> {
    let value = |operand: &Operand| match operand {
        Operand::Value(id) => Some(bindings.value(*id)),
        _ => None,
    };
    parts.iter().find_map(|part| match part {
        Condition::Compare {
            comparison: Comparison::Equal,
            left,
            right,
        } => match (is_attribute(left, name, bindings), is_attribute(right, name, bindings)) {
            (true, _) => Some(vec![value(right)?]),
            (_, true) => Some(vec![value(left)?]),
            _ => None,
        },
        Condition::In { operand, list } if is_attribute(operand, name, bindings) => list.iter().map(value).collect(),
        _ => None,
    })
}

/// The range of a sort key, as far as one condition gives it.
fn range_of(parts: &[Condition], name: &str, bindings: &Bindings) -> SortRange {
    let value = |operand: &Operand| match operand {
        Operand::Value(id) => Some(copy_value(bindings.value(*id))),
        _ => None,
    };
    let range = |part: &Condition| match part {
        Condition::Compare {
            comparison,
            left,
            right,
        } if is_attribute(left, name, bindings) => {
            let value = value(right)?;
            Some(match comparison {
                Comparison::Equal => SortRange::Equal(value),
                Comparison::Less => SortRange::Less(value),
                Comparison::LessOrEqual => SortRange::LessOrEqual(value),
                Comparison::Greater => SortRange::Greater(value),
                Comparison::GreaterOrEqual => SortRange::GreaterOrEqual(value),
                Comparison::NotEqual => return None,
            })
        }
        Condition::Between { operand, low, high } if is_attribute(operand, name, bindings) => {
            Some(SortRange::Between(value(low)?, value(high)?))
        }
        Condition::Call(crate::expression::Function::BeginsWith, operands) => match operands.as_slice() {
            [operand, prefix] if is_attribute(operand, name, bindings) => Some(SortRange::BeginsWith(value(prefix)?)),
            _ => None,
        },
        _ => None,
    };
    parts.iter().find_map(range).unwrap_or(SortRange::All)
}

impl Select {
    /// How the items are found.
    ///
    /// # Errors
    /// A ValidationException if there is no such index, if a key is compared with a value of another type, or if an
    /// order is requested by something else than keys or without a partition key.
    pub fn access(&self, table: &TableDefinition) -> Result<Access, Error> {
        let schema = match &self.index {
            None => &table.key_schema,
            Some(name) => table
                .index(name)
                .map(SecondaryIndex::key_schema)
                .ok_or_else(|| Error::validation("The table does not have the specified index"))?,
        };
        let mut access = match &self.condition {
            None => Access::Scan,
            Some(condition) => ranges(condition, schema, table)?,
        };
        self.check_order(schema, &access)?;
        if let (Access::Ranges(ranges), Some(reversed)) = (&mut access, self.order_of(schema.partition())) {
            ranges.sort_by(|one, other| {
                let order = compare(&one.partition, &other.partition);
                if reversed { order.reverse() } else { order }
            });
        }
        Ok(access)
    }

    /// Whether items of a partition are returned from the largest sort key.
    pub fn is_reversed(&self, table: &TableDefinition) -> bool {
        let index = self.index.as_ref().and_then(|name| table.index(name));
        let schema = index.map_or(&table.key_schema, SecondaryIndex::key_schema);
        schema.sort().and_then(|sort| self.order_of(sort)).unwrap_or(false)
    }

    /// Whether an attribute of ORDER BY is ordered from the largest; None if it is not there.
    fn order_of(&self, name: &str) -> Option<bool> {
        let (_, is_reversed) = self.order.iter().find(|(ordered, _)| ordered == name)?;
        Some(*is_reversed)
    }

    fn check_order(&self, schema: &KeySchema, access: &Access) -> Result<(), Error> {
        if self.order.is_empty() {
            return Ok(());
        }
        if matches!(access, Access::Scan) {
            return Err(Error::validation(
                "Must have WHERE clause in the statement when using ORDER BY clause.",
            ));
        }
        match self.order.iter().find(|(name, _)| !schema.has(name)) {
            None => self.check_order_of_partitions(schema, access),
            Some((name, _)) => Err(Error::validation(format!(
                "Variable reference {name} in ORDER BY clause must be part of the primary key"
            ))),
        }
    }

    /// Refuses to order the items of several partitions by their sort key: each partition is read by itself.
    fn check_order_of_partitions(&self, schema: &KeySchema, access: &Access) -> Result<(), Error> {
        let is_first = self.order.first().is_some_and(|(name, _)| name == schema.partition());
        match access {
            Access::Ranges(ranges) if ranges.len() > 1 && !is_first => Err(Error::validation(
                "ORDER BY of the sort key is not supported with several partition keys; order by the partition key \
                 first",
            )),
            _ => Ok(()),
        }
    }

    /// The key of the one item that EXISTS checks, and that a SELECT in a transaction reads.
    ///
    /// # Errors
    /// A ValidationException if the condition does not give the whole key.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        key(self.condition.as_ref(), table)
    }
}

/// Orders partition keys of one table.
fn compare(one: &[AttributeValue], other: &[AttributeValue]) -> Ordering {
    let orders = one.iter().zip(other).filter_map(|(a, b)| a.compare(b));
    orders
        .into_iter()
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

fn ranges(clause: &Clause<Condition>, schema: &KeySchema, table: &TableDefinition) -> Result<Access, Error> {
    let bindings = clause.bind(&NO_SUBSTITUTIONS)?;
    let parts = conjuncts(&clause.expression.tree);
    let mut partitions: Vec<Vec<AttributeValue>> = vec![Vec::new()];
    for name in schema.all(KeyType::Hash) {
        let Some(values) = values_of(parts, name, &bindings) else {
            return Ok(Access::Scan);
        };
        if let Some(true) = values
            .iter()
            .map(|value| !has_type(value, table.type_of(name)))
            .reduce(|a, b| a || b)
        {
            return Err(wrong_type(name));
        }
        // IN has at most 100 values, and one partition key of a table; of several attributes the first decides.
        if values.len() > 1 && partitions.len() > 1 {
            return Ok(Access::Scan);
        }
        let extended = |partition: &Vec<AttributeValue>| {
            values
                .iter()
                .map(|value| {
                    let mut longer: Vec<AttributeValue> = partition.iter().map(copy_value).collect();
                    longer.push(copy_value(value));
                    longer
                })
                .collect::<Vec<_>>()
        };
        partitions = partitions.iter().flat_map(extended).collect();
    }
    // The condition is evaluated on each item, so a range may be wider than it: the first sort key narrows it.
    let sort = schema
        .sort()
        .map_or(SortRange::All, |name| range_of(parts, name, &bindings));
    let range = |partition| KeyRange {
        partition,
        sort_prefix: Vec::new(),
        sort: sort.clone(),
    };
    Ok(Access::Ranges(partitions.into_iter().map(range).collect()))
}

/// The key that a condition gives by equality on all key attributes.
fn key(clause: Option<&Clause<Condition>>, table: &TableDefinition) -> Result<Key, Error> {
    let incomplete = || Error::validation("Where clause does not contain a mandatory equality on all key attributes");
    let clause = clause.ok_or_else(incomplete)?;
    let bindings = clause.bind(&NO_SUBSTITUTIONS)?;
    let parts = conjuncts(&clause.expression.tree);
    let mut item = Item::new();
    for element in &table.key_schema.0 {
        match values_of(parts, &element.name, &bindings).as_deref() {
            Some([value]) if has_type(value, table.type_of(&element.name)) => {
                item.insert(element.name.clone(), copy_value(value));
            }
            Some([_]) => return Err(wrong_type(&element.name)),
            _ => return Err(incomplete()),
        }
    }
    key_of_request(table, &item)
}

impl Insert {
    /// The key of the item.
    ///
    /// # Errors
    /// A ValidationException if the item lacks it or has another type.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        crate::request::check_item_size(&self.item)?;
        for element in &table.key_schema.0 {
            if let Some(value) = self.item.get(&element.name)
                && !has_type(value, table.type_of(&element.name))
            {
                return Err(wrong_type(&element.name));
            }
        }
        check_index_keys(table, &self.item)?;
        crate::table::key_of_item(table, &self.item)
    }
}

impl Update {
    /// The key of the item.
    ///
    /// # Errors
    /// A ValidationException if the condition does not give the whole key, or if a change is of the key.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        let key = key(self.condition.as_ref(), table)?;
        check_no_key_update(table, Some(&self.changes), &NO_SUBSTITUTIONS)?;
        Ok(key)
    }
}

impl Delete {
    /// The key of the item.
    ///
    /// # Errors
    /// A ValidationException if the condition does not give the whole key.
    pub fn key(&self, table: &TableDefinition) -> Result<Key, Error> {
        key(self.condition.as_ref(), table)
    }
}
