//! Whether an operation may run, by its signature, and what is logged and counted of those that may not.
//!
//! A signature is read when the request is, and verified in the task of the operation, which can wait for the secret.
//! [`Settings::enforces_authorization`] refuses what is not verified; [`Settings::warns_authorization`] logs and counts
//! it. With neither of them, signatures are not looked at.

use std::time::Duration;

use front::{Permissions, Principal, increment};
use http::Head;
use logging::LineLimit;
use runtime::Instant;
use stdx::preempt;

use crate::access_keys::KeyState;
use crate::connection::Connection;
use crate::sigv4::{self, Claim};
use crate::{Refusal, Settings};

/// The longest check of an operation that is executed in any case: warnings alone must not slow clients down.
const WARNING_TIME_MAX: Duration = Duration::from_secs(1);
/// The part of an access key that is logged.
const LOGGED_CHARS_MAX: usize = 128;

/// The limit of lines on operations without a valid signature.
pub(crate) const fn lines() -> LineLimit {
    LineLimit::new(|lines| log::warn!("{lines} more DynamoDB requests without a valid signature are not logged"))
}

impl Connection {
    /// The signature of a request, checked as far as that needs no secret. None: the operation runs without one.
    pub(crate) fn claim(&self, head: &Head<'_>, settings: &Settings) -> Result<Option<Claim>, Refusal> {
        if !settings.enforces_authorization && !settings.warns_authorization {
            return Ok(None);
        }
        let now_s = runtime::wall_clock_us().div_euclid(1_000_000);
        match Claim::read(head, now_s) {
            Ok(claim) => Ok(Some(claim)),
            Err(refusal) => self.unauthorized(refusal, None, settings).map(|()| None),
        }
    }

    /// The user whose key signed an operation. Of one that is not rightly signed and runs nevertheless: the anonymous.
    pub(crate) async fn authorize(
        &self,
        claim: &Claim,
        body: &[u8],
        (settings, deadline): (&Settings, Instant),
    ) -> Result<Principal, Refusal> {
        let deadline = if settings.enforces_authorization {
            deadline
        } else {
            deadline.min(runtime::now() + WARNING_TIME_MAX)
        };
        match self.authenticate(claim, body, deadline).await {
            Ok(principal) => Ok(principal),
            Err(refusal) => self
                .unauthorized(refusal, Some(&claim.access_key), settings)
                .map(|()| Principal::anonymous()),
        }
    }

    async fn authenticate(&self, claim: &Claim, body: &[u8], deadline: Instant) -> Result<Principal, Refusal> {
        let server = &self.server;
        let found = server.access_keys.find(&claim.access_key, deadline, &server.counts);
        match found.await {
            Ok(KeyState::Known(key)) => {
                let hash = preempt::allowed(|| sigv4::hash_body(body));
                key.verify(claim, &hash)?;
                Ok(Principal::new(&claim.access_key, Permissions::ALL))
            }
            Ok(KeyState::Unknown) => Err(sigv4::unrecognized()),
            Ok(KeyState::Expired) => Err(sigv4::expired()),
            Err(_) => Err(Refusal::of_http(503, "The access keys cannot be read now; try again")),
        }
    }

    /// Counts and logs an operation that is not verified. Ok: it runs nevertheless.
    fn unauthorized(&self, refusal: Refusal, access_key: Option<&str>, settings: &Settings) -> Result<(), Refusal> {
        let (counts, is_refused) = (&self.server.counts, settings.enforces_authorization);
        if !is_refused {
            increment(&counts.authentication_warnings);
        } else if refusal.status < 500 {
            increment(&counts.authentication_failures);
        }
        if settings.warns_authorization && self.server.unauthorized_lines.admits() {
            let outcome = if is_refused { "refused" } else { "executed" };
            let access_key = access_key.map(|key| {
                let shown: String = key.chars().take(LOGGED_CHARS_MAX).collect();
                format!(", access key {shown:?}")
            });
            // The text of the refusal may hold headers of the client: its type says enough.
            log::warn!(
                "a DynamoDB request of client {} is not authorized and is {outcome}: {}{}",
                self.session.peer,
                refusal.kind,
                access_key.unwrap_or_default()
            );
        }
        if is_refused { Err(refusal) } else { Ok(()) }
    }
}
