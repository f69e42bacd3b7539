//! The serialised forms of sets and maps: sorted, each element or key once.

use std::borrow::Cow;

use types::{CollectionBuilder, Comparator};

/// A serialised set: its elements sorted, each once.
pub(crate) fn set(mut elements: Vec<Cow<'_, [u8]>>, comparator: &Comparator) -> Vec<u8> {
    elements.sort_by(|a, b| comparator.compare(a, b));
    elements.dedup_by(|a, b| comparator.compare(a, b).is_eq());
    let mut out = Vec::new();
    let mut builder = CollectionBuilder::new(&mut out);
    elements.iter().for_each(|element| builder.push(element));
    builder.finish();
    out
}

/// A key and its value.
pub(crate) type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// A serialised map: its keys sorted, the last value of each.
pub(crate) fn map(mut pairs: Vec<Pair<'_>>, comparator: &Comparator) -> Vec<u8> {
    pairs.sort_by(|a, b| comparator.compare(&a.0, &b.0));
    let mut out = Vec::new();
    let mut builder = CollectionBuilder::new(&mut out);
    for (index, (key, value)) in pairs.iter().enumerate() {
        let is_last = pairs
            .get(index + 1)
            .is_none_or(|next| comparator.compare(key, &next.0).is_ne());
        if is_last {
            builder.push_pair(key, value);
        }
    }
    builder.finish();
    out
}
