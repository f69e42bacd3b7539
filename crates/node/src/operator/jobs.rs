//! What operators start and may wait for: each is a task, with a part for each tablet or table.

use std::rc::Rc;
use std::sync::Arc;

use admin::operator::{Selection, Started, Work};
use query::Engine;
use replica::kinds;
use tasks::{Kind, Origin, Spec, Task, Tasks};

use super::{selected, snapshots};
use crate::follow::on_all_shards;

/// Begins work. It goes on whether somebody waits for it or not.
pub(super) fn start(engine: &Rc<Engine>, tasks: &Arc<Tasks>, work: Work) -> Started {
    let (kind, what): (&'static Kind, &Selection) = match &work {
        Work::Flush(what) => (&kinds::FLUSH, what),
        Work::Compact { what, .. } => (&kinds::MAJOR_COMPACTION, what),
        Work::Snapshot { what, .. } => (&kinds::SNAPSHOT, what),
    };
    let scope = match (what.keyspaces.len(), what.tables.len()) {
        (1, 1) => "table",
        (1, _) => "keyspace",
        _ => "node",
    };
    let entity = match &work {
        Work::Snapshot { tag, .. } => tag.clone(),
        Work::Flush(_) | Work::Compact { .. } => String::new(),
    };
    let spec = Spec {
        scope,
        keyspace: what.keyspaces.join(","),
        table: what.tables.join(","),
        entity,
        ..Spec::of(kind)
    };
    let task = tasks.start(spec, &Origin::Operator);
    task.begin();
    let (id, engine) = (task.id(), engine.clone());
    let ended = runtime::spawn(async move {
        let result = execute(&engine, &task, work).await;
        task.end(&result);
        result
    });
    Started {
        task: id,
        ended: Box::pin(ended),
    }
}

async fn execute(engine: &Rc<Engine>, task: &Task, work: Work) -> Result<(), String> {
    match work {
        Work::Flush(what) => {
            task.set_total(bytes(&what, true, false).await);
            flush(what, task.as_origin()).await
        }
        Work::Compact { what, flushes } => {
            task.set_total(bytes(&what, flushes, true).await);
            if flushes {
                flush(what.clone(), task.as_origin()).await?;
            }
            compact(what, task.as_origin()).await
        }
        Work::Snapshot { tag, what } => snapshots::take(engine, tag, what, task).await,
    }
}

/// The bytes of the tables that are meant, in memtables and in sstables before compression.
async fn bytes(what: &Selection, in_memory: bool, in_files: bool) -> u64 {
    let what = what.clone();
    let of_shard = async move |engine: Rc<Engine>| {
        let mut bytes = 0;
        for store in selected(&engine, &what) {
            for tablet in store.tablets().iter() {
                tablet.with_version(|version| {
                    if in_memory {
                        let frozen = version.frozen.iter().map(|frozen| frozen.memtable.bytes());
                        bytes += frozen.sum::<usize>() as u64 + version.active.borrow().bytes() as u64;
                    }
                    if in_files {
                        bytes += version
                            .sstables
                            .iter()
                            .map(|reader| reader.meta().data_len)
                            .sum::<u64>();
                    }
                });
            }
        }
        bytes
    };
    on_all_shards(of_shard).await.into_iter().sum()
}

/// Flushes the tables that are meant.
pub(super) async fn flush(what: Selection, origin: Origin) -> Result<(), String> {
    let work = async move |engine: Rc<Engine>| {
        let mut result = Ok(());
        for store in selected(&engine, &what) {
            for tablet in store.tablets().iter() {
                let flushed = engine.shard.flush_for(&store, tablet, &origin).await;
                result = result.and(flushed);
            }
        }
        result
    };
    on_all_shards(work).await.into_iter().collect()
}

async fn compact(what: Selection, origin: Origin) -> Result<(), String> {
    let work = async move |engine: Rc<Engine>| {
        let mut result = Ok(());
        for store in selected(&engine, &what) {
            let compacted = engine.shard.compact_table_for(&store, &origin).await;
            result = result.and(compacted);
        }
        result
    };
    on_all_shards(work).await.into_iter().collect()
}
