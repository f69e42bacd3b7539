//! CREATE and DROP of functions and aggregates.

use cql::ast::{CreateAggregate, CreateFunction, DropAggregate, DropFunction, Signature, Term, TypeName};
use ddl::{Definition, DroppedSignature, Existing};
use schema::{Keyspace, Language, Schema, UserFunction};
use types::CqlType;

use super::types::resolve;
use super::{DdlContext, full_name};
use crate::error::CompileError;
use crate::term::{Markers, Receiver, compile_term};
use crate::text::type_text;

pub(super) fn create_function(
    schema: &Schema,
    s: &CreateFunction,
    ctx: &DdlContext<'_>,
) -> Result<Definition, CompileError> {
    let name = full_name(&s.name, ctx)?;
    let existing = existing(s.or_replace, s.if_not_exists)?;
    let Some(language) = Language::of_name(&s.language.to_lowercase()) else {
        return Err(CompileError::Invalid(format!(
            "Functions in {} are not supported: LANGUAGE is lua or wasm",
            s.language
        )));
    };
    ddl::check_keyspace_of_functions(&name.keyspace, "CREATE")?;
    let Some(keyspace) = schema.keyspaces.get(&name.keyspace) else {
        return Err(CompileError::Invalid(format!(
            "Keyspace '{}' doesn't exist",
            name.keyspace
        )));
    };
    let arguments = s.arguments.iter();
    let arguments = arguments.map(|a| Ok((a.name.clone(), value_type(keyspace, &a.type_name, "Argument")?)));
    let function = UserFunction {
        arguments: arguments.collect::<Result<_, CompileError>>()?,
        returns: value_type(keyspace, &s.return_type, "Return type")?,
        keyspace: name.keyspace,
        name: name.name,
        called_on_null: s.called_on_null,
        language,
        body: s.body.clone(),
    };
    Ok(Definition::CreateFunction(ddl::CreateFunction { function, existing }))
}

fn existing(or_replace: bool, if_not_exists: bool) -> Result<Existing, CompileError> {
    match (or_replace, if_not_exists) {
        (true, true) => Err(CompileError::invalid(
            "Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives",
        )),
        (true, false) => Ok(Existing::Replace),
        (false, true) => Ok(Existing::Keep),
        (false, false) => Ok(Existing::Refuse),
    }
}

/// The type of a value that a function takes or gives: one value, although `frozen` is not written.
fn value_type(keyspace: &Keyspace, name: &TypeName, what: &str) -> Result<CqlType, CompileError> {
    if let TypeName::Frozen(_) = name {
        let text = type_text(name);
        return Err(CompileError::Invalid(format!(
            "{what} '{text}' cannot be frozen; remove frozen<> modifier from '{text}'"
        )));
    }
    let resolved = resolve(keyspace, name)?;
    Ok(resolved.unfrozen().clone())
}

pub(super) fn drop_function(
    schema: &Schema,
    s: &DropFunction,
    ctx: &DdlContext<'_>,
) -> Result<Definition, CompileError> {
    Ok(Definition::DropFunction(ddl::DropFunction {
        signature: dropped(schema, &s.signature, ctx)?,
        if_exists: s.if_exists,
    }))
}

fn dropped(schema: &Schema, s: &Signature, ctx: &DdlContext<'_>) -> Result<DroppedSignature, CompileError> {
    let name = full_name(&s.name, ctx)?;
    ddl::check_keyspace_of_functions(&name.keyspace, "DROP")?;
    // Without the keyspace there is nothing to drop, whatever the types are.
    let argument_types = match (&s.argument_types, schema.keyspaces.get(&name.keyspace)) {
        (Some(types), Some(keyspace)) => {
            let types = types.iter().map(|t| value_type(keyspace, t, "Argument"));
            Some(types.collect::<Result<_, _>>()?)
        }
        _ => None,
    };
    Ok(DroppedSignature { name, argument_types })
}

pub(super) fn create_aggregate(
    schema: &Schema,
    s: &CreateAggregate,
    ctx: &DdlContext<'_>,
) -> Result<Definition, CompileError> {
    let name = full_name(&s.name, ctx)?;
    let existing = existing(s.or_replace, s.if_not_exists)?;
    ddl::check_keyspace_of_functions(&name.keyspace, "CREATE")?;
    let Some(keyspace) = schema.keyspaces.get(&name.keyspace) else {
        return Err(CompileError::Config(format!(
            "Keyspace {} doesn't exist",
            name.keyspace
        )));
    };
    let arguments = s.argument_types.iter().map(|t| value_type(keyspace, t, "Argument"));
    let arguments = arguments.collect::<Result<_, _>>()?;
    let state_type = value_type(keyspace, &s.state_type, "State type")?;
    let initial_state = match &s.initial_state {
        Some(term) => initial_state(schema, keyspace, term, &state_type)?,
        None => None,
    };
    Ok(Definition::CreateAggregate(ddl::CreateAggregate {
        name,
        existing,
        arguments,
        state_function: s.state_function.clone(),
        state_type,
        reduce_function: s.reduce_function.clone(),
        final_function: s.final_function.clone(),
        initial_state,
    }))
}

/// The value of INITCOND; None is null.
fn initial_state(
    schema: &Schema,
    keyspace: &Keyspace,
    term: &Term,
    state_type: &CqlType,
) -> Result<Option<Vec<u8>>, CompileError> {
    let receiver = Receiver::new("(dummy)", state_type.clone());
    let operand = compile_term(term, &receiver, &mut Markers::new(0), schema, &keyspace.name)?;
    match operand.as_constant() {
        Some(value) => Ok(value.map(<[u8]>::to_vec)),
        None => Err(CompileError::invalid("INITCOND must be a constant")),
    }
}

pub(super) fn drop_aggregate(
    schema: &Schema,
    s: &DropAggregate,
    ctx: &DdlContext<'_>,
) -> Result<Definition, CompileError> {
    Ok(Definition::DropAggregate(ddl::DropAggregate {
        signature: dropped(schema, &s.signature, ctx)?,
        if_exists: s.if_exists,
    }))
}
