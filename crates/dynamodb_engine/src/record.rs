//! Records of transactions: what became of each, and of requests with a token. See [`crate::transaction`].
//!
//! A record is an item of a table that clients do not see. Its state goes from *pending* to *committed* or *aborted*,
//! each by a conditional write, and then the record is deleted. Where there is none, its transaction has not begun, or
//! is over and has no locks any more.

use std::borrow::Cow;
use std::fmt::Write;
use std::rc::Rc;
use std::sync::Arc;

use dynamodb::table::ScalarType;
use dynamodb::{AttributeValue, Error, ErrorKind, Item, Number};
use runtime::Instant;
use stdx::planted::{self, Bug};
use stdx::preempt;
use topology::Consistency;
use types::Token as RingToken;
use types::token::murmur3_x64_128;
use uuid::Uuid;

use crate::definitions::TRANSACTIONS;
use crate::modify::{Before, Change, LOCKED_MAX, Modified, conflict};
use crate::read::Pages;
use crate::service::Service;
use crate::table::{ItemKey, ItemTable};
use crate::transaction::{Action, Step, Transacted};

/// How long a transaction may be pending before others abort it; milliseconds.
const PENDING_MS_MAX: i64 = 5_000;
/// How long the outcome of a request with a token is kept; milliseconds. The API reference says ten minutes.
pub const TOKEN_MS: i64 = 600_000;
/// How long records are kept that others may need: twice as long, because clocks differ.
pub const RECORD_MS: i64 = 2 * TOKEN_MS;
/// Records that the sweeper reads at a time.
const RECORDS_AT_ONCE: u32 = 1_000;
/// How long after its coordinator has begun a transaction its record may still be made: far less than others' marks
/// that it was aborted are kept.
const BEGIN_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// The attribute that is the key of a record.
pub(crate) const ID: &str = "id";
const STATE: &str = "state";
const BEGAN: &str = "began_ms";
const ITEMS: &str = "items";
const HASH: &str = "hash";
/// The datacenter in which a record is written: conditional writes are ordered in one.
const DATACENTER: &str = "datacenter";

/// What makes a repeated request the same one.
#[derive(Clone, Debug)]
pub struct Token {
    /// The client's.
    pub text: String,
    /// A hash of the request.
    pub hash: u128,
}

impl Token {
    /// A client's token of a request, which is compared by the text that `Debug` makes of it.
    pub fn new(text: &str, request: &impl std::fmt::Debug) -> Self {
        let mut hasher = TextHasher::default();
        // A hasher takes everything.
        let _ = preempt::allowed(|| write!(hasher, "{request:?}"));
        Self {
            text: text.to_owned(),
            hash: hasher.end(),
        }
    }
}

/// A hash of text that is never there as a whole.
#[derive(Default)]
struct TextHasher {
    hash: u128,
    part: Vec<u8>,
}

impl TextHasher {
    /// Bytes that are hashed at once.
    const PART_BYTES: usize = 4 << 10;

    fn end(mut self) -> u128 {
        self.hash_part();
        self.hash
    }

    fn hash_part(&mut self) {
        self.part.extend_from_slice(&self.hash.to_be_bytes());
        let (high, low) = murmur3_x64_128(&self.part, 0);
        self.hash = u128::from(high) << 64 | u128::from(low);
        self.part.clear();
        preempt::point();
    }
}

impl std::fmt::Write for TextHasher {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for part in text.as_bytes().chunks(Self::PART_BYTES) {
            self.part.extend_from_slice(part);
            if self.part.len() >= Self::PART_BYTES {
                self.hash_part();
            }
        }
        Ok(())
    }
}

/// What the record of a transaction says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    /// There is no record: it has not begun, or is over and has no locks any more.
    Absent,
    /// It may still be either.
    Pending {
        /// When it began, by the clock of its coordinator.
        began_ms: i64,
    },
    /// Its locks are to be carried out.
    Committed,
    /// Its locks are to be taken away.
    Aborted,
}

impl State {
    /// Whether locks may be carried out or taken away.
    pub(crate) const fn is_decided(self) -> bool {
        matches!(self, Self::Committed | Self::Aborted)
    }
}

/// What becomes of a transaction without a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// It may be about to begin.
    Waits,
    /// It is aborted: a record that says so keeps it from beginning.
    GivesUp,
}

pub(crate) fn now_ms() -> i64 {
    runtime::wall_clock_us() / 1_000
}

fn number(value: i64) -> AttributeValue {
    AttributeValue::N(Number::from(value))
}

fn integer(item: &Item, name: &str) -> Option<i64> {
    match item.get(name) {
        Some(AttributeValue::N(number)) => number.to_string().parse().ok(),
        _ => None,
    }
}

fn state_of(record: Option<&Item>) -> State {
    let Some(record) = record else { return State::Absent };
    match record.get(STATE) {
        Some(AttributeValue::S(state)) if state == "committed" => State::Committed,
        Some(AttributeValue::S(state)) if state == "pending" => State::Pending {
            began_ms: integer(record, BEGAN).unwrap_or(0),
        },
        _ => State::Aborted,
    }
}

/// Whether the outcome of a request with a token is still to be remembered.
fn is_recent(record: &Item) -> bool {
    integer(record, BEGAN).unwrap_or(0) + TOKEN_MS > now_ms()
}

/// The record with another state.
fn with_state(record: &Item, state: &str) -> Change<'static> {
    Change::Put(Cow::Owned(with_state_of(record.clone(), state)))
}

fn with_state_of(mut record: Item, state: &str) -> Item {
    record.insert(STATE.to_owned(), AttributeValue::S(state.to_owned()));
    record
}

impl Service {
    fn own_datacenter(&self) -> AttributeValue {
        let view = self.engine.coordinator.context.view();
        let name = view.locality.datacenter_name(view.locality.local_datacenter());
        AttributeValue::S(name.unwrap_or_default().to_owned())
    }

    /// The record of a transaction, or of a token.
    fn record(&self, id: &[u8], items: AttributeValue) -> Item {
        let members = [
            (ID, AttributeValue::B(id.to_vec())),
            (BEGAN, number(now_ms())),
            (DATACENTER, self.own_datacenter()),
            (ITEMS, items),
        ];
        members
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }

    async fn records(self: &Rc<Self>) -> Result<Arc<ItemTable>, Error> {
        self.hidden_table(TRANSACTIONS, ID, ScalarType::B).await
    }

    fn record_key(table: &ItemTable, id: &[u8]) -> Result<ItemKey, Error> {
        table.key_of_values(&[&AttributeValue::B(id.to_vec())])
    }

    /// A conditional write of a record, whatever the isolation of tables of clients is.
    async fn change_record(
        self: &Rc<Self>,
        id: &[u8],
        step: impl Fn(Option<&Item>) -> Change<'static> + Send + Sync + 'static,
    ) -> Result<Modified, Error> {
        let records = self.records().await?;
        let key = Self::record_key(&records, id)?;
        self.modify_always(&records, key, Arc::new(Step(step))).await
    }

    /// Makes a transaction the one of its token, unless another one has been it. `before`: the last attempt of the same
    /// request, which was aborted.
    pub(crate) async fn claim(
        self: &Rc<Self>,
        token: &Token,
        id: Uuid,
        before: Option<Uuid>,
    ) -> Result<Transacted, Error> {
        let key = [b"token:", token.text.as_bytes()].concat();
        let mut mine = self.record(&key, AttributeValue::B(id.as_bytes().to_vec()));
        // The attempt is part of it, so that every attribute of a claim is written with it.
        let hash = [&token.hash.to_be_bytes()[..], id.as_bytes()].concat();
        mine.insert(HASH.to_owned(), AttributeValue::B(hash));
        let mut aborted = before.map(|before| AttributeValue::B(before.as_bytes().to_vec()));
        for _ in 0..LOCKED_MAX {
            let (put, over) = (mine.clone(), aborted.take());
            let step = move |now: Option<&Item>| {
                let is_free = |now: &Item| {
                    let is_over = over.is_some() && now.get(ITEMS) == over.as_ref();
                    is_over || !is_recent(now) || planted::is_planted(Bug::UnheededToken)
                };
                if now.is_none_or(is_free) {
                    Change::Put(Cow::Owned(put.clone()))
                } else {
                    Change::Keep
                }
            };
            let Some(known) = self.change_record(&key, step).await?.new else {
                continue;
            };
            if known == mine {
                return Ok(Transacted::Now);
            }
            let attempt = match (known.get(HASH), known.get(ITEMS)) {
                (Some(AttributeValue::B(hash)), Some(AttributeValue::B(attempt)))
                    if hash.starts_with(&token.hash.to_be_bytes()) =>
                {
                    attempt.clone()
                }
                _ => {
                    return Err(Error::new(
                        ErrorKind::IdempotentParameterMismatch,
                        "The request uses the same client token as a previous, but non-identical request",
                    ));
                }
            };
            match self.state_of_transaction(&attempt, Patience::GivesUp).await? {
                State::Committed => return Ok(Transacted::Before),
                State::Pending { .. } | State::Absent => {
                    return Err(Error::new(
                        ErrorKind::TransactionInProgress,
                        "The transaction with the given request token is already in progress",
                    ));
                }
                State::Aborted => aborted = Some(AttributeValue::B(attempt)),
            }
        }
        Err(conflict())
    }

    /// What the record of a transaction says.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) async fn recorded_state(self: &Rc<Self>, id: &[u8]) -> Result<State, Error> {
        let records = self.records().await?;
        let key = Self::record_key(&records, id)?;
        let record = self.read_item(&records, &key, Consistency::LocalQuorum).await?;
        let state = state_of(record.as_ref());
        if !state.is_decided() || !self.is_single(&records) {
            return Ok(state);
        }
        // The only replica shows a decision before its log is synced, and a conditional write waits for that.
        let confirmed = self.change_record(id, |_| Change::Keep).await?;
        Ok(state_of(confirmed.new.as_ref()))
    }

    /// Whether items of a table have one replica in this datacenter.
    fn is_single(&self, table: &ItemTable) -> bool {
        let view = self.engine.coordinator.context.view();
        let route = view.route(table.table.id);
        route.is_none_or(|route| route.block_for(Consistency::LocalQuorum, &view.locality) < 2)
    }

    /// The state of a transaction; one that has been pending for too long is aborted, and so is one without a record,
    /// if the caller gives up.
    pub(crate) async fn state_of_transaction(self: &Rc<Self>, id: &[u8], patience: Patience) -> Result<State, Error> {
        let mut state = self.recorded_state(id).await?;
        if planted::is_planted(Bug::CommittedWhenMet) && state != State::Absent {
            return Ok(State::Committed);
        }
        if state == State::Absent && patience == Patience::GivesUp {
            let aborted = with_state_of(self.record(id, AttributeValue::L(Vec::new())), "aborted");
            let abort = move |record: Option<&Item>| match record {
                None => Change::Put(Cow::Owned(aborted.clone())),
                Some(_) => Change::Keep,
            };
            state = state_of(self.change_record(id, abort).await?.new.as_ref());
        }
        match state {
            State::Pending { began_ms } if began_ms + PENDING_MS_MAX < now_ms() => {
                let abort = |record: Option<&Item>| match (state_of(record), record) {
                    (State::Pending { .. }, Some(record)) => with_state(record, "aborted"),
                    _ => Change::Keep,
                };
                let changed = self.change_record(id, abort).await?;
                // One that has begun and has no record any more is over.
                Ok(match state_of(changed.new.as_ref()) {
                    State::Absent => State::Aborted,
                    state => state,
                })
            }
            state => Ok(state),
        }
    }

    /// Makes the record of a transaction. Whether it is pending: another request may have given up on it. `started`:
    /// when the coordinator began.
    pub(crate) async fn begin(self: &Rc<Self>, id: Uuid, actions: &[Action], started: Instant) -> Result<bool, Error> {
        let items = actions.iter().map(Self::encode_place);
        let pending = with_state_of(
            self.record(id.as_bytes(), AttributeValue::L(items.collect())),
            "pending",
        );
        let step = move |now: Option<&Item>| match now {
            Some(_) if !planted::is_planted(Bug::BegunAfterAbort) => Change::Keep,
            // A mark that it was aborted may have been there, and be gone.
            None if runtime::now() - started > BEGIN_MAX => Change::Keep,
            _ => Change::Put(Cow::Owned(pending.clone())),
        };
        let begun = self.change_record(id.as_bytes(), step).await?;
        Ok(matches!(state_of(begun.new.as_ref()), State::Pending { .. }))
    }

    /// Commits a transaction that is pending; whether it is committed.
    pub(crate) async fn decide(self: &Rc<Self>, id: Uuid) -> Result<bool, Error> {
        let commit = |record: Option<&Item>| match (state_of(record), record) {
            (State::Pending { .. }, Some(record)) => with_state(record, "committed"),
            _ => Change::Keep,
        };
        let decided = self.change_record(id.as_bytes(), commit).await?;
        Ok(state_of(decided.new.as_ref()) == State::Committed)
    }

    /// Deletes the record of a transaction that is over, and has no locks any more. Nothing depends on it, so the
    /// deletion is no conditional write: one that is lost is done by the sweeper.
    pub(crate) async fn forget(self: &Rc<Self>, id: &[u8]) -> Result<(), Error> {
        let records = self.records().await?;
        let key = Self::record_key(&records, id)?;
        self.write_plainly(&records, &key, Before::Unknown, None, None).await
    }

    /// Notes that a committed transaction has no locks any more; its record stays because requests with its token ask
    /// for it. As with [`Service::forget`], nothing depends on it.
    pub(crate) async fn note_settled(self: &Rc<Self>, id: Uuid) -> Result<(), Error> {
        let records = self.records().await?;
        let key = Self::record_key(&records, id.as_bytes())?;
        let (mut before, mut after) = (Item::new(), Item::new());
        before.insert(ITEMS.to_owned(), AttributeValue::Null);
        after.insert(ITEMS.to_owned(), AttributeValue::L(Vec::new()));
        self.write_plainly(&records, &key, Before::Known(Some(&before)), Some(&after), None)
            .await
    }

    /// Where an item of a transaction is, for the node that finishes it.
    fn encode_place(action: &Action) -> AttributeValue {
        let bytes = |bytes: &[u8]| AttributeValue::B(bytes.to_vec());
        AttributeValue::L(vec![
            AttributeValue::S(action.table.name.clone()),
            bytes(&action.key.partition),
            bytes(&action.key.clustering),
            bytes(action.table.table.id.0.as_bytes()),
        ])
    }

    /// Finishes what transactions have left whose coordinators ended in the middle, and forgets old outcomes, of the
    /// records in a range of tokens. Returns how many records are gone.
    ///
    /// # Errors
    /// When the records cannot be read, or one of them could not be finished; the others are.
    pub async fn sweep_transactions(self: &Rc<Self>, range: (RingToken, RingToken)) -> Result<usize, Error> {
        let Some(records) = self.find_any_table(TRANSACTIONS)? else {
            return Ok(0);
        };
        let mut pages = Pages::new(&records, range, RECORDS_AT_ONCE, Consistency::LocalOne);
        let (mut gone, mut failed) = (0, None);
        while let Some(found) = pages.next(self).await? {
            for found in found {
                let swept = match preempt::allowed(|| found.into_item()) {
                    Ok(record) => self.sweep_record(&records, &record).await,
                    Err(error) => Err(error),
                };
                match swept {
                    Ok(is_gone) => gone += usize::from(is_gone),
                    // The others do not wait for it.
                    Err(error) => failed = Some(error),
                }
            }
        }
        failed.map_or(Ok(gone), Err)
    }

    /// Carries out what transactions do to a table that this datacenter has committed and not carried out yet.
    ///
    /// # Errors
    /// When the records cannot be read, or an item cannot be written.
    pub(crate) async fn settle_commits_of(self: &Rc<Self>, table: &ItemTable) -> Result<(), Error> {
        let Some(records) = self.find_any_table(TRANSACTIONS)? else {
            return Ok(());
        };
        let all = (RingToken::MIN, RingToken::MAX);
        let mut pages = Pages::new(&records, all, RECORDS_AT_ONCE, Consistency::LocalQuorum);
        while let Some(found) = pages.next(self).await? {
            for found in found {
                let record = preempt::allowed(|| found.into_item())?;
                let is_open = state_of(Some(&record)) == State::Committed
                    && record.get(DATACENTER) == Some(&self.own_datacenter());
                let (Some(AttributeValue::B(id)), Some(AttributeValue::L(places)), true) =
                    (record.get(ID), record.get(ITEMS), is_open)
                else {
                    continue;
                };
                let Ok(id) = Uuid::from_slice(id) else { continue };
                let actions = places.iter().filter_map(|place| self.place_of(place).transpose());
                let mut actions: Vec<Action> = actions.collect::<Result<_, _>>()?;
                actions.retain(|action| action.table.table.id == table.table.id);
                self.settle_all(id, &actions, State::Committed).await?;
            }
        }
        Ok(())
    }

    /// The table of records, if there is one.
    ///
    /// # Errors
    /// When its definition cannot be read.
    pub fn records_table(&self) -> Result<Option<Arc<ItemTable>>, Error> {
        self.find_any_table(TRANSACTIONS)
    }

    /// Finishes one transaction; whether its record is gone.
    async fn sweep_record(self: &Rc<Self>, records: &ItemTable, record: &Item) -> Result<bool, Error> {
        let Some(AttributeValue::B(id)) = record.get(ID) else {
            return Ok(false);
        };
        let Some(began_ms) = integer(record, BEGAN) else {
            return self.sweep_remains(records, id).await;
        };
        if began_ms + 2 * PENDING_MS_MAX > now_ms() {
            return Ok(false);
        }
        if record.get(DATACENTER) != Some(&self.own_datacenter()) {
            return Ok(false);
        }
        let is_old = began_ms + RECORD_MS < now_ms();
        // Tokens have no list of items.
        if let (Ok(transaction), Some(AttributeValue::L(places))) = (Uuid::from_slice(id), record.get(ITEMS))
            && !places.is_empty()
        {
            let state = self.state_of_transaction(id, Patience::Waits).await?;
            if !state.is_decided() {
                return Ok(false);
            }
            let actions = places.iter().filter_map(|place| self.place_of(place).transpose());
            let actions: Vec<Action> = actions.collect::<Result<_, _>>()?;
            self.settle_all(transaction, &actions, state).await?;
        }
        if is_old {
            // What is as old as the outcome of a token may be goes; what was written since stays.
            let timestamp = (began_ms + TOKEN_MS) * 1_000;
            let key = Self::record_key(records, id)?;
            self.write_plainly(records, &key, Before::Unknown, None, Some(timestamp))
                .await?;
        }
        Ok(is_old)
    }

    /// Deletes what is left of a record whose deletion was older than its last write; whether it is gone. One replica
    /// may lack the rest of a record that the others have.
    async fn sweep_remains(self: &Rc<Self>, records: &ItemTable, id: &[u8]) -> Result<bool, Error> {
        let key = Self::record_key(records, id)?;
        let record = self.read_item(records, &key, Consistency::LocalQuorum).await?;
        let has_remains = record.is_some_and(|record| !record.contains_key(BEGAN));
        if has_remains {
            self.forget(id).await?;
        }
        Ok(has_remains)
    }

    /// Where an item is; None: its table was dropped, which has taken its locks with it.
    fn place_of(self: &Rc<Self>, place: &AttributeValue) -> Result<Option<Action>, Error> {
        let AttributeValue::L(parts) = place else {
            return Ok(None);
        };
        let [
            AttributeValue::S(table),
            AttributeValue::B(partition),
            AttributeValue::B(clustering),
            AttributeValue::B(id),
        ] = parts.as_slice()
        else {
            return Ok(None);
        };
        let found = self.find_table(table)?;
        let same = found.filter(|found| found.table.id.0.as_bytes()[..] == id[..]);
        Ok(same.map(|table| {
            let key = ItemKey {
                partition: partition.clone(),
                clustering: clustering.clone(),
            };
            Action::nothing(table, key)
        }))
    }
}
