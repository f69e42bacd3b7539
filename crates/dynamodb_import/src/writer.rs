//! Writes changes with BatchWriteItem, over several connections at once.
//!
//! Each connection is a *lane*. All changes of a key take the same lane, so they are executed in the order in which
//! they were read. A lane has one batch under way and one that is being filled; when both are full, reading waits.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::rc::Rc;
use std::time::Duration;

use dynamodb::value::json;
use runtime::{Instant, Signal};
use serde_json::Value;

use crate::change::{Action, Change, text_of};
use crate::client::{Client, Failure};
use crate::table::Key;

/// Items of a BatchWriteItem, as the service has it.
const BATCH_ITEMS_MAX: usize = 25;
/// Bytes of a request after which no more is added to it; a node takes 16 MiB.
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Waits between two tries: the first, doubled each time, to the longest.
const BACKOFF_MIN: Duration = Duration::from_millis(50);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// How long a batch is tried again without any item of it being written.
const STALLED_MAX: Duration = Duration::from_secs(120);

/// Where a change is from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub file: Rc<str>,
    pub line: u64,
}

/// Changes of different keys.
#[derive(Default)]
struct Batch {
    changes: Vec<(Change, Source)>,
    keys: HashSet<Vec<u8>>,
    bytes: usize,
}

impl Batch {
    /// Whether a change has place: the service refuses a batch with two changes of one item.
    fn takes(&self, change: &Change) -> bool {
        self.changes.len() < BATCH_ITEMS_MAX
            && (self.changes.is_empty() || self.bytes + change.request.len() <= BATCH_BYTES_MAX)
            && !self.keys.contains(&change.key)
    }

    fn add(&mut self, change: Change, source: Source) {
        self.bytes += change.request.len();
        self.keys.insert(change.key.clone());
        self.changes.push((change, source));
    }
}

/// The body of a BatchWriteItem.
fn request(table: &str, changes: &[(Change, Source)]) -> Vec<u8> {
    let mut body = b"{\"RequestItems\":{".to_vec();
    body.extend_from_slice(Value::from(table).to_string().as_bytes());
    body.extend_from_slice(b":[");
    for (number, (change, _)) in changes.iter().enumerate() {
        if number > 0 {
            body.push(b',');
        }
        body.extend_from_slice(&change.request);
    }
    body.extend_from_slice(b"]}}");
    body
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Written {
    pub puts: u64,
    pub deletions: u64,
}

/// What all lanes share.
struct Shared {
    table: String,
    key: Key,
    written: Cell<Written>,
    failed: RefCell<Option<String>>,
    /// Rung when a lane becomes idle or fails.
    progress: Signal,
}

struct Lane {
    filling: RefCell<Batch>,
    /// The batch to send next.
    ready: RefCell<Option<Batch>>,
    is_sending: Cell<bool>,
    work: Signal,
}

impl Lane {
    fn is_idle(&self) -> bool {
        self.ready.borrow().is_none() && !self.is_sending.get()
    }
}

/// See the module.
pub(crate) struct Writer {
    shared: Rc<Shared>,
    lanes: Vec<Rc<Lane>>,
}

impl Writer {
    /// Starts a lane for each client.
    pub(crate) fn start(table: &str, key: Key, clients: Vec<Client>) -> Self {
        let shared = Rc::new(Shared {
            table: table.to_owned(),
            key,
            written: Cell::default(),
            failed: RefCell::default(),
            progress: Signal::default(),
        });
        let lanes = clients.into_iter().map(|client| {
            let lane = Rc::new(Lane {
                filling: RefCell::default(),
                ready: RefCell::default(),
                is_sending: Cell::new(false),
                work: Signal::default(),
            });
            drop(runtime::spawn(drive(client, lane.clone(), shared.clone())));
            lane
        });
        Self {
            lanes: lanes.collect(),
            shared,
        }
    }

    /// Takes a change; waits while its lane is full.
    ///
    /// # Errors
    /// When a lane has failed.
    pub(crate) async fn write(&self, change: Change, source: Source) -> Result<(), String> {
        let hasher = BuildHasherDefault::<DefaultHasher>::default();
        let number = hasher.hash_one(&change.key) % self.lanes.len().max(1) as u64;
        let Some(lane) = usize::try_from(number).ok().and_then(|number| self.lanes.get(number)) else {
            return Err("there is no connection".to_owned());
        };
        if !lane.filling.borrow().takes(&change) {
            self.hand_over(lane).await?;
        }
        lane.filling.borrow_mut().add(change, source);
        Ok(())
    }

    /// Waits until everything that was taken is written.
    ///
    /// # Errors
    /// When a lane has failed.
    pub(crate) async fn finish(&self) -> Result<(), String> {
        for lane in &self.lanes {
            if !lane.filling.borrow().changes.is_empty() {
                self.hand_over(lane).await?;
            }
        }
        self.wait_until(|| self.lanes.iter().all(|lane| lane.is_idle())).await
    }

    pub(crate) fn written(&self) -> Written {
        self.shared.written.get()
    }

    async fn hand_over(&self, lane: &Lane) -> Result<(), String> {
        self.wait_until(|| lane.ready.borrow().is_none()).await?;
        *lane.ready.borrow_mut() = Some(lane.filling.take());
        lane.work.ring();
        Ok(())
    }

    async fn wait_until(&self, condition: impl Fn() -> bool) -> Result<(), String> {
        let shared = &self.shared;
        let has_failed = || shared.failed.borrow().is_some();
        shared.progress.wait_until(|| has_failed() || condition()).await;
        shared.failed.borrow().clone().map_or(Ok(()), Err)
    }
}

/// Sends the batches of a lane; never returns.
async fn drive(mut client: Client, lane: Rc<Lane>, shared: Rc<Shared>) {
    loop {
        lane.work.wait_until(|| lane.ready.borrow().is_some()).await;
        let Some(batch) = lane.ready.take() else {
            continue;
        };
        lane.is_sending.set(true);
        shared.progress.ring();
        if let Err(reason) = send(&mut client, &shared, batch.changes).await {
            shared.failed.borrow_mut().get_or_insert(reason);
        }
        lane.is_sending.set(false);
        shared.progress.ring();
    }
}

/// Sends changes until all are written.
async fn send(client: &mut Client, shared: &Shared, mut changes: Vec<(Change, Source)>) -> Result<(), String> {
    let (mut backoff, mut last_progress) = (BACKOFF_MIN, runtime::now());
    while !changes.is_empty() {
        let answer = client.call("BatchWriteItem", &request(&shared.table, &changes)).await;
        let reason = match answer {
            Ok(answer) => {
                let before = changes.len();
                changes = rest(shared, changes, &answer)?;
                if changes.len() < before {
                    (backoff, last_progress) = (BACKOFF_MIN, runtime::now());
                }
                "the node leaves items unprocessed".to_owned()
            }
            // One change that the service refuses fails the batch: the others are sent by themselves to find it.
            Err(Failure::Refused { .. }) if changes.len() > 1 => {
                return Box::pin(send_each(client, shared, changes)).await;
            }
            Err(failure @ Failure::Refused { .. }) => return Err(at(&changes, &failure.to_string())),
            Err(Failure::Passing(reason)) => reason,
        };
        if changes.is_empty() {
            break;
        }
        if is_stalled(last_progress) {
            return Err(at(
                &changes,
                &format!("not written for {} s: {reason}", STALLED_MAX.as_secs()),
            ));
        }
        runtime::sleep(jittered(backoff)).await;
        backoff = (backoff * 2).min(BACKOFF_MAX);
    }
    Ok(())
}

async fn send_each(client: &mut Client, shared: &Shared, changes: Vec<(Change, Source)>) -> Result<(), String> {
    for change in changes {
        send(client, shared, vec![change]).await?;
    }
    Ok(())
}

fn is_stalled(since: Instant) -> bool {
    since.elapsed() >= STALLED_MAX
}

/// From half of a wait to all of it, so that lanes that failed together do not return together.
fn jittered(wait: Duration) -> Duration {
    let half = wait / 2;
    let range = u64::try_from(half.as_micros()).unwrap_or(u64::MAX).max(1);
    half + Duration::from_micros(runtime::random_u64() % range)
}

/// A reason with the file and the line of the first change.
fn at(changes: &[(Change, Source)], reason: &str) -> String {
    let source = changes.first().map(|(_, source)| source);
    source.map_or_else(
        || reason.to_owned(),
        |source| format!("{}: line {}: {reason}", source.file, source.line),
    )
}

/// The changes that an answer leaves unprocessed; the others are counted.
fn rest(shared: &Shared, changes: Vec<(Change, Source)>, answer: &Value) -> Result<Vec<(Change, Source)>, String> {
    let unknown = || "the node answers with unprocessed items that were not sent".to_owned();
    let unprocessed = unprocessed(&shared.key, answer).ok_or_else(|| at(&changes, &unknown()))?;
    let mut left = Vec::with_capacity(unprocessed.len());
    let mut written = shared.written.get();
    for (change, source) in changes {
        if unprocessed.contains(&change.key) {
            left.push((change, source));
            continue;
        }
        match change.action {
            Action::Put => written.puts += 1,
            Action::Delete => written.deletions += 1,
        }
    }
    if left.len() != unprocessed.len() {
        return Err(at(&left, &unknown()));
    }
    shared.written.set(written);
    Ok(left)
}

/// The keys of the items that an answer leaves unprocessed; None if one of them has no key of the table.
fn unprocessed(key: &Key, answer: &Value) -> Option<HashSet<Vec<u8>>> {
    let tables = answer["UnprocessedItems"].as_object().into_iter();
    let requests = tables.flat_map(|tables| tables.values()).filter_map(Value::as_array);
    let keys = requests.flatten().map(|request| {
        let put = request["PutRequest"].get("Item");
        let item = put.or(request["DeleteRequest"].get("Key"))?.to_string();
        let item = json::read_item(item.as_bytes()).ok()?;
        Some(text_of(&key.of(&item).ok()?))
    });
    keys.collect()
}
