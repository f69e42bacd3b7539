//! Calls of functions and operators in a syntax tree.

use cql::ast::{self, QualifiedName};
use plan::function::{self, Argument, ArithmeticOperator, Resolved, UserAggregation};
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
    match name.keyspace.as_deref() {
        Some(function::NATIVE) => Ok(function::resolve(
            &name.name,
            arguments,
            receiver,
            scope.table,
            Vec::new(),
        )?),
        Some(keyspace) => {
            let user = user_functions(keyspace, &name.name, scope);
            if user.is_empty() {
                return Ok(None);
            }
            let full_name = format!("{keyspace}.{}", name.name);
            Ok(Some(function::resolve_user(&full_name, user, arguments, receiver)?))
        }
        None => {
            let user = user_functions(scope.keyspace, &name.name, scope);
            Ok(function::resolve(&name.name, arguments, receiver, scope.table, user)?)
        }
    }
}

/// The user-defined functions and aggregates of that name.
fn user_functions(keyspace: &str, name: &str, scope: &Scope<'_>) -> Vec<Resolved> {
    let Some(keyspace) = scope.schema.keyspaces.get(keyspace) else {
        return Vec::new();
    };
    let functions = keyspace.functions_named(name).map(Resolved::user_function);
    let aggregates = keyspace.aggregates_named(name);
    let aggregates = aggregates.filter_map(|aggregate| UserAggregation::new(keyspace, aggregate));
    functions.chain(aggregates.map(Resolved::user_aggregate)).collect()
}

/// Whether a user-defined function or aggregate has that name without a keyspace.
pub(crate) fn may_be_user_function(name: &QualifiedName, scope: &Scope<'_>) -> bool {
    let keyspace = scope.schema.keyspaces.get(scope.keyspace);
    name.keyspace.is_none()
        && keyspace.is_some_and(|keyspace| {
            keyspace.functions_named(&name.name).next().is_some()
                || keyspace.aggregates_named(&name.name).next().is_some()
        })
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
