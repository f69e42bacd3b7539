//! What the names of types mean in a schema.

use std::sync::Arc;

use cql::ast::{NativeType, QualifiedName, TypeName};
use schema::Schema;
use types::{CqlType, UdtType};

use crate::error::CompileError;

/// The type that a name means; names of user-defined types without a keyspace are looked for in `keyspace`.
pub(crate) fn resolve(name: &TypeName, schema: &Schema, keyspace: &str) -> Result<CqlType, CompileError> {
    Ok(resolve_raw(name, schema, keyspace)?.canonical())
}

fn resolve_raw(name: &TypeName, schema: &Schema, keyspace: &str) -> Result<CqlType, CompileError> {
    let inner = |name: &TypeName| Ok::<_, CompileError>(Arc::new(resolve_raw(name, schema, keyspace)?));
    Ok(match name {
        TypeName::Native(native) => native_type(*native),
        TypeName::List(element) => CqlType::List(inner(element)?),
        TypeName::Set(element) => CqlType::Set(inner(element)?),
        TypeName::Map(key, value) => CqlType::Map(inner(key)?, inner(value)?),
        TypeName::Tuple(elements) => {
            let elements: Result<Vec<_>, _> = elements.iter().map(|e| resolve_raw(e, schema, keyspace)).collect();
            CqlType::Tuple(elements?.into())
        }
        TypeName::Vector(element, dimension) => CqlType::Vector(inner(element)?, vector_dimension(*dimension)?),
        TypeName::Frozen(element) => CqlType::Frozen(inner(element)?),
        TypeName::UserType(name) => CqlType::Udt(user_type(name, schema, keyspace)?),
        TypeName::Custom(class) => {
            CqlType::from_marshal_name(class)
                .map_err(|e| CompileError::invalid(e.to_string()))?
                .0
        }
    })
}

/// The dimension of a vector, when it may be that.
pub(crate) fn vector_dimension(dimension: i32) -> Result<u32, CompileError> {
    let found = u32::try_from(dimension).ok().filter(|&dimension| dimension > 0);
    found.ok_or_else(|| CompileError::Invalid(format!("vectors may only have positive dimensions; given {dimension}")))
}

/// The type that the name of a native one means.
pub(crate) fn native_type(native: NativeType) -> CqlType {
    match native {
        NativeType::Ascii => CqlType::Ascii,
        NativeType::BigInt => CqlType::BigInt,
        NativeType::Blob => CqlType::Blob,
        NativeType::Boolean => CqlType::Boolean,
        NativeType::Counter => CqlType::Counter,
        NativeType::Date => CqlType::Date,
        NativeType::Decimal => CqlType::Decimal,
        NativeType::Double => CqlType::Double,
        NativeType::Duration => CqlType::Duration,
        NativeType::Float => CqlType::Float,
        NativeType::Inet => CqlType::Inet,
        NativeType::Int => CqlType::Int,
        NativeType::SmallInt => CqlType::SmallInt,
        NativeType::Text => CqlType::Text,
        NativeType::Time => CqlType::Time,
        NativeType::Timestamp => CqlType::Timestamp,
        NativeType::TimeUuid => CqlType::TimeUuid,
        NativeType::TinyInt => CqlType::TinyInt,
        NativeType::Uuid => CqlType::Uuid,
        NativeType::VarInt => CqlType::VarInt,
    }
}

fn user_type(name: &QualifiedName, schema: &Schema, keyspace: &str) -> Result<Arc<UdtType>, CompileError> {
    let keyspace = name.keyspace.as_deref().unwrap_or(keyspace);
    let found = schema.keyspaces.get(keyspace).and_then(|k| k.types.get(&name.name));
    found
        .cloned()
        .ok_or_else(|| CompileError::invalid(format!("Unknown type {keyspace}.{}", name.name)))
}
