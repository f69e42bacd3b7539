//! Records of transactions: what became of each, and of requests with a token. See [`crate::transaction`].
//!
//! A record is an item of a table that clients do not see. Its state goes from *pending* to *committed* or *aborted*,
//! each by a conditional write, and then the record is deleted. Where there is none, its transaction has not begun, or
//! is over and has no locks any more.

use std::rc::Rc;
use std::sync::Arc;

use dynamodb::{AttributeValue, Error, ErrorKind, Item, Number};
use runtime::Instant;
use stdx::planted::{self, Bug};
use topology::Consistency;
use types::Token as RingToken;
use types::token::murmur3_x64_128;
use uuid::Uuid;

use crate::definitions::TRANSACTIONS;
use crate::modify::{Change, LOCKED_MAX, Modified, conflict};
use crate::read::Extent;
use crate::row::Old;
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

/// What makes a repeated request the same one.
#[derive(Clone, Debug)]
pub struct Token {
    /// The client's.
    pub text: String,
    /// A hash of the request.
    pub hash: u128,
}

impl Token {
    /// A client's token of a request.
    pub fn new(text: &str, request: &[u8]) -> Self {
        let (high, low) = murmur3_x64_128(request, 0);
        Self {
            text: text.to_owned(),
            hash: u128::from(high) << 64 | u128::from(low),
        }
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

/// The record with another state.
fn with_state(record: &Item, state: &str) -> Change {
    let mut record = record.clone();
    record.insert(STATE.to_owned(), AttributeValue::S(state.to_owned()));
    Change::Put(record)
}

/// The record of a transaction, or of a token.
fn record(id: &[u8], items: AttributeValue) -> Item {
    let mut record = Item::new();
    record.insert(ID.to_owned(), AttributeValue::B(id.to_vec()));
    record.insert(BEGAN.to_owned(), number(now_ms()));
    record.insert(ITEMS.to_owned(), items);
    record
}

fn with_state_of(mut record: Item, state: &str) -> Item {
    record.insert(STATE.to_owned(), AttributeValue::S(state.to_owned()));
    record
}

impl Service {
    async fn records(self: &Rc<Self>) -> Result<Arc<ItemTable>, Error> {
        match self.find_table(TRANSACTIONS)? {
            Some(table) => Ok(table),
            None => self.create_transactions_table().await,
        }
    }

    fn record_key(table: &ItemTable, id: &[u8]) -> Result<ItemKey, Error> {
        table.key_of_values(&[&AttributeValue::B(id.to_vec())])
    }

    /// A conditional write of a record, whatever the isolation of tables of clients is.
    async fn change_record(
        self: &Rc<Self>,
        id: &[u8],
        step: impl Fn(Option<&Item>) -> Change + Send + Sync + 'static,
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
        let hash = AttributeValue::B(token.hash.to_be_bytes().to_vec());
        for _ in 0..LOCKED_MAX {
            let records = self.records().await?;
            let record_key = Self::record_key(&records, &key)?;
            let known = self.read_item(&records, &record_key, Consistency::LocalQuorum).await?;
            let is_recent = |known: &Item| integer(known, BEGAN).unwrap_or(0) + TOKEN_MS > now_ms();
            let known = known
                .filter(is_recent)
                .filter(|_| !planted::is_planted(Bug::UnheededToken));
            let attempt = known.as_ref().and_then(|known| known.get(ITEMS)).cloned();
            if let (Some(known), Some(AttributeValue::B(attempt))) = (&known, &attempt) {
                if known.get(HASH) != Some(&hash) {
                    return Err(Error::new(
                        ErrorKind::IdempotentParameterMismatch,
                        "The request uses the same client token as a previous, but non-identical request",
                    ));
                }
                let is_own = before.is_some_and(|before| before.as_bytes()[..] == attempt[..]);
                let state = if is_own {
                    State::Aborted
                } else {
                    self.state_of_transaction(attempt, Patience::GivesUp).await?
                };
                match state {
                    State::Committed => return Ok(Transacted::Before),
                    State::Pending { .. } | State::Absent => {
                        return Err(Error::new(
                            ErrorKind::TransactionInProgress,
                            "The transaction with the given request token is already in progress",
                        ));
                    }
                    State::Aborted => {}
                }
            }
            let mut mine = record(&key, AttributeValue::B(id.as_bytes().to_vec()));
            mine.insert(HASH.to_owned(), hash.clone());
            let put = mine.clone();
            let step = move |now: Option<&Item>| {
                let is_same = match (now, &attempt) {
                    (None, _) => true,
                    (Some(now), Some(attempt)) => now.get(ITEMS) == Some(attempt),
                    (Some(now), None) => !is_recent(now) || planted::is_planted(Bug::UnheededToken),
                };
                if is_same {
                    Change::Put(put.clone())
                } else {
                    Change::Keep
                }
            };
            if self.change_record(&key, step).await?.new.as_ref() == Some(&mine) {
                return Ok(Transacted::Now);
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
        Ok(state_of(record.as_ref()))
    }

    /// The state of a transaction; one that has been pending for too long is aborted, and so is one without a record,
    /// if the caller gives up.
    pub(crate) async fn state_of_transaction(self: &Rc<Self>, id: &[u8], patience: Patience) -> Result<State, Error> {
        let mut state = self.recorded_state(id).await?;
        if planted::is_planted(Bug::CommittedWhenMet) && state != State::Absent {
            return Ok(State::Committed);
        }
        if state == State::Absent && patience == Patience::GivesUp {
            let aborted = with_state_of(record(id, AttributeValue::L(Vec::new())), "aborted");
            let abort = move |record: Option<&Item>| match record {
                None => Change::Put(aborted.clone()),
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
        let pending = with_state_of(record(id.as_bytes(), AttributeValue::L(items.collect())), "pending");
        let step = move |now: Option<&Item>| match now {
            Some(_) if !planted::is_planted(Bug::BegunAfterAbort) => Change::Keep,
            // A mark that it was aborted may have been there, and be gone.
            None if runtime::now() - started > BEGIN_MAX => Change::Keep,
            _ => Change::Put(pending.clone()),
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
        self.write_plainly(&records, &key, Old::Unknown, None, None).await
    }

    /// Notes that a committed transaction has no locks any more; its record stays because requests with its token ask
    /// for it. As with [`Service::forget`], nothing depends on it.
    pub(crate) async fn note_settled(self: &Rc<Self>, id: Uuid) -> Result<(), Error> {
        let records = self.records().await?;
        let key = Self::record_key(&records, id.as_bytes())?;
        let (mut before, mut after) = (Item::new(), Item::new());
        before.insert(ITEMS.to_owned(), AttributeValue::Null);
        after.insert(ITEMS.to_owned(), AttributeValue::L(Vec::new()));
        self.write_plainly(&records, &key, Old::Known(Some(&before)), Some(&after), None)
            .await
    }

    /// Where an item of a transaction is, for the node that finishes it.
    fn encode_place(action: &Action) -> AttributeValue {
        let bytes = |bytes: &[u8]| AttributeValue::B(bytes.to_vec());
        AttributeValue::L(vec![
            AttributeValue::S(action.table.name.clone()),
            bytes(&action.key.partition),
            bytes(&action.key.clustering),
        ])
    }

    /// Finishes what transactions have left whose coordinators ended in the middle, and forgets old outcomes, of the
    /// records in a range of tokens. Returns how many records are gone.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn sweep_transactions(self: &Rc<Self>, range: (RingToken, RingToken)) -> Result<usize, Error> {
        let Some(records) = self.find_table(TRANSACTIONS)? else {
            return Ok(0);
        };
        let (extent, mut after, mut gone) = (Extent::Tokens(range.0, range.1), None, 0);
        loop {
            let limit = Some(RECORDS_AT_ONCE);
            let page = self
                .read_page(&records, &extent, after.as_ref(), limit, Consistency::LocalOne)
                .await?;
            for record in &page.items {
                gone += usize::from(self.sweep_record(&records, record).await?);
            }
            let last = page.items.last().map(|record| records.key_of(record)).transpose()?;
            after = page.last.or(last);
            if !page.has_more || after.is_none() {
                return Ok(gone);
            }
        }
    }

    /// The table of records, if there is one.
    ///
    /// # Errors
    /// When its definition cannot be read.
    pub fn records_table(&self) -> Result<Option<Arc<ItemTable>>, Error> {
        self.find_table(TRANSACTIONS)
    }

    /// Finishes one transaction; whether its record is gone.
    async fn sweep_record(self: &Rc<Self>, records: &ItemTable, record: &Item) -> Result<bool, Error> {
        let Some(AttributeValue::B(id)) = record.get(ID) else {
            return Ok(false);
        };
        let began_ms = integer(record, BEGAN).unwrap_or(0);
        if began_ms + 2 * PENDING_MS_MAX > now_ms() {
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
            let actions: Vec<Action> = places.iter().filter_map(|place| self.place_of(place)).collect();
            self.settle_all(transaction, &actions, state).await?;
        }
        if is_old {
            // What is as old as the outcome of a token may be goes; what was written since stays.
            let timestamp = (began_ms + TOKEN_MS) * 1_000;
            let key = Self::record_key(records, id)?;
            self.write_plainly(records, &key, Old::Unknown, None, Some(timestamp))
                .await?;
        }
        Ok(is_old)
    }

    fn place_of(self: &Rc<Self>, place: &AttributeValue) -> Option<Action> {
        let AttributeValue::L(parts) = place else { return None };
        let [
            AttributeValue::S(table),
            AttributeValue::B(partition),
            AttributeValue::B(clustering),
        ] = parts.as_slice()
        else {
            return None;
        };
        Some(Action {
            // A table that was dropped has taken its locks with it.
            table: self.find_table(table).ok().flatten()?,
            key: ItemKey {
                partition: partition.clone(),
                clustering: clustering.clone(),
            },
            modification: Arc::new(Step(|_: Option<&Item>| Change::Keep)),
        })
    }
}
