//! From the living cells of a row to the columns that a statement needs.

use mutation::compact::{LiveColumn, LiveElements, LiveRow};
use mutation::row::Cell;
use plan::{Row, SelectPlan, put_collection};

/// Sets the needed columns of a row or static row.
pub(super) fn set_columns(row: &mut Row, plan: &SelectPlan, live: LiveRow<'_>, now: u32) {
    if plan.needed_ids() == 0 {
        return;
    }
    if !plan.selection.needs_times
        && let Some(values) = live.plain_values()
    {
        let needed = values.take_while(|(id, _)| *id < plan.needed_ids());
        let found = needed.filter_map(|(id, value)| plan.needed_position(id).map(|at| (at, value)));
        return found.for_each(|(at, value)| row.set(at, value));
    }
    for (id, column) in live.columns() {
        if id >= plan.needed_ids() {
            break;
        }
        let Some(at) = plan.needed_position(id) else { continue };
        match column {
            LiveColumn::Simple(c) => {
                row.set(at, c.value);
                if plan.selection.needs_times {
                    row.set_times(at, c.timestamp, ttl_left(&c, now));
                }
            }
            LiveColumn::Complex(elements) if plan.table.columns[at].cql_type.is_counter() => {
                let counter = count(elements);
                row.set(at, &counter.sum.to_be_bytes());
                row.set_times(at, counter.written_at, 0);
            }
            LiveColumn::Complex(elements) => {
                if plan.selection.needs_times {
                    let times = elements
                        .clone()
                        .map(|(path, cell)| (path, cell.timestamp, ttl_left(&cell, now)));
                    match &plan.table.columns[at].cql_type {
                        types::CqlType::Udt(udt) => row.set_field_cells(at, udt.fields.len(), times),
                        _ => row.set_cells(at, times),
                    }
                }
                row.set_with(at, |out| {
                    put_collection(out, &plan.table.columns[at].cql_type, elements)
                });
            }
        }
    }
}

/// The seconds until a cell expires; 0 if it never does.
fn ttl_left(cell: &Cell<'_>, now: u32) -> i32 {
    match cell.ttl {
        0 => 0,
        _ => i32::try_from(cell.deletion_time.saturating_sub(now)).unwrap_or(i32::MAX),
    }
}

/// A counter as clients see it.
pub(super) struct Counter {
    /// What was added to it in all.
    pub(super) sum: i64,
    /// The clock of the last addition.
    pub(super) written_at: i64,
}

/// The sum of a counter's living elements, and the latest of their clocks.
#[inline]
pub(super) fn count(elements: LiveElements<'_>) -> Counter {
    let nothing = Counter {
        sum: 0,
        written_at: i64::MIN,
    };
    elements.fold(nothing, |counter, (_, cell)| Counter {
        sum: counter
            .sum
            .wrapping_add(cell.value.try_into().map_or(0, i64::from_be_bytes)),
        written_at: counter.written_at.max(cell.timestamp),
    })
}
