//! Calls of functions and operators in a syntax tree.

use cql::ast::{self, QualifiedName};
use plan::function::{self, Argument, ArithmeticOperator, Resolved};
use types::CqlType;

use crate::error::CompileError;
use crate::term::Scope;

/// The function that a call means; `None` when no function has the name.
pub(crate) fn resolve(
    name: &QualifiedName,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
    scope: &Scope<'_>,
) -> Result<Option<Resolved>, CompileError> {
    if name.keyspace.as_deref().is_some_and(|keyspace| keyspace != "system") {
        return Ok(None);
    }
    Ok(function::resolve(&name.name, arguments, receiver, scope.table)?)
}

/// The operator of a plan.
pub(crate) const fn arithmetic(operator: ast::ArithmeticOperator) -> ArithmeticOperator {
    match operator {
        ast::ArithmeticOperator::Add => ArithmeticOperator::Add,
        ast::ArithmeticOperator::Subtract => ArithmeticOperator::Subtract,
        ast::ArithmeticOperator::Multiply => ArithmeticOperator::Multiply,
        ast::ArithmeticOperator::Divide => ArithmeticOperator::Divide,
        ast::ArithmeticOperator::Modulo => ArithmeticOperator::Modulo,
    }
}
