//! Scripts of statements and what they answer.
//!
//! Each file of `tests/ddl` is a suite of `testkit`: statements and their answers. All but `own.txt` were recorded from a
//! running Apache Cassandra 4.1.7, so a difference is a difference from it. `begin anew` is an empty schema, `join a
//! cluster` gives the node others around it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use cql::ast::{Selection, Selector, Statement};
use cql_compiler::describe::{self, DescribeContext, NodeFacts};
use mutation::{Mutation, MutationItem, RowView};
use query::ddl::{self, DdlContext, schema_version};
use query::system::{self, ClientInfo, NodeInfo, PeerInfo};
use query::{QueryError, ResultColumn};
use schema::{Column, ColumnId, ColumnKind, Schema, Table, components, describe_keyspace, describe_table};
use topology::NodeState;
use types::CqlType;
use uuid::Uuid;

struct Session {
    schema: Schema,
    keyspace: Option<String>,
    node: NodeInfo,
    statements: u32,
}

fn error(e: &QueryError) -> String {
    match e {
        QueryError::Syntax(m) => format!("Syntax: {m}"),
        QueryError::Invalid(m) => format!("Invalid: {m}"),
        QueryError::Config(m) => format!("Config: {m}"),
        QueryError::Unauthorized(m) => format!("Unauthorized: {m}"),
        QueryError::AlreadyExists { keyspace, table } if table.is_empty() => format!("AlreadyExists: {keyspace}"),
        QueryError::AlreadyExists { keyspace, table } => format!("AlreadyExists: {keyspace}.{table}"),
        other => format!("{other:?}"),
    }
}

impl Session {
    fn new() -> Self {
        let mut schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        for k in system::keyspaces() {
            schema.keyspaces.insert(k.name.clone(), k.into());
        }
        schema.version = schema_version(&schema);
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let client = |port: u16, tls: bool| ClientInfo {
            address,
            port,
            hostname: "localhost".to_owned(),
            username: "anonymous".to_owned(),
            connection_stage: "ready".to_owned(),
            shard: u32::from(tls),
            scheduling_group: if tls { "statement" } else { "sl:driver" }.to_owned(),
            protocol_version: Some(5),
            driver_name: (!tls).then(|| "a driver".to_owned()),
            driver_version: None,
            client_options: [("CQL_VERSION".to_owned(), "3.4.6".to_owned())].into(),
            request_count: 9,
            tls: tls.then(|| ("TLSv1.3".to_owned(), "TLS_AES_256_GCM_SHA384".to_owned())),
        };
        let node = NodeInfo {
            tokens: vec!["5".to_owned(), "-7".to_owned()],
            settings: [
                ("cluster_name".to_owned(), Some("ceto".to_owned())),
                ("role_manager".to_owned(), None),
            ]
            .into(),
            clients: vec![client(40002, true), client(40001, false)],
            ..NodeInfo::alone(Uuid::from_u128(7), address, 9042, 2)
        };
        Self {
            schema,
            keyspace: None,
            node,
            statements: 0,
        }
    }

    /// The node has others around it: two members in another rack, of which one does not answer, another process on
    /// the address of the first, one that joins and one that left.
    fn join_cluster(&mut self) {
        let peer = |number: u8, state| PeerInfo {
            host_id: Uuid::from_u128(u128::from(number)),
            internode: SocketAddr::from(([127, 0, 0, number], 7000)),
            native: SocketAddr::from(([10, 0, 0, number], 9042)),
            data_center: "datacenter1".to_owned(),
            rack: "rack2".to_owned(),
            release_version: "4.1.7".to_owned(),
            schema_version: Some(Uuid::from_u128(1)),
            tokens: Vec::new(),
            state,
            up: true,
        };
        self.node.tokens = vec!["0".to_owned()];
        let quarters = |tokens: [i64; 2]| tokens.map(|quarter| (quarter << 61).to_string()).to_vec();
        self.node.peers = vec![
            PeerInfo {
                schema_version: None,
                tokens: quarters([1, -2]),
                up: false,
                ..peer(3, NodeState::Leaving)
            },
            PeerInfo {
                tokens: quarters([2, -4]),
                ..peer(2, NodeState::Normal)
            },
            PeerInfo {
                host_id: Uuid::from_u128(22),
                internode: SocketAddr::from(([127, 0, 0, 2], 7001)),
                native: SocketAddr::from(([10, 0, 0, 2], 9043)),
                up: false,
                ..peer(2, NodeState::Normal)
            },
            peer(4, NodeState::Joining),
            peer(5, NodeState::Left),
        ];
    }

    /// The answer to a statement, in lines.
    fn run(&mut self, text: &str) -> String {
        self.statements += 1;
        let statement = match cql::parse(text) {
            Ok(parsed) => parsed.statement,
            Err(e) => return format!("Syntax: {e}\n"),
        };
        match self.execute(&statement) {
            Ok(answer) => answer,
            Err(e) => format!("{}\n", error(&e)),
        }
    }

    fn execute(&mut self, statement: &Statement) -> Result<String, QueryError> {
        match statement {
            Statement::Describe(d) => {
                let ctx = DescribeContext {
                    keyspace: self.keyspace.as_deref(),
                    node: NodeFacts {
                        cluster_name: &self.node.cluster_name,
                        partitioner: &self.node.partitioner,
                        broadcast_address: self.node.broadcast_address,
                        storage_port: self.node.storage_port,
                        tokens: &self.node.tokens,
                    },
                };
                let (columns, rows) = describe::describe(&self.schema, d, &ctx)?;
                Ok(rows
                    .iter()
                    .fold(String::new(), |out, row| out + &print_row(&columns, row)))
            }
            Statement::Use(u) => {
                self.keyspace = Some(u.keyspace.clone());
                Ok("ok\n".to_owned())
            }
            Statement::Select(s) if s.table.keyspace.as_deref().is_some_and(|k| system::kind(k).is_some()) => {
                let keyspace = s.table.keyspace.as_deref().expect("it is a system keyspace");
                let table = self
                    .schema
                    .table(keyspace, &s.table.name)
                    .expect("scripts name system tables that are");
                let all = s.selection == Selection::All;
                let selected = |name: &str| all || selects(&s.selection, name);
                let user = |row: &String| s.relations.is_empty() || row.starts_with("keyspace_name: 'ddk'");
                let rows = read(table, &self.schema, &self.node);
                let lines = rows.iter().map(|r| print_named(r, &selected)).filter(user);
                Ok(lines.collect())
            }
            other => {
                let ctx = DdlContext {
                    keyspace: self.keyspace.as_deref(),
                    now_us: i64::from(self.statements),
                    new_id: Uuid::from_u128(u128::from(self.statements)),
                    nodes: &BTreeMap::from([("datacenter1".to_owned(), 1)]),
                };
                let Some(outcome) = ddl::apply(&self.schema, other, &ctx)? else {
                    return Ok("ok\n".to_owned());
                };
                assert_ne!(
                    outcome.schema.version, self.schema.version,
                    "a changed schema has another version"
                );
                assert!(!outcome.changes.is_empty(), "clients are told of every change");
                self.schema = outcome.schema;
                Ok(outcome
                    .warnings
                    .iter()
                    .fold("ok\n".to_owned(), |out, w| out + "warning: " + w + "\n"))
            }
        }
    }
}

fn selects(selection: &Selection, name: &str) -> bool {
    let Selection::Selectors(selectors) = selection else {
        return true;
    };
    selectors
        .iter()
        .any(|s| s.selector == Selector::Column(name.to_owned()))
}

fn print_row(columns: &[ResultColumn], row: &[Option<Vec<u8>>]) -> String {
    let value = |(c, v): (&ResultColumn, &Option<Vec<u8>>)| match v {
        Some(v) if c.cql_type == CqlType::Text => String::from_utf8_lossy(v).into_owned(),
        Some(v) => c.cql_type.format(v),
        None => "null".to_owned(),
    };
    assert_eq!(columns.len(), row.len(), "a row has a value for each column");
    columns.iter().zip(row).map(value).collect::<Vec<_>>().join(" | ") + "\n"
}

/// A row's columns in SELECT * order, each with its value as a literal.
type NamedRow = Vec<(String, String)>;

fn print_named(row: &NamedRow, selected: &dyn Fn(&str) -> bool) -> String {
    let parts: Vec<String> = row
        .iter()
        .filter(|(n, _)| selected(n))
        .map(|(n, v)| format!("{n}: {v}"))
        .collect();
    parts.join(", ") + "\n"
}

/// The rows of a computed table, unpacked as a reader does.
fn read(table: &Table, schema: &Schema, node: &NodeInfo) -> Vec<NamedRow> {
    let mut rows = Vec::new();
    for bytes in system::contents(table, schema, node, None, 5) {
        let mutation = Mutation::new(&bytes).expect("a packed mutation");
        assert_eq!(mutation.table, table.id, "it is of the table that was asked");
        mutation.validate(&table.layout).expect("it is well-formed");
        let mut before: Option<Vec<u8>> = None;
        for item in mutation.items() {
            let MutationItem::Row { clustering, row } = item else {
                panic!("only rows are computed: {item:?}")
            };
            if let Some(before) = before.replace(clustering.to_vec()) {
                let order = table.clustering_order.compare(&before, clustering);
                assert!(order.is_lt(), "rows of {} come in clustering order", table.name);
            }
            rows.push(read_row(
                table,
                mutation.key,
                clustering,
                RowView::new(row).expect("it was validated"),
            ));
        }
    }
    rows
}

fn read_row(table: &Table, key: &[u8], clustering: &[u8], view: RowView<'_>) -> NamedRow {
    let mut cells: BTreeMap<usize, String> = BTreeMap::new();
    for (id, column) in view.columns(&table.layout) {
        let c = table
            .regulars()
            .find(|c| usize::from(c.id.0) == id)
            .expect("only living columns are computed");
        let text = match column {
            mutation::row::Column::Simple(cell) => c.cql_type.format(cell.value),
            mutation::row::Column::Complex(complex) => {
                let CqlType::Set(element) = &c.cql_type else {
                    panic!("only sets are computed")
                };
                let elements: Vec<String> = complex.elements().map(|(path, _)| element.format(path)).collect();
                format!("{{{}}}", elements.join(", "))
            }
        };
        cells.insert(id, text);
    }
    let mut clustering = components(clustering);
    let mut row = Vec::new();
    for c in &table.columns {
        let value = match c.kind {
            ColumnKind::PartitionKey => c.cql_type.format(key),
            ColumnKind::Clustering => c.cql_type.format(clustering.next().expect("a whole clustering key")),
            _ => cells.remove(&usize::from(c.id.0)).unwrap_or_else(|| "null".to_owned()),
        };
        row.push((c.name.clone(), value));
    }
    row
}

/// What DESCRIBE says of a schema makes an equal one.
fn check_round_trip(schema: &Schema) {
    let mut again = Session::new();
    for k in schema.keyspaces.values().filter(|k| system::kind(&k.name).is_none()) {
        let answer = again.run(&describe_keyspace(k));
        assert!(answer.starts_with("ok\n"), "{}\nanswers {answer}", describe_keyspace(k));
        for t in k.tables.values() {
            for statement in describe_table(t, true).split_inclusive(";\n") {
                assert_eq!(again.run(statement), "ok\n", "{statement}");
            }
            let copy = again.schema.table(&k.name, &t.name).expect("it was just made");
            for internals in [false, true] {
                assert_eq!(
                    describe_table(copy, internals),
                    describe_table(t, internals),
                    "{}.{}",
                    k.name,
                    t.name
                );
            }
            assert_eq!(copy.options, t.options, "{}.{}", k.name, t.name);
            // Column numbers tell the order of ALTERs, which the text does not.
            let without_ids = |t: &Table| -> Vec<Column> {
                t.columns
                    .iter()
                    .map(|c| Column {
                        id: ColumnId(0),
                        ..c.clone()
                    })
                    .collect()
            };
            assert_eq!(without_ids(copy), without_ids(t), "{}.{}", k.name, t.name);
            if usize::from(t.next_column_id) == t.statics().chain(t.regulars()).count() {
                assert_eq!(copy, t, "{}.{} was never altered", k.name, t.name);
            }
        }
        let (copy, k) = (&again.schema.keyspaces[&k.name], k);
        assert_eq!(
            (&copy.replication, copy.durable_writes, &copy.tablets),
            (&k.replication, k.durable_writes, &k.tablets)
        );
    }
}

fn check(path: &str) {
    let mut session = Session::new();
    testkit::run(path, |case| match case.text.as_str() {
        "begin anew" => {
            check_round_trip(&session.schema);
            session = Session::new();
            String::new()
        }
        "join a cluster" => {
            session.join_cluster();
            String::new()
        }
        statement => session.run(statement),
    });
    check_round_trip(&session.schema);
}

macro_rules! scripts {
    ($($name:ident: $what:literal)*) => {
        $(#[test]
        #[doc = $what]
        fn $name() {
            check(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/ddl/", stringify!($name), ".txt"));
        })*
    };
}

scripts! {
    keyspaces: "Keyspaces are created, altered, dropped and refused as in Cassandra."
    tables: "Tables are created, dropped and refused as in Cassandra."
    options: "Table options are kept in the spelling of Cassandra."
    alter: "Tables are altered and refused to be as in Cassandra."
    readd: "Dropped columns come back only as a type that reads what they held."
    describe: "DESCRIBE prints what Cassandra prints."
    schema_rows: "Rows of system_schema are those of Cassandra."
    own: "Where ceto differs from Cassandra it does so as intended."
}
