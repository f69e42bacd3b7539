//! Writes: built once, packed into mutations at each execution.

mod collection;
mod condition;
mod conditional;
mod json;
mod list;
mod pack;
mod values;

use std::cell::{Cell, OnceCell};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use schema::{ClusteringOrder, ColumnKind, Table};
use types::CqlType;

use crate::function::{self, ArithmeticOperator, Operation, Typed};
use crate::restrict::{ClusteringRestriction, KeyMarkers, PartitionRestriction, no_column};
use crate::{BindContext, Operand, PlanError, own_timeout};

pub use condition::{ColumnCondition, ConditionTest, Conditions, Part};
pub use conditional::{BoundWrite, ConditionalAnswer, ConditionalRequest, CurrentRows, ReadSpec, collect_lists};
pub use json::JsonRow;
pub use pack::check_write_bytes;
pub use values::WrittenValue;

/// The longest time to live, seconds: twenty years.
pub const TTL_MAX: i32 = 630_720_000;

/// What a modification says. [`WritePlan::new`] checks it.
#[derive(Debug)]
pub struct Write {
    /// What it writes to.
    pub table: Arc<Table>,
    /// Which partitions: they are named by their keys.
    pub partition: PartitionRestriction,
    /// Which rows of them.
    pub target: Target,
    /// The write timestamp, a bigint; None for the one of the request.
    pub timestamp: Option<Operand>,
    /// The time to live, an int; None for the table's.
    pub ttl: Option<Operand>,
    /// How long the client waits, a duration; None for as long as the node says.
    pub timeout: Option<Operand>,
    /// Which of the three kinds it is.
    pub kind: ModificationKind,
    /// What happens to which columns, each named once.
    pub assignments: Vec<Assignment>,
    /// What must hold of the rows before they are written.
    pub conditions: Conditions,
}

/// A modification that fits its table, and what follows from it.
#[derive(Debug)]
pub struct WritePlan {
    /// What it writes to.
    pub table: Arc<Table>,
    partition: PartitionRestriction,
    target: Target,
    timestamp: Option<Operand>,
    ttl: Option<Operand>,
    timeout: Option<Operand>,
    /// An insertion leaves a row marker.
    marker: bool,
    /// In column id order.
    statics: Vec<ColumnChange>,
    /// In column id order.
    regulars: Vec<ColumnChange>,
    /// A write that is not newer than this may be of a column that was dropped.
    dropped_at_max: i64,
    /// How many bytes of presence bits the rows need.
    columns: usize,
    kind: ModificationKind,
    conditions: Conditions,
    /// It takes more than one step, see [`WritePlan::is_of_steps`].
    is_of_steps: bool,
    /// The row comes as JSON.
    json: Option<JsonRow>,
    /// It is taken however large is what it writes to: `BYPASS LARGE_DATA_GUARDRAILS`.
    pub bypasses_large_data_guardrails: bool,
}

/// An [`Assignment`] with its column's id.
#[derive(Debug)]
struct ColumnChange {
    id: usize,
    /// Position in `table.columns`.
    column: usize,
    change: Change,
    /// What is not newer was dropped with a column of this name; `i64::MIN` where none was.
    dropped_at: i64,
}

/// Which of the three kinds a modification is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModificationKind {
    /// Rows exist afterwards, whatever becomes of their columns.
    Insert,
    /// Columns are set; a row exists while one of them does.
    Update,
    /// Columns, rows or partitions are deleted.
    Delete,
}

/// Which rows of the partition are written.
#[derive(Debug)]
pub enum Target {
    /// One row, each clustering column by one value; of compact storage the last ones may have none. Also tables
    /// without clustering columns.
    Row(Vec<Operand>),
    /// Several rows, by alternatives.
    Rows(ClusteringRestriction),
    /// Deletion of every row in a range.
    Range(ClusteringRestriction),
    /// Deletion of one or several whole rows.
    WholeRows(ClusteringRestriction),
    /// Deletion of the partition.
    Partition,
    /// Static columns only.
    Statics,
}

/// One column's change.
#[derive(Debug)]
pub struct Assignment {
    /// Position in `table.columns`.
    pub column: usize,
    /// What happens to it.
    pub change: Change,
}

/// What happens to a column.
#[derive(Debug)]
pub enum Change {
    /// A simple cell, or its tombstone when null.
    Set(Operand),
    /// Removes the column.
    Delete,
    /// Replaces a whole multi-cell collection.
    Replace(Operand),
    /// Adds elements at the end of a list, to a set or to a map.
    Append(Operand),
    /// Adds elements before a list.
    Prepend(Operand),
    /// Takes elements out of a set or keys out of a map.
    Remove(Operand),
    /// Sets one entry of a map.
    Put {
        /// The key.
        key: Operand,
        /// The value; null removes the entry.
        value: Operand,
    },
    /// Removes one entry of a map or element of a set.
    Take(Operand),
    /// Sets one field of a user-defined type.
    PutField {
        /// The field's place.
        field: u16,
        /// The value; null removes the field.
        value: Operand,
    },
    /// Sets a list's element by index. Reads before it writes.
    PutAt {
        /// The element's place, an int.
        index: Operand,
        /// The value; null removes the element.
        value: Operand,
    },
    /// Removes a list's element by index. Reads before it writes.
    TakeAt(Operand),
    /// Removes every occurrence of some values from a list. Reads before it writes.
    Discard(Operand),
    /// Adds numbers to a counter, and takes others from it.
    Count(Vec<Addend>),
    /// Sets the column to what arithmetic makes of its present value; a null stays null. Reads before it writes, so
    /// only a conditional write may have it.
    Compute(Arithmetic),
}

/// Arithmetic of a column's present value and a term, both of the column's type.
#[derive(Debug)]
pub struct Arithmetic {
    pub(crate) operation: Operation,
    pub(crate) term: Operand,
}

impl Arithmetic {
    /// What the operator means in a column of that type.
    ///
    /// # Errors
    /// When the type has no such arithmetic.
    pub fn new(operator: ArithmeticOperator, cql_type: &CqlType, term: Operand) -> Result<Self, PlanError> {
        let column = Typed(cql_type);
        let found = function::resolve_arithmetic(operator, [&column, &column], Some(cql_type))?;
        if found.returns != *cql_type {
            return Err(PlanError::Internal(format!(
                "arithmetic of {cql_type} gives {}",
                found.returns
            )));
        }
        Ok(Self {
            operation: found.into_operation(0)?,
            term,
        })
    }
}

/// A number to add to a counter.
#[derive(Debug)]
pub struct Addend {
    /// The number, a bigint.
    pub number: Operand,
    /// It is taken from the counter.
    pub is_negative: bool,
}

impl Change {
    /// Whether the list's present elements must be known.
    pub(crate) const fn reads_list(&self) -> bool {
        matches!(self, Self::PutAt { .. } | Self::TakeAt(_) | Self::Discard(_))
    }

    /// Whether the column's present value must be known.
    pub(crate) const fn reads(&self) -> bool {
        self.reads_list() || matches!(self, Self::Compute(_))
    }

    /// Whether a statement may have it beside others of the same collection.
    pub const fn is_partial(&self) -> bool {
        !matches!(
            self,
            Self::Set(_) | Self::Replace(_) | Self::Count(_) | Self::Compute(_)
        )
    }

    /// Whether a column of that type can be changed so.
    fn fits(&self, cql_type: &CqlType) -> bool {
        use CqlType as T;
        match self {
            Self::Delete => true,
            Self::Count(_) => cql_type.is_counter(),
            Self::Set(_) | Self::Compute(_) => !cql_type.is_counter() && !cql_type.is_multi_cell(),
            Self::Replace(_) => cql_type.is_multi_cell(),
            Self::Append(_) => matches!(cql_type, T::List(_) | T::Set(_) | T::Map(..)),
            Self::Prepend(_) | Self::PutAt { .. } | Self::TakeAt(_) | Self::Discard(_) => {
                matches!(cql_type, T::List(_))
            }
            Self::Remove(_) | Self::Take(_) => matches!(cql_type, T::Set(_) | T::Map(..)),
            Self::Put { .. } => matches!(cql_type, T::Map(..)),
            Self::PutField { field, .. } => match cql_type {
                T::Udt(udt) => usize::from(*field) < udt.fields.len(),
                _ => false,
            },
        }
    }
}

impl WritePlan {
    /// Checks a modification against its table.
    ///
    /// # Errors
    /// When it does not name its partitions and rows as its kind must, or changes columns that the table does not have
    /// or not so.
    pub fn new(write: Write) -> Result<Self, PlanError> {
        let table = &*write.table;
        write.partition.check(table)?;
        if !write.partition.is_keys() {
            return Err(PlanError::invalid("a write names its partitions by their keys"));
        }
        check_target(table, &write.target, write.kind)?;
        let (mut statics, mut regulars) = (Vec::new(), Vec::with_capacity(write.assignments.len()));
        for assignment in write.assignments {
            stdx::preempt::point();
            let Some(column) = table.columns.get(assignment.column) else {
                return Err(no_column(table, assignment.column));
            };
            let name = &column.name;
            if !assignment.change.fits(&column.cql_type) {
                return Err(PlanError::Invalid(format!(
                    "Column {name} of type {} cannot be changed so",
                    column.cql_type
                )));
            }
            if matches!(assignment.change, Change::Compute(_)) && matches!(write.conditions, Conditions::None) {
                return Err(PlanError::Invalid(format!(
                    "Column {name} cannot be computed without a condition"
                )));
            }
            let of_kind = match column.kind {
                ColumnKind::Static => &mut statics,
                ColumnKind::Regular => &mut regulars,
                ColumnKind::PartitionKey | ColumnKind::Clustering => {
                    return Err(PlanError::Invalid(format!("Key column {name} cannot be changed")));
                }
            };
            let dropped = table.dropped.iter().filter(|dropped| dropped.name == *name);
            let dropped_at = dropped.map(|dropped| dropped.dropped_at_us).max();
            of_kind.push(ColumnChange {
                dropped_at: dropped_at.unwrap_or(i64::MIN),
                id: usize::from(column.id.0),
                column: assignment.column,
                change: assignment.change,
            });
        }
        for of_kind in [&mut statics, &mut regulars] {
            of_kind.sort_by_key(|change: &ColumnChange| change.id);
            let contradict = |pair: &[ColumnChange]| {
                pair[0].id == pair[1].id && !pair.iter().all(|change| change.change.is_partial())
            };
            if of_kind.windows(2).any(contradict) {
                return Err(PlanError::invalid(
                    "a write changes each column once, or several elements of it",
                ));
            }
        }
        let writes_rows = matches!(write.target, Target::Row(_) | Target::Rows(_));
        if !regulars.is_empty() && !writes_rows {
            return Err(PlanError::invalid("a write of columns names its rows"));
        }
        let columns = statics.iter().chain(&regulars).map(|c| c.id + 1).max().unwrap_or(0);
        let dropped_at = statics.iter().chain(&regulars).map(|c| c.dropped_at);
        let dropped_at_max = dropped_at.max().unwrap_or(i64::MIN);
        let is_multiplied = match &write.target {
            Target::Rows(rows) | Target::WholeRows(rows) | Target::Range(rows) => rows.has_in(),
            Target::Row(_) | Target::Partition | Target::Statics => false,
        };
        let takes_more = |c: &ColumnChange| c.change.reads() || matches!(c.change, Change::Count(_));
        Ok(Self {
            is_of_steps: is_multiplied
                || write.timeout.is_some()
                || !matches!(write.conditions, Conditions::None)
                || write.table.options.rate_limits.writes.is_some()
                || statics.iter().chain(&regulars).any(takes_more),
            marker: write.kind == ModificationKind::Insert
                && matches!(write.target, Target::Row(_))
                && write.table.compact.is_none(),
            table: write.table,
            partition: write.partition,
            target: write.target,
            timestamp: write.timestamp,
            ttl: write.ttl,
            timeout: write.timeout,
            statics,
            regulars,
            columns,
            dropped_at_max,
            kind: write.kind,
            conditions: write.conditions,
            json: None,
            bypasses_large_data_guardrails: false,
        })
    }

    /// Whether its execution is more than packing a row and writing it: it reads first, counts, has a condition, a
    /// timeout or a rate limit, or names many rows.
    #[inline]
    pub const fn is_of_steps(&self) -> bool {
        self.is_of_steps
    }

    /// How long its client waits, if it says so.
    ///
    /// # Errors
    /// As [`own_timeout`].
    pub fn own_timeout(&self, ctx: &BindContext<'_>) -> Result<Option<Duration>, PlanError> {
        own_timeout(self.timeout.as_ref(), ctx)
    }

    /// Whether it has a write timestamp of its own.
    pub const fn has_timestamp(&self) -> bool {
        self.timestamp.is_some()
    }
}

/// Refuses a target that does not name rows of the table as it should.
fn check_target(table: &Table, target: &Target, kind: ModificationKind) -> Result<(), PlanError> {
    let (restriction, must_name_rows, deletes) = match target {
        Target::Row(operands) if table.is_row_name(operands.len()) => return Ok(()),
        Target::Row(_) => return Err(PlanError::invalid("a row is named by each of its clustering columns")),
        Target::Statics => return Ok(()),
        Target::Rows(restriction) => (Some(restriction), true, false),
        Target::WholeRows(restriction) => (Some(restriction), true, true),
        Target::Range(restriction) => (Some(restriction), false, true),
        Target::Partition => (None, false, true),
    };
    if deletes && kind != ModificationKind::Delete {
        return Err(PlanError::invalid(
            "only a deletion deletes rows, ranges and partitions",
        ));
    }
    let Some(restriction) = restriction else { return Ok(()) };
    restriction.check(table)?;
    if must_name_rows && !restriction.names_rows(table) {
        return Err(PlanError::invalid("rows are named by each of their clustering columns"));
    }
    Ok(())
}

/// The clock of one shard's writes: timestamps and list positions that never repeat or go back on it.
#[derive(Debug, Default)]
pub struct WriteClock {
    last_timestamp: Cell<i64>,
    last_uuid_ticks: Cell<i64>,
}

impl WriteClock {
    /// A server-side write timestamp, microseconds.
    #[inline]
    pub fn timestamp(&self, now_us: i64) -> i64 {
        let t = now_us.max(self.last_timestamp.get() + 1);
        self.last_timestamp.set(t);
        t
    }

    /// The moment of the next time UUID, in units of 100 ns since 1970.
    pub(crate) fn uuid_ticks(&self, now_us: i64) -> i64 {
        let t = now_us.saturating_mul(10).max(self.last_uuid_ticks.get() + 1);
        self.last_uuid_ticks.set(t);
        t
    }
}

/// Elements of a list: path and value, in order. The value of another column is one element without a path.
pub type ListElements = Vec<(Vec<u8>, Vec<u8>)>;

/// The present elements of the lists that a statement changes by index or value, and the present values of columns that
/// it computes with, by row and column id. The static row has the name of its partition.
#[derive(Debug, Default)]
pub struct ListContents {
    by_name: HashMap<(Vec<u8>, usize), ListElements>,
    /// The columns of the static row.
    statics: HashSet<usize>,
    /// The names of the other rows in clustering order, once a row is not found by its bytes.
    in_order: OnceCell<Vec<Vec<u8>>>,
    bytes: usize,
}

/// What an element takes besides its bytes.
const ELEMENT_BYTES: usize = 2 * size_of::<Vec<u8>>();

impl ListContents {
    /// Without any list.
    pub fn new() -> Self {
        Self::default()
    }

    /// The memory of its elements, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Frees the elements, with preemption points in between.
    pub fn free(self) {
        self.by_name.into_values().for_each(stdx::preempt::drop_each);
    }

    fn insert(&mut self, row: &[u8], id: usize, list: ListElements) {
        self.in_order.take();
        let elements = list.iter();
        self.bytes += elements
            .map(|(path, value)| ELEMENT_BYTES + path.len() + value.len())
            .sum::<usize>();
        self.by_name.insert((row.to_vec(), id), list);
    }

    fn insert_static(&mut self, partition: &[u8], id: usize, list: ListElements) {
        self.statics.insert(id);
        self.insert(partition, id, list);
    }

    /// A clustering key may be written in several ways (1.0 and 1.00), so the row is found by order if its bytes are
    /// not.
    fn get(&self, order: &ClusteringOrder, row: &[u8], id: usize) -> Option<&ListElements> {
        if let Some(list) = self.by_name.get(&(row.to_vec(), id)) {
            return Some(list);
        }
        if self.statics.contains(&id) {
            return None;
        }
        let names = self.in_order.get_or_init(|| {
            let rows = self.by_name.keys().filter(|(_, id)| !self.statics.contains(id));
            let mut names: Vec<Vec<u8>> = rows.map(|(name, _)| name.clone()).collect();
            names.sort_by(|a, b| order.compare(a, b).then_with(|| a.cmp(b)));
            names.dedup();
            names
        });
        let first = names.partition_point(|name| order.compare(name, row).is_lt());
        let spellings = names[first..]
            .iter()
            .take_while(|name| order.compare(name, row).is_eq());
        let lists = spellings.map(|name| self.by_name.get(&(name.clone(), id)));
        lists.flatten().next()
    }
}

impl WritePlan {
    /// For each partition key column the marker that it takes its value from, when each has one.
    pub fn key_markers(&self) -> KeyMarkers {
        match self.json {
            Some(_) => KeyMarkers::new(),
            None => self.partition.key_markers(),
        }
    }
}

#[cfg(test)]
mod tests {
    use types::CqlType;

    use super::*;

    #[test]
    fn a_list_is_found_under_each_spelling_of_its_row() {
        let order = ClusteringOrder::from_types(&[(CqlType::Decimal, false)]);
        let key = |unscaled: u8, scale: u8| vec![5, 0, 0, 0, scale, unscaled];
        let mut lists = ListContents::new();
        lists.insert(&key(10, 1), 3, vec![(vec![1], vec![2])]);
        assert!(lists.get(&order, &key(10, 1), 3).is_some());
        assert!(
            lists.get(&order, &key(100, 2), 3).is_some(),
            "1.00 names the row of 1.0"
        );
        assert!(lists.get(&order, &key(11, 1), 3).is_none());
        assert!(
            lists.get(&order, &key(100, 2), 4).is_none(),
            "the list is of another column"
        );
    }
}
