//! The state machine of the metadata group: applies commands, keeps the file, tells the listener.
//!
//! A command is acknowledged after its effect is in the file and the listener has taken it over. A disk that fails is tried again until it takes
//! the file: the node falls behind, and acknowledges nothing. A rejected command changes only what is remembered of rejections; it is not worth a
//! sync, because applying it again after a restart rejects it again.

use crate::command::Command;
use crate::config::{Listener, Local};
use crate::file;
use crate::metadata::Metadata;
use consensus::StateMachine;
use runtime::Notify;
use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// How long a failing disk is left alone.
const RETRY_WRITE: Duration = Duration::from_millis(500);

/// The present metadata. Lives on shard 0.
pub(crate) struct Machine {
    dir: PathBuf,
    metadata: RefCell<Arc<Metadata>>,
    durable_index: Cell<u64>,
    /// The last index whose effect the listener has taken over.
    taken_index: Cell<u64>,
    listener: Rc<dyn Listener>,
    /// Told after each change.
    pub(crate) changed: Notify,
    /// Why the file cannot be written at the moment.
    pub(crate) disk_error: RefCell<Option<String>>,
}

impl Machine {
    /// With metadata that is durable.
    pub(crate) fn new(dir: PathBuf, metadata: Arc<Metadata>, listener: Rc<dyn Listener>) -> Self {
        Self {
            dir,
            durable_index: Cell::new(metadata.index),
            taken_index: Cell::new(metadata.index),
            metadata: RefCell::new(metadata),
            listener,
            changed: Notify::new(),
            disk_error: RefCell::default(),
        }
    }

    pub(crate) fn metadata(&self) -> Arc<Metadata> {
        self.metadata.borrow().clone()
    }

    /// The last index whose effect all shards have taken over, or that had none.
    pub(crate) fn taken_index(&self) -> u64 {
        self.taken_index.get()
    }

    async fn take(&self, next: Metadata) {
        let next = Arc::new(next);
        let index = next.index;
        let encoded = encode(&next);
        loop {
            let (dir, bytes) = (self.dir.clone(), encoded.clone());
            match runtime::offload(move || file::save(&dir, &bytes)).await {
                Ok(()) => break,
                Err(error) => {
                    let error = format!("{}: {error}", file::path(&self.dir).display());
                    if self.disk_error.borrow().is_none() {
                        log::error!("metadata is not acknowledged until it can be written: {error}");
                    }
                    *self.disk_error.borrow_mut() = Some(error);
                    runtime::sleep(RETRY_WRITE).await;
                }
            }
        }
        if self.disk_error.take().is_some() {
            log::info!("metadata can be written again");
        }
        self.durable_index.set(index);
        *self.metadata.borrow_mut() = next.clone();
        self.listener.changed(next).await;
        self.taken_index.set(index);
        self.changed.notify_all();
    }

    /// What was agreed on cannot be understood here, so nothing that follows can be either.
    async fn give_up(&self, reason: String) {
        log::error!("{reason}");
        self.listener.fatal(reason);
        std::future::pending::<()>().await;
    }
}

fn encode(metadata: &Metadata) -> Vec<u8> {
    metadata.encode().expect("keyspaces that came as JSON have a JSON form")
}

impl StateMachine for Machine {
    fn applied(&self) -> u64 {
        self.durable_index.get()
    }

    fn apply<'a>(&'a self, index: u64, command: &'a [u8]) -> Local<'a, ()> {
        Box::pin(async move {
            let now = self.metadata();
            let command = match Command::decode(command) {
                Ok(command) => command,
                Err(error) => {
                    let reason = format!(
                        "the cluster agreed on a change that this release cannot read ({error}); start the node with the release of the others"
                    );
                    return self.give_up(reason).await;
                }
            };
            let outcome = now.apply(&command);
            let is_rejected = outcome.is_err();
            let next = now.step(index, outcome);
            if is_rejected {
                *self.metadata.borrow_mut() = Arc::new(next);
                self.taken_index.set(index);
            } else {
                self.take(next).await;
            }
        })
    }

    fn snapshot(&self) -> Vec<u8> {
        encode(&self.metadata())
    }

    fn restore<'a>(&'a self, _index: u64, snapshot: &'a [u8]) -> Local<'a, ()> {
        Box::pin(async move {
            match Metadata::decode(snapshot) {
                Ok(next) if next == *self.metadata() => {}
                Ok(next) => self.take(next).await,
                Err(error) => {
                    let reason = format!(
                        "the cluster's metadata cannot be read by this release ({error}); start the node with the release of the others"
                    );
                    self.give_up(reason).await;
                }
            }
        })
    }
}
