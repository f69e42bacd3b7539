//! Any statement, by the general way.

use std::rc::Rc;

use cql_compiler::Statement;
use cql_compiler::describe::{DescribeContext, describe};
use ddl::SchemaChange;
use plan::write::{BoundWrite, ConditionalAnswer};
use plan::{Execution, PageSink, Plan, ResultColumn};

use super::read::Page;
use super::schema_change::source_of;
use super::{Engine, Request, description};
use crate::QueryError;

/// A change of the schema, and what the user should know about it.
pub type SchemaChanged = (SchemaChange, Vec<String>);

/// What a statement ends with.
#[derive(Clone, PartialEq, Debug)]
pub enum Outcome<S> {
    /// Nothing to return.
    Void,
    /// A batch is written; what the user should know about it.
    Batch(Vec<String>),
    /// Rows.
    Rows(Page<S>),
    /// A page of rows of serialised values, of a statement whose columns are not known before it runs (DESCRIBE), and
    /// the paging state if there are more.
    Table(Vec<ResultColumn>, Vec<Vec<Option<Vec<u8>>>>, Option<Vec<u8>>),
    /// What came of a conditional statement.
    Conditional(ConditionalAnswer),
    /// The connection's keyspace changes.
    SetKeyspace(String),
    /// The schema changed; what the user should know about it.
    Schema(SchemaChange, Vec<String>),
}

impl Engine {
    /// Executes a statement by the general way. Rows go into a new sink.
    ///
    /// # Errors
    /// When the values do not fit the statement, or it is not executed or not wholly.
    pub async fn execute<S: PageSink>(
        self: &Rc<Self>,
        statement: &Statement,
        run: &Execution,
        request: &Request,
    ) -> Result<Outcome<S>, QueryError> {
        match statement {
            Statement::Plan(plan) => self.execute_plan(plan, run, request).await,
            Statement::Truncate(table, timeout) => {
                let timeout = run.with(|ctx| plan::own_timeout(timeout.as_ref(), ctx))?;
                self.truncate(table, timeout).await.map(|()| Outcome::Void)
            }
            Statement::Use(keyspace) => {
                if !self.schema().keyspaces.contains_key(keyspace) {
                    return Err(QueryError::invalid(format!("Keyspace '{keyspace}' does not exist")));
                }
                Ok(Outcome::SetKeyspace(keyspace.clone()))
            }
            Statement::Ddl(statement) => {
                let source = source_of(statement, request.keyspace.as_deref(), run.now_us);
                let changed = self.change_schema(source).await?;
                Ok(changed.map_or(Outcome::Void, |(change, warnings)| Outcome::Schema(change, warnings)))
            }
            Statement::Describe(statement) => {
                let node = (self.node.described)();
                let ctx = DescribeContext {
                    keyspace: request.keyspace.as_deref(),
                    node: &node,
                };
                let schema = self.schema();
                let (columns, rows) = describe(&schema, statement, &ctx)?;
                let state = request.paging_state.as_deref();
                let (rows, next) = description::page(rows, schema.version, request.page_rows, state)?;
                Ok(Outcome::Table(columns, rows, next))
            }
        }
    }

    /// Executes a plan by the general way. Rows go into a new sink.
    ///
    /// # Errors
    /// As [`Engine::execute`].
    pub async fn execute_plan<S: PageSink>(
        self: &Rc<Self>,
        plan: &Plan,
        run: &Execution,
        request: &Request,
    ) -> Result<Outcome<S>, QueryError> {
        match plan {
            Plan::Select(select) => self.read(select, run, request).await.map(Outcome::Rows),
            Plan::Write(_) | Plan::Batch(_) if plan.is_conditional() => {
                let (writes, batch) = match plan {
                    Plan::Batch(b) => (b.writes.as_slice(), true),
                    Plan::Write(w) => (std::slice::from_ref(w), false),
                    Plan::Select(_) | Plan::VirtualWrite(_) => (&[][..], false),
                };
                let request = match plan {
                    Plan::Batch(b) => &self.request_of_batch(b, run, request)?,
                    _ => request,
                };
                let bound = writes.iter().map(|w| BoundWrite {
                    plan: w.clone(),
                    run: run.clone(),
                });
                let answer = self.execute_conditional(bound.collect(), batch, request).await?;
                Ok(Outcome::Conditional(answer))
            }
            Plan::Write(w) => self.write(w, run, request).await.map(|()| Outcome::Void),
            Plan::Batch(b) => self.write_batch(b, run, request).await.map(Outcome::Batch),
            Plan::VirtualWrite(w) => self.write_virtual(w, run).await.map(|()| Outcome::Void),
        }
    }
}
