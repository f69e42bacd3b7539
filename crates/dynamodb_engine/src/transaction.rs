//! Transactions over items of several partitions and tables. docs/dev/transactions-across-partitions.md is the design.
//!
//! A transaction has a *record* (`record.rs`). It marks each of its items with a *lock* (`lock.rs`), in a conditional
//! write that evaluates the item's condition. The conditional write that makes the record *committed* decides; after it
//! every lock becomes what it intends. A request that meets a lock reads the record: committed, the lock is carried
//! out; aborted, it is taken away; pending for longer than a transaction may take, the record is aborted first, and so
//! is one that is not there.
//!
//! Invariants
//! - A transaction is committed by its record alone, and only from pending. A record becomes pending once, and not
//!   after it was aborted.
//! - A lock is taken away only after its transaction was aborted, or by its coordinator, which then does not commit it.
//! - The record of a committed transaction goes only after all its locks.
//! - An item with a lock is written by nothing else before the lock is settled.

use std::borrow::Cow;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dynamodb::update::Updated;
use dynamodb::{CancellationReason, Error, ErrorKind, Item};
use runtime::ShardId;
use uuid::Uuid;

use crate::lock::{Intent, Lock};
use crate::modify::{Change, Decided, LOCKED_MAX, Modification, RowDecision, conflict, owned};
use crate::record::{Patience, State, Token};
use crate::row::{Needed, StoredRow};
use crate::service::{Service, WriteIsolation};
use crate::table::{ItemKey, ItemTable};

/// How often a transaction that meets another one is tried again.
const ATTEMPTS_MAX: u32 = 6;
/// The first pause of a request that waits for a transaction; each next one is twice as long.
const PAUSE_FIRST: Duration = Duration::from_millis(4);

/// Transactions of a shard that are committed and answered, and are being settled; those beyond them are settled before
/// they are answered.
pub(crate) const SETTLING_MAX: usize = 256;
/// From which try on a write that meets the lock of a transaction without a record gives up on that.
const PATIENT_TRIES: usize = 3;

/// One action of a transaction.
#[derive(Clone)]
pub struct Action {
    /// The item's table.
    pub table: Arc<ItemTable>,
    /// The item.
    pub key: ItemKey,
    /// What is done to it, or only checked.
    pub modification: Arc<dyn Modification>,
}

impl Action {
    /// An item to which nothing is done: what is left to know of an action once its lock is set.
    pub(crate) fn nothing(table: Arc<ItemTable>, key: ItemKey) -> Self {
        Self {
            table,
            key,
            modification: Arc::new(Step(|_: Option<&Item>| Change::Keep)),
        }
    }
}

/// A write that a function decides.
pub(crate) struct Step<F>(pub(crate) F);

impl<F: Fn(Option<&Item>) -> Change<'static> + Send + Sync + 'static> Modification for Step<F> {
    fn decide(&self, old: Option<&Item>) -> Result<Change<'_>, Error> {
        Ok((self.0)(old))
    }

    fn unread(&self) -> Option<Change<'_>> {
        None
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

/// What became of an attempt.
enum Attempted {
    /// It is committed, now or before.
    Done(Transacted),
    /// It is not, for these reasons by action.
    Canceled(Vec<CancellationReason>),
}

/// An attempt of a transaction.
#[derive(Clone, Copy)]
struct Attempt {
    id: Uuid,
    /// From 1.
    number: u32,
    /// The one before, which was aborted.
    before: Option<Uuid>,
}

impl Attempt {
    /// Locks are taken one after the other.
    const fn is_in_order(self) -> bool {
        self.number > 1
    }

    const fn patience(self) -> Patience {
        if self.number > 2 {
            Patience::GivesUp
        } else {
            Patience::Waits
        }
    }
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
        ErrorKind::DuplicateItem => ("DuplicateItem", None),
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
    /// All actions or none of them. With a token: at most once in ten minutes.
    ///
    /// # Errors
    /// TransactionCanceledException with a reason for each action; or it is not known what became of it.
    pub async fn transact_write(
        self: &Rc<Self>,
        actions: Vec<Action>,
        token: Option<Token>,
    ) -> Result<Transacted, Error> {
        for action in &actions {
            self.check_transactional(&action.table)?;
        }
        let service = self.clone();
        // It ends whether its client waits or not: half of it would keep locks until others abort it.
        runtime::spawn(async move { service.transact(actions, token).await }).await
    }

    /// Refuses a table whose writes do not see transactions.
    pub(crate) fn check_transactional(&self, table: &ItemTable) -> Result<(), Error> {
        if self.isolation_of(table)? == WriteIsolation::Always {
            return Ok(());
        }
        Err(Error::validation(format!(
            "Transactions need the write isolation always_use_lwt, which table {} does not have",
            table.name
        )))
    }

    async fn transact(self: &Rc<Self>, actions: Vec<Action>, token: Option<Token>) -> Result<Transacted, Error> {
        let (mut pause, mut before) = (PAUSE_FIRST, None);
        for number in 1.. {
            let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
            let attempt = Attempt { id, number, before };
            let reasons = match self.attempt(attempt, &actions, token.as_ref()).await? {
                Attempted::Done(done) => return Ok(done),
                Attempted::Canceled(reasons) => reasons,
            };
            let met_another = reasons.iter().any(|reason| reason.code == "TransactionConflict");
            if !met_another || number >= ATTEMPTS_MAX {
                return Err(Error::transaction_canceled(reasons));
            }
            let jitter = runtime::random_u64() % 1_000;
            runtime::sleep(pause + pause * u32::try_from(jitter).unwrap_or(0) / 1_000).await;
            pause *= 2;
            before = Some(id);
        }
        Err(conflict())
    }

    /// One attempt: record, token and locks at the same time, then the decision.
    async fn attempt(
        self: &Rc<Self>,
        attempt: Attempt,
        actions: &[Action],
        token: Option<&Token>,
    ) -> Result<Attempted, Error> {
        let (id, started) = (attempt.id, runtime::now());
        let (service, begun) = (self.clone(), actions.to_vec());
        let begun = runtime::spawn(async move { service.begin(id, &begun, started).await });
        let claimed = token.cloned().map(|token| {
            let service = self.clone();
            runtime::spawn(async move { service.claim(&token, id, attempt.before).await })
        });
        let prepared = self.prepare_all(attempt, actions).await;
        let begun = begun.await;
        let claimed = match claimed {
            Some(claimed) => claimed.await,
            None => Ok(Transacted::Now),
        };
        let reasons = match (claimed, begun, prepared) {
            (Ok(Transacted::Now), Ok(true), Ok(reasons)) => Ok(reasons),
            (Ok(Transacted::Now), Ok(false), Ok(_)) => Ok(vec![conflict_reason(); actions.len()]),
            (Ok(Transacted::Before), ..) => {
                self.abort(id, actions).await;
                return Ok(Attempted::Done(Transacted::Before));
            }
            (Err(error), ..) | (_, Err(error), _) | (.., Err(error)) => Err(error),
        };
        let is_ready = matches!(&reasons, Ok(reasons) if reasons.iter().all(|reason| reason.code.is_empty()));
        if !is_ready {
            self.abort(id, actions).await;
            return reasons.map(Attempted::Canceled);
        }
        if !self.decide(id).await? {
            self.abort(id, actions).await;
            return Ok(Attempted::Canceled(vec![conflict_reason(); actions.len()]));
        }
        self.settle_committed(id, actions, token.is_some()).await;
        Ok(Attempted::Done(Transacted::Now))
    }

    /// Carries a committed transaction out, beside other requests if there are not too many. Those that meet its locks
    /// before that know that it is committed.
    async fn settle_committed(self: &Rc<Self>, id: Uuid, actions: &[Action], is_kept: bool) {
        // Of the request nothing is kept but where its items are.
        let places = actions
            .iter()
            .map(|action| Action::nothing(action.table.clone(), action.key.clone()));
        let (service, actions) = (self.clone(), places.collect::<Vec<_>>());
        let settling = async move {
            let over = match service.settle_all(id, &actions, State::Committed).await {
                Ok(()) if is_kept => service.note_settled(id).await,
                Ok(()) => service.forget(id.as_bytes()).await,
                Err(error) => Err(error),
            };
            if let Err(error) = over {
                log::debug!("transaction {id} is committed, and not carried out everywhere yet: {error}");
            }
        };
        if self.settling.get() >= SETTLING_MAX {
            return settling.await;
        }
        self.settling.set(self.settling.get() + 1);
        let service = self.clone();
        drop(runtime::spawn(async move {
            settling.await;
            service.settling.set(service.settling.get() - 1);
        }));
    }

    /// Leaves a transaction as a coordinator does that ends in the middle: all items locked, and committed or not.
    ///
    /// # Errors
    /// As [`Service::transact_write`].
    #[doc(hidden)]
    pub async fn abandon_transaction(self: &Rc<Self>, actions: &[Action], is_committed: bool) -> Result<(), Error> {
        let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        assert!(self.begin(id, actions, runtime::now()).await?, "no other node knows it");
        let attempt = Attempt {
            id,
            number: 1,
            before: None,
        };
        let reasons = self.prepare_all(attempt, actions).await?;
        assert!(reasons.iter().all(|reason| reason.code.is_empty()), "{reasons:?}");
        if is_committed {
            self.decide(id).await?;
        }
        Ok(())
    }

    /// Runs a transaction whose record is made late: after its locks, and after `meanwhile`. Whether it is committed.
    ///
    /// # Errors
    /// As [`Service::transact_write`].
    #[doc(hidden)]
    pub async fn transact_late(
        self: &Rc<Self>,
        actions: &[Action],
        meanwhile: impl Future<Output = ()>,
    ) -> Result<bool, Error> {
        let attempt = Attempt {
            id: Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64()),
            number: 1,
            before: None,
        };
        let reasons = self.prepare_all(attempt, actions).await?;
        assert!(reasons.iter().all(|reason| reason.code.is_empty()), "{reasons:?}");
        meanwhile.await;
        if !self.begin(attempt.id, actions, runtime::now()).await? || !self.decide(attempt.id).await? {
            self.abort(attempt.id, actions).await;
            return Ok(false);
        }
        self.settle_all(attempt.id, actions, State::Committed).await?;
        Ok(true)
    }

    /// Takes all locks of a transaction away that this coordinator does not commit, and then its record. What fails is
    /// done by the next request that meets a lock.
    async fn abort(self: &Rc<Self>, id: Uuid, actions: &[Action]) {
        let over = match self.settle_all(id, actions, State::Aborted).await {
            Ok(()) => self.forget(id.as_bytes()).await,
            Err(error) => Err(error),
        };
        if let Err(error) = over {
            log::debug!("transaction {id} is aborted, and not all of its locks are taken away yet: {error}");
        }
    }

    async fn prepare_all(
        self: &Rc<Self>,
        attempt: Attempt,
        actions: &[Action],
    ) -> Result<Vec<CancellationReason>, Error> {
        let prepare = |action: &Action| {
            let (service, action) = (self.clone(), action.clone());
            async move { service.prepare(attempt, &action).await }
        };
        let mut order: Vec<usize> = (0..actions.len()).collect();
        let prepared = if attempt.is_in_order() {
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

    async fn prepare(self: &Rc<Self>, attempt: Attempt, action: &Action) -> Result<Prepared, Error> {
        for _ in 0..LOCKED_MAX {
            let decided = self.on_owner(action, move |service, action| {
                Box::pin(async move {
                    let mut change = |stored: &StoredRow<'_>| prepare_row(attempt.id, &action, stored);
                    service
                        .decide_row(&action.table, &action.key, &Needed::All, &mut change)
                        .await
                })
            });
            match decided.await {
                Ok(Decided::Done(_)) => return Ok(Prepared::Locked),
                Ok(Decided::Locked(lock)) => {
                    let patience = attempt.patience();
                    if !self.settle_once(&action.table, &action.key, &lock, patience).await? {
                        return Ok(Prepared::Conflict);
                    }
                }
                Err(error) if is_of_action(&error) => return Ok(Prepared::Failed(reason(&error))),
                Err(error) => return Err(error),
            }
        }
        Ok(Prepared::Conflict)
    }

    pub(crate) async fn settle_all(self: &Rc<Self>, id: Uuid, actions: &[Action], state: State) -> Result<(), Error> {
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
                let mut change = |stored: &StoredRow<'_>| Ok(settled_row(id, stored, state));
                // What is settled is a whole item, which is compared with what is stored.
                service
                    .decide_row(&action.table, &action.key, &Needed::NONE, &mut change)
                    .await
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
        for tried in 0..LOCKED_MAX {
            let patience = if tried < PATIENT_TRIES {
                Patience::Waits
            } else {
                Patience::GivesUp
            };
            if self.settle_once(table, key, lock, patience).await? {
                return Ok(());
            }
            runtime::sleep(pause).await;
            pause *= 2;
        }
        Err(conflict())
    }

    /// Settles the row of a lock; false: its transaction may still be committed.
    async fn settle_once(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        key: &ItemKey,
        lock: &Lock,
        patience: Patience,
    ) -> Result<bool, Error> {
        let state = self.state_of_transaction(lock.transaction.as_bytes(), patience).await?;
        if !state.is_decided() {
            return Ok(false);
        }
        let action = Action::nothing(table.clone(), key.clone());
        self.settle_row(lock.transaction, &action, state).await?;
        Ok(true)
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
}

/// Whether an error says something about an action, and not about the cluster.
fn is_of_action(error: &Error) -> bool {
    matches!(
        error.kind,
        ErrorKind::ConditionalCheckFailed { .. }
            | ErrorKind::DuplicateItem
            | ErrorKind::Validation
            | ErrorKind::ItemCollectionSizeLimitExceeded
    )
}

fn prepare_row<'a>(id: Uuid, action: &'a Action, stored: &StoredRow<'_>) -> Result<RowDecision<'a>, Error> {
    if let Some(lock) = stored.lock.and_then(Lock::decode) {
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
        Change::Put(item) => Intent::Put(owned(item)),
        Change::Update(Updated { item, .. }) => Intent::Put(item),
        Change::Delete | Change::Expire => Intent::Delete,
    };
    let lock = Lock {
        transaction: id,
        has_item: stored.item.is_some(),
        intent,
    };
    Ok(RowDecision::Lock(Some(lock.encode())))
}

fn settled_row(id: Uuid, stored: &StoredRow<'_>, state: State) -> RowDecision<'static> {
    let lock = stored.lock.and_then(Lock::decode);
    let Some(lock) = lock.filter(|lock| lock.transaction == id) else {
        // Nothing to do; a row without a lock stays as it is.
        return RowDecision::Nothing;
    };
    if state != State::Committed {
        return RowDecision::Lock(None);
    }
    RowDecision::Change(match lock.intent {
        Intent::Keep => Change::Keep,
        Intent::Put(item) => Change::Put(Cow::Owned(item)),
        Intent::Delete => Change::Delete,
    })
}
