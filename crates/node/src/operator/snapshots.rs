//! Snapshots of tables: `snapshots/TAG` in a table's directory, with hard links of its sstables, and what they are of:
//!
//! - `schema.records`: the table and its keyspace as records ([`schema::record::seal_objects`]). What a restore goes by: it has the ids of table and columns.
//! - `schema.cql`: the table as a statement, as Cassandra writes it, for people and tools.
//! - `manifest.json`: the names of the sstables' files, as Cassandra writes it.
//!
//! The manifest is written last: a snapshot without one was not finished.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use admin::operator::{Selection, Snapshot};
use query::Engine;
use replica::SNAPSHOTS;
use runtime::fs;
use schema::record::seal_objects;
use schema::{KeyspaceObject, Object};

use tasks::Task;

use super::jobs::flush;
use super::selected;
use crate::follow::on_all_shards;
use crate::shard_main::follower;

const MANIFEST: &str = "manifest.json";
const SCHEMA: &str = "schema.cql";
const RECORDS: &str = "schema.records";

/// A table and its directory, as a thread takes them along.
struct Place {
    keyspace: String,
    table: String,
    dir: PathBuf,
    schema: String,
    records: Vec<u8>,
}

fn places(engine: &Engine, what: &Selection) -> Vec<Place> {
    let stores = selected(engine, what);
    let schema = engine.schema();
    let places = stores.iter().map(|store| {
        let table = store.table();
        let keyspace = schema.keyspaces.get(&table.keyspace);
        let keyspace = keyspace.map(|keyspace| Object::Keyspace(KeyspaceObject::of(keyspace)));
        let objects: Vec<Object> = keyspace.into_iter().chain([Object::Table(table.clone())]).collect();
        Place {
            keyspace: table.keyspace.clone(),
            table: table.name.clone(),
            dir: store.dir.clone(),
            schema: schema::describe_table(&table, true),
            records: seal_objects(&objects),
        }
    });
    places.collect()
}

fn at(path: &Path, e: &std::io::Error) -> String {
    format!("{}: {e}", path.display())
}

/// Takes a snapshot of the tables that are meant, with what is in memory.
pub(super) async fn take(engine: &Rc<Engine>, tag: String, what: Selection, task: &Task) -> Result<(), String> {
    let places = places(engine, &what);
    if let Some(place) = places
        .iter()
        .find(|place| fs::exists(place.dir.join(SNAPSHOTS).join(&tag)))
    {
        let (keyspace, table) = (&place.keyspace, &place.table);
        return Err(format!("snapshot {tag} of {keyspace}.{table} already exists"));
    }
    task.set_total(places.len() as u64 * u64::from(runtime::shard_count()));
    flush(what.clone(), task.as_origin()).await?;
    // A tablet that moves between two shards would be missed, or counted twice.
    let _as_it_is = follower().hold().await;
    let (tag_there, control) = (tag.clone(), task.control());
    let link = async move |engine: Rc<Engine>| {
        let mut linked = Vec::new();
        for store in selected(&engine, &what) {
            linked.push((store.dir.clone(), engine.shard.link_snapshot(&store, &tag_there).await?));
            control.advance(1);
        }
        Ok::<_, String>(linked)
    };
    let linked: Result<Vec<_>, String> = on_all_shards(link).await.into_iter().collect();
    let linked: Vec<(PathBuf, Vec<String>)> = linked?.into_iter().flatten().collect();
    let describe = move || {
        for place in places {
            let target = place.dir.join(SNAPSHOTS).join(&tag);
            let names = linked
                .iter()
                .filter(|(dir, _)| *dir == place.dir)
                .flat_map(|(_, names)| names);
            let mut names: Vec<&String> = names.collect();
            names.sort();
            let manifest = serde_json::json!({ "files": names }).to_string();
            let files = [
                (RECORDS, place.records),
                (SCHEMA, format!("{}\n", place.schema).into_bytes()),
                (MANIFEST, format!("{manifest}\n").into_bytes()),
            ];
            for (name, bytes) in files {
                let path = target.join(name);
                fs::write(&path, &bytes).map_err(|e| at(&path, &e))?;
            }
            fs::sync_dir(&target).map_err(|e| at(&target, &e))?;
        }
        Ok(())
    };
    runtime::offload(describe).await
}

/// The snapshots of tables that exist.
pub(super) async fn list(engine: &Rc<Engine>) -> Result<Vec<Snapshot>, String> {
    let places = places(engine, &Selection::default());
    let look = move || {
        let mut found = Vec::new();
        for place in places {
            let above = place.dir.join(SNAPSHOTS);
            if !fs::exists(&above) {
                continue;
            }
            let tags = fs::read_dir(&above).map_err(|e| at(&above, &e))?;
            for tag in tags.into_iter().filter(|entry| entry.is_dir) {
                let dir = above.join(&tag.name);
                let files = fs::read_dir(&dir).map_err(|e| at(&dir, &e))?;
                let own = files.iter().filter(|file| !fs::exists(place.dir.join(&file.name)));
                found.push(Snapshot {
                    tag: tag.name,
                    keyspace: place.keyspace.clone(),
                    table: place.table.clone(),
                    own_bytes: own.map(|file| file.len).sum(),
                    bytes: files.iter().map(|file| file.len).sum(),
                });
            }
        }
        Ok(found)
    };
    runtime::offload(look).await
}

/// Forgets the snapshots of a tag, or all, of the tables that are meant.
pub(super) async fn clear(engine: &Rc<Engine>, tag: Option<String>, what: Selection) -> Result<(), String> {
    let places = places(engine, &what);
    let remove = move || {
        for place in places {
            let above = place.dir.join(SNAPSHOTS);
            let dir = match &tag {
                Some(tag) => above.join(tag),
                None => above,
            };
            if fs::exists(&dir) {
                fs::remove_dir_all(&dir).map_err(|e| at(&dir, &e))?;
            }
        }
        Ok(())
    };
    runtime::offload(remove).await
}
