//! Schema changes by all nodes at once, in keyspace `d`: tables of each node's own, and columns of a table that all
//! share. And what operators make of both keyspaces.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use super::clients::{CHANGE_WAIT_MAX, Clients, Phase};
use super::layout::Layout;
use crate::client::{Answer, Client};
use crate::model::Value;

const SERVER_ERROR: i32 = 0x0000;

/// What is known of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    There,
    Gone,
    InDoubt,
}

/// What was asked for, and what was promised of it.
#[derive(Default)]
pub(crate) struct SchemaChanges {
    tables: RefCell<BTreeMap<String, Known>>,
    columns: RefCell<BTreeMap<String, Known>>,
    columns_of_r: RefCell<BTreeMap<String, Known>>,
}

impl Clients {
    /// Gives the keyspaces the replication and the kind that they are to have, again and again until it is
    /// acknowledged. Ends never.
    pub(super) async fn alter_keyspaces(self: Rc<Self>) {
        loop {
            runtime::sleep(Duration::from_millis(200)).await;
            if self.is_altered.get() {
                continue;
            }
            let node = self.any_member();
            let Some(mut client) = self.connect(node).await else {
                continue;
            };
            let wanted = || (self.layout.wanted.get(), self.layout.is_swapped.get());
            let asked = wanted();
            let replication = Layout::replication(self.layout.wanted.get());
            let mut is_altered = true;
            for (number, keyspace) in ["k", "d"].into_iter().enumerate() {
                let mut text = format!("ALTER KEYSPACE {keyspace} WITH {replication}");
                if self.promises.changes_kinds {
                    let tablets = self.layout.tablets(number);
                    text.push_str(&format!(" AND tablets = {{{tablets}}}"));
                }
                match runtime::timeout(CHANGE_WAIT_MAX, client.ask(&text)).await {
                    Ok(Ok(Answer::Done)) => {}
                    other => {
                        is_altered = false;
                        log::info!("simulation: {text} by node {node}: {other:?}");
                        break;
                    }
                }
            }
            // The operator may have changed his mind while a statement waited.
            self.is_altered.set(is_altered && asked == wanted());
        }
    }

    /// A client of a node that changes the schema now and then. Ends never.
    pub(crate) async fn change_schema(self: Rc<Self>, node: usize) {
        let mut number = 0;
        loop {
            runtime::sleep(Duration::from_millis(500 + runtime::random_u64() % 6000)).await;
            if self.phase.get() != Phase::Work || !self.is_member(node) {
                continue;
            }
            let Some(mut client) = self.connect(node).await else {
                continue;
            };
            number += 1;
            self.change_once(&mut client, node, number).await;
        }
    }

    async fn change_once(&self, client: &mut Client, node: usize, number: u32) {
        let dice = runtime::random_u64() % 5;
        let changes = &self.schema_changes;
        let droppable = |tables: &BTreeMap<String, Known>| {
            let mine = |name: &String| name.starts_with(&format!("n{node}_"));
            let there = tables
                .iter()
                .find(|(name, known)| mine(name) && **known == Known::There);
            there.map(|(name, _)| name.clone())
        };
        let droppable = droppable(&changes.tables.borrow());
        let (text, names, name, then) = match (dice, droppable) {
            (0, Some(name)) => (format!("DROP TABLE d.{name}"), &changes.tables, name, Known::Gone),
            (1, _) => {
                let name = format!("n{node}_{number}");
                (
                    format!("ALTER TABLE d.shared ADD {name} int"),
                    &changes.columns,
                    name,
                    Known::There,
                )
            }
            // While clients write and read it, by prepared statements too.
            (2, _) => {
                let name = format!("n{node}_{number}");
                (
                    format!("ALTER TABLE k.r ADD {name} int"),
                    &changes.columns_of_r,
                    name,
                    Known::There,
                )
            }
            _ => {
                let name = format!("n{node}_{number}");
                let text = format!("CREATE TABLE d.{name} (p int PRIMARY KEY, v int)");
                (text, &changes.tables, name, Known::There)
            }
        };
        names.borrow_mut().insert(name.clone(), Known::InDoubt);
        let (was_faulty, times_faulty) = (self.faulty.get(), self.times_faulty.get());
        let why = match runtime::timeout(CHANGE_WAIT_MAX, client.ask(&text)).await {
            Ok(Ok(Answer::Done)) => {
                names.borrow_mut().insert(name, then);
                self.count(|c| c.schema_changes += 1);
                return;
            }
            Ok(Ok(Answer::Error { code, message })) => {
                if code != SERVER_ERROR {
                    self.fail(format!(
                        "{text} by node {node}: an error that the test does not expect, {code:#x}: {message}"
                    ));
                }
                message
            }
            Ok(Ok(other)) => return self.fail(format!("{text}: {other:?}")),
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("no answer within {CHANGE_WAIT_MAX:?}"),
        };
        // Its wait is longer than some faults last.
        let was_faulty = was_faulty || self.times_faulty.get() != times_faulty;
        self.explain(was_faulty, || format!("{text} by node {node}: {why}"));
    }

    /// Every node has the same schema, with what was acknowledged, and knows the same nodes.
    pub(crate) async fn look_at_the_schema(&self) -> Result<(), String> {
        let mut first: Option<(String, BTreeSet<String>, BTreeSet<String>)> = None;
        let mut first_members: Option<Members> = None;
        for node in self.members() {
            let mut client = self.connect_patiently(node).await?;
            let found = members(&mut client).await?;
            // Those that have come later are full members by now.
            let others = first_members.get_or_insert_with(|| found.clone());
            if *others != found || others.len() != self.members().len() {
                return Err(format!("node {node} knows {found:?}, node 0 {others:?}"));
            }
            let version = texts(&mut client, "SELECT schema_version FROM system.local", "schema_version").await?;
            let version = version.into_iter().next().ok_or("system.local is empty")?;
            let statement = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = 'd'";
            let tables = texts(&mut client, statement, "table_name").await?;
            let statement =
                "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'd' AND table_name = 'shared'";
            let columns = texts(&mut client, statement, "column_name").await?;
            let statement =
                "SELECT column_name FROM system_schema.columns WHERE keyspace_name = 'k' AND table_name = 'r'";
            let columns_of_r = texts(&mut client, statement, "column_name").await?;
            for (names, found) in [
                (&self.schema_changes.columns_of_r, &columns_of_r),
                (&self.schema_changes.tables, &tables),
                (&self.schema_changes.columns, &columns),
            ] {
                for (name, known) in &*names.borrow() {
                    if *known != Known::InDoubt && found.contains(name) != (*known == Known::There) {
                        return Err(format!("node {node}: {name} was acknowledged as {known:?}, and is not"));
                    }
                }
            }
            let seen = (version, tables, columns);
            match &first {
                None => first = Some(seen),
                Some(first) if *first != seen => {
                    return Err(format!(
                        "node {node} has another schema than node 0: {seen:?}, not {first:?}"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// The nodes that a node knows: for each its host id, schema version, datacenter and rack.
type Members = BTreeSet<[Option<String>; 4]>;

async fn members(client: &mut Client) -> Result<Members, String> {
    let mut all = Members::new();
    for table in ["local", "peers"] {
        let statement = format!("SELECT host_id, schema_version, data_center, rack FROM system.{table}");
        match client.ask(&statement).await {
            Ok(Answer::Rows(rows, _)) => all.extend(rows.iter().map(|row| {
                ["host_id", "schema_version", "data_center", "rack"].map(|column| match row.get(column) {
                    Some(Value::Text(text)) => Some(text.clone()),
                    _ => None,
                })
            })),
            other => return Err(format!("{statement}: {other:?}")),
        }
    }
    Ok(all)
}

/// One column of a result, of texts.
async fn texts(client: &mut Client, statement: &str, column: &str) -> Result<BTreeSet<String>, String> {
    match client.ask(statement).await {
        Ok(Answer::Rows(rows, _)) => {
            let text = |row: &BTreeMap<String, Value>| match row.get(column) {
                Some(Value::Text(text)) => Some(text.clone()),
                _ => None,
            };
            Ok(rows.iter().filter_map(text).collect())
        }
        other => Err(format!("{statement}: {other:?}")),
    }
}
