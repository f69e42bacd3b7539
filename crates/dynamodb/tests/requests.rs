//! Requests of all operations against what dynoxide answers to them: bodies are read and checked in the order and with
//! the texts of the service.
//!
//! The files of `requests/` are recorded by `record.py`. `differences.txt` has the cases in which the answer differs on
//! purpose, each with its reason and with what was recorded.

use dynamodb::partiql::{self, Command};
use dynamodb::request::{
    self, Operation, Request, Statement, TableWrites, TransactGet, TransactWrite, named_table_not_found,
    table_not_found,
};
use dynamodb::table::TableDefinition;
use dynamodb::{Error, ErrorKind};

/// The tables of `tables.txt`.
fn tables() -> Vec<TableDefinition> {
    let define = |line: &str| {
        let body = line.strip_prefix("CreateTable ")?;
        match Request::parse(Operation::CreateTable, body.as_bytes()) {
            Ok(Request::CreateTable(create)) => Some(create.into_definition("id".to_owned(), 0)),
            other => panic!("{line}: {other:?}"),
        }
    };
    include_str!("requests/tables.txt").lines().filter_map(define).collect()
}

/// Replaces `@N(x)` by N times x.
fn expand(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('@') {
        out.push_str(before);
        let repeated = after.split_once('(').and_then(|(count, after)| {
            let (piece, after) = after.split_once(')')?;
            Some((count.parse().ok()?, piece, after))
        });
        match repeated {
            Some((count, piece, after)) => {
                out.push_str(&piece.repeat(count));
                rest = after;
            }
            None => {
                out.push('@');
                rest = after;
            }
        }
    }
    out + rest
}

/// What a server checks of a request before it reads data.
struct Server {
    tables: Vec<TableDefinition>,
}

impl Server {
    fn find(&self, name: &str) -> Option<&TableDefinition> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// The table of an operation on items.
    fn table(&self, name: &str) -> Result<&TableDefinition, Error> {
        self.find(name).ok_or_else(table_not_found)
    }

    /// The table of an operation on tables.
    fn named(&self, name: &str) -> Result<&TableDefinition, Error> {
        self.find(name).ok_or_else(|| named_table_not_found(name))
    }

    fn check(&self, request: &Request) -> Result<(), Error> {
        match request {
            Request::GetItem(get) => get.key(self.table(get.table.name())?).map(drop),
            Request::PutItem(put) => put.key(self.table(put.table.name())?).map(drop),
            Request::UpdateItem(update) => update.key(self.table(update.table.name())?).map(drop),
            Request::DeleteItem(delete) => delete.key(self.table(delete.table.name())?).map(drop),
            Request::Query(query) => query.key_range(self.table(query.read.table.name())?).map(drop),
            Request::Scan(scan) => scan.check(self.table(scan.read.table.name())?),
            Request::BatchGetItem(batch) => batch.tables.iter().try_for_each(|of| {
                let table = self.table(of.table.name())?;
                of.keys(table).map(drop)
            }),
            Request::BatchWriteItem(batch) => batch.tables.iter().try_for_each(|of| self.check_writes(of)),
            Request::TransactWriteItems(transaction) => self.check_transaction(&transaction.actions),
            Request::TransactGetItems(transaction) => self.check_reads(&transaction.reads),
            Request::CreateTable(create) => match self.find(create.table.name()) {
                None => Ok(()),
                Some(table) => {
                    let text = format!("Table already exists: {}", table.name);
                    Err(Error::new(ErrorKind::ResourceInUse, text))
                }
            },
            Request::UpdateTable(update) => {
                let table = self.named(update.table.name())?;
                update.apply(table, 1).map(drop)
            }
            Request::DeleteTable(table)
            | Request::DescribeTable(table)
            | Request::DescribeTimeToLive(table)
            | Request::DescribeContinuousBackups(table) => self.named(table.name()).map(drop),
            Request::UpdateTimeToLive(update) => self.named(update.table.name()).map(drop),
            Request::ExecuteStatement(execute) => self.check_statement(&execute.statement),
            _ => Ok(()),
        }
    }

    fn check_statement(&self, statement: &Statement) -> Result<(), Error> {
        let command = partiql::parse_single(&statement.text, &statement.parameters)?;
        let table = self.table(command.table().name())?;
        match &command {
            Command::Select(select) | Command::Exists(select) => select.access(table).map(drop),
            Command::Insert(insert) => insert.key(table).map(drop),
            Command::Update(update) => update.key(table).map(drop),
            Command::Delete(delete) => delete.key(table).map(drop),
        }
    }

    fn check_writes(&self, of: &TableWrites) -> Result<(), Error> {
        let table = self.table(of.table.name())?;
        of.keys(table).map(drop)
    }

    fn check_transaction(&self, actions: &[TransactWrite]) -> Result<(), Error> {
        let mut keys = Vec::new();
        for action in actions {
            keys.push(action.key(self.table(action.table.name())?));
        }
        let keys = request::all_keys(keys, true)?;
        request::check_distinct(actions.iter().map(|action| &action.table).zip(&keys))
    }

    fn check_reads(&self, reads: &[TransactGet]) -> Result<(), Error> {
        let mut keys = Vec::new();
        for read in reads {
            keys.push(read.key(self.table(read.table.name())?));
        }
        let keys = request::all_keys(keys, false)?;
        request::check_distinct(reads.iter().map(|read| &read.table).zip(&keys))
    }
}

fn text(error: &Error) -> String {
    let name = error.kind.name();
    let mut text = format!("{name}: {}", error.message);
    if error.message.is_empty() {
        text = name.to_owned();
    }
    if let ErrorKind::TransactionCanceled { reasons } = &error.kind {
        for reason in reasons {
            text += "\n";
            text += reason.code_text();
            if let Some(message) = &reason.message {
                text += ": ";
                text += message;
            }
        }
    }
    text
}

fn run(path: &str) {
    let server = Server { tables: tables() };
    testkit::run(path, |case| {
        let (operation, body) = case.text.split_once(' ').expect("an operation and a body");
        let operation = Operation::from_name(operation).expect("the name of an operation");
        let request = Request::parse(operation, expand(body).as_bytes());
        match request.and_then(|request| server.check(&request)) {
            Ok(()) => "ok".to_owned(),
            Err(error) => text(&error),
        }
    });
}

macro_rules! suites {
    ($($name:ident $file:literal)*) => {
        $(#[test]
        fn $name() {
            run(testkit::path!($file));
        })*
    };
}

suites! {
    items "tests/requests/items.txt"
    queries_and_scans "tests/requests/queries.txt"
    batches_and_transactions "tests/requests/batches.txt"
    tables_and_tags "tests/requests/tables_requests.txt"
    statements "tests/requests/statements.txt"
    deliberate_differences "tests/requests/differences.txt"
}
