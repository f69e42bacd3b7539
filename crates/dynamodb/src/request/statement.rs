//! ExecuteStatement, BatchExecuteStatement and ExecuteTransaction: PartiQL and its parameters.

use super::batch::required;
use super::constraints::Constraints;
use super::json::{Flag, Integer, List, Text, Value, structure};
use super::options::{self, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure};
use crate::error::Error;
use crate::value::AttributeValue;

/// Statements of one BatchExecuteStatement.
pub const BATCH_MAX: usize = 25;
/// Statements of one ExecuteTransaction.
pub const TRANSACTION_MAX: usize = 100;
/// The characters of a statement.
const STATEMENT_MAX: usize = 8192;
/// The characters of NextToken.
const NEXT_TOKEN_MAX: usize = 32_768;
/// The characters of ClientRequestToken.
const TOKEN_MAX: usize = 36;

structure! {
    /// A statement of a batch or transaction.
    pub(crate) struct StatementInput {
        statement: Text = "Statement",
        parameters: List<Value> = "Parameters",
        consistent_read: Flag = "ConsistentRead",
        on_failure: Text = "ReturnValuesOnConditionCheckFailure",
    }
}

structure! {
    /// The body of ExecuteStatement.
    pub(crate) struct ExecuteStatementInput {
        statement: Text = "Statement",
        parameters: List<Value> = "Parameters",
        consistent_read: Flag = "ConsistentRead",
        on_failure: Text = "ReturnValuesOnConditionCheckFailure",
        next: Text = "NextToken",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        limit: Integer = "Limit",
    }
}

structure! {
    /// The body of BatchExecuteStatement.
    pub(crate) struct BatchExecuteStatementInput {
        statements: List<StatementInput> = "Statements",
        consumed_capacity: Text = "ReturnConsumedCapacity",
    }
}

structure! {
    /// The body of ExecuteTransaction.
    pub(crate) struct ExecuteTransactionInput {
        statements: List<StatementInput> = "TransactStatements",
        token: Text = "ClientRequestToken",
        consumed_capacity: Text = "ReturnConsumedCapacity",
    }
}

/// A statement with its parameters. [`crate::partiql::parse`] reads the text.
#[derive(Clone, PartialEq, Debug)]
pub struct Statement {
    /// The text.
    pub text: String,
    /// The values of its question marks, in order.
    pub parameters: Vec<AttributeValue>,
    /// Whether all earlier writes must be seen.
    pub consistent_read: bool,
    /// Whether the answer to a failed condition has the item.
    pub on_failure: ReturnValuesOnConditionCheckFailure,
}

/// Executes a statement.
#[derive(Clone, PartialEq, Debug)]
pub struct ExecuteStatement {
    /// The statement.
    pub statement: Statement,
    /// Where to continue.
    pub next: Option<String>,
    /// Items that are read, at most.
    pub limit: Option<u32>,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// Executes statements, each by itself.
#[derive(Clone, PartialEq, Debug)]
pub struct BatchExecuteStatement {
    /// The statements.
    pub statements: Vec<Statement>,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// Executes statements, all or none.
#[derive(Clone, PartialEq, Debug)]
pub struct ExecuteTransaction {
    /// The statements.
    pub statements: Vec<Statement>,
    /// A request that repeats the token within ten minutes is not executed again.
    pub token: Option<String>,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// Checks the members of a statement, of which `at` is the path with its point, or empty.
fn check(statement: &StatementInput, at: &str, errors: &mut Constraints) {
    match &statement.statement {
        None => errors.null(format_args!("{at}statement")),
        Some(Text(text)) => errors.length(text, format_args!("{at}statement"), 1, STATEMENT_MAX),
    }
    errors.not_empty(statement.parameters.as_ref(), format_args!("{at}parameters"));
    errors.word::<ReturnValuesOnConditionCheckFailure>(
        statement.on_failure.as_ref(),
        format_args!("{at}returnValuesOnConditionCheckFailure"),
    );
}

/// Makes a statement of its members, which are checked.
fn statement(input: StatementInput) -> Result<Statement, Error> {
    let mut parameters = Vec::new();
    for parameter in input.parameters.map(|List(list)| list).unwrap_or_default() {
        if let Some(problem) = parameter.problem {
            return Err(problem.error);
        }
        stdx::preempt::push(&mut parameters, parameter.value);
    }
    Ok(Statement {
        text: input.statement.map(|Text(text)| text).unwrap_or_default(),
        parameters,
        consistent_read: input.consistent_read.unwrap_or_default().0,
        on_failure: options::value(input.on_failure.as_ref(), ReturnValuesOnConditionCheckFailure::None),
    })
}

fn capacity(word: Option<&Text>) -> ReturnConsumedCapacity {
    options::value(word, ReturnConsumedCapacity::None)
}

pub(super) fn execute(input: ExecuteStatementInput) -> Result<ExecuteStatement, Error> {
    let one = StatementInput {
        statement: input.statement,
        parameters: input.parameters,
        consistent_read: input.consistent_read,
        on_failure: input.on_failure,
    };
    let mut errors = Constraints::default();
    check(&one, "", &mut errors);
    let limit = input.limit.map(|Integer(limit)| i64::from(limit));
    if let Some(limit) = limit {
        errors.at_least(limit, "limit", 1);
    }
    if let Some(Text(next)) = &input.next {
        errors.length(next, "nextToken", 1, NEXT_TOKEN_MAX);
    }
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    errors.finish()?;
    Ok(ExecuteStatement {
        statement: statement(one)?,
        next: input.next.map(|Text(next)| next),
        limit: limit.and_then(|limit| u32::try_from(limit).ok()),
        consumed_capacity: capacity(input.consumed_capacity.as_ref()),
    })
}

/// Checks and converts the statements of a list.
fn statements(
    list: Option<List<StatementInput>>,
    at: &str,
    most: usize,
    mut errors: Constraints,
) -> Result<Vec<Statement>, Error> {
    let Some(List(list)) = list else {
        return Err(required(at));
    };
    if list.is_empty() {
        errors.value("[]", at, "Member must have length greater than or equal to 1");
    } else if list.len() > most {
        let most = format!("Member must have length less than or equal to {most}");
        errors.value("[...]", at, most);
    }
    for (number, statement) in list.iter().enumerate().take(most) {
        check(statement, &format!("{at}.{}.member.", number + 1), &mut errors);
    }
    errors.finish()?;
    stdx::preempt::try_collect(list.into_iter().map(statement))
}

pub(super) fn batch_execute(input: BatchExecuteStatementInput) -> Result<BatchExecuteStatement, Error> {
    let mut errors = Constraints::default();
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    Ok(BatchExecuteStatement {
        statements: statements(input.statements, "statements", BATCH_MAX, errors)?,
        consumed_capacity: capacity(input.consumed_capacity.as_ref()),
    })
}

pub(super) fn execute_transaction(input: ExecuteTransactionInput) -> Result<ExecuteTransaction, Error> {
    let mut errors = Constraints::default();
    if let Some(Text(token)) = &input.token {
        errors.length(token, "clientRequestToken", 1, TOKEN_MAX);
    }
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    Ok(ExecuteTransaction {
        statements: statements(input.statements, "transactStatements", TRANSACTION_MAX, errors)?,
        token: input.token.map(|Text(token)| token),
        consumed_capacity: capacity(input.consumed_capacity.as_ref()),
    })
}
