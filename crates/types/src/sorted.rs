//! The serialised forms of sets and maps: sorted, each element or key once, at any depth of a value.

use std::borrow::Cow;

use stdx::preempt;

use crate::collection::{
    CollectionBuilder, CollectionIter, MapIter, TupleBuilder, TupleIter, VectorIter, put_vector_element,
};
use crate::validate::{validate_elements, validate_map};
use crate::{Comparator, CqlType, TypeError};

/// Bytes of a count or length in front of what it counts.
const LENGTH_BYTES: usize = 4;

/// A serialised list.
#[must_use]
pub fn list(elements: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes_of(elements.iter().map(|element| element.len())));
    let mut builder = CollectionBuilder::new(&mut out);
    for element in elements {
        preempt::point();
        builder.push(element);
    }
    builder.finish();
    out
}

/// The bytes of a serialised collection with elements, keys and values of these lengths: a buffer that grows copies
/// what it has.
fn bytes_of(lengths: impl Iterator<Item = usize>) -> usize {
    let length = |length| {
        preempt::point();
        LENGTH_BYTES + length
    };
    LENGTH_BYTES + lengths.map(length).sum::<usize>()
}

/// A serialised set: its elements sorted, each once.
pub fn set(mut elements: Vec<Cow<'_, [u8]>>, comparator: &Comparator) -> Vec<u8> {
    preempt::sort_by(&mut elements, |a, b| comparator.compare(a, b));
    elements.dedup_by(|a, b| {
        preempt::point();
        comparator.compare(a, b).is_eq()
    });
    let mut out = Vec::with_capacity(bytes_of(elements.iter().map(|element| element.len())));
    let mut builder = CollectionBuilder::new(&mut out);
    for element in &elements {
        preempt::point();
        builder.push(element);
    }
    builder.finish();
    preempt::drop_each(elements);
    out
}

/// A key and its value.
pub type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// A serialised map: its keys sorted, the last value of each.
pub fn map(mut pairs: Vec<Pair<'_>>, comparator: &Comparator) -> Vec<u8> {
    preempt::sort_by(&mut pairs, |a, b| comparator.compare(&a.0, &b.0));
    let mut out = Vec::with_capacity(bytes_of(pairs.iter().flat_map(|(key, value)| [key.len(), value.len()])));
    let mut builder = CollectionBuilder::new(&mut out);
    for (index, (key, value)) in pairs.iter().enumerate() {
        preempt::point();
        let is_last = pairs
            .get(index + 1)
            .is_none_or(|next| comparator.compare(key, &next.0).is_ne());
        if is_last {
            builder.push_pair(key, value);
        }
    }
    builder.finish();
    preempt::drop_each(pairs);
    out
}

/// A serialised value with the sets and maps in it sorted, each element or key once: clients send them in any order.
/// The value is valid ([`CqlType::validate`]); one that is sorted is returned as it is.
#[must_use]
pub fn sorted<'v>(cql_type: &CqlType, bytes: &'v [u8]) -> Cow<'v, [u8]> {
    let cql_type = cql_type.unfrozen();
    if !has_order(cql_type) {
        return Cow::Borrowed(bytes);
    }
    if is_flat_and_sorted(cql_type, bytes) {
        return Cow::Borrowed(bytes);
    }
    let is_same = |parts: &[Cow<'_, [u8]>]| parts.iter().all(|part| matches!(part, Cow::Borrowed(_)));
    match cql_type {
        CqlType::Set(element) => {
            let comparator = element.comparator();
            let elements: Vec<_> = elements(bytes).map(|part| sorted(element, part)).collect();
            let is_sorted = elements.is_sorted_by(|a, b| comparator.compare(a, b).is_lt());
            if is_sorted && is_same(&elements) {
                Cow::Borrowed(bytes)
            } else {
                Cow::Owned(set(elements, &comparator))
            }
        }
        CqlType::Map(key, value) => {
            let comparator = key.comparator();
            let pairs = MapIter::new(bytes).into_iter().flatten().flatten();
            let (keys, values): (Vec<_>, Vec<_>) = pairs.map(|(k, v)| (sorted(key, k), sorted(value, v))).unzip();
            let is_sorted = keys.is_sorted_by(|a, b| comparator.compare(a, b).is_lt());
            if is_sorted && is_same(&keys) && is_same(&values) {
                Cow::Borrowed(bytes)
            } else {
                Cow::Owned(map(keys.into_iter().zip(values).collect(), &comparator))
            }
        }
        CqlType::List(element) => {
            let elements: Vec<_> = elements(bytes).map(|part| sorted(element, part)).collect();
            if is_same(&elements) {
                return Cow::Borrowed(bytes);
            }
            let mut out = Vec::with_capacity(bytes.len());
            let mut builder = CollectionBuilder::new(&mut out);
            elements.iter().for_each(|element| builder.push(element));
            builder.finish();
            Cow::Owned(out)
        }
        CqlType::Vector(element, dimension) => {
            let parts = VectorIter::new(bytes, *dimension, element.fixed_len()).flatten();
            let elements: Vec<_> = parts.map(|part| sorted(element, part)).collect();
            if is_same(&elements) {
                return Cow::Borrowed(bytes);
            }
            let mut out = Vec::with_capacity(bytes.len());
            for element in &elements {
                put_vector_element(&mut out, element, false);
            }
            Cow::Owned(out)
        }
        CqlType::Tuple(fields) => sorted_fields(bytes, fields.iter()),
        CqlType::Udt(udt) => sorted_fields(bytes, udt.fields.iter().map(|(_, field)| field)),
        _ => Cow::Borrowed(bytes),
    }
}

/// Checks that bytes are a value of a type, as [`CqlType::validate`], and sorts the sets and maps in it, as [`sorted`].
/// A set or map of values without order of their own, which clients mostly send sorted, is read once for both.
///
/// # Errors
/// As [`CqlType::validate`].
pub fn checked<'v>(cql_type: &CqlType, bytes: &'v [u8]) -> Result<Cow<'v, [u8]>, TypeError> {
    let is_sorted = match cql_type.unfrozen() {
        CqlType::Set(element) if !has_order(element) => {
            let mut order = Order::of(element);
            validate_elements(bytes, element, "set", |element| order.see(element))?;
            order.is_kept
        }
        CqlType::Map(key, value) if !has_order(key) && !has_order(value) => {
            let mut order = Order::of(key);
            validate_map(bytes, key, value, |key| order.see(key))?;
            order.is_kept
        }
        _ => {
            cql_type.validate(bytes)?;
            !has_order(cql_type)
        }
    };
    Ok(if is_sorted {
        Cow::Borrowed(bytes)
    } else {
        sorted(cql_type, bytes)
    })
}

/// Whether values come sorted, each once.
struct Order<'v> {
    comparator: Comparator,
    last: Option<&'v [u8]>,
    is_kept: bool,
}

impl<'v> Order<'v> {
    fn of(cql_type: &CqlType) -> Self {
        Self {
            comparator: cql_type.comparator(),
            last: None,
            is_kept: true,
        }
    }

    #[inline]
    fn see(&mut self, value: &'v [u8]) {
        self.is_kept = self.is_kept
            && self
                .last
                .is_none_or(|last| self.comparator.compare(last, value).is_lt());
        self.last = Some(value);
    }
}

/// Whether a set or map of values without order of their own is sorted: what clients send mostly is, and to see that
/// needs no memory.
fn is_flat_and_sorted(cql_type: &CqlType, bytes: &[u8]) -> bool {
    match cql_type {
        CqlType::Set(element) if !has_order(element) => {
            let comparator = element.comparator();
            elements(bytes).is_sorted_by(|a, b| comparator.compare(a, b).is_lt())
        }
        CqlType::Map(key, value) if !has_order(key) && !has_order(value) => {
            let comparator = key.comparator();
            let pairs = MapIter::new(bytes).into_iter().flatten().flatten();
            pairs
                .map(|(key, _)| key)
                .is_sorted_by(|a, b| comparator.compare(a, b).is_lt())
        }
        _ => false,
    }
}

fn elements(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    CollectionIter::new(bytes).into_iter().flatten().flatten()
}

fn sorted_fields<'v, 't>(bytes: &'v [u8], types: impl Iterator<Item = &'t CqlType>) -> Cow<'v, [u8]> {
    let fields = TupleIter::new(bytes).flatten().zip(types);
    let fields: Vec<_> = fields
        .map(|(field, cql_type)| field.map(|part| sorted(cql_type, part)))
        .collect();
    if fields.iter().flatten().all(|field| matches!(field, Cow::Borrowed(_))) {
        return Cow::Borrowed(bytes);
    }
    let mut out = Vec::with_capacity(bytes.len());
    let mut builder = TupleBuilder::new(&mut out);
    fields.iter().for_each(|field| builder.push(field.as_deref()));
    Cow::Owned(out)
}

/// Whether there is a set or a map anywhere in a type.
fn has_order(cql_type: &CqlType) -> bool {
    match cql_type {
        CqlType::Set(_) | CqlType::Map(..) => true,
        CqlType::List(element) | CqlType::Vector(element, _) | CqlType::Frozen(element) => has_order(element),
        CqlType::Tuple(fields) => fields.iter().any(has_order),
        CqlType::Udt(udt) => udt.fields.iter().any(|(_, field)| has_order(field)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collection(parts: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut builder = CollectionBuilder::new(&mut out);
        parts.iter().for_each(|part| builder.push(part));
        builder.finish();
        out
    }

    fn tuple(fields: &[Option<&[u8]>]) -> Vec<u8> {
        let mut out = Vec::new();
        let mut builder = TupleBuilder::new(&mut out);
        fields.iter().for_each(|field| builder.push(*field));
        out
    }

    /// Values of `set<text>`: as a client may send it, and as it is stored.
    fn sets() -> (Vec<u8>, Vec<u8>) {
        (collection(&[b"c", b"a", b"c", b"b"]), collection(&[b"a", b"b", b"c"]))
    }

    fn check(cql_type: &str, sent: &[u8], stored: &[u8]) {
        let cql_type = CqlType::parse_native(cql_type).expect("the test's types are types");
        assert_eq!(cql_type.validate(sent), Ok(()), "{cql_type}");
        assert_eq!(*sorted(&cql_type, sent), *stored, "{cql_type}");
        assert_eq!(*checked(&cql_type, sent).expect("it is valid"), *stored, "{cql_type}");
        assert!(
            matches!(sorted(&cql_type, stored), Cow::Borrowed(_)),
            "{cql_type} that is sorted is left alone"
        );
        assert!(
            matches!(checked(&cql_type, stored), Ok(Cow::Borrowed(_))),
            "{cql_type} that is sorted is left alone"
        );
    }

    #[test]
    fn sets_and_maps_are_stored_in_order_at_any_depth() {
        let (sent, stored) = sets();
        check("set<text>", &sent, &stored);
        check(
            "frozen<list<frozen<set<text>>>>",
            &collection(&[&sent, &collection(&[])]),
            &collection(&[&stored, &collection(&[])]),
        );
        let other = collection(&[b"d"]);
        let sent_set = collection(&[&other, &sent, &stored]);
        check("set<frozen<set<text>>>", &sent_set, &collection(&[&stored, &other]));
        check(
            "tuple<int, frozen<set<text>>>",
            &tuple(&[None, Some(&sent)]),
            &tuple(&[None, Some(&stored)]),
        );
        // Later fields may be missing.
        check(
            "tuple<frozen<set<text>>, int>",
            &tuple(&[Some(&sent)]),
            &tuple(&[Some(&stored)]),
        );
        let vector = |part: &[u8]| {
            let mut out = Vec::new();
            put_vector_element(&mut out, part, false);
            out
        };
        check("vector<frozen<set<text>>, 1>", &vector(&sent), &vector(&stored));
    }

    #[test]
    fn what_is_checked_is_refused_as_validation_does() {
        let wrong = collection(&[b"a", b"\xff"]);
        for cql_type in [
            "set<text>",
            "list<text>",
            "map<text, text>",
            "frozen<map<text, text>>",
            "set<int>",
        ] {
            let cql_type = CqlType::parse_native(cql_type).expect("the test's types are types");
            for bytes in [&wrong[..], &wrong[..7], b"\xff"] {
                let refused = cql_type.validate(bytes).expect_err("it is malformed");
                assert_eq!(checked(&cql_type, bytes), Err(refused), "{cql_type}");
            }
        }
    }

    #[test]
    fn the_last_value_of_a_key_is_kept_and_sorted_itself() {
        let (sent, stored) = sets();
        let map_of = |pairs: &[(&[u8], &[u8])]| {
            let mut out = Vec::new();
            let mut builder = CollectionBuilder::new(&mut out);
            pairs.iter().for_each(|(key, value)| builder.push_pair(key, value));
            builder.finish();
            out
        };
        let sent_map = map_of(&[(b"y", &collection(&[])), (b"x", &collection(&[b"d"])), (b"y", &sent)]);
        check(
            "map<text, frozen<set<text>>>",
            &sent_map,
            &map_of(&[(b"x", &collection(&[b"d"])), (b"y", &stored)]),
        );
    }
}
