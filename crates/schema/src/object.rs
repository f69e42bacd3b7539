//! The objects that a schema consists of, and what changes one schema into the next.
//!
//! An object is what one CREATE statement makes. A [`Change`] names the objects that one statement puts or drops, so it
//! is as large as what it changes and not as large as the schema; a new kind of object takes part in it without
//! changing the others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use types::UdtType;
use uuid::Uuid;

use crate::function::{UserAggregate, UserFunction};
use crate::table::{Keyspace, Schema, Table};

/// A kind of object. Its number is that of its field in the record of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// A keyspace, without the objects in it.
    Keyspace = 1,
    /// A table.
    Table = 2,
    /// A user-defined type.
    Type = 3,
    /// A user-defined function.
    Function = 6,
    /// A user-defined aggregate.
    Aggregate = 7,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keyspace => "keyspace",
            Self::Table => "table",
            Self::Type => "type",
            Self::Function => "function",
            Self::Aggregate => "aggregate",
        })
    }
}

/// What identifies an object in a schema.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectName {
    /// Objects of two kinds may have one name.
    pub kind: ObjectKind,
    /// The keyspace that it is in; its own name if it is a keyspace.
    pub keyspace: String,
    /// Its name in the keyspace, with its arguments' types if it is a function or an aggregate; empty if it is a
    /// keyspace.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ObjectKind::Keyspace => write!(f, "{} {}", self.kind, self.keyspace),
            _ => write!(f, "{} {}.{}", self.kind, self.keyspace, self.name),
        }
    }
}

/// A keyspace without the objects in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyspaceObject {
    /// Its name.
    pub name: String,
    /// See [`Keyspace::replication`].
    pub replication: BTreeMap<String, String>,
    /// See [`Keyspace::durable_writes`].
    pub durable_writes: bool,
    /// See [`Keyspace::tablets`].
    pub tablets: Option<BTreeMap<String, String>>,
}

impl KeyspaceObject {
    /// That of a keyspace.
    #[must_use]
    pub fn of(keyspace: &Keyspace) -> Self {
        Self {
            name: keyspace.name.clone(),
            replication: keyspace.replication.clone(),
            durable_writes: keyspace.durable_writes,
            tablets: keyspace.tablets.clone(),
        }
    }

    /// The keyspace with what is in another one; empty without.
    #[must_use]
    pub fn with_objects_of(self, other: Option<&Keyspace>) -> Keyspace {
        Keyspace {
            name: self.name,
            replication: self.replication,
            durable_writes: self.durable_writes,
            tablets: self.tablets,
            types: other.map(|k| k.types.clone()).unwrap_or_default(),
            functions: other.map(|k| k.functions.clone()).unwrap_or_default(),
            aggregates: other.map(|k| k.aggregates.clone()).unwrap_or_default(),
            tables: other.map(|k| k.tables.clone()).unwrap_or_default(),
        }
    }
}

/// One object of a schema.
#[derive(Clone, PartialEq, Debug)]
pub enum Object {
    /// A keyspace.
    Keyspace(KeyspaceObject),
    /// A table.
    Table(Arc<Table>),
    /// A user-defined type.
    Type(Arc<UdtType>),
    /// A user-defined function.
    Function(Arc<UserFunction>),
    /// A user-defined aggregate.
    Aggregate(Arc<UserAggregate>),
}

impl Object {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> ObjectName {
        match self {
            Self::Keyspace(keyspace) => keyspace_name(&keyspace.name),
            Self::Table(table) => name_of(ObjectKind::Table, &table.keyspace, &table.name),
            Self::Type(udt) => name_of(ObjectKind::Type, &udt.keyspace, &udt.name),
            Self::Function(function) => name_of(ObjectKind::Function, &function.keyspace, &function.signature()),
            Self::Aggregate(aggregate) => name_of(ObjectKind::Aggregate, &aggregate.keyspace, &aggregate.signature()),
        }
    }
}

fn keyspace_name(keyspace: &str) -> ObjectName {
    ObjectName {
        kind: ObjectKind::Keyspace,
        keyspace: keyspace.to_owned(),
        name: String::new(),
    }
}

fn name_of(kind: ObjectKind, keyspace: &str, name: &str) -> ObjectName {
    ObjectName {
        kind,
        keyspace: keyspace.to_owned(),
        name: name.to_owned(),
    }
}

impl Schema {
    /// All objects: each keyspace before the objects in it, and its types before what uses them.
    pub fn objects(&self) -> impl Iterator<Item = Object> {
        self.keyspaces.values().flat_map(|keyspace| {
            let tables = keyspace.tables.values().cloned().map(Object::Table);
            let types = keyspace.types.values().cloned().map(Object::Type);
            let functions = keyspace.functions.values().cloned().map(Object::Function);
            let aggregates = keyspace.aggregates.values().cloned().map(Object::Aggregate);
            std::iter::once(Object::Keyspace(KeyspaceObject::of(keyspace)))
                .chain(types)
                .chain(functions)
                .chain(aggregates)
                .chain(tables)
        })
    }

    /// The schema of these objects, in any order.
    ///
    /// # Errors
    /// A sentence, when two objects have one name, or one is in a keyspace that is not there.
    pub fn of_objects(version: Uuid, objects: impl IntoIterator<Item = Object>) -> Result<Self, String> {
        let empty = Self {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        let put: Vec<Object> = objects.into_iter().collect();
        let mut names: Vec<ObjectName> = put.iter().map(Object::name).collect();
        names.sort();
        if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("{} is there twice", twice[0]));
        }
        let change = Change {
            base: empty.version,
            next: version,
            put,
            dropped: Vec::new(),
        };
        change.apply(&empty)
    }
}

/// From one version of the schema to the next.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The version that it was computed from. It must be applied to no other.
    pub base: Uuid,
    /// The version that it makes.
    pub next: Uuid,
    /// The objects that are new, or not as they were.
    pub put: Vec<Object>,
    /// The objects that are gone. The objects in a keyspace go with it.
    pub dropped: Vec<ObjectName>,
}

impl Change {
    /// What makes `next` of `base`.
    #[must_use]
    pub fn between(base: &Schema, next: &Schema) -> Self {
        let (mut put, mut dropped) = (Vec::new(), Vec::new());
        for (name, keyspace) in &next.keyspaces {
            let former = base.keyspaces.get(name);
            if former.is_some_and(|former| Arc::ptr_eq(former, keyspace)) {
                continue;
            }
            let object = KeyspaceObject::of(keyspace);
            if former.map(|former| KeyspaceObject::of(former)).as_ref() != Some(&object) {
                put.push(Object::Keyspace(object));
            }
            for udt in keyspace.types.values() {
                let former = former.and_then(|former| former.types.get(&udt.name));
                if former.is_none_or(|former| former != udt) {
                    put.push(Object::Type(udt.clone()));
                }
            }
            for function in keyspace.functions.values() {
                let former = former.and_then(|former| former.functions.get(&function.signature()));
                if former.is_none_or(|former| former != function) {
                    put.push(Object::Function(function.clone()));
                }
            }
            for aggregate in keyspace.aggregates.values() {
                let former = former.and_then(|former| former.aggregates.get(&aggregate.signature()));
                if former.is_none_or(|former| former != aggregate) {
                    put.push(Object::Aggregate(aggregate.clone()));
                }
            }
            for table in keyspace.tables.values() {
                let former = former.and_then(|former| former.tables.get(&table.name));
                if former.is_none_or(|former| !Arc::ptr_eq(former, table) && former != table) {
                    put.push(Object::Table(table.clone()));
                }
            }
            let Some(former) = former else { continue };
            let mut drop = |kind, gone: &mut dyn Iterator<Item = &String>| {
                dropped.extend(gone.map(|object| name_of(kind, name, object)));
            };
            let (old, new) = (former, keyspace);
            drop(ObjectKind::Table, &mut gone(&old.tables, &new.tables));
            drop(ObjectKind::Aggregate, &mut gone(&old.aggregates, &new.aggregates));
            drop(ObjectKind::Function, &mut gone(&old.functions, &new.functions));
            drop(ObjectKind::Type, &mut gone(&old.types, &new.types));
        }
        let gone = base.keyspaces.keys().filter(|name| !next.keyspaces.contains_key(*name));
        dropped.extend(gone.map(|name| keyspace_name(name)));
        Self {
            base: base.version,
            next: next.version,
            put,
            dropped,
        }
    }

    /// The schema after the change. Objects that it does not name, or puts as they are, are shared with the schema
    /// before.
    ///
    /// # Errors
    /// A sentence, when the change does not fit the schema.
    pub fn apply(&self, base: &Schema) -> Result<Schema, String> {
        let mut keyspaces = base.keyspaces.clone();
        for name in &self.dropped {
            let is_gone = match name.kind {
                ObjectKind::Keyspace => keyspaces.remove(&name.keyspace).is_some(),
                kind => keyspaces
                    .get_mut(&name.keyspace)
                    .map(Arc::make_mut)
                    .is_some_and(|keyspace| remove(keyspace, kind, &name.name)),
            };
            if !is_gone {
                return Err(format!("{name} is dropped and does not exist"));
            }
        }
        for object in &self.put {
            let Object::Keyspace(object) = object else { continue };
            let former = keyspaces.get(&object.name);
            if former.is_some_and(|former| KeyspaceObject::of(former) == *object) {
                continue;
            }
            let next = object.clone().with_objects_of(former.map(|former| &**former));
            keyspaces.insert(object.name.clone(), Arc::new(next));
        }
        for object in &self.put {
            let name = match object {
                Object::Keyspace(_) => continue,
                _ => object.name(),
            };
            let Some(keyspace) = keyspaces.get_mut(&name.keyspace) else {
                return Err(format!("{name} is in a keyspace that does not exist"));
            };
            put_into(keyspace, object, name.name);
        }
        Ok(Schema {
            version: self.next,
            keyspaces,
        })
    }
}

/// The names of the first that the second does not have.
fn gone<'o, T>(old: &'o BTreeMap<String, T>, new: &BTreeMap<String, T>) -> impl Iterator<Item = &'o String> {
    old.keys().filter(|name| !new.contains_key(*name))
}

/// Whether the keyspace had the object that is removed.
fn remove(keyspace: &mut Keyspace, kind: ObjectKind, name: &str) -> bool {
    match kind {
        ObjectKind::Keyspace => false,
        ObjectKind::Table => keyspace.tables.remove(name).is_some(),
        ObjectKind::Type => keyspace.types.remove(name).is_some(),
        ObjectKind::Function => keyspace.functions.remove(name).is_some(),
        ObjectKind::Aggregate => keyspace.aggregates.remove(name).is_some(),
    }
}

/// Puts an object of that name into its keyspace. One that is there already stays the value that it is.
fn put_into(keyspace: &mut Arc<Keyspace>, object: &Object, name: String) {
    match object {
        Object::Table(table) if keyspace.tables.get(&name) != Some(table) => {
            Arc::make_mut(keyspace).tables.insert(name, table.clone());
        }
        Object::Type(udt) if keyspace.types.get(&name) != Some(udt) => {
            Arc::make_mut(keyspace).types.insert(name, udt.clone());
        }
        Object::Function(function) if keyspace.functions.get(&name) != Some(function) => {
            Arc::make_mut(keyspace).functions.insert(name, function.clone());
        }
        Object::Aggregate(aggregate) if keyspace.aggregates.get(&name) != Some(aggregate) => {
            Arc::make_mut(keyspace).aggregates.insert(name, aggregate.clone());
        }
        _ => {}
    }
}
