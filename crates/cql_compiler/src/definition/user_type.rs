//! CREATE, ALTER and DROP TYPE.

use cql::ast::{AlterType, CreateType, DropType, FieldDefinition, NativeType, TypeChange, TypeName};
use ddl::Definition;
use schema::{Keyspace, Schema};
use types::CqlType;

use super::types::resolve;
use super::{DdlContext, full_name};
use crate::error::CompileError;

pub(super) fn create(
    schema: &Schema,
    s: &CreateType,
    ctx: &DdlContext<'_>,
) -> Result<Option<Definition>, CompileError> {
    let name = full_name(&s.name, ctx)?;
    s.fields.iter().try_for_each(check_field)?;
    let Some(keyspace) = ddl::keyspace_of_new_type(schema, &name, s.if_not_exists)? else {
        return Ok(None);
    };
    let fields = s.fields.iter();
    let fields = fields.map(|field| Ok((field.name.clone(), type_of(keyspace, field)?)));
    Ok(Some(Definition::CreateType(ddl::CreateType {
        name,
        if_not_exists: s.if_not_exists,
        fields: fields.collect::<Result<_, CompileError>>()?,
    })))
}

/// What is wrong with a field whatever the schema is.
fn check_field(field: &FieldDefinition) -> Result<(), CompileError> {
    match &field.type_name {
        TypeName::Native(NativeType::Counter) => Err(CompileError::invalid("A user type cannot contain counters")),
        TypeName::UserType(_) => Err(CompileError::invalid("A user type cannot contain non-frozen UDTs")),
        _ => Ok(()),
    }
}

fn type_of(keyspace: &Keyspace, field: &FieldDefinition) -> Result<CqlType, CompileError> {
    check_field(field)?;
    resolve(keyspace, &field.type_name)
}

pub(super) fn alter(schema: &Schema, s: &AlterType, ctx: &DdlContext<'_>) -> Result<Option<Definition>, CompileError> {
    let name = full_name(&s.name, ctx)?;
    let Some((keyspace, _)) = ddl::type_to_alter(schema, &name, s.if_exists)? else {
        return Ok(None);
    };
    let change = match &s.change {
        TypeChange::Add { if_not_exists, field } => ddl::TypeChange::Add {
            if_not_exists: *if_not_exists,
            field: field.name.clone(),
            cql_type: type_of(keyspace, field)?,
        },
        TypeChange::Rename { if_exists, fields } => ddl::TypeChange::Rename {
            if_exists: *if_exists,
            fields: fields.clone(),
        },
        TypeChange::Alter(_) => return Err(CompileError::invalid("Altering field types is no longer supported")),
    };
    Ok(Some(Definition::AlterType(ddl::AlterType {
        name,
        if_exists: s.if_exists,
        change,
    })))
}

pub(super) fn drop(s: &DropType, ctx: &DdlContext<'_>) -> Result<Definition, CompileError> {
    Ok(Definition::DropType(ddl::DropType {
        name: full_name(&s.name, ctx)?,
        if_exists: s.if_exists,
    }))
}
