//! The access keys that a shard has looked up, for a short time, so that a check of a signature seldom waits.
//!
//! **Invariants**
//! - An answer is used for [`KNOWN_TIME_MAX`] from the moment when its lookup began, or for [`UNKNOWN_TIME_MAX`] if it
//!   says that there is no such key. So a key that is deleted is refused after that time.
//! - A lookup that fails is not remembered: no key is valid because it could not be read.
//! - One lookup of a key runs at a time; the requests that need it at that time share its result.
//! - A shard remembers [`KNOWN_MAX`] keys and, apart from them, [`UNKNOWN_MAX`] names that are no keys: clients that
//!   try names do not displace keys. Beyond that the oldest is forgotten.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use front::increment;
use logging::LineLimit;
use runtime::{Instant, Notify};

use crate::sigv4::{BodyHash, Claim, SigningKey};
use crate::{Counts, Refusal, Secret, Secrets, SecretsUnavailable};

/// How long a key is valid without another lookup.
const KNOWN_TIME_MAX: Duration = Duration::from_secs(10);
/// How long a name that is no key is refused without another lookup.
const UNKNOWN_TIME_MAX: Duration = Duration::from_secs(2);
/// Keys that a shard remembers: 5 MiB with the longest secrets.
const KNOWN_MAX: usize = 4096;
/// Names that a shard remembers as no keys: 128 KiB with the longest ones.
const UNKNOWN_MAX: usize = 1024;
/// A longer name is no key.
const ACCESS_KEY_BYTES_MAX: usize = 128;
/// A key with a longer secret, or an empty one, is none.
const SECRET_BYTES_MAX: usize = 1024;

/// A key that is known.
pub(crate) struct AccessKey {
    secret: String,
    /// What was derived from it last. A client signs for one region, and for one day at a time.
    signing: RefCell<Option<Rc<SigningKey>>>,
}

/// What is known of an access key.
#[derive(Clone)]
pub(crate) enum KeyState {
    Known(Rc<AccessKey>),
    Unknown,
    Expired,
}

/// A lookup that runs.
#[derive(Default)]
struct Lookup {
    ended: Notify,
    /// None when it has ended: its task was dropped.
    result: RefCell<Option<Result<KeyState, SecretsUnavailable>>>,
}

/// The access keys that this shard has looked up.
pub(crate) struct AccessKeys {
    secrets: Rc<dyn Secrets>,
    known: RefCell<Recent>,
    unknown: RefCell<Recent>,
    running: RefCell<HashMap<String, Rc<Lookup>>>,
    failure_lines: LineLimit,
}

/// What was found lately, the oldest first.
struct Recent {
    found: HashMap<Rc<str>, (KeyState, Instant)>,
    /// The keys with their ends. One that was found again is here twice, with another end.
    order: VecDeque<(Rc<str>, Instant)>,
    entries_max: usize,
    time_max: Duration,
}

/// Ends a lookup, also when its task is dropped.
struct Ending<'k> {
    keys: &'k AccessKeys,
    access_key: &'k str,
    lookup: Rc<Lookup>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.keys.running.borrow_mut().remove(self.access_key);
        self.lookup.ended.notify_all();
    }
}

impl Lookup {
    fn result(&self) -> Option<Result<KeyState, SecretsUnavailable>> {
        self.result.borrow().clone()
    }
}

impl AccessKey {
    fn new(secret: String) -> Self {
        Self {
            secret,
            signing: RefCell::default(),
        }
    }

    /// Checks a signature.
    pub(crate) fn verify(&self, claim: &Claim, body: &BodyHash) -> Result<(), Refusal> {
        let kept = self.signing.borrow().clone().filter(|key| claim.is_signed_by(key));
        if let Some(key) = kept {
            return claim.verify_with(&key, body);
        }
        let key = Rc::new(claim.signing_key(&self.secret));
        claim.verify_with(&key, body)?;
        // Only the holder of the secret changes what is kept.
        self.signing.replace(Some(key));
        Ok(())
    }
}

impl Recent {
    fn new(entries_max: usize, time_max: Duration) -> Self {
        Self {
            found: HashMap::new(),
            order: VecDeque::new(),
            entries_max,
            time_max,
        }
    }

    fn get(&self, access_key: &str, now: Instant) -> Option<KeyState> {
        let (found, until) = self.found.get(access_key)?;
        (now < *until).then(|| found.clone())
    }

    /// Keeps what a lookup that began at this time has found.
    fn insert(&mut self, access_key: &str, found: KeyState, began: Instant) {
        let now = runtime::now();
        let (key, until): (Rc<str>, Instant) = (access_key.into(), began + self.time_max);
        while let Some((oldest, end)) = self.order.front() {
            if self.order.len() < self.entries_max && now < *end {
                break;
            }
            if self.found.get(oldest).is_some_and(|(_, until)| until == end) {
                self.found.remove(oldest);
            }
            self.order.pop_front();
        }
        self.found.insert(key.clone(), (found, until));
        self.order.push_back((key, until));
    }
}

impl AccessKeys {
    pub(crate) fn new(secrets: Rc<dyn Secrets>) -> Self {
        Self {
            secrets,
            known: RefCell::new(Recent::new(KNOWN_MAX, KNOWN_TIME_MAX)),
            unknown: RefCell::new(Recent::new(UNKNOWN_MAX, UNKNOWN_TIME_MAX)),
            running: RefCell::default(),
            failure_lines: LineLimit::new(|lines| {
                log::warn!("{lines} more failed reads of access keys are not logged");
            }),
        }
    }

    /// What is known of a key.
    ///
    /// # Errors
    /// When that cannot be read by the deadline.
    pub(crate) async fn find(
        &self,
        access_key: &str,
        deadline: Instant,
        counts: &Counts,
    ) -> Result<KeyState, SecretsUnavailable> {
        if access_key.is_empty() || access_key.len() > ACCESS_KEY_BYTES_MAX {
            return Ok(KeyState::Unknown);
        }
        loop {
            if let Some(found) = self.remembered(access_key) {
                return Ok(found);
            }
            let running = self.running.borrow().get(access_key).cloned();
            let Some(lookup) = running else {
                return self.look_up(access_key, deadline, counts).await;
            };
            if runtime::timeout_at(deadline, lookup.ended.notified()).await.is_err() {
                return Err(SecretsUnavailable("the lookup took too long".to_owned()));
            }
            if let Some(result) = lookup.result() {
                return result;
            }
        }
    }

    fn remembered(&self, access_key: &str) -> Option<KeyState> {
        let now = runtime::now();
        let known = self.known.borrow().get(access_key, now);
        known.or_else(|| self.unknown.borrow().get(access_key, now))
    }

    async fn look_up(
        &self,
        access_key: &str,
        deadline: Instant,
        counts: &Counts,
    ) -> Result<KeyState, SecretsUnavailable> {
        let lookup = Rc::new(Lookup::default());
        self.running.borrow_mut().insert(access_key.to_owned(), lookup.clone());
        let ending = Ending {
            keys: self,
            access_key,
            lookup: lookup.clone(),
        };
        increment(&counts.access_key_lookups);
        let began = runtime::now();
        let secret = self.secrets.secret(access_key, deadline).await;
        let result = secret.map(|secret| match secret {
            Secret::Known(secret) if !secret.is_empty() && secret.len() <= SECRET_BYTES_MAX => {
                KeyState::Known(Rc::new(AccessKey::new(secret)))
            }
            Secret::Known(_) | Secret::Unknown => KeyState::Unknown,
            Secret::Expired => KeyState::Expired,
        });
        match &result {
            Ok(found @ KeyState::Known(_)) => self.known.borrow_mut().insert(access_key, found.clone(), began),
            Ok(found) => self.unknown.borrow_mut().insert(access_key, found.clone(), began),
            Err(SecretsUnavailable(reason)) => {
                increment(&counts.access_key_lookup_failures);
                if self.failure_lines.admits() {
                    log::warn!("cannot read an access key of the DynamoDB API: {reason}");
                }
            }
        }
        lookup.result.replace(Some(result.clone()));
        drop(ending);
        result
    }
}
