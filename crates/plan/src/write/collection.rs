//! Changes of multi-cell collections, element by element.
//!
//! An element's path is a map's key, a set's element, or for a list a time UUID that orders it: appended elements take
//! the present time, prepended ones a time mirrored at a fixed moment, so that later prepends sort before earlier ones.

use mutation::Tombstone;
use mutation::row::Cell;
use schema::{Column, RowLayout};
use types::{CollectionIter, CqlType, MapIter, timeuuid};

use super::pack::{Packer, Times};
use super::{Addend, Change, ColumnChange, ListElements};
use crate::{BindContext, Evaluated, PlanError};

/// 2010-01-01T00:00:00Z in units of 100 ns since 1970: list positions of prepended elements are mirrored at it.
const MIRROR_TICKS: i64 = 1_262_304_000 * 10_000_000;

/// What becomes of one element.
pub(super) struct Element {
    path: Vec<u8>,
    /// None removes it.
    value: Option<Vec<u8>>,
}

impl Element {
    pub(super) fn as_ref(&self, times: Times) -> (&[u8], Cell<'_>) {
        let cell = match &self.value {
            Some(v) => times.live(v),
            None => times.dead(),
        };
        (&self.path, cell)
    }
}

/// A collection's change: perhaps a tombstone, then elements in path order.
pub(super) struct Elements {
    pub(super) tombstone: Tombstone,
    pub(super) elements: Vec<Element>,
}

impl Elements {
    fn none() -> Self {
        Self {
            tombstone: Tombstone::NONE,
            elements: Vec::new(),
        }
    }

    /// Makes the change in a list that is present.
    fn change(&self, list: &mut ListElements, layout: &RowLayout, id: usize) {
        if !self.tombstone.is_none() {
            list.clear();
        }
        for Element { path, value } in &self.elements {
            list.retain(|(present, _)| present != path);
            if let Some(value) = value {
                let at = list.partition_point(|(present, _)| layout.compare_paths(id, present, path).is_lt());
                list.insert(at, (path.clone(), value.clone()));
            }
        }
    }

    /// Adds another change of the same column by the same statement. Where both change one element, what would win between two writes of one timestamp does:
    /// a removal before a value, and the greater of two values.
    fn add(&mut self, other: Self, layout: &RowLayout, id: usize) {
        self.tombstone = self.tombstone.merge(other.tombstone);
        self.elements.extend(other.elements);
        self.elements.sort_by(|a, b| {
            let by_path = layout.compare_paths(id, &a.path, &b.path);
            // What wins stands first.
            by_path.then_with(|| match (&a.value, &b.value) {
                (Some(a), Some(b)) => b.cmp(a),
                (a, b) => a.is_some().cmp(&b.is_some()),
            })
        });
        self.elements
            .dedup_by(|b, a| layout.compare_paths(id, &a.path, &b.path).is_eq());
    }
}

fn malformed(column: &Column) -> PlanError {
    PlanError::invalid(format!("Invalid value for collection column {}", column.name))
}

/// The elements of a serialised collection as they are stored; list positions come from `position`.
fn split(column: &Column, value: &[u8], mut position: impl FnMut() -> Vec<u8>) -> Result<Vec<Element>, PlanError> {
    // A negative count is read as zero elsewhere, but nobody means it.
    if value.first().is_some_and(|b| *b >= 0x80) {
        return Err(malformed(column));
    }
    let mut out = Vec::new();
    match &column.cql_type {
        CqlType::List(_) => {
            for v in CollectionIter::new(value).map_err(|_| malformed(column))? {
                let v = v.map_err(|_| malformed(column))?;
                out.push(Element {
                    path: position(),
                    value: Some(v.to_vec()),
                });
            }
        }
        CqlType::Set(_) => {
            for v in CollectionIter::new(value).map_err(|_| malformed(column))? {
                let v = v.map_err(|_| malformed(column))?;
                out.push(Element {
                    path: v.to_vec(),
                    value: Some(Vec::new()),
                });
            }
        }
        CqlType::Map(..) => {
            for pair in MapIter::new(value).map_err(|_| malformed(column))? {
                let (k, v) = pair.map_err(|_| malformed(column))?;
                out.push(Element {
                    path: k.to_vec(),
                    value: Some(v.to_vec()),
                });
            }
        }
        _ => return Err(malformed(column)),
    }
    Ok(out)
}

/// What a statement adds to a counter in all; unset when none of its numbers is set.
pub(super) fn sum(addends: &[Addend], ctx: &BindContext<'_>) -> Result<Evaluated<'static>, PlanError> {
    let mut sum: Option<i64> = None;
    for addend in addends {
        let number = match addend.number.eval(ctx)? {
            Evaluated::Unset => continue,
            Evaluated::Null => return Err(PlanError::invalid("Invalid null value for counter increment")),
            Evaluated::Value(v) => v.as_ref().try_into().map(i64::from_be_bytes),
        };
        let number = number.map_err(|_| PlanError::invalid("Expected 8 bytes to add to a counter"))?;
        let number = match addend.is_negative {
            false => number,
            true => number.checked_neg().ok_or_else(|| {
                PlanError::invalid(format!(
                    "The negation of {number} overflows supported counter precision (signed 8 bytes integer)"
                ))
            })?,
        };
        sum = Some(sum.unwrap_or(0).wrapping_add(number));
    }
    Ok(sum.map_or(Evaluated::Unset, |sum| {
        Evaluated::Value(sum.to_be_bytes().to_vec().into())
    }))
}

/// Makes additions to counters so many times as large: a statement adds to a static counter once for each row that it names.
pub(super) fn multiply(changes: &[ColumnChange], values: &mut [Evaluated<'_>], times: usize) {
    let times = i64::try_from(times).unwrap_or(i64::MAX);
    for (change, value) in changes.iter().zip(values) {
        if let (Change::Count(_), Evaluated::Value(number)) = (&change.change, &mut *value)
            && let Ok(number) = number.as_ref().try_into().map(i64::from_be_bytes)
        {
            *value = Evaluated::Value(number.wrapping_mul(times).to_be_bytes().to_vec().into());
        }
    }
}

/// The elements that a statement's changes of one multi-cell column write, one after the other: each sees a list as those before it leave it.
pub(super) fn pack_changes<'c>(
    packer: &Packer<'_>,
    changes: impl Iterator<Item = (&'c ColumnChange, &'c Evaluated<'c>)>,
) -> Result<Elements, PlanError> {
    let layout = &*packer.plan.table.layout;
    let mut all: Option<Elements> = None;
    let mut list: Option<ListElements> = None;
    for (assignment, value) in changes {
        let lists = || {
            packer
                .lists
                .and_then(|l| l.get(&packer.plan.table.clustering_order, packer.row, assignment.id))
        };
        if assignment.change.reads() && list.is_none() {
            let mut present = lists().cloned().unwrap_or_default();
            if let Some(before) = &all {
                before.change(&mut present, layout, assignment.id);
            }
            list = Some(present);
        }
        let change = pack_complex(packer, assignment, value, list.as_ref())?;
        if let Some(list) = &mut list {
            change.change(list, layout, assignment.id);
        }
        match &mut all {
            Some(all) => all.add(change, layout, assignment.id),
            None => all = Some(change),
        }
    }
    Ok(all.unwrap_or_else(Elements::none))
}

/// The elements that one change writes; `list` has the present ones when it needs them.
fn pack_complex(
    packer: &Packer<'_>,
    assignment: &ColumnChange,
    value: &Evaluated<'_>,
    list: Option<&ListElements>,
) -> Result<Elements, PlanError> {
    let column = &packer.plan.table.columns[assignment.column];
    let layout = &packer.plan.table.layout;
    let random = packer.ctx.random;
    let append = || {
        let ticks = packer.clock.uuid_ticks(packer.ctx.now_us);
        timeuuid::from_parts(ticks, random as u16, node_of(random))
            .as_bytes()
            .to_vec()
    };
    let mut out = Elements::none();
    match (&assignment.change, value) {
        // The list must have the element, though it stays as it is.
        (Change::PutAt { .. }, Evaluated::Unset) => {
            change_list(packer, assignment, column, value, list)?;
            return Ok(out);
        }
        (_, Evaluated::Unset) => return Ok(out),
        (Change::Delete, _) => {
            out.tombstone = packer.times.tombstone();
            return Ok(out);
        }
        (Change::Replace(_), Evaluated::Null) => {
            // Null replaces the collection by nothing: what was there goes, as with any other value.
            out.tombstone = packer.times.tombstone_before();
            return Ok(out);
        }
        (Change::Replace(_), Evaluated::Value(v)) => {
            out.tombstone = packer.times.tombstone_before();
            out.elements = split(column, v, append)?;
        }
        (Change::Append(_), Evaluated::Value(v)) => out.elements = split(column, v, append)?,
        (Change::Prepend(_), Evaluated::Value(v)) => {
            out.elements = split(column, v, Vec::new)?;
            // Later positions sort first, so the last element takes its position first.
            for e in out.elements.iter_mut().rev() {
                let ticks = packer.clock.uuid_ticks(packer.ctx.now_us);
                let mirrored = 2 * MIRROR_TICKS - ticks;
                e.path = timeuuid::from_parts(mirrored, random as u16, node_of(random))
                    .as_bytes()
                    .to_vec();
            }
        }
        (Change::Remove(_), Evaluated::Value(v)) => {
            for key in CollectionIter::new(v).map_err(|_| malformed(column))? {
                let key = key.map_err(|_| malformed(column))?;
                out.elements.push(Element {
                    path: key.to_vec(),
                    value: None,
                });
            }
        }
        (Change::Take(_), Evaluated::Value(v)) => {
            out.elements.push(Element {
                path: v.to_vec(),
                value: None,
            });
        }
        (Change::Take(_), Evaluated::Null) => {
            return Err(PlanError::invalid(match column.cql_type {
                CqlType::Map(..) => "Invalid null map key",
                _ => "Invalid null set element",
            }));
        }
        (Change::Put { key, .. }, value) => {
            let key = key.eval(packer.ctx)?;
            out.elements.push(Element {
                path: map_key(&key)?.to_vec(),
                value: match value {
                    Evaluated::Value(v) => Some(v.to_vec()),
                    Evaluated::Null | Evaluated::Unset => None,
                },
            });
        }
        (Change::Count(_), Evaluated::Value(number)) => out.elements.push(Element {
            path: Vec::new(),
            value: Some(number.to_vec()),
        }),
        (Change::PutAt { .. } | Change::TakeAt(_) | Change::Discard(_), value) => {
            out.elements = change_list(packer, assignment, column, value, list)?;
        }
        // Adding or removing null changes nothing.
        (_, Evaluated::Null) => return Ok(out),
        (Change::Set(_), Evaluated::Value(_)) => return Err(malformed(column)),
    }
    if !matches!(column.cql_type, CqlType::List(_)) {
        // A literal is sorted; a bound value need not be.
        out.elements
            .sort_by(|a, b| layout.compare_paths(assignment.id, &a.path, &b.path));
        out.elements.reverse();
        out.elements
            .dedup_by(|a, b| layout.compare_paths(assignment.id, &a.path, &b.path).is_eq());
        out.elements.reverse();
    }
    Ok(out)
}

/// The key of a map that a change names.
pub(super) fn map_key<'k>(key: &'k Evaluated<'_>) -> Result<&'k [u8], PlanError> {
    match key {
        Evaluated::Value(key) => Ok(key),
        Evaluated::Null => Err(PlanError::invalid("Invalid null map key")),
        Evaluated::Unset => Err(PlanError::invalid("Invalid unset map key")),
    }
}

/// Changes of a list that name elements by place or value.
fn change_list(
    packer: &Packer<'_>,
    assignment: &ColumnChange,
    column: &Column,
    value: &Evaluated<'_>,
    list: Option<&ListElements>,
) -> Result<Vec<Element>, PlanError> {
    let have = list.map_or(&[][..], Vec::as_slice);
    let place = |index: Evaluated<'_>| -> Result<Vec<u8>, PlanError> {
        let i = match index {
            Evaluated::Value(i) => i,
            Evaluated::Null => return Err(PlanError::invalid("Invalid null value for list index")),
            Evaluated::Unset => return Err(PlanError::invalid("Invalid unset value for list index")),
        };
        let i = i32::from_be_bytes(i.as_ref().try_into().map_err(|_| malformed(column))?);
        if have.is_empty() {
            return Err(PlanError::invalid(
                "Attempted to set an element on a list which is null",
            ));
        }
        usize::try_from(i)
            .ok()
            .and_then(|i| have.get(i))
            .map(|(path, _)| path.clone())
            .ok_or_else(|| PlanError::invalid(format!("List index {i} out of bound, list has size {}", have.len())))
    };
    match (&assignment.change, value) {
        (Change::PutAt { index, .. }, value) => {
            let path = place(index.eval(packer.ctx)?)?;
            let value = if let Evaluated::Value(v) = value {
                Some(v.to_vec())
            } else {
                None
            };
            Ok(vec![Element { path, value }])
        }
        (Change::TakeAt(_), value) => {
            let path = place(value.clone()).map_err(|e| match e {
                PlanError::Invalid(m) => PlanError::Invalid(m.replace("set an element on", "delete an element from")),
                e => e,
            })?;
            Ok(vec![Element { path, value: None }])
        }
        (Change::Discard(_), Evaluated::Value(v)) => {
            let unwanted: Vec<&[u8]> = CollectionIter::new(v)
                .map_err(|_| malformed(column))?
                .flatten()
                .collect();
            Ok(have
                .iter()
                .filter(|(_, v)| unwanted.contains(&&v[..]))
                .map(|(path, _)| Element {
                    path: path.clone(),
                    value: None,
                })
                .collect())
        }
        _ => Ok(Vec::new()),
    }
}

fn node_of(random: u64) -> [u8; 6] {
    let b = random.to_be_bytes();
    // A multicast address, which no network card has.
    [b[0] | 1, b[1], b[2], b[3], b[4], b[5]]
}
