//! DESCRIBE, answered by the server as Cassandra 4.0 and later do.
//!
//! A list (KEYSPACES, TABLES, …) has the columns keyspace_name, type and name; a description also create_statement.
//! Names in answers are as one would write them: quoted when they must be.

use cql::ast::{Describe, DescribeSubject, QualifiedName};
use schema::{
    Index, Keyspace, Schema, Table, describe_index, describe_keyspace, describe_table, describe_type, quote_identifier,
};
use std::net::SocketAddr;
use std::sync::Arc;
use system_tables::KeyspaceKind;
use types::{CollectionBuilder, CqlType, UdtType};

use crate::describe_function::{aggregates, functions};
use crate::error::CompileError;
use plan::ResultColumn;

/// What a description needs to know besides the schema and the statement.
#[derive(Clone, Copy, Debug)]
pub struct DescribeContext<'a> {
    /// The keyspace in use.
    pub keyspace: Option<&'a str>,
    /// The node that is asked.
    pub node: &'a DescribedNode,
}

/// What a description says of the node that is asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedNode {
    /// The cluster's name.
    pub cluster_name: String,
    /// The full class of the partitioner.
    pub partitioner: String,
    /// Where other nodes reach it.
    pub endpoint: SocketAddr,
    /// The tokens that it owns, in decimal.
    pub tokens: Vec<String>,
}

/// Columns and rows of an answer; a row's values are serialised.
pub type Description = (Vec<ResultColumn>, Vec<Vec<Option<Vec<u8>>>>);

/// Answers a DESCRIBE.
///
/// # Errors
/// When what is to be described does not exist.
pub fn describe(schema: &Schema, statement: &Describe, ctx: &DescribeContext<'_>) -> Result<Description, CompileError> {
    let internals = statement.with_internals;
    let describer = Describer { schema, ctx, internals };
    let elements = match &statement.subject {
        DescribeSubject::Cluster => return Ok(cluster(schema, ctx)),
        DescribeSubject::Keyspaces => return Ok(list(sorted_keyspaces(schema).into_iter().map(Element::keyspace))),
        DescribeSubject::Tables => return Ok(list(describer.tables()?.into_iter())),
        DescribeSubject::Types => return Ok(list(describer.types()?.into_iter())),
        DescribeSubject::Functions => return Ok(list(describer.of_keyspaces(|k| functions(k, None))?.into_iter())),
        DescribeSubject::Aggregates => return Ok(list(describer.of_keyspaces(|k| aggregates(k, None))?.into_iter())),
        DescribeSubject::Schema { full } => {
            let shown = |k: &&Keyspace| *full || system_tables::kind(&k.name).is_none();
            sorted_keyspaces(schema)
                .into_iter()
                .filter(shown)
                .flat_map(|k| describer.keyspace(k, false))
                .collect()
        }
        DescribeSubject::Keyspace { only, name } => {
            let keyspace = describer.keyspace_named(name.as_deref())?;
            describer.keyspace(keyspace, *only)
        }
        DescribeSubject::Table(name) => {
            let keyspace = describer.keyspace_named(name.keyspace.as_deref())?;
            describer.table(keyspace, &name.name).ok_or_else(|| {
                CompileError::Invalid(format!(
                    "Table '{}' not found in keyspace '{}'",
                    name.name, keyspace.name
                ))
            })?
        }
        DescribeSubject::Index(name) => {
            let keyspace = describer.keyspace_named(name.keyspace.as_deref())?;
            let found = keyspace.index(&name.name);
            let (table, index) = found.ok_or_else(|| describer.absent("Table for existing index", name))?;
            vec![Element::index(table, index)]
        }
        DescribeSubject::MaterializedView(name) => return Err(describer.absent("Materialized view", name)),
        DescribeSubject::Type(name) => {
            let keyspace = describer.keyspace_named(name.keyspace.as_deref())?;
            let found = keyspace.types.get(&name.name);
            vec![Element::described_type(
                found.ok_or_else(|| describer.absent("User defined type", name))?,
            )]
        }
        DescribeSubject::Function(name) => {
            let keyspace = describer.keyspace_named(name.keyspace.as_deref())?;
            let found = functions(keyspace, Some(&name.name));
            if found.is_empty() {
                return Err(describer.absent("User defined function", name));
            }
            found
        }
        DescribeSubject::Aggregate(name) => {
            let keyspace = describer.keyspace_named(name.keyspace.as_deref())?;
            let found = aggregates(keyspace, Some(&name.name));
            if found.is_empty() {
                return Err(describer.absent("User defined aggregate", name));
            }
            found
        }
        DescribeSubject::Any(name) => describer.any(name)?,
    };
    let mut columns = text_columns(&["keyspace_name", "type", "name"]);
    columns.extend(text_columns(&["create_statement"]));
    Ok((columns, elements.into_iter().map(|e| e.row(true)).collect()))
}

/// Something that is described.
pub(crate) struct Element {
    pub(crate) keyspace: String,
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) statement: String,
}

impl Element {
    fn keyspace(k: &Keyspace) -> Self {
        let name = quote_identifier(&k.name);
        Self {
            keyspace: name.clone(),
            kind: "keyspace",
            name,
            statement: String::new(),
        }
    }

    fn table(t: &Table) -> Self {
        Self {
            keyspace: quote_identifier(&t.keyspace),
            kind: "table",
            name: quote_identifier(&t.name),
            statement: String::new(),
        }
    }

    fn index(table: &Table, index: &Index) -> Self {
        Self {
            keyspace: quote_identifier(&table.keyspace),
            kind: "index",
            name: quote_identifier(&index.name),
            statement: describe_index(table, index),
        }
    }

    fn user_type(udt: &UdtType) -> Self {
        Self {
            keyspace: quote_identifier(&udt.keyspace),
            kind: "type",
            name: quote_identifier(&udt.name),
            statement: String::new(),
        }
    }

    fn described_type(udt: &UdtType) -> Self {
        Self {
            statement: describe_type(udt),
            ..Self::user_type(udt)
        }
    }

    fn row(self, with_statement: bool) -> Vec<Option<Vec<u8>>> {
        let mut row = vec![
            Some(self.keyspace.into_bytes()),
            Some(self.kind.as_bytes().to_vec()),
            Some(self.name.into_bytes()),
        ];
        if with_statement {
            row.push(Some(self.statement.into_bytes()));
        }
        row
    }
}

fn text_columns(names: &[&str]) -> Vec<ResultColumn> {
    names
        .iter()
        .map(|n| ResultColumn {
            name: (*n).to_owned(),
            cql_type: CqlType::Text,
        })
        .collect()
}

fn list(elements: impl Iterator<Item = Element>) -> Description {
    (
        text_columns(&["keyspace_name", "type", "name"]),
        elements.map(|e| e.row(false)).collect(),
    )
}

/// Upper case letters do not come first.
fn sorted_keyspaces(schema: &Schema) -> Vec<&Keyspace> {
    let mut keyspaces: Vec<&Keyspace> = schema.keyspaces.values().map(|k| &**k).collect();
    keyspaces.sort_by_key(|k| k.name.to_lowercase());
    keyspaces
}

fn sorted_tables(keyspace: &Keyspace) -> Vec<&Table> {
    let mut tables: Vec<&Table> = keyspace.tables.values().map(|t| &**t).collect();
    tables.sort_by_key(|t| t.name.to_lowercase());
    tables
}

struct Describer<'a> {
    schema: &'a Schema,
    ctx: &'a DescribeContext<'a>,
    internals: bool,
}

impl<'a> Describer<'a> {
    fn used_keyspace(&self) -> Result<Option<&'a Keyspace>, CompileError> {
        self.ctx
            .keyspace
            .map(|name| self.keyspace_named(Some(name)))
            .transpose()
    }

    /// The keyspace of that name, or the one in use.
    fn keyspace_named(&self, name: Option<&str>) -> Result<&'a Keyspace, CompileError> {
        let Some(name) = name.or(self.ctx.keyspace) else {
            return Err(CompileError::invalid("No keyspace specified and no current keyspace"));
        };
        let found = self.schema.keyspaces.get(name);
        found
            .map(|k| &**k)
            .ok_or_else(|| CompileError::Invalid(format!("'{name}' not found in keyspaces")))
    }

    /// The tables of the keyspace in use, or of all.
    fn tables(&self) -> Result<Vec<Element>, CompileError> {
        let keyspaces = match self.used_keyspace()? {
            Some(k) => vec![k],
            None => sorted_keyspaces(self.schema),
        };
        Ok(keyspaces
            .into_iter()
            .flat_map(sorted_tables)
            .map(Element::table)
            .collect())
    }

    /// The types of the keyspace in use, or of all, by name.
    fn types(&self) -> Result<Vec<Element>, CompileError> {
        let keyspaces = match self.used_keyspace()? {
            Some(k) => vec![k],
            None => sorted_keyspaces(self.schema),
        };
        let sorted = |k: &Keyspace| {
            let mut types: Vec<Element> = k.types.values().map(|udt| Element::user_type(udt)).collect();
            types.sort_by_key(|element| element.name.trim_start_matches('"').to_lowercase());
            types
        };
        Ok(keyspaces.into_iter().flat_map(sorted).collect())
    }

    /// What the keyspace in use has, or all.
    fn of_keyspaces(&self, elements: impl Fn(&Keyspace) -> Vec<Element>) -> Result<Vec<Element>, CompileError> {
        let keyspaces = match self.used_keyspace()? {
            Some(k) => vec![k],
            None => sorted_keyspaces(self.schema),
        };
        Ok(keyspaces.into_iter().flat_map(elements).collect())
    }

    fn table(&self, keyspace: &Keyspace, name: &str) -> Option<Vec<Element>> {
        keyspace.tables.get(name).map(|t| self.with_indexes(keyspace, t))
    }

    /// A table, then its indexes.
    fn with_indexes(&self, k: &Keyspace, t: &Table) -> Vec<Element> {
        let table = Element {
            statement: describe_table(k, t, self.internals),
            ..Element::table(t)
        };
        let mut indexes: Vec<&Index> = t.indexes.iter().collect();
        indexes.sort_by_key(|index| index.name.to_lowercase());
        let indexes = indexes.into_iter().map(|index| Element::index(t, index));
        [table].into_iter().chain(indexes).collect()
    }

    /// A keyspace, and unless `only` all that is in it.
    fn keyspace(&self, k: &Keyspace, only: bool) -> Vec<Element> {
        let mut elements = vec![Element {
            statement: describe_keyspace(k),
            ..Element::keyspace(k)
        }];
        if !only {
            elements.extend(k.types_in_order().into_iter().map(|udt| Element::described_type(udt)));
            elements.extend(functions(k, None));
            elements.extend(aggregates(k, None));
            elements.extend(sorted_tables(k).into_iter().flat_map(|t| self.with_indexes(k, t)));
        }
        elements
    }

    /// A keyspace of that name, else a table, index or type of the keyspace that is named or in use. (Cassandra does
    /// not find types so; ScyllaDB does.)
    fn any(&self, name: &QualifiedName) -> Result<Vec<Element>, CompileError> {
        if name.keyspace.is_none()
            && let Some(keyspace) = self.schema.keyspaces.get(&name.name)
        {
            return Ok(self.keyspace(keyspace, false));
        }
        let Some(keyspace) = name.keyspace.as_deref().or(self.ctx.keyspace) else {
            return Err(CompileError::Invalid(format!("'{}' not found in keyspaces", name.name)));
        };
        let keyspace = self.keyspace_named(Some(keyspace))?;
        let index = || Some(keyspace.index(&name.name)?).map(|(table, index)| vec![Element::index(table, index)]);
        let user_type = || {
            keyspace
                .types
                .get(&name.name)
                .map(|udt| vec![Element::described_type(udt)])
        };
        self.table(keyspace, &name.name)
            .or_else(index)
            .or_else(user_type)
            .ok_or_else(|| CompileError::Invalid(format!("'{}' not found in keyspace '{}'", name.name, keyspace.name)))
    }

    /// There is none of what schemas do not have yet.
    fn absent(&self, what: &str, name: &QualifiedName) -> CompileError {
        match self.keyspace_named(name.keyspace.as_deref()) {
            Ok(keyspace) => CompileError::Invalid(format!("{what} '{}' not found in '{}'", name.name, keyspace.name)),
            Err(e) => e,
        }
    }
}

/// The cluster; with a replicated keyspace in use also which node has which range, by the range's end.
fn cluster(schema: &Schema, ctx: &DescribeContext<'_>) -> Description {
    let node = &ctx.node;
    let partitioner = node.partitioner.rsplit('.').next().unwrap_or(&node.partitioner);
    let mut columns = text_columns(&["cluster", "partitioner", "snitch"]);
    let mut row: Vec<Option<Vec<u8>>> = [node.cluster_name.as_str(), partitioner, SNITCH]
        .iter()
        .map(|t| Some(t.as_bytes().to_vec()))
        .collect();
    let used = ctx.keyspace.filter(|k| schema.keyspaces.contains_key(*k));
    if used.is_some_and(|k| system_tables::kind(k) != Some(KeyspaceKind::Local)) {
        let replicas = CqlType::Frozen(Arc::new(CqlType::List(Arc::new(CqlType::Text))));
        columns.push(ResultColumn {
            name: "range_ownership".to_owned(),
            cql_type: CqlType::Map(Arc::new(CqlType::Text), Arc::new(replicas)),
        });
        row.push(Some(range_ownership(node)));
    }
    (columns, vec![row])
}

/// How nodes find each other's place: here they say it themselves.
const SNITCH: &str = "SimpleSnitch";

fn range_ownership(node: &DescribedNode) -> Vec<u8> {
    let endpoint = format!("/{}", node.endpoint);
    let mut replicas = Vec::new();
    let mut builder = CollectionBuilder::new(&mut replicas);
    builder.push(endpoint.as_bytes());
    builder.finish();
    let mut tokens: Vec<&str> = node.tokens.iter().map(String::as_str).collect();
    tokens.sort_unstable();
    let mut out = Vec::new();
    let mut builder = CollectionBuilder::new(&mut out);
    for token in tokens {
        builder.push_pair(token.as_bytes(), &replicas);
    }
    builder.finish();
    out
}
