//! Transactions over items of several partitions and tables. docs/dev/transactions-across-partitions.md is the design.
//!
//! A transaction has a *record*, an item of a table that clients do not see. It marks each of its items with a *lock*
//! (`lock.rs`), in a conditional write that evaluates the item's condition. The conditional write that makes the record
//! *committed* decides; after it every lock becomes what it intends. A request that meets a lock reads the record:
//! committed, the lock is carried out; aborted or without a record, it is taken away; pending for longer than a
//! transaction may take, the record is aborted first.
//!
//! Invariants
//! - A record is there before its first lock, and is committed only from pending. So a lock without a record is one of
//!   a transaction that was aborted, or of which everything is done.
//! - A record goes only after all its locks.
//! - An item with a lock is written by nothing else before the lock is settled.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dynamodb::update::Updated;
use dynamodb::{AttributeValue, CancellationReason, Error, ErrorKind, Item, Number};
use runtime::ShardId;
use topology::Consistency;
use types::token::murmur3_x64_128;
use uuid::Uuid;

use crate::definitions::TRANSACTIONS;
use crate::lock::{Intent, Lock};
use crate::modify::{Change, Decided, LOCKED_MAX, Modification, Modified, RowDecision, conflict};
use crate::row::StoredRow;
use crate::service::Service;
use crate::table::{ItemKey, ItemTable};

/// How long a transaction may be pending before others abort it; milliseconds.
const PENDING_MS_MAX: i64 = 5_000;
/// How long the outcome of a request with a token is kept; milliseconds. The API reference says ten minutes.
pub const TOKEN_MS: i64 = 600_000;
/// How often a transaction that meets another one is tried again.
const ATTEMPTS_MAX: u32 = 6;
/// The first pause of a request that waits for a transaction; each next one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(4);

/// The attribute that is the key of a record.
pub(crate) const ID: &str = "id";
const STATE: &str = "state";
const BEGAN: &str = "began_ms";
const ITEMS: &str = "items";
const HASH: &str = "hash";

/// One action of a transaction.
#[derive(Clone)]
pub struct Action {
    /// The item's table.
    pub table: Arc<ItemTable>,
    /// The item.
    pub key: ItemKey,
    /// What is done to it, or only checked.
    pub modification: Arc<dyn Modification>,
    /// Whether the item is returned when the condition does not hold.
    pub returns_item: bool,
}

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

/// What a transaction has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transacted {
    /// It is committed.
    Now,
    /// It was committed before, by a request with the same token.
    Before,
}

/// What the record of a transaction says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It may still be either.
    Pending { began_ms: i64 },
    /// Its locks are to be carried out.
    Committed,
    /// Its locks are to be taken away; so they are where there is no record.
    Aborted,
}

fn now_ms() -> i64 {
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
    let Some(record) = record else { return State::Aborted };
    match record.get(STATE) {
        Some(AttributeValue::S(state)) if state == "committed" => State::Committed,
        Some(AttributeValue::S(state)) if state == "pending" => State::Pending {
            began_ms: integer(record, BEGAN).unwrap_or(0),
        },
        _ => State::Aborted,
    }
}

/// A write of a record: `from` is what it must say before.
struct Step<F>(F);

impl<F: Fn(Option<&Item>) -> Change + Send + Sync + 'static> Modification for Step<F> {
    fn decide(&self, old: Option<&Item>) -> Result<Change, Error> {
        Ok((self.0)(old))
    }

    fn unread(&self) -> Option<Change> {
        None
    }
}

/// The record with another state.
fn with_state(record: &Item, state: &str) -> Change {
    let mut record = record.clone();
    record.insert(STATE.to_owned(), AttributeValue::S(state.to_owned()));
    Change::Put(record)
}

/// What became of one action's preparation.
enum Prepared {
    Locked,
    Failed(CancellationReason),
    Conflict,
}

fn reason(error: &Error) -> CancellationReason {
    let (code, item) = match &error.kind {
        ErrorKind::ConditionalCheckFailed { item } => ("ConditionalCheckFailed", item.clone()),
        ErrorKind::ItemCollectionSizeLimitExceeded => ("ItemCollectionSizeLimitExceeded", None),
        ErrorKind::ProvisionedThroughputExceeded => ("ProvisionedThroughputExceeded", None),
        ErrorKind::Throttling => ("ThrottlingError", None),
        _ => ("ValidationError", None),
    };
    CancellationReason {
        code,
        message: Some(error.message.clone()),
        item,
    }
}

fn conflict_reason() -> CancellationReason {
    CancellationReason {
        code: "TransactionConflict",
        message: Some("Transaction is ongoing for the item".to_owned()),
        item: None,
    }
}

/// Awaits all of them; they run at the same time.
pub(crate) async fn all<T: 'static>(futures: Vec<impl Future<Output = T> + 'static>) -> Vec<T> {
    let running: Vec<_> = futures.into_iter().map(runtime::spawn).collect();
    let mut done = Vec::with_capacity(running.len());
    for task in running {
        done.push(task.await);
    }
    done
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

    async fn change_record(
        self: &Rc<Self>,
        id: &[u8],
        step: impl Fn(Option<&Item>) -> Change + Send + Sync + 'static,
    ) -> Result<Modified, Error> {
        let records = self.records().await?;
        let key = Self::record_key(&records, id)?;
        self.modify(&records, key, Arc::new(Step(step))).await
    }

    /// All actions or none of them. With a token: at most once in ten minutes.
    ///
    /// # Errors
    /// TransactionCanceledException with a reason for each action; or it is not known what became of it.
    pub async fn transact_write(
        self: &Rc<Self>,
        actions: Vec<Action>,
        token: Option<Token>,
    ) -> Result<Transacted, Error> {
        let service = self.clone();
        // It ends whether its client waits or not: half of it would keep locks until others abort it.
        runtime::spawn(async move { service.transact(actions, token).await }).await
    }

    async fn transact(self: &Rc<Self>, actions: Vec<Action>, token: Option<Token>) -> Result<Transacted, Error> {
        let mut pause = PAUSE_FIRST;
        for attempt in 1.. {
            let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
            if let Some(token) = &token
                && self.claim(token, id).await? == Transacted::Before
            {
                return Ok(Transacted::Before);
            }
            let in_order = attempt > 1;
            let reasons = self.attempt(id, &actions, in_order, token.is_some()).await?;
            let Some(reasons) = reasons else {
                return Ok(Transacted::Now);
            };
            let met_another = reasons.iter().any(|reason| reason.code == "TransactionConflict");
            if !met_another || attempt >= ATTEMPTS_MAX {
                return Err(Error::transaction_canceled(reasons));
            }
            let jitter = runtime::random_u64() % 1_000;
            runtime::sleep(pause + pause * u32::try_from(jitter).unwrap_or(0) / 1_000).await;
            pause *= 2;
        }
        Err(conflict())
    }

    /// Makes this transaction the one of its token, unless another one has been it.
    async fn claim(self: &Rc<Self>, token: &Token, id: Uuid) -> Result<Transacted, Error> {
        let key = [b"token:", token.text.as_bytes()].concat();
        for _ in 0..LOCKED_MAX {
            let records = self.records().await?;
            let record_key = Self::record_key(&records, &key)?;
            let known = self.read_item(&records, &record_key, Consistency::LocalQuorum).await?;
            let is_recent = |known: &Item| integer(known, BEGAN).unwrap_or(0) + TOKEN_MS > now_ms();
            let before = known.filter(is_recent);
            let attempt = before.as_ref().and_then(|known| known.get(ITEMS)).cloned();
            if let (Some(before), Some(AttributeValue::B(attempt))) = (&before, &attempt) {
                if before.get(HASH) != Some(&AttributeValue::B(token.hash.to_be_bytes().to_vec())) {
                    return Err(Error::new(
                        ErrorKind::IdempotentParameterMismatch,
                        "The request uses the same client token as a previous, but non-identical request",
                    ));
                }
                match self.settled_state(attempt).await? {
                    State::Committed => return Ok(Transacted::Before),
                    State::Pending { .. } => {
                        return Err(Error::new(
                            ErrorKind::TransactionInProgress,
                            "The transaction with the given request token is already in progress",
                        ));
                    }
                    State::Aborted => {}
                }
            }
            let mut record = Item::new();
            record.insert(ID.to_owned(), AttributeValue::B(key.clone()));
            record.insert(BEGAN.to_owned(), number(now_ms()));
            record.insert(HASH.to_owned(), AttributeValue::B(token.hash.to_be_bytes().to_vec()));
            record.insert(ITEMS.to_owned(), AttributeValue::B(id.as_bytes().to_vec()));
            let mine = record.clone();
            let step = move |now: Option<&Item>| {
                let is_same = match (now, &attempt) {
                    (None, _) => true,
                    (Some(now), Some(attempt)) => now.get(ITEMS) == Some(attempt),
                    (Some(now), None) => integer(now, BEGAN).unwrap_or(0) + TOKEN_MS <= now_ms(),
                };
                if is_same {
                    Change::Put(record.clone())
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

    /// The state of a transaction; one that has been pending for too long is aborted.
    async fn settled_state(self: &Rc<Self>, id: &[u8]) -> Result<State, Error> {
        let records = self.records().await?;
        let key = Self::record_key(&records, id)?;
        let record = self.read_item(&records, &key, Consistency::LocalQuorum).await?;
        let state = state_of(record.as_ref());
        match state {
            State::Pending { began_ms } if began_ms + PENDING_MS_MAX < now_ms() => {
                let abort = |record: Option<&Item>| match (state_of(record), record) {
                    (State::Pending { .. }, Some(record)) => with_state(record, "aborted"),
                    _ => Change::Keep,
                };
                Ok(state_of(self.change_record(id, abort).await?.new.as_ref()))
            }
            state => Ok(state),
        }
    }

    /// One attempt. None: it is committed, and every action is done. Else the reason of each action.
    async fn attempt(
        self: &Rc<Self>,
        id: Uuid,
        actions: &[Action],
        in_order: bool,
        is_kept: bool,
    ) -> Result<Option<Vec<CancellationReason>>, Error> {
        self.begin(id, actions).await?;
        let prepared = self.prepare_all(id, actions, in_order).await;
        let reasons = match prepared {
            Ok(reasons) => reasons,
            Err(error) => {
                // Whether a lock was left is not known: without its record it is taken away.
                self.abort(id, actions).await;
                return Err(error);
            }
        };
        let is_locked = reasons.iter().all(|reason| reason.code.is_empty());
        if !is_locked {
            self.abort(id, actions).await;
            return Ok(Some(reasons));
        }
        if self.decide(id).await? != State::Committed {
            self.abort(id, actions).await;
            return Ok(Some(actions.iter().map(|_| conflict_reason()).collect()));
        }
        self.settle_all(id, actions, State::Committed).await?;
        if !is_kept {
            self.forget(id.as_bytes()).await?;
        }
        Ok(None)
    }

    /// Leaves a transaction as a coordinator does that ends in the middle: all items locked, and committed or not.
    ///
    /// # Errors
    /// As [`Service::transact_write`].
    #[doc(hidden)]
    pub async fn abandon_transaction(self: &Rc<Self>, actions: &[Action], is_committed: bool) -> Result<(), Error> {
        let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        self.begin(id, actions).await?;
        let reasons = self.prepare_all(id, actions, false).await?;
        assert!(reasons.iter().all(|reason| reason.code.is_empty()), "{reasons:?}");
        if is_committed {
            self.decide(id).await?;
        }
        Ok(())
    }

    /// Makes the record of a transaction.
    async fn begin(self: &Rc<Self>, id: Uuid, actions: &[Action]) -> Result<(), Error> {
        let mut record = Item::new();
        let bytes = id.as_bytes().to_vec();
        record.insert(ID.to_owned(), AttributeValue::B(bytes.clone()));
        record.insert(STATE.to_owned(), AttributeValue::S("pending".to_owned()));
        record.insert(BEGAN.to_owned(), number(now_ms()));
        let items = actions.iter().map(Self::encode_place);
        record.insert(ITEMS.to_owned(), AttributeValue::L(items.collect()));
        let begun = self.change_record(&bytes, move |_| Change::Put(record.clone())).await;
        begun.map(drop)
    }

    /// Commits a transaction that is pending; its state.
    async fn decide(self: &Rc<Self>, id: Uuid) -> Result<State, Error> {
        let commit = |record: Option<&Item>| match (state_of(record), record) {
            (State::Pending { .. }, Some(record)) => with_state(record, "committed"),
            _ => Change::Keep,
        };
        let decided = self.change_record(id.as_bytes(), commit).await?;
        Ok(state_of(decided.new.as_ref()))
    }

    async fn forget(self: &Rc<Self>, id: &[u8]) -> Result<(), Error> {
        self.change_record(id, |_| Change::Delete).await.map(drop)
    }

    /// Takes all locks of a transaction away, and then its record. What fails is done by the next request that meets a
    /// lock.
    async fn abort(self: &Rc<Self>, id: Uuid, actions: &[Action]) {
        let abort = |record: Option<&Item>| record.map_or(Change::Keep, |record| with_state(record, "aborted"));
        let aborted = self.change_record(id.as_bytes(), abort).await;
        let settled = self.settle_all(id, actions, State::Aborted).await;
        if let Err(error) = match (aborted, settled) {
            (Ok(_), Ok(())) => self.forget(id.as_bytes()).await,
            (Err(error), _) | (_, Err(error)) => Err(error),
        } {
            log::debug!("transaction {id} is aborted, and not all of its locks are taken away yet: {error}");
        }
    }

    async fn prepare_all(
        self: &Rc<Self>,
        id: Uuid,
        actions: &[Action],
        in_order: bool,
    ) -> Result<Vec<CancellationReason>, Error> {
        let prepare = |action: &Action| {
            let (service, action) = (self.clone(), action.clone());
            async move { service.prepare(id, &action).await }
        };
        let mut order: Vec<usize> = (0..actions.len()).collect();
        let prepared = if in_order {
            // All transactions take their locks in one order, so that one that waits is waited for by none before it.
            order.sort_by_key(|at| {
                (
                    actions[*at].table.table.id,
                    actions[*at].key.token(),
                    actions[*at].key.clone(),
                )
            });
            let mut prepared = Vec::with_capacity(actions.len());
            for at in &order {
                let one = prepare(&actions[*at]).await;
                let is_over = !matches!(one, Ok(Prepared::Locked));
                prepared.push(one);
                if is_over {
                    break;
                }
            }
            prepared
        } else {
            all(actions.iter().map(prepare).collect()).await
        };
        let mut reasons = vec![CancellationReason::default(); actions.len()];
        for (at, one) in order.into_iter().zip(prepared) {
            match one? {
                Prepared::Locked => {}
                Prepared::Failed(reason) => reasons[at] = reason,
                Prepared::Conflict => reasons[at] = conflict_reason(),
            }
        }
        Ok(reasons)
    }

    async fn prepare(self: &Rc<Self>, id: Uuid, action: &Action) -> Result<Prepared, Error> {
        for _ in 0..LOCKED_MAX {
            let decided = self.on_owner(action, move |service, action| {
                Box::pin(async move {
                    let mut change = |stored: &StoredRow| prepare_row(id, &action, stored);
                    service.decide_row(&action.table, &action.key, &mut change).await
                })
            });
            match decided.await {
                Ok(Decided::Done(_)) => return Ok(Prepared::Locked),
                Ok(Decided::Locked(lock)) => {
                    if self.settle_once(&action.table, &action.key, &lock).await?.is_none() {
                        return Ok(Prepared::Conflict);
                    }
                }
                Err(error) if is_of_action(&error) => return Ok(Prepared::Failed(reason(&error))),
                Err(error) => return Err(error),
            }
        }
        Ok(Prepared::Conflict)
    }

    async fn settle_all(self: &Rc<Self>, id: Uuid, actions: &[Action], state: State) -> Result<(), Error> {
        let settle = |action: &Action| {
            let (service, action) = (self.clone(), action.clone());
            async move { service.settle_row(id, &action, state).await }
        };
        all(actions.iter().map(settle).collect()).await.into_iter().collect()
    }

    /// Carries a lock of a transaction out, or takes it away; nothing if the row has no lock of it.
    async fn settle_row(self: &Rc<Self>, id: Uuid, action: &Action, state: State) -> Result<(), Error> {
        let decided = self.on_owner(action, move |service, action| {
            Box::pin(async move {
                let mut change = |stored: &StoredRow| Ok(settled_row(id, stored, state));
                service.decide_row(&action.table, &action.key, &mut change).await
            })
        });
        decided.await.map(drop)
    }

    /// Waits until the transaction of a lock is decided, and settles the row.
    ///
    /// # Errors
    /// TransactionConflictException when that takes too long.
    pub(crate) async fn settle(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        key: &ItemKey,
        lock: &Lock,
    ) -> Result<(), Error> {
        let mut pause = PAUSE_FIRST;
        for _ in 0..LOCKED_MAX {
            if self.settle_once(table, key, lock).await?.is_some() {
                return Ok(());
            }
            runtime::sleep(pause).await;
            pause *= 2;
        }
        Err(conflict())
    }

    /// Settles the row of a lock; None: its transaction is still pending.
    async fn settle_once(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        key: &ItemKey,
        lock: &Lock,
    ) -> Result<Option<()>, Error> {
        let state = self.settled_state(lock.transaction.as_bytes()).await?;
        if matches!(state, State::Pending { .. }) {
            return Ok(None);
        }
        let action = Action {
            table: table.clone(),
            key: key.clone(),
            modification: Arc::new(Step(|_: Option<&Item>| Change::Keep)),
            returns_item: false,
        };
        self.settle_row(lock.transaction, &action, state).await.map(Some)
    }

    /// Runs something on the shard that owns an action's item.
    async fn on_owner(
        self: &Rc<Self>,
        action: &Action,
        work: impl FnOnce(Rc<Self>, Action) -> std::pin::Pin<Box<dyn Future<Output = Result<Decided, Error>>>>
        + Send
        + 'static,
    ) -> Result<Decided, Error> {
        let owner = ShardId(
            self.engine
                .coordinator
                .own
                .owner(action.table.table.id, action.key.token()),
        );
        let action = action.clone();
        if owner == self.engine.coordinator.context.shard_id() {
            return work(self.clone(), action).await;
        }
        coordinator::trace::submit(owner, move || async move { work(Self::local(), action).await }).await
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

    /// Finishes what transactions have left whose coordinators ended in the middle, and forgets old outcomes. Returns
    /// how many records are gone.
    ///
    /// # Errors
    /// When the records cannot be read.
    pub async fn sweep_transactions(self: &Rc<Self>) -> Result<usize, Error> {
        let Some(records) = self.find_table(TRANSACTIONS)? else {
            return Ok(0);
        };
        let (mut after, mut gone) = (None, 0);
        loop {
            let all_tokens = crate::read::Extent::Tokens(types::Token(i64::MIN), types::Token(i64::MAX));
            let page = self
                .read_page(
                    &records,
                    &all_tokens,
                    after.as_ref(),
                    Some(1_000),
                    Consistency::LocalOne,
                )
                .await?;
            for record in &page.items {
                gone += usize::from(self.sweep_record(record).await?);
            }
            let last = page.items.last().map(|record| records.key_of(record)).transpose()?;
            after = page.last.or(last);
            if !page.has_more || after.is_none() {
                return Ok(gone);
            }
        }
    }

    /// Finishes one transaction; whether its record is gone.
    async fn sweep_record(self: &Rc<Self>, record: &Item) -> Result<bool, Error> {
        let Some(AttributeValue::B(id)) = record.get(ID) else {
            return Ok(false);
        };
        let began_ms = integer(record, BEGAN).unwrap_or(0);
        if began_ms + 2 * PENDING_MS_MAX > now_ms() {
            return Ok(false);
        }
        let is_old = began_ms + TOKEN_MS + PENDING_MS_MAX < now_ms();
        let (Ok(transaction), Some(AttributeValue::L(places))) = (Uuid::from_slice(id), record.get(ITEMS)) else {
            // A token.
            if is_old {
                let is_same = move |record: &Item| integer(record, BEGAN) == Some(began_ms);
                let step = move |now: Option<&Item>| {
                    if now.is_some_and(is_same) {
                        Change::Delete
                    } else {
                        Change::Keep
                    }
                };
                self.change_record(id, step).await?;
            }
            return Ok(is_old);
        };
        let state = self.settled_state(id).await?;
        if matches!(state, State::Pending { .. }) {
            return Ok(false);
        }
        let actions: Vec<Action> = places.iter().filter_map(|place| self.place_of(place)).collect();
        self.settle_all(transaction, &actions, state).await?;
        if state == State::Aborted || is_old {
            self.forget(id).await?;
            return Ok(true);
        }
        Ok(false)
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
            returns_item: false,
        })
    }
}

/// Whether an error says something about an action, and not about the cluster.
fn is_of_action(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::ConditionalCheckFailed { .. } | ErrorKind::Validation | ErrorKind::ItemCollectionSizeLimitExceeded
    )
}

fn prepare_row(id: Uuid, action: &Action, stored: &StoredRow) -> Result<RowDecision, Error> {
    if let Some(lock) = stored.lock.as_deref().and_then(Lock::decode) {
        // A step that is asked again may find its own lock.
        let is_mine = lock.transaction == id;
        return Ok(if is_mine {
            RowDecision::Lock(Some(lock.encode()))
        } else {
            RowDecision::Locked(lock)
        });
    }
    let intent = match action.modification.decide(stored.item.as_ref())? {
        Change::Keep => Intent::Keep,
        Change::Put(item) | Change::Update(Updated { item, .. }) => Intent::Put(item),
        Change::Delete => Intent::Delete,
    };
    let lock = Lock {
        transaction: id,
        has_item: stored.item.is_some(),
        intent,
    };
    Ok(RowDecision::Lock(Some(lock.encode())))
}

fn settled_row(id: Uuid, stored: &StoredRow, state: State) -> RowDecision {
    let lock = stored.lock.as_deref().and_then(Lock::decode);
    let Some(lock) = lock.filter(|lock| lock.transaction == id) else {
        // Nothing to do; a row without a lock stays as it is.
        return RowDecision::Nothing;
    };
    if state != State::Committed {
        return RowDecision::Lock(None);
    }
    RowDecision::Change(match lock.intent {
        Intent::Keep => Change::Keep,
        Intent::Put(item) => Change::Put(item),
        Intent::Delete => Change::Delete,
    })
}
