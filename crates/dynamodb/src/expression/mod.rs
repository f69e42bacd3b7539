//! Expressions: conditions, filters, key conditions, projections and updates.
//!
//! [`parse`] makes a syntax tree of a text. A tree does not depend on what a request gives for placeholders (`#n`,
//! `:v`), so it can be kept and used again for every request with the same text. [`Placeholders`] are what one request
//! gives: [`Placeholders::bind`] resolves an expression's symbols and makes the checks that need names and types of
//! values, and [`Placeholders::finish`] refuses what no expression used. Evaluators take the tree and its [`Bindings`].
//!
//! The grammar is that of "Using expressions in DynamoDB" of the developer guide.

mod ast;
mod bind;
mod check;
mod evaluate;
mod parser;
mod reserved;
mod token;

pub use ast::{
    Action, Change, Comparison, Condition, Expression, Function, Operand, Projection, SetOperand, SetValue, Symbols,
    Update, ValueId,
};
pub use bind::{Bindings, Placeholders, Tree};
pub use parser::{parse_condition, parse_projection, parse_update};
pub use reserved::is_reserved;

/// Bytes that the text of an expression may have.
pub const EXPRESSION_BYTES_MAX: usize = 4096;
/// Operators that an expression may have.
pub const OPERATORS_MAX: usize = 300;
/// Operands that IN may have after it.
pub const IN_OPERANDS_MAX: usize = 100;
/// Levels of parentheses, functions and NOT that an expression may have: two for each operator, as in `NOT (NOT (a))`,
/// and some. The stack of a request bears them.
pub const NESTING_MAX: usize = 2 * OPERATORS_MAX + 10;

/// Which parameter of a request an expression is: texts of errors name it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names are those of the API reference")]
pub enum ExpressionKind {
    Condition,
    Filter,
    KeyCondition,
    Projection,
    Update,
}

impl ExpressionKind {
    /// The name of the parameter.
    pub const fn parameter(self) -> &'static str {
        match self {
            Self::Condition => "ConditionExpression",
            Self::Filter => "FilterExpression",
            Self::KeyCondition => "KeyConditionExpression",
            Self::Projection => "ProjectionExpression",
            Self::Update => "UpdateExpression",
        }
    }
}
