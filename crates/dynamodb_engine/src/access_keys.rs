//! The access keys of the API: rows of `system_auth.dynamodb_keys`.
//!
//! A signature is an HMAC with the secret, so the table has the secret itself and not a hash of it: every reader of
//! the table can sign.
//!
//! Changes are at EACH_QUORUM and reads at LOCAL_QUORUM, so a read in any datacenter sees every change that was
//! acknowledged. The functions need an engine and no [`Service`](crate::Service): operators manage keys on nodes that
//! do not serve the API too.

use std::rc::Rc;

use plan::{Execution, OwnedBound};
use query::{Engine, Outcome, QueryError, Request, ValueRows};
use topology::Consistency;

const READ: &str = "SELECT secret, status FROM system_auth.dynamodb_keys WHERE access_key = ?";
/// Without the secrets; those without a secret are no keys.
const LIST: &str = "SELECT access_key, created, status, writetime(secret) FROM system_auth.dynamodb_keys";
const TIMES: &str = "SELECT writetime(secret), writetime(status), writetime(created) FROM system_auth.dynamodb_keys \
                     WHERE access_key = ?";
const CREATE: &str = "INSERT INTO system_auth.dynamodb_keys (access_key, created, secret, status) VALUES (?, ?, ?, ?)";
const SET_STATUS: &str = "UPDATE system_auth.dynamodb_keys USING TIMESTAMP ? SET status = ? WHERE access_key = ?";
const DELETE: &str = "DELETE FROM system_auth.dynamodb_keys USING TIMESTAMP ? WHERE access_key = ?";

/// What every access key begins with that is made here.
const PREFIX: &str = "CETO";
/// 80 bits.
const RANDOM_CHARS: usize = 16;
const KEY_CHARS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
/// 240 bits.
const SECRET_CHARS: usize = 40;
const SECRET_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Whether a key can be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Status {
    /// Requests may be signed with it.
    Active,
    /// It is refused until it is active again.
    Inactive,
}

impl Status {
    /// Its name in the table, as IAM writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Active => "Active",
            Self::Inactive => "Inactive",
        }
    }

    /// The status of a name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Active, Self::Inactive]
            .into_iter()
            .find(|status| status.name() == name)
    }

    /// What the column says. A row that was inserted without one is active; a word that is no status is not.
    fn stored(value: Option<&[u8]>) -> Self {
        match value {
            None => Self::Active,
            Some(name) if name == Self::Active.name().as_bytes() => Self::Active,
            Some(_) => Self::Inactive,
        }
    }
}

/// A key without its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessKey {
    /// Its name.
    pub access_key: String,
    /// When it was made, in milliseconds since the epoch, if the row says so.
    pub created_ms: Option<i64>,
    /// Whether it can be used.
    pub status: Status,
}

/// A key that was just made. It has no Debug, as that would show the secret.
pub struct NewKey {
    /// Its name.
    pub access_key: String,
    /// Its secret.
    pub secret: String,
}

async fn execute(
    engine: &Rc<Engine>,
    statement: &str,
    values: Vec<OwnedBound>,
    level: Consistency,
) -> Result<Vec<Vec<Option<Vec<u8>>>>, QueryError> {
    let prepared = engine.prepare(statement, None)?;
    let run = Execution {
        values,
        now_us: runtime::wall_clock_us(),
        now_in_seconds: None,
        random: runtime::random_u64(),
    };
    let request = Request {
        level,
        ..Request::default()
    };
    match engine.execute::<ValueRows>(&prepared.statement, &run, &request).await? {
        Outcome::Rows(page) => Ok(page.sink.rows),
        _ => Ok(Vec::new()),
    }
}

fn text(text: &str) -> OwnedBound {
    OwnedBound::Value(text.as_bytes().to_vec())
}

fn bigint(number: i64) -> OwnedBound {
    OwnedBound::Value(number.to_be_bytes().to_vec())
}

fn number(value: Option<&Vec<u8>>) -> Option<i64> {
    value?.as_slice().try_into().ok().map(i64::from_be_bytes)
}

/// The secret of a key; None if there is no such key or it is not active.
///
/// # Errors
/// When too few replicas answer.
pub async fn secret(engine: &Rc<Engine>, access_key: &str) -> Result<Option<String>, QueryError> {
    let rows = execute(engine, READ, vec![text(access_key)], Consistency::LocalQuorum).await?;
    let Some([Some(secret), status]) = rows.into_iter().next().and_then(|row| <[_; 2]>::try_from(row).ok()) else {
        return Ok(None);
    };
    Ok(match Status::stored(status.as_deref()) {
        Status::Active => String::from_utf8(secret).ok(),
        Status::Inactive => None,
    })
}

/// All keys, by name.
///
/// # Errors
/// When too few replicas answer.
pub async fn list(engine: &Rc<Engine>) -> Result<Vec<AccessKey>, QueryError> {
    let rows = execute(engine, LIST, Vec::new(), Consistency::LocalQuorum).await?;
    let keys = rows.into_iter().filter_map(|row| {
        let [Some(access_key), created, status, Some(_)] = <[_; 4]>::try_from(row).ok()? else {
            return None;
        };
        Some(AccessKey {
            access_key: String::from_utf8(access_key).ok()?,
            created_ms: number(created.as_ref()),
            status: Status::stored(status.as_deref()),
        })
    });
    let mut keys: Vec<AccessKey> = keys.collect();
    keys.sort_by(|one, other| one.access_key.cmp(&other.access_key));
    Ok(keys)
}

/// Makes a key with a name and a secret by chance.
///
/// # Errors
/// When too few replicas answer; the key may exist then, and its secret is lost.
pub async fn create(engine: &Rc<Engine>) -> Result<NewKey, QueryError> {
    let key = NewKey {
        access_key: format!("{PREFIX}{}", random_text(KEY_CHARS, RANDOM_CHARS)),
        secret: random_text(SECRET_ALPHABET, SECRET_CHARS),
    };
    let values = vec![
        text(&key.access_key),
        bigint(runtime::wall_clock_us() / 1000),
        text(&key.secret),
        text(Status::Active.name()),
    ];
    execute(engine, CREATE, values, Consistency::EachQuorum).await?;
    Ok(key)
}

/// Letters by chance of an alphabet whose length divides 256, so that each is as likely as any other.
fn random_text(alphabet: &[u8], chars: usize) -> String {
    debug_assert!(256_usize.is_multiple_of(alphabet.len()), "some letters are more likely");
    let mut bytes = vec![0; chars];
    runtime::random_bytes(&mut bytes);
    let letters = bytes
        .into_iter()
        .map(|byte| alphabet[usize::from(byte) % alphabet.len()]);
    letters.map(char::from).collect()
}

/// Makes a key active or not. False: there is no such key.
///
/// # Errors
/// When too few replicas answer; whether it has changed is unknown then.
pub async fn set_status(engine: &Rc<Engine>, access_key: &str, status: Status) -> Result<bool, QueryError> {
    let Some(timestamp) = next_timestamp(engine, access_key).await? else {
        return Ok(false);
    };
    let values = vec![bigint(timestamp), text(status.name()), text(access_key)];
    execute(engine, SET_STATUS, values, Consistency::EachQuorum).await?;
    Ok(true)
}

/// Deletes a key. False: there is no such key.
///
/// # Errors
/// When too few replicas answer; whether it is deleted is unknown then.
pub async fn delete(engine: &Rc<Engine>, access_key: &str) -> Result<bool, QueryError> {
    let Some(timestamp) = next_timestamp(engine, access_key).await? else {
        return Ok(false);
    };
    let values = vec![bigint(timestamp), text(access_key)];
    execute(engine, DELETE, values, Consistency::EachQuorum).await?;
    Ok(true)
}

/// A write timestamp after all writes of a key: a clock that was ahead must not keep a key alive that is deleted. None:
/// there is no such key.
async fn next_timestamp(engine: &Rc<Engine>, access_key: &str) -> Result<Option<i64>, QueryError> {
    let rows = execute(engine, TIMES, vec![text(access_key)], Consistency::LocalQuorum).await?;
    let Some(row) = rows.first().filter(|row| row.first().is_some_and(Option::is_some)) else {
        return Ok(None);
    };
    let last = row.iter().filter_map(|value| number(value.as_ref())).max();
    let now = runtime::wall_clock_us();
    Ok(Some(last.map_or(now, |last| now.max(last.saturating_add(1)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_that_is_no_status_is_not_active() {
        assert_eq!(Status::stored(None), Status::Active);
        assert_eq!(Status::stored(Some(b"Active")), Status::Active);
        for word in [&b"Inactive"[..], b"active", b"", b"\xff"] {
            assert_eq!(Status::stored(Some(word)), Status::Inactive);
        }
    }
}
