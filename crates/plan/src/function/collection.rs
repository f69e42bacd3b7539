//! Functions of one collection.

use std::sync::Arc;

use types::{CollectionBuilder, CqlType, MapIter, TupleIter};

use super::aggregate::Aggregate;
use super::arithmetic::numeric_types;
use super::{Argument, Resolved, Scalar};
use crate::error::PlanError;

/// A function of a collection of some type.
#[derive(Clone, Debug)]
pub(crate) enum CollectionFunction {
    /// The set of a map's keys.
    Keys,
    /// The list of a map's values.
    Values,
    /// How many elements there are.
    Count { is_map: bool },
    /// An aggregate over the elements of a set or list.
    Over(Aggregate),
}

impl CollectionFunction {
    /// The function of that name for its argument; `None` when no function of collections has the name.
    pub(crate) fn resolve(name: &str, arguments: &[&dyn Argument]) -> Result<Option<Resolved>, PlanError> {
        let wanted = match name {
            "map_keys" | "map_values" => "a map",
            "collection_count" => "a collection",
            "collection_min" | "collection_max" => "a set or list",
            "collection_sum" | "collection_avg" => "a numeric set/list",
            _ => return Ok(None),
        };
        if arguments.len() != 1 {
            return Err(PlanError::Invalid(format!(
                "Invalid number of arguments for function system.{name}"
            )));
        }
        let Some(cql_type) = arguments[0].known_type() else {
            return Err(PlanError::Invalid(format!(
                "Cannot infer type of argument {} in call to function system.{name}: use type casts to disambiguate",
                arguments[0].text()
            )));
        };
        let found = match (name, cql_type.unfrozen()) {
            ("map_keys", CqlType::Map(key, _)) => Some((CqlType::Set(key.clone()), Self::Keys)),
            ("map_values", CqlType::Map(_, value)) => Some((CqlType::List(value.clone()), Self::Values)),
            ("collection_count", CqlType::Map(..)) => Some((CqlType::Int, Self::Count { is_map: true })),
            ("collection_count", CqlType::List(_) | CqlType::Set(_)) => {
                Some((CqlType::Int, Self::Count { is_map: false }))
            }
            (_, CqlType::List(element) | CqlType::Set(element)) => {
                let t = CqlType::clone(element);
                let is_numeric = numeric_types().contains(&t);
                let aggregate = match name {
                    "collection_min" => Some(Aggregate::Min(t.clone())),
                    "collection_max" => Some(Aggregate::Max(t.clone())),
                    "collection_sum" if is_numeric => Some(Aggregate::Sum(t.clone())),
                    "collection_avg" if is_numeric => Some(Aggregate::Avg(t.clone())),
                    _ => None,
                };
                aggregate.map(|aggregate| (t, Self::Over(aggregate)))
            }
            _ => None,
        };
        let Some((returns, function)) = found else {
            return Err(PlanError::Invalid(format!(
                "Function system.{name} requires {wanted} argument, but found argument {} of type {cql_type}",
                arguments[0].text()
            )));
        };
        let returns = match returns {
            CqlType::Set(key) => CqlType::Frozen(Arc::new(CqlType::Set(key))),
            CqlType::List(value) => CqlType::Frozen(Arc::new(CqlType::List(value))),
            other => other,
        };
        Ok(Some(
            Resolved::scalar(name, vec![cql_type], returns, Scalar::Collection(function)).generic(),
        ))
    }

    /// The value for a serialised collection.
    pub(crate) fn apply(&self, bytes: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
        let mut out = Vec::new();
        let pairs = || MapIter::new(bytes).into_iter().flatten().flatten();
        let elements = || elements_of(bytes);
        match self {
            Self::Keys => push_list(pairs().map(|(key, _)| key), &mut out),
            Self::Values => push_list(pairs().map(|(_, value)| value), &mut out),
            Self::Count { is_map } => {
                let count = if *is_map { pairs().count() } else { elements().count() };
                out = i32::try_from(count).unwrap_or(i32::MAX).to_be_bytes().to_vec();
            }
            Self::Over(aggregate) => {
                let mut accumulator = aggregate.start();
                for element in elements() {
                    accumulator.add(element)?;
                }
                return accumulator.finish();
            }
        }
        Ok(Some(out))
    }
}

/// The elements of a serialised list or set. A list that is not stored may have nulls: the times to live of elements, or the values of a list literal.
pub(crate) fn elements_of(bytes: &[u8]) -> impl Iterator<Item = Option<&[u8]>> {
    let (count, elements) = bytes.split_first_chunk().unwrap_or((&[0; 4], &[]));
    let count = usize::try_from(i32::from_be_bytes(*count)).unwrap_or(0);
    TupleIter::new(elements).take(count).map_while(Result::ok)
}

/// Appends a serialised list.
pub(crate) fn push_list<'e>(elements: impl Iterator<Item = &'e [u8]>, out: &mut Vec<u8>) {
    let mut builder = CollectionBuilder::new(out);
    elements.for_each(|element| builder.push(element));
    builder.finish();
}
