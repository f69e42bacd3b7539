//! Query and Scan of tables of CQL: see [`crate::system_table`].

use std::rc::Rc;
use std::sync::Arc;

use dynamodb::request::{Query, ReadItems, Scan, SortRange};
use dynamodb::{AttributeValue, Error, Item};
use plan::{Execution, OwnedBound};
use query::{Outcome, Page, Request, ValueRows};
use schema::{Column, Table};
use stdx::preempt;
use topology::Consistency;
use types::CqlType;

use super::select::{Selected, filtered, page_of, successor};
use crate::read::FoundItem;
use crate::service::{Service, of_engine};
use crate::system_table;

/// Rows of a page that a request does not limit.
const PAGE_ROWS_MAX: u32 = 10_000;
/// The one attribute of LastEvaluatedKey: where the engine continues. Keys of CQL have columns that no key of the API
/// can have.
const POSITION: &str = ":position";

/// The statement of CQL that reads a table.
struct Statement {
    text: String,
    values: Vec<OwnedBound>,
    columns: Vec<(String, CqlType)>,
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

impl Statement {
    fn of(table: &Table) -> Self {
        let columns: Vec<(String, CqlType)> = table
            .visible()
            .map(|(_, column)| (column.name.clone(), column.cql_type.clone()))
            .collect();
        let names: Vec<String> = columns.iter().map(|(name, _)| quoted(name)).collect();
        let text = format!(
            "SELECT {} FROM {}.{}",
            names.join(", "),
            quoted(&table.keyspace),
            quoted(&table.name)
        );
        Self {
            text,
            values: Vec::new(),
            columns,
        }
    }

    /// Adds a condition of a column.
    fn add(&mut self, column: &Column, operator: &str, value: Vec<u8>) {
        let word = if self.values.is_empty() { "WHERE" } else { "AND" };
        self.text += &format!(" {word} {} {operator} ?", quoted(&column.name));
        self.values.push(OwnedBound::Value(value));
    }

    fn add_value(&mut self, column: &Column, operator: &str, value: &AttributeValue) -> Result<(), Error> {
        let bytes = system_table::bytes_of(column, value)?;
        self.add(column, operator, bytes);
        Ok(())
    }

    fn add_range(&mut self, column: &Column, range: &SortRange) -> Result<(), Error> {
        match range {
            SortRange::All => Ok(()),
            SortRange::Equal(value) => self.add_value(column, "=", value),
            SortRange::Less(value) => self.add_value(column, "<", value),
            SortRange::LessOrEqual(value) => self.add_value(column, "<=", value),
            SortRange::Greater(value) => self.add_value(column, ">", value),
            SortRange::GreaterOrEqual(value) => self.add_value(column, ">=", value),
            SortRange::Between(low, high) => {
                self.add_value(column, ">=", low)?;
                self.add_value(column, "<=", high)
            }
            SortRange::BeginsWith(_) if !matches!(column.cql_type, CqlType::Text | CqlType::Ascii | CqlType::Blob) => {
                Err(Error::validation(format!(
                    "begins_with: column {} is no text",
                    column.name
                )))
            }
            SortRange::BeginsWith(prefix) => {
                let prefix = system_table::bytes_of(column, prefix)?;
                let end = successor(&prefix);
                self.add(column, ">=", prefix);
                if let Some(end) = end {
                    self.add(column, "<", end);
                }
                Ok(())
            }
        }
    }
}

impl Service {
    pub(super) async fn query_system(self: &Rc<Self>, mut request: Query) -> Result<Vec<u8>, Error> {
        let table = system_table::find(&self.engine.schema(), request.read.table.name())?;
        let start = request.read.start.take();
        let range = request.key_range(&system_table::definition(&table))?;
        let mut statement = Statement::of(&table);
        for (column, value) in table.partition_key().zip(&range.partition) {
            statement.add_value(column, "=", value)?;
        }
        let mut clustering = table.clustering();
        for (value, column) in range.sort_prefix.iter().zip(clustering.by_ref()) {
            statement.add_value(column, "=", value)?;
        }
        if let Some(column) = clustering.next() {
            statement.add_range(column, &range.sort)?;
        }
        if let Some(column) = table.clustering().next() {
            let direction = if request.forward { "ASC" } else { "DESC" };
            statement.text += &format!(" ORDER BY {} {direction}", quoted(&column.name));
        }
        self.answer_system(statement, &request.read, start).await
    }

    pub(super) async fn scan_system(self: &Rc<Self>, mut request: Scan) -> Result<Vec<u8>, Error> {
        let table = system_table::find(&self.engine.schema(), request.read.table.name())?;
        let start = request.read.start.take();
        request.check(&system_table::definition(&table))?;
        if request.segment.is_some_and(|(_, total)| total > 1) {
            return Err(Error::validation(
                "Tables of CQL are scanned in one segment: TotalSegments must be 1",
            ));
        }
        self.answer_system(Statement::of(&table), &request.read, start).await
    }

    async fn answer_system(
        self: &Rc<Self>,
        statement: Statement,
        read: &ReadItems,
        start: Option<Item>,
    ) -> Result<Vec<u8>, Error> {
        let paging_state = start.map(position_of).transpose()?;
        let prepared = self.engine.prepare(&statement.text, None).map_err(of_engine)?;
        let run = Execution {
            values: statement.values,
            now_us: runtime::wall_clock_us(),
            now_in_seconds: None,
            random: runtime::random_u64(),
        };
        let request = Request {
            level: Consistency::LocalOne,
            page_rows: Some(read.limit.unwrap_or(PAGE_ROWS_MAX)),
            paging_state,
            statement: Some(Arc::from(statement.text.as_str())),
            ..Request::default()
        };
        let executed = self.engine.execute::<ValueRows>(&prepared.statement, &run, &request);
        let page = match executed.await.map_err(of_engine)? {
            Outcome::Rows(page) => page,
            _ => Page::default(),
        };
        preempt::allowed(|| {
            let rows = page.sink.rows.into_iter();
            let items = rows.map(|row| FoundItem::Item(system_table::item(&statement.columns, row)));
            let items = preempt::collect(items);
            let last = page
                .paging_state
                .map(|state| Item::from([(POSITION.to_owned(), AttributeValue::B(state))]));
            let selected: Selected = filtered(read, items, last)?;
            Ok(page_of(read, &selected))
        })
    }
}

/// Where a page begins, as the answer before said.
fn position_of(mut start: Item) -> Result<Vec<u8>, Error> {
    match start.remove(POSITION) {
        Some(AttributeValue::B(state)) if start.is_empty() => Ok(state),
        _ => Err(Error::validation(
            "The provided starting key is invalid: expected the LastEvaluatedKey of this request",
        )),
    }
}
