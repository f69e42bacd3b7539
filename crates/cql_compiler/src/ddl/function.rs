//! CREATE and DROP of functions and aggregates.
//!
//! Functions of one name differ in the types of their arguments, and an aggregate never has the signature of a
//! function. An aggregate names functions of its keyspace; one that an aggregate calls is not dropped, and replacing it
//! keeps its types.

use std::sync::Arc;

use cql::ast::{CreateAggregate, CreateFunction, DropAggregate, DropFunction, Signature, Term, TypeName};
use schema::{Keyspace, Language, Schema, UserAggregate, UserFunction, signature};
use types::CqlType;

use super::properties::first_duplicate;
use super::types::resolve;
use super::{
    ChangeKind, DdlContext, DdlOutcome, SchemaChange, TOLD_NAME_BYTES_MAX, check_modifiable, keyspace_of, outcome,
};
use crate::error::CompileError;
use crate::term::{Markers, Receiver, compile_term};
use crate::text::type_text;

fn invalid<T>(text: String) -> Result<T, CompileError> {
    Err(CompileError::Invalid(text))
}

pub(super) fn create_function(
    schema: &Schema,
    s: &CreateFunction,
    ctx: &DdlContext<'_>,
) -> Result<Option<DdlOutcome>, CompileError> {
    let keyspace_name = keyspace_of(&s.name, ctx)?;
    check_directives(s.or_replace, s.if_not_exists)?;
    if !ctx.has_functions {
        return invalid(
            "User-defined functions are disabled in cassandra.yaml - set user_defined_functions_enabled=true to enable"
                .to_owned(),
        );
    }
    let name = &s.name.name;
    let Some(language) = Language::of_name(&s.language.to_lowercase()) else {
        return invalid(format!(
            "Functions in {} are not supported: LANGUAGE is lua or wasm",
            s.language
        ));
    };
    let argument_names = s.arguments.iter().map(|argument| argument.name.as_str());
    if first_duplicate(argument_names.clone()).is_some() {
        let names: Vec<&str> = argument_names.collect();
        return invalid(format!(
            "Duplicate argument names for given function {name} with argument names [{}]",
            names.join(", ")
        ));
    }
    check_lengths(argument_names.chain([name.as_str()]))?;
    check_keyspace(keyspace_name, "CREATE")?;
    let Some(keyspace) = schema.keyspaces.get(keyspace_name).map(Arc::as_ref) else {
        return invalid(format!("Keyspace '{keyspace_name}' doesn't exist"));
    };
    let arguments = s.arguments.iter();
    let arguments = arguments.map(|a| Ok((a.name.clone(), value_type(keyspace, &a.type_name, "Argument")?)));
    let function = UserFunction {
        keyspace: keyspace_name.to_owned(),
        name: name.clone(),
        arguments: arguments.collect::<Result<_, CompileError>>()?,
        returns: value_type(keyspace, &s.return_type, "Return type")?,
        called_on_null: s.called_on_null,
        language,
        body: s.body.clone(),
    };
    let signature = function.signature();
    if keyspace.aggregates.contains_key(&signature) {
        return invalid(format!("Function '{name}' cannot replace an aggregate"));
    }
    let existing = keyspace.functions.get(&signature);
    if let Some(existing) = existing {
        if s.if_not_exists {
            return Ok(None);
        }
        if !s.or_replace {
            return invalid(format!("Function '{name}' already exists"));
        }
        check_replacement(existing, &function)?;
        if **existing == function {
            return Ok(None);
        }
    }
    functions::check(&function)
        .map_err(|error| CompileError::Invalid(format!("Function '{name}' cannot be compiled: {error}")))?;
    let change = match existing {
        Some(_) => ChangeKind::Updated,
        None => ChangeKind::Created,
    };
    let change = function_change(change, &function);
    let mut next = keyspace.clone();
    next.functions.insert(signature, Arc::new(function));
    Ok(Some(outcome(schema, keyspace_name, Some(next), change)))
}

/// Refuses a replacement that callers of the function would notice.
fn check_replacement(old: &UserFunction, new: &UserFunction) -> Result<(), CompileError> {
    let name = &new.name;
    if new.called_on_null != old.called_on_null {
        let directive = match new.called_on_null {
            true => "CALLED ON NULL INPUT",
            false => "RETURNS NULL ON NULL INPUT",
        };
        return invalid(format!("Function '{name}' must have {directive} directive"));
    }
    if new.returns != old.returns {
        return invalid(format!(
            "Cannot replace function '{name}', the new return type {} is not compatible with the return type {} of \
             existing function",
            new.returns, old.returns
        ));
    }
    Ok(())
}

fn check_keyspace(name: &str, verb: &str) -> Result<(), CompileError> {
    match system_tables::kind(name) {
        Some(system_tables::KeyspaceKind::Local) => invalid(format!("System keyspace '{name}' is not user-modifiable")),
        _ => check_modifiable(name, verb, || format!("all functions in {name}")),
    }
}

fn check_directives(or_replace: bool, if_not_exists: bool) -> Result<(), CompileError> {
    match or_replace && if_not_exists {
        true => invalid("Cannot use both 'OR REPLACE' and 'IF NOT EXISTS' directives".to_owned()),
        false => Ok(()),
    }
}

fn check_lengths<'n>(mut names: impl Iterator<Item = &'n str>) -> Result<(), CompileError> {
    match names.any(|name| name.len() > TOLD_NAME_BYTES_MAX || name.is_empty()) {
        true => invalid(format!(
            "The names of a function and of its arguments have 1 to {TOLD_NAME_BYTES_MAX} bytes"
        )),
        false => Ok(()),
    }
}

/// The type of a value that a function takes or gives: one value, although `frozen` is not written.
fn value_type(keyspace: &Keyspace, name: &TypeName, what: &str) -> Result<CqlType, CompileError> {
    if let TypeName::Frozen(_) = name {
        let text = type_text(name);
        return invalid(format!(
            "{what} '{text}' cannot be frozen; remove frozen<> modifier from '{text}'"
        ));
    }
    let resolved = resolve(keyspace, name)?;
    Ok(resolved.unfrozen().clone())
}

pub(super) fn drop_function(
    schema: &Schema,
    s: &DropFunction,
    ctx: &DdlContext<'_>,
) -> Result<Option<DdlOutcome>, CompileError> {
    let Some((keyspace, signature)) = to_drop(schema, &s.signature, s.if_exists, "Function", ctx)? else {
        return Ok(None);
    };
    let function = &keyspace.functions[&signature];
    let users = keyspace
        .aggregates
        .values()
        .filter(|aggregate| aggregate.calls(function));
    let users: Vec<String> = users.map(|a| format!("{}.{}", a.keyspace, a.name)).collect();
    if !users.is_empty() {
        return invalid(format!(
            "Function '{}.{}' is still referenced by aggregates {}",
            function.keyspace,
            function.name,
            users.join(", ")
        ));
    }
    let change = function_change(ChangeKind::Dropped, function);
    let mut next = keyspace.clone();
    next.functions.remove(&signature);
    Ok(Some(outcome(schema, &keyspace.name, Some(next), change)))
}

/// The one function, or aggregate, that a DROP means; None when there is none and that does no harm.
fn to_drop<'s>(
    schema: &'s Schema,
    s: &Signature,
    if_exists: bool,
    what: &str,
    ctx: &DdlContext<'_>,
) -> Result<Option<(&'s Keyspace, String)>, CompileError> {
    let keyspace_name = keyspace_of(&s.name, ctx)?;
    check_keyspace(keyspace_name, "DROP")?;
    let absent = |types: &str| match if_exists {
        true => Ok(None),
        false => invalid(format!("{what} '{keyspace_name}.{}{types}' doesn't exist", s.name.name)),
    };
    let Some(keyspace) = schema.keyspaces.get(keyspace_name) else {
        return absent("");
    };
    let is_function = what == "Function";
    let is_there = |signature: &String| match is_function {
        true => keyspace.functions.contains_key(signature),
        false => keyspace.aggregates.contains_key(signature),
    };
    if let Some(types) = &s.argument_types {
        let types = types.iter().map(|t| value_type(keyspace, t, "Argument"));
        let types: Vec<CqlType> = types.collect::<Result<_, _>>()?;
        let found = signature(&s.name.name, types.iter());
        return match is_there(&found) {
            true => Ok(Some((keyspace, found))),
            false => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                absent(&format!("({})", types.join(", ")))
            }
        };
    }
    let functions = keyspace
        .functions_named(&s.name.name)
        .map(|function| function.signature());
    let aggregates = keyspace
        .aggregates_named(&s.name.name)
        .map(|aggregate| aggregate.signature());
    let mut named: Vec<String> = functions.chain(aggregates).collect();
    if named.len() > 1 {
        let (verb, name) = (what.to_uppercase(), &s.name.name);
        return invalid(format!(
            "'DROP {verb} {name}' matches multiple function definitions; specify the argument types by issuing a \
             statement like 'DROP {verb} {name} (type, type, ...)'. You can use cqlsh 'DESCRIBE {verb} {name}' command \
             to find all overloads"
        ));
    }
    match named.pop().filter(is_there) {
        Some(only) => Ok(Some((keyspace, only))),
        None => absent(""),
    }
}

pub(super) fn create_aggregate(
    schema: &Schema,
    s: &CreateAggregate,
    ctx: &DdlContext<'_>,
) -> Result<Option<DdlOutcome>, CompileError> {
    let keyspace_name = keyspace_of(&s.name, ctx)?;
    check_directives(s.or_replace, s.if_not_exists)?;
    check_lengths([s.name.name.as_str()].into_iter())?;
    check_keyspace(keyspace_name, "CREATE")?;
    let Some(keyspace) = schema.keyspaces.get(keyspace_name).map(Arc::as_ref) else {
        return Err(CompileError::Config(format!("Keyspace {keyspace_name} doesn't exist")));
    };
    let aggregate = aggregate_of(schema, keyspace, s)?;
    let name = &s.name.name;
    let signature = aggregate.signature();
    if keyspace.functions.contains_key(&signature) {
        return invalid(format!("Aggregate '{name}' cannot replace a function"));
    }
    let existing = keyspace.aggregates.get(&signature);
    if let Some(existing) = existing {
        if s.if_not_exists {
            return Ok(None);
        }
        if !s.or_replace {
            return invalid(format!("Aggregate '{name}' already exists"));
        }
        if aggregate.returns != existing.returns {
            return invalid(format!(
                "Cannot replace aggregate '{name}', the new return type {} isn't compatible with the return type {} of \
                 existing function",
                aggregate.returns, existing.returns
            ));
        }
        if **existing == aggregate {
            return Ok(None);
        }
    }
    let change = match existing {
        Some(_) => ChangeKind::Updated,
        None => ChangeKind::Created,
    };
    let change = aggregate_change(change, &aggregate);
    let warnings = stays_null(keyspace, &aggregate).into_iter().collect();
    let mut next = keyspace.clone();
    next.aggregates.insert(signature, Arc::new(aggregate));
    Ok(Some(DdlOutcome {
        warnings,
        ..outcome(schema, keyspace_name, Some(next), change)
    }))
}

/// The warning about an aggregate whose state never becomes anything but null. ScyllaDB takes such aggregates,
/// Cassandra does not.
fn stays_null(keyspace: &Keyspace, aggregate: &UserAggregate) -> Option<String> {
    let arguments = std::iter::once(&aggregate.state_type).chain(&aggregate.arguments);
    let state = keyspace.function(&aggregate.state_function, &arguments.collect::<Vec<_>>())?;
    (aggregate.initial_state.is_none() && !state.called_on_null).then(|| {
        format!(
            "The state of aggregate {}.{} is always null: it has no INITCOND, and its state function {}.{} does not accept 'null' arguments",
            keyspace.name, aggregate.name, keyspace.name, state.name
        )
    })
}

/// A function of the keyspace that an aggregate names.
fn function_of<'k>(
    keyspace: &'k Keyspace,
    what: &str,
    name: &str,
    types: &[&CqlType],
) -> Result<&'k UserFunction, CompileError> {
    match keyspace.function(name, types) {
        Some(function) => Ok(function),
        None => invalid(format!(
            "{what} function {} doesn't exist",
            full_name(keyspace, name, types)
        )),
    }
}

fn full_name(keyspace: &Keyspace, name: &str, types: &[&CqlType]) -> String {
    let types: Vec<String> = types.iter().map(|t| t.unfrozen().to_string()).collect();
    format!("{}.{name}({})", keyspace.name, types.join(", "))
}

fn aggregate_of(schema: &Schema, keyspace: &Keyspace, s: &CreateAggregate) -> Result<UserAggregate, CompileError> {
    let arguments = s.argument_types.iter().map(|t| value_type(keyspace, t, "Argument"));
    let arguments: Vec<CqlType> = arguments.collect::<Result<_, _>>()?;
    let state_type = value_type(keyspace, &s.state_type, "State type")?;
    let taken: Vec<&CqlType> = std::iter::once(&state_type).chain(&arguments).collect();
    let state = function_of(keyspace, "State", &s.state_function, &taken)?;
    let gives_state = |function: &UserFunction, types: &[&CqlType], what: &str| match function.returns == state_type {
        true => Ok(()),
        false => invalid(format!(
            "{what} function {} return type must be the same as the first argument type - check STYPE, argument and \
             return types",
            full_name(keyspace, &function.name, types)
        )),
    };
    gives_state(state, &taken, "State")?;
    let joined = [&state_type, &state_type];
    if let Some(reduce) = &s.reduce_function {
        gives_state(function_of(keyspace, "Reduce", reduce, &joined)?, &joined, "Reduce")?;
    }
    let finish = s.final_function.as_ref();
    let finish = finish
        .map(|name| function_of(keyspace, "Final", name, &[&state_type]))
        .transpose()?;
    let initial_state = match &s.initial_state {
        Some(term) => initial_state(schema, keyspace, term, &state_type)?,
        None => None,
    };
    Ok(UserAggregate {
        keyspace: keyspace.name.clone(),
        name: s.name.name.clone(),
        returns: finish.map_or(&state_type, |finish| &finish.returns).clone(),
        arguments,
        state_function: s.state_function.clone(),
        state_type,
        reduce_function: s.reduce_function.clone(),
        final_function: s.final_function.clone(),
        initial_state,
    })
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
        None => invalid("INITCOND must be a constant".to_owned()),
    }
}

pub(super) fn drop_aggregate(
    schema: &Schema,
    s: &DropAggregate,
    ctx: &DdlContext<'_>,
) -> Result<Option<DdlOutcome>, CompileError> {
    let Some((keyspace, signature)) = to_drop(schema, &s.signature, s.if_exists, "Aggregate", ctx)? else {
        return Ok(None);
    };
    let change = aggregate_change(ChangeKind::Dropped, &keyspace.aggregates[&signature]);
    let mut next = keyspace.clone();
    next.aggregates.remove(&signature);
    Ok(Some(outcome(schema, &keyspace.name, Some(next), change)))
}

/// The change of a function, for the notification of clients.
pub(super) fn function_change(change: ChangeKind, function: &UserFunction) -> SchemaChange {
    let types = function.arguments.iter();
    SchemaChange::Function {
        change,
        keyspace: function.keyspace.clone(),
        name: function.name.clone(),
        argument_types: types.map(|(_, t)| t.unfrozen().to_string()).collect(),
    }
}

/// The change of an aggregate, for the notification of clients.
pub(super) fn aggregate_change(change: ChangeKind, aggregate: &UserAggregate) -> SchemaChange {
    let types = aggregate.arguments.iter();
    SchemaChange::Aggregate {
        change,
        keyspace: aggregate.keyspace.clone(),
        name: aggregate.name.clone(),
        argument_types: types.map(|t| t.unfrozen().to_string()).collect(),
    }
}

#[cfg(test)]
mod tests;
