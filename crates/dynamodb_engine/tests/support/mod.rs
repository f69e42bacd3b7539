//! The API on a simulated node of two shards, whose schema changes as a node's does.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::SyncMode;
use coordinator::{ClusterView, Coordinator};
use dynamodb::{AttributeValue, Error, Item, Number};
use dynamodb_engine::backups::{BackupFiles, StoredSnapshot, TakenSnapshot, Work, keep_files};
use dynamodb_engine::modify::{Change, Modification};
use dynamodb_engine::transaction::Action;
use dynamodb_engine::{Service, Settings};
use query::Engine;
use query::engine::{KeepError, NodeState, SchemaKeeper, SharedStatements};
use replica::{SNAPSHOTS, Shard, TableFiles};
use runtime::ShardId;
use schema::record::seal_objects;
use schema::{Object, Schema, TableId};
use system_tables::Builder;
use test_node::{Machines, Options, Process};
use topology::{HostId, Replication, Topology};
use uuid::Uuid;

const SHARDS: u32 = 2;
const HOST: HostId = HostId(Uuid::from_u128(7));
const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::LOCALHOST), 7000);

/// Gives every change of the schema to all shards, and keeps nothing on disk.
struct Keeper;

impl SchemaKeeper for Keeper {
    fn change(
        &self,
        base: Uuid,
        next: Arc<Schema>,
    ) -> Pin<Box<dyn Future<Output = Result<Vec<String>, KeepError>> + '_>> {
        Box::pin(async move {
            if Engine::local().schema().version != base {
                return Err(KeepError::Conflict);
            }
            for shard in 0..SHARDS {
                let next = next.clone();
                runtime::submit_async_to(ShardId(shard), move || async move { take_schema(next) }).await;
            }
            Ok(Vec::new())
        })
    }

    fn truncate(
        &self,
        _table: TableId,
        _replicas: Vec<HostId>,
        _timeout: Option<Duration>,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + '_>> {
        Box::pin(async { Err("nothing is truncated here".to_owned()) })
    }
}

/// Opens the tables that are new on this shard, and routes and plans by the schema from here on.
fn take_schema(next: Arc<Schema>) {
    let shard = runtime::local::<Shard>().expect("the shard was opened");
    for table in next.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
        if shard.store(table.id).is_none() {
            for table in [table, &coordinator::paxos_state_of(table)] {
                shard.open_table(table, &[shard.token_range()], &TableFiles::default());
            }
        }
    }
    Coordinator::local().take_view(Arc::new(view(&next)));
    Engine::local().take_schema(next);
}

/// A node that is alone, and has the only copy of every table.
fn view(schema: &Schema) -> ClusterView {
    let topology = Arc::new(Topology::alone("test", test_node::member(HOST, ADDRESS, SHARDS as u16)));
    let keyspaces = schema.keyspaces.values().map(|keyspace| {
        let tables = keyspace.tables.values().map(|table| table.id).collect();
        (keyspace.name.as_str(), Replication::Simple { factor: 1 }, tables)
    });
    ClusterView::new(topology, HOST, keyspaces, &BTreeMap::new()).expect("the node is a member")
}

/// The files of a node's backups, as a node keeps them.
struct Files;

/// Flushes the tablets of a table on this shard and links their files.
async fn link(table: TableId, name: String) -> Result<(), String> {
    let shard = runtime::local::<Shard>().expect("the shard was opened");
    let store = shard.store(table).ok_or("the table is not there")?;
    for tablet in store.tablets().iter() {
        shard.flush(&store, tablet).await?;
    }
    shard.link_snapshot(&store, &name).await.map(drop)
}

fn directory(name: &str) -> Result<Option<PathBuf>, String> {
    let shard = runtime::local::<Shard>().expect("the shard was opened");
    let schema = Engine::local().schema();
    let tables = schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values());
    let mut directories = tables.map(|table| shard.table_dir(table).join(SNAPSHOTS).join(name));
    Ok(directories.find(|directory| runtime::fs::exists(directory)))
}

impl BackupFiles for Files {
    fn take(&self, table: TableId, name: String) -> Work<TakenSnapshot> {
        Box::pin(async move {
            for shard in 0..SHARDS {
                let name = name.clone();
                runtime::submit_async_to(ShardId(shard), move || link(table, name)).await?;
            }
            let schema = Engine::local().schema();
            let known = schema.table_by_id(table).ok_or("the table is not there")?;
            let records = seal_objects(&[Object::Table(known.clone())]);
            let directory = directory(&name)?.ok_or("the snapshot was linked")?;
            runtime::fs::write(directory.join("schema.records"), &records).map_err(|error| error.to_string())?;
            let version = Engine::local().coordinator.context.view().version;
            Ok(TakenSnapshot { version, bytes: 7 })
        })
    }

    fn stored(&self) -> Work<Vec<StoredSnapshot>> {
        Box::pin(async {
            let shard = runtime::local::<Shard>().expect("the shard was opened");
            let schema = Engine::local().schema();
            let mut stored = Vec::new();
            for table in schema.keyspaces.values().flat_map(|keyspace| keyspace.tables.values()) {
                let above = shard.table_dir(table).join(SNAPSHOTS);
                for entry in runtime::fs::read_dir(&above).unwrap_or_default() {
                    stored.push(StoredSnapshot {
                        directory: above.join(&entry.name),
                        name: entry.name,
                        is_whole: true,
                    });
                }
            }
            Ok(stored)
        })
    }

    fn remove(&self, name: String) -> Work<()> {
        Box::pin(async move {
            match directory(&name)? {
                Some(directory) => runtime::fs::remove_dir_all(directory).map_err(|error| error.to_string()),
                None => Ok(()),
            }
        })
    }
}

fn service(process: &Process) -> Rc<Service> {
    let shard = process.open(runtime::shard());
    let schema = Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    };
    let node = NodeState {
        system_tables: Arc::new(Builder::new().build()),
        described: Box::new(|| panic!("nothing describes the cluster")),
        statements: SharedStatements::default(),
    };
    let coordinator = Coordinator::new(shard.clone(), None, Arc::new(view(&schema)));
    runtime::set_local(shard);
    runtime::set_local(coordinator.clone());
    let engine = Engine::new(coordinator, Arc::new(node), Arc::new(schema));
    runtime::set_local(engine.clone());
    let service = Service::new(engine, Settings::default());
    runtime::set_local(service.clone());
    service
}

/// Runs requests on shard 0 of a node.
pub fn with_service<F: Future<Output = ()> + 'static>(seed: u64, test: impl FnOnce(Rc<Service>) -> F + 'static) {
    let mut machines = Machines::new(seed);
    machines.add(SHARDS);
    let prepare = || {
        let options = Options {
            host_id: HOST.0,
            shards: SHARDS,
            sync: SyncMode::Periodic(Duration::from_secs(10)),
            log_bytes_max: 16 << 20,
            dirty_bytes_max: 4 << 20,
            ..Options::default()
        };
        Process::start(options, Vec::new())
    };
    machines.start(0, prepare, |process| async move { service(&process) });
    machines.await_start(0);
    machines.on(0, move |service| async move {
        service.engine().set_keeper(Rc::new(Keeper));
        keep_files(Box::new(Files));
        test(service).await;
    });
}

/// The answer to a request: its body, or the error's.
pub async fn ask(service: &Rc<Service>, operation: &str, body: &str) -> String {
    let answer = service.execute(operation, body.as_bytes()).await;
    let bytes = answer.unwrap_or_else(|error| {
        let mut bytes = Vec::new();
        error.write_json(&mut bytes);
        bytes
    });
    String::from_utf8(bytes).expect("answers are text")
}

/// Creates a table with the partition key `p`, a text.
pub async fn create_table(service: &Rc<Service>, name: &str) {
    let body = format!(
        r#"{{"TableName":"{name}","AttributeDefinitions":[{{"AttributeName":"p","AttributeType":"S"}}],"KeySchema":[{{"AttributeName":"p","KeyType":"HASH"}}],"BillingMode":"PAY_PER_REQUEST"}}"#
    );
    let created = ask(service, "CreateTable", &body).await;
    assert!(created.contains("ACTIVE"), "{created}");
}

/// Sets the number `n` of an item, whatever it was.
struct SetTo(i64);

impl Modification for SetTo {
    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error> {
        let mut item = old.cloned().unwrap_or_default();
        item.insert("n".to_owned(), AttributeValue::N(Number::from(self.0)));
        Ok(Change::Put(Cow::Owned(item)))
    }

    fn unread(&self) -> Option<Change<'_>> {
        None
    }
}

/// The actions of a transaction that sets the number `n` of items of one table.
pub fn set_numbers(service: &Rc<Service>, table: &str, keys: &[&str], number: i64) -> Vec<Action> {
    let table = service.table(table).expect("it was created");
    let action = |key: &&str| Action {
        table: table.clone(),
        key: table
            .key_of_values(&[&AttributeValue::S((*key).to_owned())])
            .expect("it is a key"),
        modification: Arc::new(SetTo(number)),
    };
    keys.iter().map(action).collect()
}
