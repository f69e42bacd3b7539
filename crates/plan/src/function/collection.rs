//! Functions of collections.

use std::sync::Arc;

use types::{CollectionBuilder, Comparator, CqlType, MapIter, TupleIter};

use super::aggregate::Aggregate;
use super::arithmetic::numeric_types;
use super::native::{cannot_infer, wrong_count};
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
    /// The elements that two sets share, in this order.
    Intersection(Comparator),
}

impl CollectionFunction {
    /// The function of that name for its argument; `None` when no function of collections has the name.
    pub(crate) fn resolve(name: &str, arguments: &[&dyn Argument]) -> Result<Option<Resolved>, PlanError> {
        let (wanted, signature) = match name {
            "map_keys" | "map_values" => ("a map", "map"),
            "collection_count" => ("a collection", "collection"),
            "collection_min" | "collection_max" => ("a set or list", "numeric_set_or_list"),
            "collection_sum" | "collection_avg" => ("a numeric set/list", "numeric_set_or_list"),
            "set_intersection" => return Self::intersection(name, arguments).map(Some),
            _ => return Ok(None),
        };
        let [argument] = arguments else {
            return Err(wrong_count(name, signature));
        };
        let cql_type = argument.known_type();
        let cql_type = cql_type.ok_or_else(|| cannot_infer(name, signature, *argument))?;
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

    /// ScyllaDB's `set_intersection`, of two sets of one type.
    fn intersection(name: &str, arguments: &[&dyn Argument]) -> Result<Resolved, PlanError> {
        let [left, right] = arguments else {
            return Err(wrong_count(name, "set, set"));
        };
        let cql_type = left.known_type().or_else(|| right.known_type());
        let cql_type = cql_type.ok_or_else(|| cannot_infer(name, "set, set", *left))?;
        let CqlType::Set(element) = cql_type.unfrozen() else {
            return Err(PlanError::Invalid(format!(
                "Function system.{name} requires two sets of one type, but found an argument of type {cql_type}"
            )));
        };
        let scalar = Scalar::Collection(Self::Intersection(element.comparator()));
        let set = cql_type.frozen();
        Ok(Resolved::scalar(name, vec![set.clone(); 2], set, scalar))
    }

    /// The value for a serialised collection; `other` is the second one of a function of two.
    pub(crate) fn apply(&self, bytes: &[u8], other: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
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
            Self::Intersection(comparator) => {
                let mut others = elements_of(other).flatten().peekable();
                let is_shared = |element: &&[u8]| {
                    while others.next_if(|o| comparator.compare(o, element).is_lt()).is_some() {}
                    others.peek().is_some_and(|o| comparator.compare(o, element).is_eq())
                };
                push_list(elements().flatten().filter(is_shared), &mut out);
            }
        }
        Ok(Some(out))
    }
}

/// The elements of a serialised list or set. A list that is not stored may have nulls: the times to live of elements,
/// or the values of a list literal.
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
