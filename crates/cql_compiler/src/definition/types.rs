//! From a type as it is written to a type that a column can have.

use std::sync::Arc;

use cql::ast::{QualifiedName, TypeName};
use schema::Keyspace;
use types::{CqlType, UdtType};

use crate::error::CompileError;
use crate::type_name::{native_type, vector_dimension};

/// The type that `name` means in a keyspace.
pub(super) fn resolve(keyspace: &Keyspace, name: &TypeName) -> Result<CqlType, CompileError> {
    Ok(prepare(keyspace, name, false)?.canonical())
}

/// A user-defined type of a keyspace.
fn user_type(keyspace: &Keyspace, name: &QualifiedName) -> Result<Arc<UdtType>, CompileError> {
    let of = name.keyspace.as_deref().unwrap_or(&keyspace.name);
    if of != keyspace.name {
        return Err(CompileError::Invalid(format!(
            "Statement on keyspace {} cannot refer to a user type in keyspace {of}; user types can only be used in the \
             keyspace they are defined in",
            keyspace.name
        )));
    }
    let found = keyspace.types.get(&name.name).cloned();
    found.ok_or_else(|| CompileError::Invalid(format!("Unknown type {of}.{}", name.name)))
}

/// `frozen`: the type is inside a `frozen<>`, at any depth.
fn prepare(keyspace: &Keyspace, name: &TypeName, frozen: bool) -> Result<CqlType, CompileError> {
    let whole = || written(name, frozen);
    let resolved = match name {
        TypeName::Native(native) => return Ok(native_type(*native)),
        TypeName::Custom(class) => return custom(class),
        TypeName::Frozen(inner) => {
            if matches!(**inner, TypeName::Native(_) | TypeName::Custom(_)) {
                return Err(CompileError::Syntax(format!(
                    "frozen<> is only allowed on collections, tuples, and user-defined types (got {})",
                    written(inner, false)
                )));
            }
            return prepare(keyspace, inner, true);
        }
        TypeName::UserType(name) => CqlType::Udt(user_type(keyspace, name)?),
        TypeName::List(element) => CqlType::List(Arc::new(inside(keyspace, element, frozen, &whole)?)),
        TypeName::Set(element) => {
            let element = inside(keyspace, element, frozen, &whole)?;
            if element == CqlType::Duration {
                return Err(CompileError::Invalid(format!(
                    "Durations are not allowed inside sets: {}",
                    whole()
                )));
            }
            CqlType::Set(Arc::new(element))
        }
        TypeName::Map(key, value) => {
            let key = inside(keyspace, key, frozen, &whole)?;
            if key == CqlType::Duration {
                return Err(CompileError::Invalid(format!(
                    "Durations are not allowed as map keys: {}",
                    whole()
                )));
            }
            CqlType::Map(Arc::new(key), Arc::new(inside(keyspace, value, frozen, &whole)?))
        }
        TypeName::Tuple(elements) => {
            let elements = elements.iter().map(|e| {
                let element = prepare(keyspace, e, true)?;
                if element == CqlType::Counter {
                    return Err(CompileError::invalid("Counters are not allowed inside tuples"));
                }
                Ok(element)
            });
            return Ok(CqlType::Tuple(elements.collect::<Result<_, _>>()?));
        }
        TypeName::Vector(element, dimension) => {
            let element = prepare(keyspace, element, true)?;
            if element == CqlType::Counter {
                return Err(CompileError::invalid("Counters are not allowed inside vectors"));
            }
            return Ok(CqlType::Vector(Arc::new(element), vector_dimension(*dimension)?));
        }
    };
    Ok(if frozen { resolved.frozen() } else { resolved })
}

/// A type inside the collection `whole`.
fn inside(
    keyspace: &Keyspace,
    name: &TypeName,
    frozen: bool,
    whole: &dyn Fn() -> String,
) -> Result<CqlType, CompileError> {
    if !frozen {
        match name {
            TypeName::List(_) | TypeName::Set(_) | TypeName::Map(..) => {
                return Err(CompileError::Invalid(format!(
                    "Non-frozen collections are not allowed inside collections: {}",
                    whole()
                )));
            }
            TypeName::UserType(_) => {
                return Err(CompileError::Invalid(format!(
                    "Non-frozen UDTs are not allowed inside collections: {}",
                    whole()
                )));
            }
            _ => {}
        }
    }
    let element = prepare(keyspace, name, frozen)?;
    if element == CqlType::Counter {
        return Err(CompileError::Invalid(format!(
            "Counters are not allowed inside collections: {}",
            whole()
        )));
    }
    Ok(element)
}

/// Java classes of Cassandra that have no type in CQL.
const WITHOUT_NAME: [&str; 5] = [
    "CompositeType",
    "DynamicCompositeType",
    "EmptyType",
    "LexicalUUIDType",
    "PartitionerDefinedOrder",
];

/// A type by its Java class, where the rules of the written form have no hold yet.
fn custom(class: &str) -> Result<CqlType, CompileError> {
    let mut words = class.split(|c: char| !c.is_ascii_alphanumeric());
    if let Some(word) = words.find(|word| WITHOUT_NAME.contains(word)) {
        return Err(CompileError::Invalid(format!(
            "Type {class} is not supported as a column's type: no type of CQL represents {word}"
        )));
    }
    let parsed = match CqlType::from_marshal_name(class) {
        Ok((parsed, _)) => parsed,
        Err(e) => return Err(CompileError::Syntax(format!("Error setting type {class}: {e}"))),
    };
    if has_udt(&parsed) {
        return Err(CompileError::Invalid(format!(
            "Type {class} is not supported as a column's type: give the name of the user-defined type"
        )));
    }
    check_inside(&parsed)?;
    Ok(parsed)
}

/// Refuses counters and durations inside what cannot hold them.
fn check_inside(t: &CqlType) -> Result<(), CompileError> {
    let (inner, duration): (&[&CqlType], &str) = match t {
        CqlType::List(e) => (&[e], ""),
        CqlType::Vector(e, _) => (&[e], ""),
        CqlType::Set(e) if e.unfrozen() == &CqlType::Duration => (&[], "inside sets"),
        CqlType::Set(e) => (&[e], ""),
        CqlType::Map(k, _) if k.unfrozen() == &CqlType::Duration => (&[], "as map keys"),
        CqlType::Map(k, v) => (&[k, v], ""),
        CqlType::Frozen(inner) => return check_inside(inner),
        CqlType::Tuple(elements) => (&elements.iter().collect::<Vec<_>>(), ""),
        _ => return Ok(()),
    };
    if !duration.is_empty() {
        return Err(CompileError::Invalid(format!(
            "Durations are not allowed {duration}: {t}"
        )));
    }
    for element in inner {
        if **element == CqlType::Counter {
            let place = if matches!(t, CqlType::Tuple(_)) {
                "tuples"
            } else {
                "collections"
            };
            return Err(CompileError::Invalid(format!(
                "Counters are not allowed inside {place}: {t}"
            )));
        }
        check_inside(element)?;
    }
    Ok(())
}

fn has_udt(t: &CqlType) -> bool {
    match t {
        CqlType::Udt(_) => true,
        CqlType::List(e) | CqlType::Set(e) | CqlType::Vector(e, _) | CqlType::Frozen(e) => has_udt(e),
        CqlType::Map(k, v) => has_udt(k) || has_udt(v),
        CqlType::Tuple(elements) => elements.iter().any(has_udt),
        _ => false,
    }
}

/// The name as it was written, with the `frozen<>` that reaches it.
fn written(name: &TypeName, frozen: bool) -> String {
    let inner = match name {
        TypeName::Native(native) => return native_type(*native).to_string(),
        TypeName::Custom(class) => return format!("'{class}'"),
        TypeName::Frozen(inner) => return written(inner, true),
        TypeName::UserType(n) => match &n.keyspace {
            Some(keyspace) => format!("{keyspace}.{}", n.name),
            None => n.name.clone(),
        },
        TypeName::List(e) => format!("list<{}>", written(e, frozen)),
        TypeName::Set(e) => format!("set<{}>", written(e, frozen)),
        TypeName::Map(k, v) => format!("map<{}, {}>", written(k, frozen), written(v, frozen)),
        TypeName::Tuple(elements) => {
            let elements: Vec<String> = elements.iter().map(|e| written(e, frozen)).collect();
            return format!("tuple<{}>", elements.join(", "));
        }
        TypeName::Vector(e, dimension) => return format!("vector<{}, {dimension}>", written(e, frozen)),
    };
    if frozen { format!("frozen<{inner}>") } else { inner }
}
