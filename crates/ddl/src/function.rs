//! Functions and aggregates are created and dropped.
//!
//! Functions of one name differ in the types of their arguments, and an aggregate never has the signature of a
//! function. An aggregate names functions of its keyspace; one that an aggregate calls is not dropped, and replacing it
//! keeps its types.

use std::sync::Arc;

use schema::{Keyspace, Schema, UserAggregate, UserFunction, signature};
use types::CqlType;

use crate::error::DdlError;
use crate::{
    ChangeKind, Context, CreateAggregate, CreateFunction, DropAggregate, DropFunction, DroppedSignature, Existing,
    NameInKeyspace, Outcome, SchemaChange, TOLD_NAME_BYTES_MAX, check_modifiable, existing_keyspace, first_duplicate,
    outcome, type_limits,
};

fn invalid<T>(text: String) -> Result<T, DdlError> {
    Err(DdlError::Invalid(text))
}

pub(crate) fn create_function(
    schema: &Schema,
    create: &CreateFunction,
    ctx: &Context<'_>,
) -> Result<Option<Outcome>, DdlError> {
    if !ctx.has_functions {
        return invalid(
            "User-defined functions are disabled in cassandra.yaml - set user_defined_functions_enabled=true to enable"
                .to_owned(),
        );
    }
    let function = &create.function;
    let (keyspace_name, name) = (&function.keyspace, &function.name);
    let argument_names = function.arguments.iter().map(|(name, _)| name.as_str());
    if first_duplicate(argument_names.clone()).is_some() {
        let names: Vec<&str> = argument_names.collect();
        return invalid(format!(
            "Duplicate argument names for given function {name} with argument names [{}]",
            names.join(", ")
        ));
    }
    check_lengths(argument_names.chain([name.as_str()]))?;
    check_keyspace_of_functions(keyspace_name, "CREATE")?;
    let keyspace = existing_keyspace(schema, keyspace_name)?;
    let arguments = function.arguments.iter().map(|(_, cql_type)| cql_type);
    arguments.chain([&function.returns]).try_for_each(type_limits::check)?;
    let signature = function.signature();
    if keyspace.aggregates.contains_key(&signature) {
        return invalid(format!("Function '{name}' cannot replace an aggregate"));
    }
    let existing = keyspace.functions.get(&signature);
    if let Some(existing) = existing {
        match create.existing {
            Existing::Keep => return Ok(None),
            Existing::Refuse => return invalid(format!("Function '{name}' already exists")),
            Existing::Replace => check_replacement(existing, function)?,
        }
        if **existing == *function {
            return Ok(None);
        }
    }
    functions::check(function)
        .map_err(|error| DdlError::Invalid(format!("Function '{name}' cannot be compiled: {error}")))?;
    let change = match existing {
        Some(_) => ChangeKind::Updated,
        None => ChangeKind::Created,
    };
    let change = function_change(change, function);
    let mut next = keyspace.clone();
    next.functions.insert(signature, Arc::new(function.clone()));
    Ok(Some(outcome(schema, keyspace_name, Some(next), change)))
}

/// Refuses a replacement that callers of the function would notice.
fn check_replacement(old: &UserFunction, new: &UserFunction) -> Result<(), DdlError> {
    let name = &new.name;
    if new.called_on_null != old.called_on_null {
        let directive = if new.called_on_null {
            "CALLED ON NULL INPUT"
        } else {
            "RETURNS NULL ON NULL INPUT"
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

/// Refuses to change functions of the system's keyspaces. `verb` names the change.
///
/// # Errors
/// When it is one of them.
pub fn check_keyspace_of_functions(name: &str, verb: &str) -> Result<(), DdlError> {
    match system_tables::kind(name) {
        Some(system_tables::KeyspaceKind::Local) => invalid(format!("System keyspace '{name}' is not user-modifiable")),
        _ => check_modifiable(name, verb, || format!("all functions in {name}")),
    }
}

fn check_lengths<'n>(mut names: impl Iterator<Item = &'n str>) -> Result<(), DdlError> {
    if names.any(|name| name.len() > TOLD_NAME_BYTES_MAX || name.is_empty()) {
        invalid(format!(
            "The names of a function and of its arguments have 1 to {TOLD_NAME_BYTES_MAX} bytes"
        ))
    } else {
        Ok(())
    }
}

pub(crate) fn drop_function(schema: &Schema, dropped: &DropFunction) -> Result<Option<Outcome>, DdlError> {
    let Some((keyspace, signature)) = to_drop(schema, &dropped.signature, dropped.if_exists, "Function")? else {
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
    dropped: &DroppedSignature,
    if_exists: bool,
    what: &str,
) -> Result<Option<(&'s Keyspace, String)>, DdlError> {
    let NameInKeyspace {
        keyspace: keyspace_name,
        name,
    } = &dropped.name;
    check_keyspace_of_functions(keyspace_name, "DROP")?;
    let absent = |types: &str| {
        if if_exists {
            Ok(None)
        } else {
            invalid(format!("{what} '{keyspace_name}.{name}{types}' doesn't exist"))
        }
    };
    let Some(keyspace) = schema.keyspaces.get(keyspace_name) else {
        return absent("");
    };
    let is_function = what == "Function";
    let is_there = |signature: &String| {
        if is_function {
            keyspace.functions.contains_key(signature)
        } else {
            keyspace.aggregates.contains_key(signature)
        }
    };
    if let Some(types) = &dropped.argument_types {
        let found = signature(name, types.iter());
        return if is_there(&found) {
            Ok(Some((keyspace, found)))
        } else {
            let types: Vec<String> = types.iter().map(ToString::to_string).collect();
            absent(&format!("({})", types.join(", ")))
        };
    }
    let functions = keyspace.functions_named(name).map(|function| function.signature());
    let aggregates = keyspace.aggregates_named(name).map(|aggregate| aggregate.signature());
    let mut named: Vec<String> = functions.chain(aggregates).collect();
    if named.len() > 1 {
        let verb = what.to_uppercase();
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

pub(crate) fn create_aggregate(schema: &Schema, create: &CreateAggregate) -> Result<Option<Outcome>, DdlError> {
    let NameInKeyspace {
        keyspace: keyspace_name,
        name,
    } = &create.name;
    check_lengths([name.as_str()].into_iter())?;
    check_keyspace_of_functions(keyspace_name, "CREATE")?;
    let Some(keyspace) = schema.keyspaces.get(keyspace_name).map(Arc::as_ref) else {
        return Err(DdlError::Config(format!("Keyspace {keyspace_name} doesn't exist")));
    };
    let aggregate = aggregate_of(keyspace, create)?;
    let signature = aggregate.signature();
    if keyspace.functions.contains_key(&signature) {
        return invalid(format!("Aggregate '{name}' cannot replace a function"));
    }
    let existing = keyspace.aggregates.get(&signature);
    if let Some(existing) = existing {
        match create.existing {
            Existing::Keep => return Ok(None),
            Existing::Refuse => return invalid(format!("Aggregate '{name}' already exists")),
            Existing::Replace => {}
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
    Ok(Some(Outcome {
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
) -> Result<&'k UserFunction, DdlError> {
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

fn aggregate_of(keyspace: &Keyspace, create: &CreateAggregate) -> Result<UserAggregate, DdlError> {
    let (state_type, arguments) = (&create.state_type, &create.arguments);
    std::iter::once(state_type)
        .chain(arguments)
        .try_for_each(type_limits::check)?;
    let taken: Vec<&CqlType> = std::iter::once(state_type).chain(arguments).collect();
    let state = function_of(keyspace, "State", &create.state_function, &taken)?;
    let gives_state = |function: &UserFunction, types: &[&CqlType], what: &str| {
        if function.returns == *state_type {
            Ok(())
        } else {
            invalid(format!(
                "{what} function {} return type must be the same as the first argument type - check STYPE, argument and \
             return types",
                full_name(keyspace, &function.name, types)
            ))
        }
    };
    gives_state(state, &taken, "State")?;
    let joined = [state_type, state_type];
    if let Some(reduce) = &create.reduce_function {
        gives_state(function_of(keyspace, "Reduce", reduce, &joined)?, &joined, "Reduce")?;
    }
    let finish = create.final_function.as_ref();
    let finish = finish
        .map(|name| function_of(keyspace, "Final", name, &[state_type]))
        .transpose()?;
    if let Some(state) = &create.initial_state {
        let checked = state_type.validate(state);
        checked.map_err(|e| DdlError::Invalid(format!("The initial state is no {state_type}: {e}")))?;
    }
    Ok(UserAggregate {
        keyspace: keyspace.name.clone(),
        name: create.name.name.clone(),
        returns: finish.map_or(state_type, |finish| &finish.returns).clone(),
        arguments: arguments.clone(),
        state_function: create.state_function.clone(),
        state_type: state_type.clone(),
        reduce_function: create.reduce_function.clone(),
        final_function: create.final_function.clone(),
        initial_state: create.initial_state.clone(),
    })
}

pub(crate) fn drop_aggregate(schema: &Schema, dropped: &DropAggregate) -> Result<Option<Outcome>, DdlError> {
    let Some((keyspace, signature)) = to_drop(schema, &dropped.signature, dropped.if_exists, "Aggregate")? else {
        return Ok(None);
    };
    let change = aggregate_change(ChangeKind::Dropped, &keyspace.aggregates[&signature]);
    let mut next = keyspace.clone();
    next.aggregates.remove(&signature);
    Ok(Some(outcome(schema, &keyspace.name, Some(next), change)))
}

/// The change of a function, for the notification of clients.
pub(crate) fn function_change(change: ChangeKind, function: &UserFunction) -> SchemaChange {
    let types = function.arguments.iter();
    SchemaChange::Function {
        change,
        keyspace: function.keyspace.clone(),
        name: function.name.clone(),
        argument_types: types.map(|(_, t)| t.unfrozen().to_string()).collect(),
    }
}

/// The change of an aggregate, for the notification of clients.
pub(crate) fn aggregate_change(change: ChangeKind, aggregate: &UserAggregate) -> SchemaChange {
    let types = aggregate.arguments.iter();
    SchemaChange::Aggregate {
        change,
        keyspace: aggregate.keyspace.clone(),
        name: aggregate.name.clone(),
        argument_types: types.map(|t| t.unfrozen().to_string()).collect(),
    }
}
