//! The objects that a schema consists of, and what changes one schema into the next.
//!
//! An object is what one CREATE statement makes. A [`Change`] names the objects that one statement puts or drops, so it is as large as what it changes and
//! not as large as the schema; a new kind of object takes part in it without changing the others.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::table::{Keyspace, Schema, Table};

/// A kind of object. Its number is that of its field in the record of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ObjectKind {
    /// A keyspace, without the objects in it.
    Keyspace = 1,
    /// A table.
    Table = 2,
}

impl fmt::Display for ObjectKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keyspace => "keyspace",
            Self::Table => "table",
        })
    }
}

/// What tells an object from all others of a schema.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ObjectName {
    /// Objects of two kinds may have one name.
    pub kind: ObjectKind,
    /// The keyspace that it is in; its own name if it is a keyspace.
    pub keyspace: String,
    /// Its name in the keyspace; empty if it is a keyspace.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ObjectKind::Keyspace => write!(f, "{} {}", self.kind, self.keyspace),
            ObjectKind::Table => write!(f, "{} {}.{}", self.kind, self.keyspace, self.name),
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

    /// The keyspace with these tables.
    #[must_use]
    pub fn with_tables(self, tables: BTreeMap<String, Arc<Table>>) -> Keyspace {
        Keyspace {
            name: self.name,
            replication: self.replication,
            durable_writes: self.durable_writes,
            tablets: self.tablets,
            tables,
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
}

impl Object {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> ObjectName {
        match self {
            Self::Keyspace(keyspace) => keyspace_name(&keyspace.name),
            Self::Table(table) => table_name(&table.keyspace, &table.name),
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

fn table_name(keyspace: &str, table: &str) -> ObjectName {
    ObjectName {
        kind: ObjectKind::Table,
        keyspace: keyspace.to_owned(),
        name: table.to_owned(),
    }
}

impl Schema {
    /// All objects: each keyspace before the objects in it.
    pub fn objects(&self) -> impl Iterator<Item = Object> {
        self.keyspaces.values().flat_map(|keyspace| {
            let tables = keyspace.tables.values().cloned().map(Object::Table);
            std::iter::once(Object::Keyspace(KeyspaceObject::of(keyspace))).chain(tables)
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
            for table in keyspace.tables.values() {
                let former = former.and_then(|former| former.tables.get(&table.name));
                if former.is_none_or(|former| !Arc::ptr_eq(former, table) && former != table) {
                    put.push(Object::Table(table.clone()));
                }
            }
            let tables = former.into_iter().flat_map(|former| former.tables.keys());
            let gone = tables.filter(|table| !keyspace.tables.contains_key(*table));
            dropped.extend(gone.map(|table| table_name(name, table)));
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

    /// The schema after the change. Objects that it does not name, or puts as they are, are shared with the schema before.
    ///
    /// # Errors
    /// A sentence, when the change does not fit the schema.
    pub fn apply(&self, base: &Schema) -> Result<Schema, String> {
        let mut keyspaces = base.keyspaces.clone();
        for name in &self.dropped {
            let is_gone = match name.kind {
                ObjectKind::Keyspace => keyspaces.remove(&name.keyspace).is_some(),
                ObjectKind::Table => {
                    let keyspace = keyspaces.get_mut(&name.keyspace).map(Arc::make_mut);
                    keyspace.is_some_and(|keyspace| keyspace.tables.remove(&name.name).is_some())
                }
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
            let tables = former.map_or_else(BTreeMap::new, |former| former.tables.clone());
            keyspaces.insert(object.name.clone(), Arc::new(object.clone().with_tables(tables)));
        }
        for object in &self.put {
            let Object::Table(table) = object else { continue };
            let Some(keyspace) = keyspaces.get_mut(&table.keyspace) else {
                return Err(format!("{} is in a keyspace that does not exist", object.name()));
            };
            if keyspace.tables.get(&table.name) != Some(table) {
                Arc::make_mut(keyspace).tables.insert(table.name.clone(), table.clone());
            }
        }
        Ok(Schema {
            version: self.next,
            keyspaces,
        })
    }
}
