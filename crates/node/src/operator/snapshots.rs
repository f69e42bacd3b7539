//! Snapshots of tables: `snapshots/TAG` in a table's directory, with hard links of its sstables, and what they are of:
//!
//! - `schema.records`: the table and its keyspace as records ([`schema::record::seal_objects`]). What a restore goes
//!   by: it has the ids of table and columns.
//! - `schema.cql`: the table as a statement, as Cassandra writes it, for people and tools.
//! - `manifest.json`: the names of the sstables' files, and when the snapshot was made and ends, as Cassandra writes
//!   it.
//!
//! The manifest is written last: a snapshot without one was not finished. The directory of a table stays when the table
//! is dropped, with its snapshots.
//!
//! Before a table is dropped or truncated its node keeps what it has in a snapshot of its own accord (option
//! `auto_snapshot`), named `dropped-MILLISECONDS-TABLE` or `truncated-MILLISECONDS-TABLE`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use admin::operator::{Selection, Snapshot};
use dynamodb_engine::backups::{SNAPSHOT_PREFIX, TakenSnapshot};
use query::Engine;
use replica::{SNAPSHOTS, TableStore, Tablet};
use runtime::fs;
use schema::record::seal_objects;
use schema::{KeyspaceObject, Object, Schema, TableId};
use serde_json::{Value, json};
use tasks::Task;
use types::{CqlType, LiteralKind, iso_seconds};

use super::jobs::flush;
use super::selected;
use crate::follow::on_all_shards;
use crate::shard_main::follower;

pub(super) const MANIFEST: &str = "manifest.json";
const SCHEMA: &str = "schema.cql";
const RECORDS: &str = "schema.records";
/// Snapshots that end within it of each other are removed together.
const EXPIRY_DELAY_MIN: Duration = Duration::from_secs(1);
/// When a removal that failed is tried again.
const EXPIRY_RETRY: Duration = Duration::from_mins(1);

/// A table and its directory, as a thread takes them along.
struct SnapshotTarget {
    id: TableId,
    dir: PathBuf,
    /// The name of its snapshot.
    tag: String,
    schema: String,
    records: Vec<u8>,
}

impl SnapshotTarget {
    /// A table of a schema.
    fn of(store: &TableStore, schema: &Schema, tag: String) -> Self {
        let table = store.table();
        let keyspace = schema.keyspaces.get(&table.keyspace);
        let keyspace = keyspace.map(|keyspace| Object::Keyspace(KeyspaceObject::of(keyspace)));
        let of = schema.keyspaces.get(&table.keyspace);
        let types = of.map_or_else(Vec::new, |keyspace| keyspace.types_in_order());
        let types: Vec<_> = types.into_iter().filter(|udt| table.uses_type(&udt.name)).collect();
        let objects: Vec<Object> = keyspace
            .into_iter()
            .chain(types.iter().map(|udt| Object::Type(Arc::clone(udt))))
            .chain([Object::Table(table.clone())])
            .collect();
        let mut text: Vec<String> = types.iter().map(|udt| schema::describe_type(udt)).collect();
        text.extend(of.map(|keyspace| schema::describe_table(keyspace, &table, true)));
        Self {
            id: table.id,
            dir: store.dir.clone(),
            tag,
            schema: text.join("\n\n"),
            records: seal_objects(&objects),
        }
    }

    fn snapshot(&self) -> PathBuf {
        self.dir.join(SNAPSHOTS).join(&self.tag)
    }
}

fn at(path: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}", path.display())
}

/// Takes a snapshot of the tables that are meant, if it flushes with what is in memory. It ends after `ttl`, if it has
/// one.
pub(super) async fn take(
    engine: &Rc<Engine>,
    tag: String,
    ttl: Option<Duration>,
    (what, flushes): (Selection, bool),
    task: &Task,
) -> Result<(), String> {
    let schema = engine.schema();
    let stores = selected(engine, &what);
    let places: Vec<SnapshotTarget> = stores
        .iter()
        .map(|store| SnapshotTarget::of(store, &schema, tag.clone()))
        .collect();
    if let Some(place) = places.iter().find(|place| fs::exists(place.snapshot())) {
        let of = stores
            .iter()
            .find(|store| store.dir == place.dir)
            .expect("it is one of them")
            .table();
        return Err(format!("snapshot {tag} of {}.{} already exists", of.keyspace, of.name));
    }
    task.set_total(places.len() as u64 * u64::from(runtime::shard_count()));
    if flushes {
        flush(what, task.as_origin()).await?;
    }
    // A tablet that moves between two shards would be missed, or counted twice.
    let _as_it_is = follower().hold().await;
    let control = task.control();
    make(places, ttl, move || control.advance(1)).await
}

/// Links the sstables of tables into their snapshots and writes what they are of. `linked` is called for each table and
/// shard.
async fn make(
    places: Vec<SnapshotTarget>,
    ttl: Option<Duration>,
    linked: impl Fn() + Clone + Send + 'static,
) -> Result<(), String> {
    let wanted: Vec<(TableId, String)> = places.iter().map(|place| (place.id, place.tag.clone())).collect();
    let link = async move |engine: Rc<Engine>| {
        let mut names = Vec::new();
        for (id, tag) in &wanted {
            if let Some(store) = engine.coordinator.context.shard.store(*id) {
                names.push((*id, engine.coordinator.context.shard.link_snapshot(&store, tag).await?));
            }
            linked();
        }
        Ok::<_, String>(names)
    };
    let names: Result<Vec<_>, String> = on_all_shards(link).await.into_iter().collect();
    let names: Vec<(TableId, Vec<String>)> = names?.into_iter().flatten().collect();
    let made = runtime::wall_clock_us() / 1_000_000;
    let ends = ttl.map(|ttl| made.saturating_add(i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX)));
    let describe = move || {
        for place in &places {
            let of_table = names
                .iter()
                .filter(|(id, _)| *id == place.id)
                .flat_map(|(_, names)| names);
            let mut files: Vec<&String> = of_table.collect();
            files.sort();
            let manifest = json!({
                "files": files,
                "created_at": iso_seconds(made),
                "expires_at": ends.map(iso_seconds),
            });
            let texts = [
                (RECORDS, place.records.clone()),
                (SCHEMA, format!("{}\n", place.schema).into_bytes()),
                (MANIFEST, format!("{manifest}\n").into_bytes()),
            ];
            let target = place.snapshot();
            for (name, bytes) in texts {
                let path = target.join(name);
                fs::write(&path, &bytes).map_err(|e| at(&path, &e))?;
            }
            fs::sync_dir(&target).map_err(|e| at(&target, &e))?;
        }
        Ok::<_, String>(())
    };
    runtime::offload(describe).await?;
    if ttl.is_some() {
        follower().snapshot_with_end.notify_all();
    }
    Ok(())
}

/// What is about to happen to tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    Dropped,
    Truncated,
}

/// Keeps what tables have, and what of them is in memory, before it is deleted; `schema` is that in which they are. A
/// table without data leaves no snapshot. No tablet moves during it.
///
/// # Errors
/// When something could not be kept.
pub(crate) async fn keep(
    engine: &Rc<Engine>,
    schema: &Schema,
    tables: &[TableId],
    loss: Loss,
    ttl: Option<Duration>,
) -> Result<(), String> {
    let ids = tables.to_vec();
    let flush = async move |engine: Rc<Engine>| {
        let mut full = Vec::new();
        for store in ids.iter().filter_map(|id| engine.coordinator.context.shard.store(*id)) {
            for tablet in store.tablets().iter() {
                engine.coordinator.context.shard.flush(&store, tablet).await?;
                if !tablet.is_empty() {
                    full.push(store.table().id);
                }
            }
        }
        Ok::<_, String>(full)
    };
    let full: Result<Vec<_>, String> = on_all_shards(flush).await.into_iter().collect();
    let full: BTreeSet<TableId> = full?.into_iter().flatten().collect();
    if full.is_empty() {
        return Ok(());
    }
    let word = match loss {
        Loss::Dropped => "dropped",
        Loss::Truncated => "truncated",
    };
    let milliseconds = runtime::wall_clock_us() / 1000;
    let place = |id: &TableId| {
        let store = engine.coordinator.context.shard.store(*id)?;
        let tag = format!("{word}-{milliseconds}-{}", store.table().name);
        Some(SnapshotTarget::of(&store, schema, tag))
    };
    let places: Vec<SnapshotTarget> = full.iter().filter_map(place).collect();
    let tags: Vec<String> = places.iter().map(|place| place.tag.clone()).collect();
    make(places, ttl, || ()).await?;
    for tag in tags {
        log::info!("snapshot {tag} keeps the data of a table that was {word}");
    }
    Ok(())
}

/// Keeps what a table has, and what of it is in memory, in a snapshot of a backup; one of that name is replaced.
/// Returns its bytes, and the version of the cluster that decided what the table has here.
///
/// # Errors
/// When something cannot be kept, or what the node has is not whole.
pub(super) async fn keep_for_backup(engine: &Rc<Engine>, id: TableId, tag: String) -> Result<TakenSnapshot, String> {
    let flush = async move |engine: Rc<Engine>| {
        let shard = &engine.coordinator.context.shard;
        let store = shard.store(id).ok_or("the table is not there")?;
        for tablet in store.tablets().iter() {
            shard.flush(&store, tablet).await?;
        }
        Ok::<_, String>(())
    };
    on_all_shards(flush).await.into_iter().collect::<Result<(), String>>()?;
    // A tablet that moves between two shards would be missed, or counted twice.
    let _as_it_is = follower().hold().await;
    let is_whole = async move |engine: Rc<Engine>| {
        let store = engine.coordinator.context.shard.store(id);
        let store = store.ok_or("the table is not there")?;
        let misses = |tablet: &Rc<Tablet>| tablet.with_version(|version| !version.missing.is_empty());
        if store.tablets().iter().any(misses) {
            return Err("a damaged sstable of the table was moved aside".to_owned());
        }
        Ok(())
    };
    on_all_shards(is_whole)
        .await
        .into_iter()
        .collect::<Result<(), String>>()?;
    let version = engine.coordinator.context.view().version;
    let schema = engine.schema();
    let store = engine
        .coordinator
        .context
        .shard
        .store(id)
        .ok_or("the table is not there")?;
    let place = SnapshotTarget::of(&store, &schema, tag);
    let dir = place.snapshot();
    let former = dir.clone();
    let remove = move || {
        if fs::exists(&former) {
            fs::remove_dir_all(&former).map_err(|e| at(&former, &e))?;
        }
        Ok::<_, String>(())
    };
    runtime::offload(remove).await?;
    make(vec![place], None, || ()).await?;
    let measure = move || {
        let files = fs::read_dir(&dir).map_err(|e| at(&dir, &e))?;
        Ok::<_, String>(files.iter().map(|file| file.len).sum())
    };
    let bytes = runtime::offload(measure).await?;
    Ok(TakenSnapshot { version, bytes })
}

/// A snapshot on the disk.
pub(super) struct Stored {
    pub(super) snapshot: Snapshot,
    pub(super) dir: PathBuf,
    /// When it ends, seconds of the wall clock.
    ends: Option<i64>,
}

/// Finds the snapshots below the directory of sstables, those of dropped tables too. Blocks.
pub(super) fn find(data_dir: &Path) -> Result<Vec<Stored>, String> {
    let directories = |above: &Path| -> Result<Vec<String>, String> {
        if !fs::exists(above) {
            return Ok(Vec::new());
        }
        let entries = fs::read_dir(above).map_err(|e| at(above, &e))?;
        Ok(entries
            .into_iter()
            .filter(|entry| entry.is_dir)
            .map(|entry| entry.name)
            .collect())
    };
    let mut found = Vec::new();
    for keyspace in directories(data_dir)? {
        for table_dir in directories(&data_dir.join(&keyspace))? {
            let of_table = data_dir.join(&keyspace).join(&table_dir);
            // NAME-ID; ids have no dash, and names of tables of the DynamoDB API may have some.
            let table = table_dir
                .rsplit_once('-')
                .map_or(&*table_dir, |(name, _)| name)
                .to_owned();
            for tag in directories(&of_table.join(SNAPSHOTS))? {
                let dir = of_table.join(SNAPSHOTS).join(&tag);
                let files = fs::read_dir(&dir).map_err(|e| at(&dir, &e))?;
                let own = files.iter().filter(|file| !fs::exists(of_table.join(&file.name)));
                let (created_ms, expires_ms) = times(&dir.join(MANIFEST));
                found.push(Stored {
                    snapshot: Snapshot {
                        created_ms,
                        expires_ms,
                        tag,
                        keyspace: keyspace.clone(),
                        table: table.clone(),
                        own_bytes: own.map(|file| file.len).sum(),
                        bytes: files.iter().map(|file| file.len).sum(),
                    },
                    ends: expires_ms.map(|ms| ms / 1000),
                    dir,
                });
            }
        }
    }
    Ok(found)
}

/// When the snapshot of a manifest was made and when it ends, in milliseconds since 1970. None where it does not say
/// so, or does not end.
fn times(manifest: &Path) -> (Option<i64>, Option<i64>) {
    let manifest = fs::read(manifest).ok();
    let manifest: Option<Value> = manifest.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let time = |name: &str| {
        let text = manifest.as_ref()?.get(name)?.as_str()?;
        let milliseconds = CqlType::Timestamp.parse_literal(LiteralKind::String, text).ok()?;
        Some(i64::from_be_bytes(milliseconds.try_into().ok()?))
    };
    (time("created_at"), time("expires_at"))
}

/// The snapshots of tables that exist, and of those that were dropped.
pub(crate) async fn list(engine: &Rc<Engine>) -> Result<Vec<Snapshot>, String> {
    let data_dir = engine.coordinator.context.shard.data_dir().to_owned();
    let found = runtime::offload(move || find(&data_dir)).await?;
    Ok(found.into_iter().map(|stored| stored.snapshot).collect())
}

/// Forgets the snapshots of a tag, or all, of the tables that are meant. Those of backups belong to the DynamoDB API,
/// and are forgotten only by their tag.
pub(super) async fn clear(engine: &Rc<Engine>, tag: Option<String>, what: Selection) -> Result<(), String> {
    let data_dir = engine.coordinator.context.shard.data_dir().to_owned();
    let remove = move || {
        for Stored { snapshot, dir, .. } in find(&data_dir)? {
            let is_meant = match &tag {
                Some(tag) => *tag == snapshot.tag,
                None => !snapshot.tag.starts_with(SNAPSHOT_PREFIX),
            };
            if is_meant && what.has(&snapshot.keyspace, &snapshot.table) {
                fs::remove_dir_all(&dir).map_err(|e| at(&dir, &e))?;
            }
        }
        Ok(())
    };
    runtime::offload(remove).await
}

/// Removes snapshots whose time is over, again and again. To be spawned; ends never.
pub(crate) async fn remove_expired(engine: Rc<Engine>) {
    loop {
        let made = follower().snapshot_with_end.notified();
        let data_dir = engine.coordinator.context.shard.data_dir().to_owned();
        let now = runtime::wall_clock_us() / 1_000_000;
        let remove = move || {
            let mut next: Option<i64> = None;
            for Stored { snapshot, dir, ends } in find(&data_dir)? {
                let Some(end) = ends else { continue };
                if end > now {
                    next = Some(next.map_or(end, |next| next.min(end)));
                    continue;
                }
                fs::remove_dir_all(&dir).map_err(|e| at(&dir, &e))?;
                log::info!(
                    "removed expired snapshot {} of {}.{}",
                    snapshot.tag,
                    snapshot.keyspace,
                    snapshot.table
                );
            }
            Ok::<_, String>(next)
        };
        let next = runtime::offload(remove).await;
        let next = next.inspect_err(|e| log::error!("cannot remove an expired snapshot: {e}"));
        match next {
            Ok(None) => made.await,
            Ok(Some(end)) => {
                let left = Duration::from_secs(u64::try_from(end - now).unwrap_or(0)).max(EXPIRY_DELAY_MIN);
                let _ = runtime::timeout(left, made).await;
            }
            Err(_) => runtime::sleep(EXPIRY_RETRY).await,
        }
    }
}
