//! The values of a request, in the order of the statement's markers.

use std::collections::HashMap;

use cql_protocol::{Value, Values};
use plan::{Bound, BoundValues, OwnedBound};
use query::engine::UNPREPARED;
use query::{Prepared, QueryError};
use smallvec::SmallVec;
use stdx::preempt;

pub(crate) type Binds<'a> = SmallVec<[Bound<'a>; 16]>;

pub(crate) fn bound<'a>(value: Value<'a>) -> Bound<'a> {
    match value {
        Value::Bytes(b) => Bound::Value(b),
        Value::Null => Bound::Null,
        Value::Unset => Bound::Unset,
    }
}

/// The values in the order of the statement's markers.
#[inline]
pub(crate) fn binds<'a>(prepared: &Prepared, values: &Values<'a>) -> Result<Binds<'a>, QueryError> {
    if values.is_named() {
        return named_binds(prepared, values);
    }
    if values.len() != prepared.markers.len() {
        return Err(wrong_count(prepared, values.len()));
    }
    Ok(values.iter().map(bound).collect())
}

#[cold]
fn wrong_count(prepared: &Prepared, given: usize) -> QueryError {
    QueryError::invalid(match prepared.id {
        UNPREPARED => "Invalid amount of bind variables".to_owned(),
        _ => format!(
            "there were {} markers(?) in CQL but {given} bound variables",
            prepared.markers.len()
        ),
    })
}

fn named_binds<'a>(prepared: &Prepared, values: &Values<'a>) -> Result<Binds<'a>, QueryError> {
    preempt::allowed(|| named_bounds(prepared, values))
}

fn named_bounds<'a>(prepared: &Prepared, values: &Values<'a>) -> Result<Binds<'a>, QueryError> {
    let mut named: HashMap<&str, Value<'a>> = HashMap::with_capacity(values.len());
    for (name, value) in values.iter_named() {
        // The first of a name counts.
        named.entry(name).or_insert(value);
        preempt::point();
    }
    let mut found = Binds::new();
    for marker in &prepared.markers {
        found.extend(named.get(&*marker.name).map(|value| bound(*value)));
        preempt::point();
    }
    if found.len() == prepared.markers.len() {
        Ok(found)
    } else {
        Err(wrong_count(prepared, found.len()))
    }
}

/// Owned copies of the values, for a task.
pub(crate) fn owned(values: BoundValues<'_>) -> Vec<OwnedBound> {
    let own = |value| {
        preempt::point();
        OwnedBound::from(value)
    };
    preempt::allowed(|| values.iter().map(own).collect())
}
