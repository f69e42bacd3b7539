//! What a node does with the files of backups, and how another node asks it for that.
//!
//! ```text
//! verb        request                                   answer
//! TAKE    80  table (16 bytes), sized name              version of the cluster (8 bytes), bytes (8 bytes)
//! HAS     81  sized name                                1 or 0
//! REMOVE  82  sized name                                nothing
//! ```
//!
//! Every request may be repeated: TAKE makes the snapshot again, and REMOVE of one that is gone does nothing.

use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use rpc::{Handler, Later, RemoteError, RemoteErrorKind, Reply, Request, Rpc};
use runtime::ShardId;
use schema::TableId;
use stdx::bytes::{Reader, Truncated, put_sized};
use topology::NodeNumber;
use uuid::Uuid;

use super::SNAPSHOT_PREFIX;
use crate::service::Service;

/// The first verb that [`handler`] answers.
pub const FIRST_VERB: u16 = 80;
/// The last verb that [`handler`] answers.
pub const LAST_VERB: u16 = 89;

const TAKE: u16 = FIRST_VERB;
const HAS: u16 = FIRST_VERB + 1;
const REMOVE: u16 = FIRST_VERB + 2;

/// How long a node may take to flush a table and link its files.
const TAKE_TIMEOUT: Duration = Duration::from_mins(2);
/// How long a node may take to look for files, or to remove them.
const LOOK_TIMEOUT: Duration = Duration::from_secs(10);
/// The bytes of a snapshot's name, at most.
const NAME_BYTES_MAX: usize = 96;

/// A snapshot that was taken just now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenSnapshot {
    /// The version of the cluster that the node had while it linked the files: which tablets it had.
    pub version: u64,
    /// The bytes of the files.
    pub bytes: u64,
}

/// A snapshot of a backup on the disk of this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredSnapshot {
    /// Its name.
    pub name: String,
    /// Its directory.
    pub directory: PathBuf,
    /// Whether it was taken to its end.
    pub is_whole: bool,
}

/// Work on a node's files; errors are sentences.
pub type Work<T> = Pin<Box<dyn Future<Output = Result<T, String>>>>;

/// What a node does with the files of backups. Names of snapshots begin with [`SNAPSHOT_PREFIX`].
pub trait BackupFiles {
    /// Flushes a table on all shards of this node and links its files into a snapshot. A snapshot of that name that is
    /// there already is replaced.
    fn take(&self, table: TableId, name: String) -> Work<TakenSnapshot>;
    /// The snapshots of backups, of tables that exist and of those that were dropped.
    fn stored(&self) -> Work<Vec<StoredSnapshot>>;
    /// Removes a snapshot of that name, if there is one.
    fn remove(&self, name: String) -> Work<()>;
}

struct Files(Box<dyn BackupFiles>);

/// Gives shard 0 of this node its files of backups.
pub fn keep_files(files: Box<dyn BackupFiles>) {
    runtime::set_local(Rc::new(Files(files)));
}

fn files() -> Result<Rc<Files>, String> {
    runtime::local::<Files>().ok_or_else(|| "the node is starting".to_owned())
}

/// Takes a snapshot on this node. On shard 0.
pub(super) async fn take(table: TableId, name: String) -> Result<TakenSnapshot, String> {
    files()?.0.take(table, name).await
}

/// The snapshots of this node. On shard 0.
pub(super) async fn stored() -> Result<Vec<StoredSnapshot>, String> {
    files()?.0.stored().await
}

/// The snapshot of that name on this node, if it was taken to its end. On shard 0.
pub(super) async fn find(name: &str) -> Result<Option<StoredSnapshot>, String> {
    let mut stored = stored().await?.into_iter();
    Ok(stored.find(|snapshot| snapshot.name == name && snapshot.is_whole))
}

/// Removes a snapshot of this node. On shard 0.
pub(super) async fn remove(name: String) -> Result<(), String> {
    files()?.0.remove(name).await
}

/// Whether text is the name of a backup's snapshot: nothing that leads out of the directory of snapshots.
fn is_name(name: &str) -> bool {
    let rest = name.strip_prefix(SNAPSHOT_PREFIX);
    let is_id = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    name.len() <= NAME_BYTES_MAX && rest.is_some_and(|rest| !rest.is_empty() && rest.bytes().all(is_id))
}

/// Answers the verbs of this module on this shard.
#[must_use]
pub fn handler() -> Rc<dyn Handler> {
    Rc::new(FilesHandler)
}

struct FilesHandler;

impl Handler for FilesHandler {
    fn is_repeatable(&self, _verb: u16) -> bool {
        true
    }

    fn handle(&self, request: Request<'_>) -> Reply {
        let answer: Option<Later> = match request.verb {
            TAKE => read_take(request.body).map(|(table, name)| -> Later {
                Box::pin(async move {
                    let taken = on_first_shard(move || take(table, name)).await?;
                    Ok([taken.version.to_be_bytes(), taken.bytes.to_be_bytes()].concat())
                })
            }),
            HAS => read_name(request.body).map(|name| -> Later {
                Box::pin(async move {
                    let found = on_first_shard(move || async move { find(&name).await }).await?;
                    Ok(vec![u8::from(found.is_some())])
                })
            }),
            REMOVE => read_name(request.body).map(|name| -> Later {
                Box::pin(async move {
                    on_first_shard(move || remove(name)).await?;
                    Ok(Vec::new())
                })
            }),
            verb => return Reply::Err(RemoteError::unknown_verb(verb)),
        };
        answer.map_or_else(
            || {
                Reply::Err(RemoteError {
                    kind: RemoteErrorKind::Rejected,
                    message: "a request on the files of a backup cannot be read".to_owned(),
                })
            },
            Reply::Later,
        )
    }
}

async fn on_first_shard<T: Send + 'static, F: Future<Output = Result<T, String>> + 'static>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T, RemoteError> {
    let done = runtime::submit_async_to(ShardId(0), work).await;
    done.map_err(RemoteError::failed)
}

fn sized_name(reader: &mut Reader<'_>) -> Result<Option<String>, Truncated> {
    let name = std::str::from_utf8(reader.get_sized()?).unwrap_or_default();
    Ok(Some(name.to_owned()).filter(|name| is_name(name) && reader.is_empty()))
}

fn read_name(body: &[u8]) -> Option<String> {
    sized_name(&mut Reader::new(body)).ok()?
}

fn read_take(body: &[u8]) -> Option<(TableId, String)> {
    let mut reader = Reader::new(body);
    let table = TableId(Uuid::from_bytes(reader.get_array().ok()?));
    Some((table, sized_name(&mut reader).ok()??))
}

fn named(name: &str) -> Vec<u8> {
    let mut body = Vec::new();
    put_sized(&mut body, name.as_bytes());
    body
}

impl Service {
    async fn ask(&self, node: NodeNumber, verb: u16, body: Vec<u8>, timeout: Duration) -> Result<Vec<u8>, String> {
        let rpc = runtime::local::<Rpc>().ok_or("this node has no connections to others")?;
        let peer = self.engine.coordinator.context.with_view(|view| view.peer(node));
        let peer = peer.ok_or("the node has left the cluster")?;
        let answer = rpc.call(&peer, 0, verb, body, timeout).await;
        answer.map_err(|error| error.to_string())
    }

    fn is_this(&self, node: NodeNumber) -> bool {
        self.engine.coordinator.context.with_view(|view| view.me == node)
    }

    /// Takes a snapshot on a node. On shard 0.
    pub(super) async fn take_on(&self, node: NodeNumber, table: TableId, name: &str) -> Result<TakenSnapshot, String> {
        if self.is_this(node) {
            return take(table, name.to_owned()).await;
        }
        let body = [&table.0.as_bytes()[..], &named(name)].concat();
        let answer = self.ask(node, TAKE, body, TAKE_TIMEOUT).await?;
        let mut reader = Reader::new(&answer);
        let mut next = || reader.get_u64().map_err(|error| error.to_string());
        Ok(TakenSnapshot {
            version: next()?,
            bytes: next()?,
        })
    }

    /// Whether a node has a snapshot. On shard 0.
    pub(super) async fn has_on(&self, node: NodeNumber, name: &str) -> Result<bool, String> {
        if self.is_this(node) {
            return Ok(find(name).await?.is_some());
        }
        let answer = self.ask(node, HAS, named(name), LOOK_TIMEOUT).await?;
        Ok(answer == [1])
    }

    /// Removes a snapshot on a node. On shard 0.
    pub(super) async fn remove_on(&self, node: NodeNumber, name: &str) -> Result<(), String> {
        if self.is_this(node) {
            return remove(name.to_owned()).await;
        }
        self.ask(node, REMOVE, named(name), LOOK_TIMEOUT).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_leads_elsewhere_is_refused() {
        assert!(is_name("backup-01489602797149-73d8d5bc"));
        for wrong in [
            "",
            "backup-",
            "monday",
            "backup-../../x",
            "backup-1/2",
            "backup-1 ",
            &format!("backup-{}", "1".repeat(100)),
        ] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }

    #[test]
    fn a_request_is_read_as_written_and_a_longer_one_is_refused() {
        let (table, name) = (TableId(Uuid::from_u128(7)), "backup-1-f");
        let body = [&table.0.as_bytes()[..], &named(name)].concat();
        assert_eq!(read_take(&body), Some((table, name.to_owned())));
        assert_eq!(read_name(&named(name)), Some(name.to_owned()));
        for end in 0..body.len() {
            assert_eq!(read_take(&body[..end]), None);
        }
        assert_eq!(read_take(&[&body[..], &[0]].concat()), None);
        assert_eq!(read_name(&[&named(name)[..], &[0]].concat()), None);
        assert_eq!(read_name(&named("../x")), None);
    }
}
