//! From a plan and bound values to packed mutations.

use mutation::dates::ttl_between;
use mutation::row::{Cell, Liveness, RowBuilder, Shared};
use mutation::{ClusteringSlice, MutationBuilder, RangeTombstone, Tombstone};
use schema::{CellLayout, CompactStorage, pad_with_nulls, push_component};
use smallvec::SmallVec;
use stdx::preempt;
use types::CqlType;
use types::token::{Token, token_of};

use super::collection::{self, Elements, pack_changes, sum};
use super::{Arithmetic, Change, ColumnChange, ListContents, TTL_MAX, Target, WriteClock, WritePlan};
use crate::Operand;
use crate::batch::write_timestamp;
use crate::restrict::{KEY_BYTES_MAX, PartitionRestriction, Partitions, partition_key_bytes};
use crate::{BindContext, Evaluated, PlanError};

/// The last second that `me` sstables can write as an expiry.
const EXPIRY_MAX: i64 = i32::MAX as i64 - 1;

/// How many rows a statement may write that names several partitions and several rows of each by IN.
const ROWS_MAX: u64 = 1_000_000;

/// The most bytes that a statement may pack for several rows or partitions: IN has one value packed for each of them.
pub(super) const WRITE_BYTES_MAX: usize = 256 << 20;

/// Refuses a statement that multiplies its values to more than [`WRITE_BYTES_MAX`].
///
/// # Errors
/// When `bytes` are more.
pub fn check_write_bytes(bytes: usize) -> Result<(), PlanError> {
    if bytes <= WRITE_BYTES_MAX {
        Ok(())
    } else {
        Err(PlanError::invalid(format!(
            "The statement writes more than {WRITE_BYTES_MAX} bytes to the rows that its IN relations name"
        )))
    }
}

/// When a statement writes, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    /// Client write timestamp, microseconds.
    pub(crate) timestamp: i64,
    /// Of the ranges and partitions that it deletes.
    pub(crate) range_timestamp: i64,
    /// Seconds, 0 is forever.
    pub(crate) ttl: u32,
    /// When it expires, seconds since the epoch; 0 is never.
    pub(crate) expiry: u32,
    /// The server's second, since the epoch: the second of every deletion, whatever moment the client names.
    pub(crate) second: u32,
}

impl Times {
    /// Deletes a collection or a row, with all that has this write's timestamp.
    pub(crate) fn tombstone(self) -> Tombstone {
        Tombstone {
            timestamp: self.timestamp,
            deletion_time: self.second,
        }
    }

    /// Deletes a range or the partition.
    fn range_tombstone(self) -> Tombstone {
        Tombstone {
            timestamp: self.range_timestamp,
            deletion_time: self.second,
        }
    }

    /// Deletes what was there before this write, but not what this write adds.
    pub(crate) fn tombstone_before(self) -> Tombstone {
        Tombstone {
            timestamp: self.timestamp.wrapping_sub(1),
            deletion_time: self.second,
        }
    }

    pub(crate) fn live<'a>(self, value: &'a [u8]) -> Cell<'a> {
        Cell {
            timestamp: self.timestamp,
            ttl: self.ttl,
            deletion_time: self.expiry,
            dead: false,
            value,
        }
    }

    pub(crate) fn dead(self) -> Cell<'static> {
        Cell {
            timestamp: self.timestamp,
            ttl: 0,
            deletion_time: self.second,
            dead: true,
            value: &[],
        }
    }

    fn shared(self) -> Shared {
        Shared {
            timestamp: self.timestamp,
            ttl: self.ttl,
            expiry: self.expiry,
        }
    }
}

impl WritePlan {
    /// Whether it must read columns before it can be packed, see [`WritePlan::columns_read`].
    pub fn reads(&self) -> bool {
        self.statics.iter().chain(&self.regulars).any(|a| a.change.reads())
    }

    /// Whether it must read lists before it can be packed.
    pub fn reads_lists(&self) -> bool {
        self.statics.iter().chain(&self.regulars).any(|a| a.change.reads_list())
    }

    /// Whether it adds to counters: what it packs is to be added, not written.
    pub fn counts(&self) -> bool {
        let mut assignments = self.statics.iter().chain(&self.regulars);
        assignments.any(|a| matches!(a.change, Change::Count(_)))
    }

    /// The ids of the columns that it must read.
    pub fn columns_read(&self) -> impl Iterator<Item = usize> {
        let assignments = self.statics.iter().chain(&self.regulars);
        assignments.filter(|a| a.change.reads()).map(|a| a.id)
    }

    /// The one partition key of the statement, appended to `out`; None when it names several (see
    /// [`WritePlan::keys`]).
    #[inline]
    pub fn single_key(&self, ctx: &BindContext<'_>, out: &mut Vec<u8>) -> Option<Result<Token, PlanError>> {
        let PartitionRestriction::Key(operands) = &self.partition else {
            return None;
        };
        let from = out.len();
        Some(partition_key_bytes(&self.table, operands, ctx, out).map(|()| token_of(&out[from..])))
    }

    /// The partitions that are written.
    pub fn keys(&self, ctx: &BindContext<'_>) -> Result<Vec<(Token, Vec<u8>)>, PlanError> {
        match self.partition.partitions(&self.table, ctx)? {
            Partitions::Keys(keys) => {
                self.check_product(keys.len() as u64, ctx)?;
                Ok(keys)
            }
            _ => Err(PlanError::Internal("a modification names its partitions".to_owned())),
        }
    }

    /// Refuses a statement that names so many rows of so many partitions that a text of some kilobytes would write
    /// gigabytes.
    fn check_product(&self, partitions: u64, ctx: &BindContext<'_>) -> Result<(), PlanError> {
        let rows = match &self.target {
            Target::Rows(rows) | Target::Range(rows) | Target::WholeRows(rows) if partitions > 1 => {
                rows.product(ctx)?
            }
            _ => 1,
        };
        let product = partitions.saturating_mul(rows);
        if rows == 1 || product <= ROWS_MAX {
            Ok(())
        } else {
            Err(PlanError::invalid(format!(
                "The IN relations name {partitions} partitions and {rows} rows in each, {product} in all, and at most {ROWS_MAX} are allowed"
            )))
        }
    }

    /// Checks the values that name its rows: for a statement that names no partition, and so packs nothing.
    ///
    /// # Errors
    /// When one is null, unset or none of its type.
    pub fn check_rows(&self, ctx: &BindContext<'_>) -> Result<(), PlanError> {
        match &self.target {
            Target::Row(operands) => self.clustering_key(operands, ctx).map(|_| ()),
            Target::Rows(restriction) | Target::WholeRows(restriction) => {
                restriction.rows(&self.table, ctx).map(|_| ())
            }
            Target::Range(restriction) => restriction.slices(&self.table, ctx).map(|_| ()),
            Target::Partition | Target::Statics => Ok(()),
        }
    }

    /// The timestamp that the statement gives, if it gives one.
    pub fn own_timestamp(&self, ctx: &BindContext<'_>) -> Result<Option<i64>, PlanError> {
        self.timestamp
            .as_ref()
            .map_or(Ok(None), |operand| write_timestamp(operand, ctx))
    }

    fn ttl(&self, ctx: &BindContext<'_>) -> Result<u32, PlanError> {
        let default = u32::try_from(self.table.options.default_time_to_live).unwrap_or(0);
        let Some(operand) = &self.ttl else { return Ok(default) };
        let v = match operand.eval(ctx)? {
            Evaluated::Value(v) => v,
            // As in Cassandra: null asks for no time to live, whatever the table has.
            Evaluated::Null => return Ok(0),
            Evaluated::Unset => return Ok(default),
        };
        let bytes = v
            .as_ref()
            .try_into()
            .map_err(|_| PlanError::invalid("Invalid TTL value"))?;
        let ttl = i32::from_be_bytes(bytes);
        if ttl > TTL_MAX {
            return Err(PlanError::invalid(format!(
                "ttl is too large. requested ({ttl}) maximum ({TTL_MAX})"
            )));
        }
        u32::try_from(ttl)
            .map_err(|_| PlanError::invalid(format!("A TTL must be greater or equal to 0, but was {ttl}")))
    }

    fn times(&self, ctx: &BindContext<'_>, timestamp: i64) -> Result<Times, PlanError> {
        let (ttl, second) = (self.ttl(ctx)?, ctx.server_second());
        let expiry = match ttl {
            0 => 0,
            ttl => self.expiry(ttl, ctx)?,
        };
        Ok(Times {
            timestamp,
            range_timestamp: timestamp,
            ttl: if ttl == 0 { 0 } else { ttl_between(second, expiry) },
            expiry,
            second,
        })
    }

    /// When values end that live for so long.
    fn expiry(&self, ttl: u32, ctx: &BindContext<'_>) -> Result<u32, PlanError> {
        let now = ctx.expiry_now();
        if i64::from(now) + i64::from(ttl) > EXPIRY_MAX {
            return Err(PlanError::invalid(format!(
                "Request on table {}.{} with ttl of {ttl} seconds exceeds maximum supported expiration date of \
                 2038-01-19T03:14:06+00:00, the last that the sstable format me can hold. Use a lower TTL",
                self.table.keyspace, self.table.name
            )));
        }
        Ok(now + ttl)
    }

    /// Packs the mutation of one partition onto the end of `out`. False: the statement changes nothing.
    ///
    /// `lists` holds what the statement's list changes need to know, when [`WritePlan::reads`].
    pub fn pack(
        &self,
        key: &[u8],
        timestamp: i64,
        ctx: &BindContext<'_>,
        clock: &WriteClock,
        lists: Option<&ListContents>,
        out: &mut Vec<u8>,
    ) -> Result<bool, PlanError> {
        let times = self.times(ctx, timestamp)?;
        let begin = out.len();
        let mut m = MutationBuilder::begin(out, self.table.id, key);
        match self.packer(key, times, ctx, clock, lists).items(&mut m) {
            Ok(true) => Ok(true),
            Ok(false) => {
                out.truncate(begin);
                Ok(false)
            }
            Err(e) => {
                out.truncate(begin);
                Err(e)
            }
        }
    }

    /// As [`WritePlan::pack`], onto the one mutation of a conditional request. Deletions of ranges and partitions are
    /// dated just before the request: they hide what was read, and not what other statements of the request write.
    /// Deletions of rows and columns hide both, as in Cassandra. After an error the mutation is incomplete.
    pub(crate) fn pack_onto(
        &self,
        m: &mut MutationBuilder<'_>,
        key: &[u8],
        timestamp: i64,
        ctx: &BindContext<'_>,
        clock: &WriteClock,
        lists: Option<&ListContents>,
    ) -> Result<bool, PlanError> {
        let mut times = self.times(ctx, timestamp)?;
        times.range_timestamp = timestamp.wrapping_sub(1);
        self.packer(key, times, ctx, clock, lists).items(m)
    }

    /// For a partition.
    fn packer<'p>(
        &'p self,
        row: &'p [u8],
        times: Times,
        ctx: &'p BindContext<'p>,
        clock: &'p WriteClock,
        lists: Option<&'p ListContents>,
    ) -> Packer<'p> {
        Packer {
            plan: self,
            times,
            ctx,
            clock,
            lists,
            row,
        }
    }

    /// The clustering key of one row.
    #[inline]
    pub(super) fn clustering_key(&self, operands: &[Operand], ctx: &BindContext<'_>) -> Result<Vec<u8>, PlanError> {
        let mut prefix = Vec::new();
        for (i, operand) in operands.iter().enumerate() {
            self.push_clustering(&mut prefix, i, operand.eval(ctx)?)?;
        }
        pad_with_nulls(&mut prefix, operands.len(), &self.table.clustering_order);
        self.check_clustering_key(&prefix)?;
        Ok(prefix)
    }

    /// Refuses a row whose clustering values are longer in all than a key may be, and the empty value that names no row
    /// of a compact table.
    fn check_clustering_key(&self, key: &[u8]) -> Result<(), PlanError> {
        if self.table.compact == Some(CompactStorage::Dense) && self.table.clustering_order.len() == 1 {
            let mut values = schema::components(key);
            if values.next().flatten().is_some_and(<[u8]>::is_empty) {
                let name = self.table.clustering().next().map_or("", |column| &column.name);
                return Err(PlanError::invalid(format!(
                    "Invalid empty or null value for column {name}"
                )));
            }
        }
        if key.len() <= KEY_BYTES_MAX {
            return Ok(());
        }
        match schema::components(key).flatten().map(<[u8]>::len).sum::<usize>() {
            0..=KEY_BYTES_MAX => Ok(()),
            bytes => Err(PlanError::invalid(format!(
                "Key length of {bytes} is longer than maximum of {KEY_BYTES_MAX}"
            ))),
        }
    }

    fn push_clustering(&self, prefix: &mut Vec<u8>, i: usize, value: Evaluated<'_>) -> Result<(), PlanError> {
        let name = || self.table.clustering().nth(i).map_or("", |c| &c.name);
        match value {
            Evaluated::Value(v) => {
                push_component(prefix, &v);
                Ok(())
            }
            Evaluated::Null => Err(PlanError::invalid(format!(
                "Invalid null value in condition for column {}",
                name()
            ))),
            Evaluated::Unset => Err(PlanError::invalid(format!("Invalid unset value for column {}", name()))),
        }
    }
}

/// Whether changes do nothing: no marker of them is set. A list must have the element that is named, though it stays as
/// it is.
fn is_idle(changes: &[ColumnChange], values: &Values<'_>) -> bool {
    let is_unset =
        |(c, v): (&ColumnChange, &Evaluated<'_>)| *v == Evaluated::Unset && !matches!(c.change, Change::PutAt { .. });
    changes.iter().zip(values).all(is_unset)
}

type Values<'v> = SmallVec<[Evaluated<'v>; 8]>;

/// Packs one row of a statement.
#[derive(Clone, Copy)]
pub(super) struct Packer<'p> {
    pub(super) plan: &'p WritePlan,
    pub(super) times: Times,
    pub(super) ctx: &'p BindContext<'p>,
    pub(super) clock: &'p WriteClock,
    pub(super) lists: Option<&'p ListContents>,
    /// Clustering key of the row, or partition key for the static row: names its lists.
    pub(super) row: &'p [u8],
}

impl<'p> Packer<'p> {
    /// Packs all that the statement writes to a partition, whose static row this packer is of. Says whether it writes
    /// anything.
    fn items(&self, m: &mut MutationBuilder<'_>) -> Result<bool, PlanError> {
        let Packer { plan, times, ctx, .. } = *self;
        let mut any = false;
        if !plan.statics.is_empty() {
            any |= match &plan.target {
                Target::Rows(restriction) => self.statics(restriction.rows(&plan.table, ctx)?.len(), m)?,
                _ => self.statics(1, m)?,
            };
        }
        let mut clustering = SmallVec::<[u8; 64]>::new();
        match &plan.target {
            Target::Statics => {}
            Target::Row(operands) => {
                clustering.extend_from_slice(&plan.clustering_key(operands, ctx)?);
                any |= self.of_row(&clustering).regulars(m)?;
            }
            Target::Rows(restriction) => {
                for row in restriction.rows(&plan.table, ctx)? {
                    preempt::point();
                    m.reserve_rows();
                    plan.check_clustering_key(&row)?;
                    check_write_bytes(m.bytes())?;
                    any |= self.of_row(&row).regulars(m)?;
                }
            }
            Target::WholeRows(restriction) => {
                for row in restriction.rows(&plan.table, ctx)? {
                    preempt::point();
                    m.reserve_rows();
                    plan.check_clustering_key(&row)?;
                    m.row(&row, |out| {
                        let shared = Shared {
                            timestamp: times.timestamp,
                            ttl: 0,
                            expiry: 0,
                        };
                        RowBuilder::begin(out, &plan.table.layout, shared, None, times.tombstone(), false, 0);
                    });
                    any = true;
                }
            }
            Target::Range(restriction) => {
                for ClusteringSlice { start, end } in restriction.slices(&plan.table, ctx)? {
                    preempt::point();
                    m.range_tombstone(&RangeTombstone {
                        start,
                        end,
                        tombstone: times.range_tombstone(),
                    });
                    any = true;
                }
            }
            Target::Partition => {
                m.partition_tombstone(times.range_tombstone());
                any = true;
            }
        }
        Ok(any)
    }

    /// Packs the static columns of a statement that names so many rows. Says whether there are any.
    ///
    /// As in Cassandra, the statement changes the static columns once for each row: it adds to counters and lists that
    /// often, and without a row it does nothing.
    fn statics(&self, rows: usize, m: &mut MutationBuilder<'_>) -> Result<bool, PlanError> {
        let statics = &self.plan.statics;
        if rows == 0 || statics.is_empty() {
            return Ok(false);
        }
        let mut values = self.evaluate(statics)?;
        if is_idle(statics, &values) {
            return Ok(false);
        }
        let adds_to_list = |c: &ColumnChange| matches!(c.change, Change::Append(_) | Change::Prepend(_));
        let mut times = 1;
        if rows > 1 {
            collection::multiply(statics, &mut values, rows);
            times = if statics.iter().any(adds_to_list) { rows } else { 1 };
        }
        for _ in 0..times {
            let mut result = Ok(false);
            check_write_bytes(m.bytes())?;
            m.static_row(|out| result = self.row(statics, &values, false, out));
            result?;
        }
        Ok(true)
    }

    /// For another row of the partition.
    fn of_row<'r>(&self, row: &'r [u8]) -> Packer<'r>
    where
        'p: 'r,
    {
        Packer { row, ..*self }
    }

    /// Packs the regular columns of the row. Says whether there are any.
    #[inline]
    fn regulars(&self, m: &mut MutationBuilder<'_>) -> Result<bool, PlanError> {
        let plan = self.plan;
        let values = self.evaluate(&plan.regulars)?;
        if !plan.marker && is_idle(&plan.regulars, &values) {
            return Ok(false);
        }
        let mut result = Ok(false);
        m.row(self.row, |out| {
            result = self.row(&plan.regulars, &values, plan.marker, out)
        });
        result
    }

    /// The main operand of each assignment. A deletion counts as null.
    #[inline]
    fn evaluate(&self, assignments: &'p [ColumnChange]) -> Result<Values<'p>, PlanError> {
        let mut values = Values::with_capacity(assignments.len());
        for assignment in assignments {
            let value = match &assignment.change {
                Change::Set(o)
                | Change::Replace(o)
                | Change::Append(o)
                | Change::Prepend(o)
                | Change::Remove(o)
                | Change::Take(o)
                | Change::TakeAt(o)
                | Change::Discard(o) => o.eval(self.ctx)?,
                Change::Count(addends) => sum(addends, self.ctx)?,
                Change::Compute(arithmetic) => self.compute(assignment, arithmetic)?,
                Change::Put { value, .. } | Change::PutField { value, .. } | Change::PutAt { value, .. } => {
                    value.eval(self.ctx)?
                }
                Change::Delete => Evaluated::Null,
            };
            if matches!(value, Evaluated::Unset) {
                self.check_unset(assignment)?;
            }
            values.push(value);
        }
        if self.times.timestamp <= self.plan.dropped_at_max {
            self.leave_out_dropped(assignments, &mut values);
        }
        Ok(values)
    }

    /// What arithmetic makes of the present value; unset, so that nothing is written, when there is none.
    fn compute(&self, assignment: &ColumnChange, arithmetic: &'p Arithmetic) -> Result<Evaluated<'p>, PlanError> {
        let table = &self.plan.table;
        let term = match arithmetic.term.eval(self.ctx)? {
            Evaluated::Value(term) => term,
            Evaluated::Unset => return Ok(Evaluated::Unset),
            Evaluated::Null => {
                return Err(PlanError::Invalid(format!(
                    "Invalid null value for an increment of column {}",
                    table.columns[assignment.column].name
                )));
            }
        };
        let present = self
            .lists
            .and_then(|read| read.get(&table.clustering_order, self.row, assignment.id));
        let Some([(_, present)]) = present.map(Vec::as_slice) else {
            return Ok(Evaluated::Unset);
        };
        let computed = arithmetic
            .operation
            .apply(&[Some(present.as_slice().into()), Some(term)], self.ctx)?;
        Ok(computed.map_or(Evaluated::Null, |value| Evaluated::Value(value.into())))
    }

    /// A change without a value does nothing, but the key of a map must be one.
    #[cold]
    fn check_unset(&self, assignment: &ColumnChange) -> Result<(), PlanError> {
        let column = &self.plan.table.columns[assignment.column];
        match &assignment.change {
            Change::Put { key, .. } => collection::map_key(&key.eval(self.ctx)?).map(drop),
            Change::Take(_) if matches!(column.cql_type, CqlType::Map(..)) => {
                collection::map_key(&Evaluated::Unset).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Leaves out what was dropped with an earlier column of the same name: the write is older than the DROP.
    #[cold]
    fn leave_out_dropped(&self, assignments: &[ColumnChange], values: &mut Values<'_>) {
        for (assignment, value) in assignments.iter().zip(values) {
            // A list must have the element that is deleted, though such a deletion hides nothing.
            let is_read = matches!(assignment.change, Change::TakeAt(_));
            if self.times.timestamp <= assignment.dropped_at && !is_read {
                *value = Evaluated::Unset;
            }
        }
    }

    fn row(
        &self,
        assignments: &'p [ColumnChange],
        values: &Values<'p>,
        marker: bool,
        out: &mut Vec<u8>,
    ) -> Result<bool, PlanError> {
        let layout = &*self.plan.table.layout;
        let times = self.times;
        let simple = |a: &ColumnChange| layout.cell(a.id) != CellLayout::Complex;
        let mixed = assignments.iter().zip(values).any(|(a, v)| {
            simple(a)
                && match v {
                    Evaluated::Null => true,
                    Evaluated::Value(v) => v.is_empty() && matches!(layout.cell(a.id), CellLayout::Fixed(_)),
                    Evaluated::Unset => false,
                }
        });
        let marker = marker.then_some(Liveness {
            timestamp: times.timestamp,
            ttl: times.ttl,
            expiry: times.expiry,
        });
        let shared = times.shared();
        let columns = self.plan.columns;
        let mut builder = RowBuilder::begin(out, layout, shared, marker, Tombstone::NONE, mixed, columns);
        let mut changes = assignments.iter().zip(values).peekable();
        while let Some((a, v)) = changes.next() {
            match v {
                Evaluated::Unset if !matches!(a.change, Change::PutAt { .. }) => {}
                Evaluated::Value(v) if simple(a) => builder.value(a.id, v),
                Evaluated::Null if simple(a) => builder.cell(a.id, &times.dead()),
                _ => {
                    let more = std::iter::from_fn(|| changes.next_if(|(next, _)| next.id == a.id));
                    let Elements { tombstone, elements } = pack_changes(self, std::iter::once((a, v)).chain(more))?;
                    if !tombstone.is_none() || !elements.is_empty() {
                        builder.complex(a.id, tombstone, elements.iter().map(|e| e.as_ref(times)));
                    }
                }
            }
        }
        Ok(true)
    }
}
