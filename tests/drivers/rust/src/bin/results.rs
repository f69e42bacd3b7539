//! The ways in which the Rust driver reads results: `results HOST PORT`. tests/drivers/test_whole_results.py has the commands.

use std::error::Error;

use futures::TryStreamExt;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::cluster::metadata::ColumnType;
use scylla::response::query_result::QueryRowsResult;
use scylla::response::{PagingState, PagingStateResponse};
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::unprepared::Statement;
use scylla::value::{CqlValue, Row};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

// The driver works on another thread, while this one waits for a line.
#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, host, port, ..] = arguments.as_slice() else {
        return Err("results HOST PORT".into());
    };
    let session = SessionBuilder::new().known_node(format!("{host}:{port}")).build().await?;
    let mut prepared = None;
    for line in std::io::stdin().lines() {
        match answer(&session, &mut prepared, &line?).await {
            Ok(answer) => println!("{answer}"),
            Err(error) => println!("failed {error}"),
        }
    }
    Ok(())
}

async fn answer(session: &Session, prepared: &mut Option<PreparedStatement>, line: &str) -> Result<String> {
    let (command, rest) = line.split_once(' ').ok_or("a command without arguments")?;
    let mut read = Read::default();
    if command == "read" {
        let (rows, text) = rest.split_once(' ').ok_or("read ROWS STATEMENT")?;
        read.text(session, Statement::new(text).with_page_size(rows.parse()?)).await?;
        return Ok(read.shown());
    }
    if command == "prepare" {
        *prepared = Some(session.prepare(rest).await?);
        return Ok("{}".to_owned());
    }
    let mut statement = prepared.clone().ok_or("nothing is prepared")?;
    if command == "insert" {
        let (key, fields) = rest.split_once(' ').ok_or("insert KEY FIELD...")?;
        let value = value_of(statement.get_variable_col_specs().iter().nth(1).ok_or("no value")?.typ(), fields)?;
        session.execute_unpaged(&statement, (key.parse::<i32>()?, value)).await?;
        return Ok("{}".to_owned());
    }
    statement.set_page_size(rest.parse()?);
    read.prepared(session, &statement, "").await?;
    statement.set_use_cached_result_metadata(true);
    read.prepared(session, &statement, " with cached metadata").await?;
    Ok(read.shown())
}

/// What was read, as JSON: by each way all rows, or the first one.
#[derive(Default)]
struct Read {
    whole: Vec<String>,
    first: Vec<String>,
}

impl Read {
    async fn text(&mut self, session: &Session, select: Statement) -> Result<()> {
        let unpaged = session.query_unpaged(select.clone(), ()).await?.into_rows_result()?;
        self.unpaged("query_unpaged", &unpaged)?;
        let pages = session.query_iter(select.clone(), ()).await?;
        let names = names(pages.column_specs());
        self.all("query_iter", rows_of(&names, pages.rows_stream::<Row>()?.try_collect().await?));
        let (mut rows, mut next) = (Vec::new(), Some(PagingState::start()));
        while let Some(state) = next {
            let (page, after) = session.query_single_page(select.clone(), (), state).await?;
            rows.extend(rows_in(&page.into_rows_result()?)?);
            next = following(after);
        }
        self.all("query_single_page", rows);
        Ok(())
    }

    async fn prepared(&mut self, session: &Session, select: &PreparedStatement, suffix: &str) -> Result<()> {
        let unpaged = session.execute_unpaged(select, ()).await?.into_rows_result()?;
        self.unpaged(&format!("execute_unpaged{suffix}"), &unpaged)?;
        let pages = session.execute_iter(select.clone(), ()).await?;
        let names = names(pages.column_specs());
        self.all(&format!("execute_iter{suffix}"), rows_of(&names, pages.rows_stream::<Row>()?.try_collect().await?));
        let (mut rows, mut next) = (Vec::new(), Some(PagingState::start()));
        while let Some(state) = next {
            let (page, after) = session.execute_single_page(select, (), state).await?;
            rows.extend(rows_in(&page.into_rows_result()?)?);
            next = following(after);
        }
        self.all(&format!("execute_single_page{suffix}"), rows);
        Ok(())
    }

    fn unpaged(&mut self, way: &str, rows: &QueryRowsResult) -> Result<()> {
        self.all(way, rows_in(rows)?);
        let first = rows.maybe_first_row::<Row>()?.map(|row| rows_of(&names(rows.column_specs()), vec![row]).remove(0));
        self.first.push(format!("{way:?}: {}", first.as_deref().unwrap_or("null")));
        Ok(())
    }

    fn all(&mut self, way: &str, rows: Vec<String>) {
        self.whole.push(format!("{way:?}: [{}]", rows.join(", ")));
    }

    fn shown(&self) -> String {
        format!("{{\"whole\": {{{}}}, \"first\": {{{}}}}}", self.whole.join(", "), self.first.join(", "))
    }
}

fn following(response: PagingStateResponse) -> Option<PagingState> {
    match response {
        PagingStateResponse::HasMorePages { state } => Some(state),
        PagingStateResponse::NoMorePages => None,
    }
}

fn rows_in(result: &QueryRowsResult) -> Result<Vec<String>> {
    let rows: Vec<Row> = result.rows::<Row>()?.collect::<std::result::Result<_, _>>()?;
    Ok(rows_of(&names(result.column_specs()), rows))
}

fn names(columns: scylla::response::query_result::ColumnSpecs<'_, '_>) -> Vec<String> {
    columns.iter().map(|column| column.name().to_owned()).collect()
}

fn rows_of(names: &[String], rows: Vec<Row>) -> Vec<String> {
    rows.iter().map(|row| object(names.iter().zip(&row.columns))).collect()
}

fn object<'a>(members: impl Iterator<Item = (&'a String, &'a Option<CqlValue>)>) -> String {
    let shown: Vec<String> = members.map(|(name, value)| format!("{name:?}: {}", value.as_ref().map_or("null".to_owned(), json))).collect();
    format!("{{{}}}", shown.join(", "))
}

fn json(value: &CqlValue) -> String {
    match value {
        CqlValue::Int(number) => number.to_string(),
        CqlValue::Text(text) => format!("{text:?}"),
        CqlValue::UserDefinedType { fields, .. } => object(fields.iter().map(|(name, value)| (name, value))),
        other => panic!("no such type in these tests: {other:?}"),
    }
}

/// A value of a user-defined type, whose fields have their own names as values.
fn value_of(typ: &ColumnType, fields: &str) -> Result<CqlValue> {
    let ColumnType::UserDefinedType { definition, .. } = typ else {
        return Err("the value is of no user-defined type".into());
    };
    let is_known = |field: &&str| definition.field_types.iter().any(|(name, _)| name == field);
    Ok(CqlValue::UserDefinedType {
        keyspace: definition.keyspace.to_string(),
        name: definition.name.to_string(),
        fields: fields.split(' ').filter(is_known).map(|field| (field.to_owned(), Some(CqlValue::Text(field.to_owned())))).collect(),
    })
}
