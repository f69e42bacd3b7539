//! Changes of multi-cell collections and user-defined types, element by element.
//!
//! An element's path is a map's key, a set's element, or for a list a time UUID that orders it: appended elements take
//! the present time, prepended ones a time mirrored at a fixed moment, so that later prepends sort before earlier ones.
//! The path of a user-defined type's field is its place, in two bytes, big endian.

use std::borrow::Cow;
use std::collections::HashSet;

use mutation::Tombstone;
use mutation::row::Cell;
use schema::{Column, RowLayout};
use stdx::{LongVec, preempt};
use types::{CollectionIter, CqlType, MapIter, TupleIter, timeuuid};

use super::list::PresentList;
use super::pack::{Packer, Times};
use super::{Addend, Change, ColumnChange};
use crate::operand::check_count;
use crate::{BindContext, Evaluated, Operand, PlanError};

/// 2010-01-01T00:00:00Z in units of 100 ns since 1970: list positions of prepended elements are mirrored at it.
const MIRROR_TICKS: i64 = 1_262_304_000 * 10_000_000;

/// What becomes of one element.
pub(super) struct Element<'v> {
    path: Cow<'v, [u8]>,
    /// None removes it.
    value: Option<Cow<'v, [u8]>>,
}

impl Element<'_> {
    pub(super) fn as_ref(&self, times: Times) -> (&[u8], Cell<'_>) {
        preempt::point();
        let cell = match &self.value {
            Some(v) => times.live(v),
            None => times.dead(),
        };
        (&self.path, cell)
    }
}

/// A collection's change: perhaps a tombstone, then elements in path order.
pub(super) struct Elements<'v> {
    pub(super) tombstone: Tombstone,
    pub(super) elements: LongVec<Element<'v>>,
}

impl Elements<'_> {
    fn none() -> Self {
        Self {
            tombstone: Tombstone::NONE,
            elements: LongVec::new(),
        }
    }

    /// Puts the elements of several changes of one statement in order. Where two change one element, what would win
    /// between two writes of one timestamp does: a removal before a value, and the greater of two values.
    fn settle(&mut self, layout: &RowLayout, id: usize) {
        preempt::sort_by(&mut self.elements, |a, b| {
            let by_path = layout.compare_paths(id, &a.path, &b.path);
            // What wins comes first.
            by_path.then_with(|| match (&a.value, &b.value) {
                (Some(a), Some(b)) => b.cmp(a),
                (a, b) => a.is_some().cmp(&b.is_some()),
            })
        });
        self.elements.dedup_by(|b, a| {
            preempt::point();
            layout.compare_paths(id, &a.path, &b.path).is_eq()
        });
    }
}

impl<'v> Elements<'v> {
    /// Puts the elements of one change in order, of several with one path the last. A literal is sorted; a bound value
    /// need not be.
    fn sort(&mut self, layout: &RowLayout, id: usize) {
        let is_sorted = self.elements.is_sorted_by(|a, b| {
            preempt::point();
            layout.compare_paths(id, &a.path, &b.path).is_lt()
        });
        if is_sorted {
            return;
        }
        preempt::sort_by(&mut self.elements, |a, b| layout.compare_paths(id, &a.path, &b.path));
        self.elements.reverse();
        self.elements.dedup_by(|a, b| {
            preempt::point();
            layout.compare_paths(id, &a.path, &b.path).is_eq()
        });
        self.elements.reverse();
    }

    /// Makes the change in a list that is present.
    fn change(&self, list: &mut PresentList<'v>) {
        if !self.tombstone.is_none() {
            list.clear();
        }
        for Element { path, value } in &self.elements {
            preempt::point();
            list.change(path.clone(), value.as_ref());
        }
    }
}

fn malformed(column: &Column) -> PlanError {
    PlanError::invalid(format!("Invalid value for collection column {}", column.name))
}

/// Refuses a bound list with an element of 0 bytes where these mean null: clients could not distinguish it from one.
fn check_bound(column: &Column, operand: &Operand, value: &[u8]) -> Result<(), PlanError> {
    let CqlType::List(element) = &column.cql_type else {
        return Ok(());
    };
    if !matches!(operand, Operand::Marker { .. }) || !element.is_null_when_empty() {
        return Ok(());
    }
    let mut elements = CollectionIter::new(value).map_err(|_| malformed(column))?;
    let is_empty = |bytes: Result<&[u8], _>| {
        preempt::point();
        bytes.is_ok_and(<[u8]>::is_empty)
    };
    if elements.any(is_empty) {
        Err(PlanError::Invalid(format!(
            "Invalid empty element in the value of list {}: null is not supported inside collections",
            column.name
        )))
    } else {
        Ok(())
    }
}

/// The elements of a serialised collection as they are stored; list positions come from `position`.
fn split<'v>(
    column: &Column,
    value: &'v [u8],
    mut position: impl FnMut() -> Cow<'v, [u8]>,
) -> Result<Vec<Element<'v>>, PlanError> {
    if let CqlType::Udt(udt) = &column.cql_type {
        return fields(column, udt.fields.len(), value);
    }
    check_count(&column.cql_type, value)?;
    let elements = || CollectionIter::new(value).map_err(|_| malformed(column));
    let mut out = Vec::with_capacity(elements()?.len_max());
    match &column.cql_type {
        CqlType::List(_) => {
            for v in elements()? {
                preempt::point();
                out.push(Element {
                    path: position(),
                    value: Some(Cow::Borrowed(v.map_err(|_| malformed(column))?)),
                });
            }
        }
        CqlType::Set(_) => {
            for v in elements()? {
                preempt::point();
                out.push(Element {
                    path: Cow::Borrowed(v.map_err(|_| malformed(column))?),
                    value: Some(Cow::Borrowed(&[])),
                });
            }
        }
        CqlType::Map(..) => {
            for pair in MapIter::new(value).map_err(|_| malformed(column))? {
                preempt::point();
                let (k, v) = pair.map_err(|_| malformed(column))?;
                out.push(Element {
                    path: Cow::Borrowed(k),
                    value: Some(Cow::Borrowed(v)),
                });
            }
        }
        _ => return Err(malformed(column)),
    }
    Ok(out)
}

/// The fields of a serialised user-defined type that are not null.
fn fields<'v>(column: &Column, fields: usize, value: &'v [u8]) -> Result<Vec<Element<'v>>, PlanError> {
    let mut out = Vec::with_capacity(fields);
    for (place, field) in TupleIter::new(value).enumerate() {
        let field = field.map_err(|_| malformed(column))?;
        let place = u16::try_from(place).map_err(|_| malformed(column))?;
        if usize::from(place) >= fields {
            return Err(malformed(column));
        }
        if let Some(bytes) = field {
            out.push(Element {
                path: path_of_field(place),
                value: Some(Cow::Borrowed(bytes)),
            });
        }
    }
    Ok(out)
}

/// The path of a field: its place, in two bytes.
fn path_of_field(place: u16) -> Cow<'static, [u8]> {
    static FIRST: [[u8; 2]; 32] = {
        let mut paths = [[0; 2]; 32];
        let mut place = 0;
        while place < 32 {
            paths[place as usize] = (place as u16).to_be_bytes();
            place += 1;
        }
        paths
    };
    match FIRST.get(usize::from(place)) {
        Some(path) => Cow::Borrowed(path),
        None => Cow::Owned(place.to_be_bytes().to_vec()),
    }
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
        let number = if addend.is_negative {
            number.checked_neg().ok_or_else(|| {
                PlanError::invalid(format!(
                    "The negation of {number} overflows supported counter precision (signed 8 bytes integer)"
                ))
            })?
        } else {
            number
        };
        sum = Some(sum.unwrap_or(0).wrapping_add(number));
    }
    Ok(sum.map_or(Evaluated::Unset, |sum| {
        Evaluated::Value(sum.to_be_bytes().to_vec().into())
    }))
}

/// Makes additions to counters so many times as large: a statement adds to a static counter once for each row that it
/// names.
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

/// The elements that a statement's changes of one multi-cell column write, one after the other: each sees a list as
/// those before it leave it.
pub(super) fn pack_changes<'c>(
    packer: &Packer<'c>,
    changes: impl Iterator<Item = (&'c ColumnChange, &'c Evaluated<'c>)>,
) -> Result<Elements<'c>, PlanError> {
    let table = &*packer.plan.table;
    let layout = &*table.layout;
    let mut all = Elements::none();
    let mut list: Option<PresentList<'c>> = None;
    let mut changes = changes.peekable();
    let mut is_settled = true;
    while let Some((assignment, value)) = changes.next() {
        preempt::point();
        let id = assignment.id;
        if assignment.change.reads() && list.is_none() {
            let stored = packer
                .lists
                .and_then(|l| l.get(&table.clustering_order, packer.row, id));
            let mut present = PresentList::new(stored.map_or(&[], Vec::as_slice), layout, id);
            all.settle(layout, id);
            all.change(&mut present);
            list = Some(present);
        }
        let change = pack_complex(packer, assignment, value, list.as_mut())?;
        if let Some(list) = list.as_mut().filter(|_| changes.peek().is_some()) {
            change.change(list);
        }
        if all.tombstone.is_none() && all.elements.is_empty() {
            all = change;
        } else {
            all.tombstone = all.tombstone.merge(change.tombstone);
            all.elements.extend(change.elements);
            is_settled = false;
        }
        if changes.peek().is_none() && !is_settled {
            all.settle(layout, id);
        }
    }
    Ok(all)
}

/// The elements that one change writes; `list` has the present ones when it needs them.
fn pack_complex<'c>(
    packer: &Packer<'c>,
    assignment: &'c ColumnChange,
    value: &'c Evaluated<'c>,
    list: Option<&mut PresentList<'c>>,
) -> Result<Elements<'c>, PlanError> {
    let column = &packer.plan.table.columns[assignment.column];
    let layout = &packer.plan.table.layout;
    let random = packer.ctx.random;
    let append = || {
        let ticks = packer.clock.uuid_ticks(packer.ctx.now_us);
        Cow::Owned(
            timeuuid::from_parts(ticks, random as u16, node_of(random))
                .as_bytes()
                .to_vec(),
        )
    };
    let mut out = Elements::none();
    if let (Change::Replace(operand) | Change::Append(operand) | Change::Prepend(operand), Evaluated::Value(v)) =
        (&assignment.change, value)
    {
        check_bound(column, operand, v)?;
    }
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
            out.elements = split(column, v, append)?.into();
        }
        (Change::Append(_), Evaluated::Value(v)) => out.elements = split(column, v, append)?.into(),
        (Change::Prepend(_), Evaluated::Value(v)) => {
            out.elements = split(column, v, || Cow::Borrowed(&[]))?.into();
            // Later positions sort first, so the last element takes its position first.
            for e in out.elements.iter_mut().rev() {
                preempt::point();
                let ticks = packer.clock.uuid_ticks(packer.ctx.now_us);
                let mirrored = 2 * MIRROR_TICKS - ticks;
                let path = timeuuid::from_parts(mirrored, random as u16, node_of(random));
                e.path = Cow::Owned(path.as_bytes().to_vec());
            }
        }
        (Change::Remove(_), Evaluated::Value(v)) => {
            for key in CollectionIter::new(v).map_err(|_| malformed(column))? {
                preempt::point();
                let element = Element {
                    path: Cow::Borrowed(key.map_err(|_| malformed(column))?),
                    value: None,
                };
                preempt::push(&mut out.elements, element);
            }
        }
        (Change::Take(_), Evaluated::Value(v)) => {
            out.elements.push(Element {
                path: Cow::Borrowed(v),
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
                path: Cow::Owned(map_key(&key)?.to_vec()),
                value: match value {
                    Evaluated::Value(v) => Some(Cow::Borrowed(v)),
                    Evaluated::Null | Evaluated::Unset => None,
                },
            });
        }
        (Change::PutField { field, .. }, value) => out.elements.push(Element {
            path: path_of_field(*field),
            value: match value {
                Evaluated::Value(v) => Some(Cow::Borrowed(v)),
                Evaluated::Null | Evaluated::Unset => None,
            },
        }),
        (Change::Count(_), Evaluated::Value(number)) => out.elements.push(Element {
            path: Cow::Borrowed(&[]),
            value: Some(Cow::Borrowed(number)),
        }),
        (Change::PutAt { .. } | Change::TakeAt(_) | Change::Discard(_), value) => {
            out.elements = change_list(packer, assignment, column, value, list)?.into();
        }
        // Adding or removing null changes nothing.
        (_, Evaluated::Null) => return Ok(out),
        (Change::Set(_) | Change::Compute(_), Evaluated::Value(_)) => return Err(malformed(column)),
    }
    if !matches!(column.cql_type, CqlType::List(_)) {
        out.sort(layout, assignment.id);
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
fn change_list<'c>(
    packer: &Packer<'c>,
    assignment: &'c ColumnChange,
    column: &Column,
    value: &'c Evaluated<'c>,
    list: Option<&mut PresentList<'c>>,
) -> Result<Vec<Element<'c>>, PlanError> {
    match (&assignment.change, value) {
        (Change::PutAt { index, .. }, value) => {
            let path = path_at(list.as_deref(), &index.eval(packer.ctx)?, column, "set an element on")?;
            let value = match value {
                Evaluated::Value(v) => Some(Cow::Borrowed(&**v)),
                Evaluated::Null | Evaluated::Unset => None,
            };
            Ok(vec![Element { path, value }])
        }
        (Change::TakeAt(_), value) => {
            let path = path_at(list.as_deref(), value, column, "delete an element from")?;
            Ok(vec![Element { path, value: None }])
        }
        (Change::Discard(_), Evaluated::Value(v)) => {
            let values = CollectionIter::new(v).map_err(|_| malformed(column))?;
            let mut unwanted: HashSet<&[u8]> = HashSet::with_capacity(values.len_max());
            for value in values.flatten() {
                preempt::point();
                unwanted.insert(value);
            }
            let discarded = list.map(|list| list.take_matches(&unwanted));
            let removal = |path| Element { path, value: None };
            Ok(preempt::collect(discarded.unwrap_or_default().into_iter().map(removal)))
        }
        _ => Ok(Vec::new()),
    }
}

/// The path of the element of a list at an index. `what` a statement does, in its errors.
fn path_at<'c>(
    list: Option<&PresentList<'c>>,
    index: &Evaluated<'_>,
    column: &Column,
    what: &str,
) -> Result<Cow<'c, [u8]>, PlanError> {
    let index = match index {
        Evaluated::Value(index) => index,
        Evaluated::Null => return Err(PlanError::invalid("Invalid null value for list index")),
        Evaluated::Unset => return Err(PlanError::invalid("Invalid unset value for list index")),
    };
    let index = i32::from_be_bytes(index.as_ref().try_into().map_err(|_| malformed(column))?);
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        return Err(PlanError::invalid(format!("Attempted to {what} a list which is null")));
    };
    let path = usize::try_from(index).ok().and_then(|place| list.path(place));
    path.cloned()
        .ok_or_else(|| PlanError::invalid(format!("List index {index} out of bound, list has size {}", list.len())))
}

fn node_of(random: u64) -> [u8; 6] {
    let b = random.to_be_bytes();
    // A multicast address, which no network card has.
    [b[0] | 1, b[1], b[2], b[3], b[4], b[5]]
}
