//! The metadata of a node that meets no others, such as the embedded node of the benches.
//!
//! It has the same file and the same commands as the metadata of a cluster, and no log: the node agrees with itself.
//! All features are enabled at once. A directory with a log belongs to a cluster, and is refused.

use crate::error::ChangeError;
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::metadata::features::FEATURES;
use crate::metadata::file::{self, MetadataFile};
use record::Known;
use runtime::Semaphore;
use schema::Schema;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use topology::{Node, Topology, TopologyCommand};

/// The metadata of a node that meets no others. Lives on shard 0.
pub struct Standalone {
    metadata: RefCell<Arc<Metadata>>,
    file: RefCell<Option<MetadataFile>>,
    one_at_a_time: Semaphore,
}

/// Reads the metadata of a node that meets no others, and writes it at the first start. Blocks; called before the
/// shards start.
///
/// # Errors
/// A sentence, when the file is damaged, cannot be written, or belongs to a cluster.
pub fn load_standalone(dir: &Path, cluster_name: &str, node: Node, schema: Arc<Schema>) -> Result<Metadata, String> {
    if file::has_log(dir) {
        return Err(format!(
            "{}: the metadata belongs to a cluster. Start this node with other directories",
            dir.display()
        ));
    }
    let loaded = file::load(dir, &Known::features(FEATURES.iter().copied())).map_err(|e| e.to_string())?;
    let is_new = loaded.is_none();
    let host_id = node.host_id;
    let mut metadata = loaded.unwrap_or_else(|| Metadata::new(schema, Topology::alone(cluster_name, node)));
    let features: BTreeSet<String> = FEATURES.iter().map(|feature| (*feature).to_owned()).collect();
    let mut commands = Vec::new();
    if *metadata.topology.enabled_features() != features {
        commands.push(TopologyCommand::SetFeatures {
            host_id,
            features: features.clone(),
            release: env!("CARGO_PKG_VERSION").to_owned(),
        });
        commands.push(TopologyCommand::EnableFeatures(features));
    }
    let changes = is_new || !commands.is_empty();
    for command in commands.into_iter().map(Command::Topology) {
        let index = metadata.index + 1;
        let next = metadata.apply(index, &command).map_err(|e| e.to_string())?;
        metadata = metadata.step(index, &command.encode(), Ok(next));
    }
    if changes {
        file::create_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        file::save_whole(dir, &metadata)?;
    }
    Ok(metadata)
}

impl Standalone {
    /// From what [`load_standalone`] gave.
    #[must_use]
    pub fn new(dir: PathBuf, metadata: Metadata) -> Self {
        Self {
            metadata: RefCell::new(Arc::new(metadata)),
            file: RefCell::new(Some(MetadataFile::new(dir))),
            one_at_a_time: Semaphore::new(1),
        }
    }

    /// The present metadata.
    #[must_use]
    pub fn metadata(&self) -> Arc<Metadata> {
        self.metadata.borrow().clone()
    }

    /// Makes a change, and makes it durable.
    ///
    /// # Errors
    /// `Conflict` and `Rejected`; `Timeout` when the disk failed, so that the change may be there after a restart.
    pub async fn propose(&self, command: Command) -> Result<Arc<Metadata>, ChangeError> {
        let _one_at_a_time = self.one_at_a_time.acquire(1).await;
        let now = self.metadata();
        let index = now.index + 1;
        let bytes = command.encode();
        let next = now.apply(index, &command)?;
        let next = Arc::new(now.step(index, &bytes, Ok(next)));
        let mut file = self.file.take().expect("one command is applied at a time");
        let kept = file.change(index, &bytes, &next).await;
        let path = file.path();
        *self.file.borrow_mut() = Some(file);
        kept.map_err(|e| {
            ChangeError::Timeout(format!(
                "{}: {e}; the change may be made after a restart",
                path.display()
            ))
        })?;
        *self.metadata.borrow_mut() = next.clone();
        Ok(next)
    }
}
