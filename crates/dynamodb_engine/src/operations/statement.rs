//! PartiQL: ExecuteStatement, BatchExecuteStatement and ExecuteTransaction.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

use dynamodb::answer::{BatchStatementResult, CapacityKind, TransactGet, write_statement};
use dynamodb::capacity::{Consistency, Units, read_units, write_units};
use dynamodb::partiql::{self, Access, Command, Delete, Insert, Select, Update};
use dynamodb::request::{
    BatchExecuteStatement, Clause, ExecuteStatement, ExecuteTransaction, KeyRange,
    ReturnValuesOnConditionCheckFailure as OnFailure, SortRange as SortCondition, Statement, Substitutions, all_keys,
    check_distinct,
};
use dynamodb::table::Key;
use dynamodb::update::{self, ReturnValues};
use dynamodb::value::{copy_item, size, storage};
use dynamodb::{Error, ErrorKind, Item};
use stdx::preempt;
use types::Token as RingToken;

use super::item::check;
use super::select::sort_range;
use super::{add_consumed, bytes_of, consumed};
use crate::modify::{Change, Modification, Modified};
use crate::read::Extent;
use crate::record::Token;
use crate::service::Service;
use crate::table::{ItemTable, key_bytes};
use crate::transaction::{Action, all};

/// Statements have no placeholders but their own.
static NO_SUBSTITUTIONS: Substitutions = Substitutions {
    names: None,
    values: None,
};

/// A statement that writes, on its way to its item.
struct Write {
    command: Command,
    key: Item,
    on_failure: OnFailure,
}

impl Modification for Write {
    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error> {
        match &self.command {
            Command::Insert(_) if old.is_some() => Err(Error::new(
                ErrorKind::DuplicateItem,
                "Duplicate primary key exists in table",
            )),
            Command::Insert(Insert { item, .. }) => Ok(Change::Put(Cow::Borrowed(item))),
            Command::Update(Update {
                changes,
                condition,
                returning,
                ..
            }) => {
                self.check(condition.as_ref(), old)?;
                let bindings = changes.bind(&NO_SUBSTITUTIONS)?;
                let tree = &changes.expression.tree;
                let updated = update::apply(tree, old.map(copy_item), &self.key, &bindings, *returning)?;
                Ok(Change::Update(updated))
            }
            // An item that is not there is deleted already.
            Command::Delete(_) if old.is_none() => Ok(Change::Keep),
            Command::Delete(Delete { condition, .. }) => {
                self.check(condition.as_ref(), old)?;
                Ok(Change::Delete)
            }
            Command::Exists(Select { condition, .. }) | Command::Select(Select { condition, .. }) => {
                self.check(condition.as_ref(), old)?;
                Ok(Change::Keep)
            }
        }
    }

    fn unread(&self) -> Option<Change<'_>> {
        None
    }
}

impl Write {
    fn check(
        &self,
        condition: Option<&Clause<dynamodb::expression::Condition>>,
        old: Option<&Item>,
    ) -> Result<(), Error> {
        if old.is_none() {
            return Err(Error::condition_failed(None));
        }
        check(condition, &NO_SUBSTITUTIONS, old, self.on_failure)
    }
}

/// Bytes of the items of a page over several ranges, after which the next range is of another page: that of the
/// service.
const PAGE_BYTES_MAX: usize = 1 << 20;

/// What a statement has returned.
#[derive(Default)]
struct Returned {
    items: Vec<Item>,
    /// Where to continue, and the key of the last item that was looked at, if there is more.
    next: Option<String>,
    last: Option<Item>,
    units: Units,
}

/// Where a SELECT continues: which of its ranges, and after which key.
fn encode_place(range: usize, key: &Item) -> String {
    let mut bytes = u32::try_from(range).unwrap_or(u32::MAX).to_be_bytes().to_vec();
    storage::append_item(&mut bytes, key);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode_place(text: &str) -> Result<(usize, Item), Error> {
    let invalid = || Error::validation("Invalid NextToken");
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |[high, low]: &[u8; 2]| Some(digit(*high)? << 4 | digit(*low)?);
    let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
    let bytes = bytes.filter(|_| rest.is_empty()).ok_or_else(invalid)?;
    let (range, key) = bytes.split_first_chunk::<4>().ok_or_else(invalid)?;
    let range = usize::try_from(u32::from_be_bytes(*range)).map_err(|_| invalid())?;
    Ok((range, storage::read_item(key).map_err(|_| invalid())?))
}

fn extent_of(range: &KeyRange, is_reversed: bool) -> Result<Extent, Error> {
    let [partition] = range.partition.as_slice() else {
        return Err(Error::validation("Query key condition not supported"));
    };
    Ok(Extent::Partition {
        key: key_bytes(partition)?,
        range: sort_range(&range.sort)?,
        is_reversed,
    })
}

/// The key that a SELECT names wholly.
fn key_of_select(select: &Select, table: &ItemTable) -> Result<Key, Error> {
    if let Access::Ranges(ranges) = select.access(&table.definition)?
        && let [range] = ranges.as_slice()
        && let [partition] = range.partition.as_slice()
    {
        let sort = match &range.sort {
            SortCondition::Equal(value) => Some(value.clone()),
            _ => None,
        };
        if sort.is_some() == (table.key.len() > 1) {
            return Ok(Key {
                partition: partition.clone(),
                sort,
            });
        }
    }
    Err(Error::validation(
        "Where clause does not contain a mandatory equality on all key attributes",
    ))
}

fn key_of(command: &Command, table: &ItemTable) -> Result<Key, Error> {
    match command {
        Command::Insert(insert) => insert.key(&table.definition),
        Command::Update(update) => update.key(&table.definition),
        Command::Delete(delete) => delete.key(&table.definition),
        Command::Select(select) | Command::Exists(select) => key_of_select(select, table),
    }
}

/// What a write returns, as a list of at most one item.
fn returned_of(command: &Command, modified: Modified) -> Vec<Item> {
    let item = match command {
        Command::Update(update) => match update.returning {
            ReturnValues::None => None,
            ReturnValues::AllOld => modified.old,
            ReturnValues::AllNew => modified.new,
            ReturnValues::UpdatedOld | ReturnValues::UpdatedNew => modified.attributes,
        },
        Command::Delete(delete) if delete.returns_old => modified.old,
        _ => None,
    };
    item.into_iter().collect()
}

impl Service {
    async fn run(
        self: &Rc<Self>,
        command: Command,
        statement: &Statement,
        next: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Returned, Error> {
        let table = self.table(command.table().name())?;
        if let Command::Select(select) = &command {
            return self
                .run_select(select, &table, statement.consistent_read, next, limit)
                .await;
        }
        let key = key_of(&command, &table)?;
        let row = table.row_key(&key)?;
        let write = Arc::new(Write {
            key: key.into_item(&table.definition.key_schema),
            command: command.clone(),
            on_failure: statement.on_failure,
        });
        let modified = self.modify(&table, row, write).await?;
        let bytes = |item: &Option<Item>| item.as_ref().map_or(0, size::item_bytes);
        Ok(Returned {
            units: write_units(bytes(&modified.old), bytes(&modified.new), false),
            items: returned_of(&command, modified),
            ..Returned::default()
        })
    }

    async fn run_select(
        self: &Rc<Self>,
        select: &Select,
        table: &Arc<ItemTable>,
        is_consistent: bool,
        next: Option<&str>,
        limit: Option<u32>,
    ) -> Result<Returned, Error> {
        let is_reversed = select.is_reversed(&table.definition);
        let extents = match select.access(&table.definition)? {
            Access::Scan => vec![Extent::Tokens(RingToken(i64::MIN), RingToken(i64::MAX))],
            Access::Ranges(ranges) => {
                let extents = ranges.iter().map(|range| extent_of(range, is_reversed));
                extents.collect::<Result<Vec<_>, _>>()?
            }
        };
        let place = next.map(decode_place).transpose()?;
        let (first, mut after) = match place {
            Some((range, key)) => (range, Some(table.key_of(&key)?)),
            None => (0, None),
        };
        let (mut returned, mut left, mut bytes) = (Returned::default(), limit, 0);
        let level = Self::read_level(is_consistent);
        for (number, extent) in extents.iter().enumerate().skip(first) {
            let mut page = self
                .read_page(table, extent, after.take().as_ref(), left, level)
                .await?;
            // A page of rows that are no items is not one of the API.
            while page.items.is_empty() && page.has_more && page.last.is_some() {
                page = self.read_page(table, extent, page.last.as_ref(), left, level).await?;
            }
            let last = page.last_key;
            left = left.map(|left| left.saturating_sub(u32::try_from(page.items.len()).unwrap_or(u32::MAX)));
            preempt::allowed(|| {
                for found in page.items {
                    let item = found.into_item()?;
                    bytes += size::item_bytes(&item);
                    let is_wanted = match &select.condition {
                        Some(condition) => {
                            let bindings = condition.bind(&NO_SUBSTITUTIONS)?;
                            condition.expression.tree.holds(&item, &bindings)
                        }
                        None => true,
                    };
                    if is_wanted {
                        preempt::push(&mut returned.items, select.returned(item)?);
                    }
                }
                Ok::<_, Error>(())
            })?;
            let is_full = bytes >= PAGE_BYTES_MAX && number + 1 < extents.len();
            if let (true, Some(last)) = (page.has_more || is_full, &last) {
                returned.next = Some(encode_place(number, last));
                returned.last = Some(copy_item(last));
                break;
            }
            if left == Some(0) {
                break;
            }
        }
        returned.units = read_units(bytes, Consistency::of(is_consistent));
        Ok(returned)
    }

    pub(super) async fn execute_statement(self: &Rc<Self>, request: ExecuteStatement) -> Result<Vec<u8>, Error> {
        let statement = &request.statement;
        let command = preempt::allowed(|| partiql::parse_single(&statement.text, &statement.parameters))?;
        let table = command.table().clone();
        let returned = self
            .run(command, statement, request.next.as_deref(), request.limit)
            .await?;
        let capacity = consumed(&table, returned.units, CapacityKind::Undivided);
        let mut out = Vec::new();
        let (next, last) = (returned.next.as_deref(), returned.last.as_ref());
        write_statement(
            &mut out,
            &returned.items,
            next,
            last,
            &capacity,
            request.consumed_capacity,
        );
        Ok(out)
    }

    pub(super) async fn batch_execute_statement(
        self: &Rc<Self>,
        request: BatchExecuteStatement,
    ) -> Result<Vec<u8>, Error> {
        let mut commands = Vec::with_capacity(request.statements.len());
        for statement in &request.statements {
            commands.push(preempt::allowed(|| {
                partiql::parse_single(&statement.text, &statement.parameters)
            }));
        }
        self.check_batch(&commands)?;
        let run = |(statement, command): (Statement, Result<Command, Error>)| {
            let service = self.clone();
            async move {
                let command = match command {
                    Ok(command) => command,
                    Err(error) => {
                        let result = Err(error);
                        return (BatchStatementResult { table: None, result }, None);
                    }
                };
                let table = command.table().clone();
                let returned = service.run_single(command, &statement).await;
                let units = returned
                    .as_ref()
                    .map_or_else(|_| Units::default(), |returned| returned.units);
                let result = returned.map(|returned| returned.items.into_iter().next());
                let named = Some(table.given().to_owned());
                let capacity = consumed(&table, units, CapacityKind::Undivided);
                (BatchStatementResult { table: named, result }, Some(capacity))
            }
        };
        let statements = request.statements.into_iter().zip(commands);
        let results = all(statements.map(run).collect()).await;
        let (results, each): (Vec<_>, Vec<_>) = results.into_iter().unzip();
        let (mut out, mut capacities) = (Vec::new(), Vec::new());
        each.into_iter()
            .flatten()
            .for_each(|capacity| add_consumed(&mut capacities, capacity));
        BatchStatementResult::write_all(&results, &capacities, request.consumed_capacity, &mut out);
        Ok(out)
    }

    /// Refuses a batch that reads and writes, and one of which two statements name one item. What is wrong with single
    /// statements is answered with them.
    fn check_batch(&self, commands: &[Result<Command, Error>]) -> Result<(), Error> {
        let commands = || commands.iter().flatten();
        let is_read = |command: &Command| matches!(command, Command::Select(_));
        if commands().any(is_read) && !commands().all(is_read) {
            return Err(Error::validation(
                "Read and write requests together in the same batch is not supported.",
            ));
        }
        let mut named = BTreeSet::new();
        for command in commands() {
            preempt::allowed(preempt::point);
            let Some(table) = self.find_table(command.table().name())? else {
                continue;
            };
            let row = key_of(command, &table).and_then(|key| table.row_key(&key));
            let is_known = row.is_ok_and(|row| !named.insert((table.table.id, row)));
            if is_known {
                return Err(Error::validation("Provided list of item keys contains duplicates"));
            }
        }
        Ok(())
    }

    /// A statement of a batch, which names one item.
    async fn run_single(self: &Rc<Self>, command: Command, statement: &Statement) -> Result<Returned, Error> {
        let table = self.table(command.table().name())?;
        if let Command::Select(select) = &command {
            key_of_select(select, &table)?;
        }
        self.run(command, statement, None, None).await
    }

    pub(super) async fn execute_transaction(self: &Rc<Self>, request: ExecuteTransaction) -> Result<Vec<u8>, Error> {
        let mut commands = Vec::with_capacity(request.statements.len());
        for statement in &request.statements {
            let command = preempt::allowed(|| partiql::parse(&statement.text, &statement.parameters))?;
            let table = self.table(command.table().name())?;
            commands.push((command, table));
        }
        let is_read = |(command, _): &(Command, Arc<ItemTable>)| matches!(command, Command::Select(_));
        let has_reads = commands.iter().any(is_read);
        if has_reads && !commands.iter().all(is_read) {
            return Err(Error::validation(
                "The transaction cannot include both read and write operations. Each transaction must contain only read or only write operations.",
            ));
        }
        let keys = commands.iter().map(|(command, table)| key_of(command, table));
        let keys = all_keys(keys.collect(), !has_reads)?;
        check_distinct(commands.iter().map(|(command, _)| command.table()).zip(&keys))?;
        let (mut items, mut capacities) = (vec![None; commands.len()], Vec::new());
        if has_reads {
            let rows = commands
                .iter()
                .zip(&keys)
                .map(|((_, table), key)| Ok((table.clone(), table.row_key(key)?)));
            let found = self.read_together(rows.collect::<Result<_, Error>>()?).await?;
            for ((item, (command, _)), found) in items.iter_mut().zip(&commands).zip(found) {
                let Command::Select(select) = command else { continue };
                let units = read_units(bytes_of(found.as_ref()), Consistency::Transactional);
                add_consumed(&mut capacities, consumed(&select.table, units, CapacityKind::Read));
                let found = match &select.condition {
                    Some(condition) => {
                        let bindings = condition.bind(&NO_SUBSTITUTIONS)?;
                        found.filter(|found| condition.expression.tree.holds(found, &bindings))
                    }
                    None => found,
                };
                *item = found.map(|found| select.returned(found)).transpose()?;
            }
        } else {
            let mut actions = Vec::with_capacity(commands.len());
            for (((command, table), key), statement) in commands.into_iter().zip(keys).zip(&request.statements) {
                let units = write_units(0, 0, true);
                add_consumed(&mut capacities, consumed(command.table(), units, CapacityKind::Write));
                actions.push(Action {
                    key: table.row_key(&key)?,
                    modification: Arc::new(Write {
                        key: key.into_item(&table.definition.key_schema),
                        command,
                        on_failure: statement.on_failure,
                    }),
                    table,
                });
            }
            let token = request.token.as_ref();
            let token = token.map(|text| Token::new(text, &request.statements));
            self.transact_write(actions, token).await?;
        }
        let mut out = Vec::new();
        let answer = TransactGet {
            items: &items,
            capacities: &capacities,
            detail: request.consumed_capacity,
        };
        answer.write(&mut out);
        Ok(out)
    }
}
