//! Applying a projection to an item.
//!
//! What several paths return of one map or list is merged: elements of a list keep their order and close the gaps
//! between them. A path that leads nowhere adds nothing, not even the map or list that it passes.

use std::cmp::Ordering;

use stdx::preempt;

use crate::expression::{Bindings, Projection};
use crate::path::{Path, Step};
use crate::value::{AttributeValue, Item, copy_value};

/// The parts of an item that a projection returns.
pub fn project(projection: &Projection, item: &Item, bindings: &Bindings<'_>) -> Item {
    project_paths(projection.paths.iter(), item, bindings)
}

/// The parts of an item that paths lead to, of which none leads to a part of another.
pub(crate) fn project_paths<'p>(paths: impl Iterator<Item = &'p Path>, item: &Item, bindings: &Bindings<'_>) -> Item {
    let mut found = Item::new();
    let mut nested = Vec::new();
    for path in paths {
        preempt::point();
        let Some(value) = path.resolve(item, bindings) else {
            continue;
        };
        if path.is_top_level() {
            found.insert(bindings.name(path.attribute).to_owned(), copy_value(value));
        } else {
            nested.push((path, value));
        }
    }
    preempt::sort_by(&mut nested, |(one, _), (other, _)| compare(one, other, bindings));
    let mut rest = nested.as_slice();
    while let Some((first, _)) = rest.first() {
        let name = bindings.name(first.attribute);
        let same = |(path, _): &&(&Path, &AttributeValue)| bindings.name(path.attribute) == name;
        let count = rest.iter().take_while(same).count();
        let (group, after) = rest.split_at(count);
        found.insert(name.to_owned(), merge(group, 0, bindings));
        rest = after;
    }
    found
}

/// Orders paths by names and positions, so that those through one element are neighbours.
fn compare(one: &Path, other: &Path, bindings: &Bindings<'_>) -> Ordering {
    let by_attribute = bindings.name(one.attribute).cmp(bindings.name(other.attribute));
    let by_step = |(a, b): (&Step, &Step)| compare_steps(*a, *b, bindings);
    by_attribute.then_with(|| {
        let mut orders = one.steps.iter().zip(&other.steps).map(by_step);
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    })
}

fn compare_steps(one: Step, other: Step, bindings: &Bindings<'_>) -> Ordering {
    match (one, other) {
        (Step::Name(a), Step::Name(b)) => bindings.name(a).cmp(bindings.name(b)),
        (Step::Index(a), Step::Index(b)) => a.cmp(&b),
        (Step::Name(_), Step::Index(_)) => Ordering::Less,
        (Step::Index(_), Step::Name(_)) => Ordering::Greater,
    }
}

/// The map or list that sorted paths share up to a level, with only their values.
fn merge(group: &[(&Path, &AttributeValue)], level: usize, bindings: &Bindings<'_>) -> AttributeValue {
    preempt::point();
    let mut list = Vec::new();
    let mut map = Item::new();
    let mut rest = group;
    while let Some((first, value)) = rest.first() {
        let Some(step) = first.steps.get(level) else {
            return copy_value(value);
        };
        let same = |(path, _): &&(&Path, &AttributeValue)| {
            let other = path.steps.get(level);
            other.is_some_and(|other| compare_steps(*step, *other, bindings).is_eq())
        };
        let count = rest.iter().take_while(same).count().max(1);
        let (part, after) = rest.split_at(count);
        let value = merge(part, level + 1, bindings);
        match step {
            Step::Name(name) => {
                map.insert(bindings.name(*name).to_owned(), value);
            }
            Step::Index(_) => list.push(value),
        }
        rest = after;
    }
    if map.is_empty() {
        AttributeValue::L(list)
    } else {
        AttributeValue::M(map)
    }
}
