//! The secret that the nodes of a cluster share, and how each shows the other that it knows it.
//!
//! The secret does not travel. The node that answers sends 32 bytes of chance, the node that calls sends 32 of its own
//! and a code (HMAC-SHA-256) over both and its hello; then the one that answers sends a code of its own. The caller
//! goes first, so a node reveals nothing to one that does not know the secret. The hello is covered, so the identities
//! in it cannot be changed on the way. What follows is not: TLS is what protects it.

use crate::error::StartError;
use ring::hmac;
use std::fmt;

/// A shorter secret could be guessed from a code.
pub const SECRET_BYTES_MIN: usize = 16;
/// Bytes of chance of each side.
pub(crate) const NONCE_BYTES: usize = 32;
/// Bytes of a code.
pub(crate) const CODE_BYTES: usize = 32;

/// What all nodes of a cluster know, and no others.
#[derive(Clone)]
pub struct JoinSecret(hmac::Key);

impl fmt::Debug for JoinSecret {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JoinSecret")
    }
}

/// The side that shows that it knows the secret.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Caller,
    Callee,
}

impl JoinSecret {
    /// A secret of [`SECRET_BYTES_MIN`] bytes and more.
    ///
    /// # Errors
    /// When it is shorter.
    pub fn new(secret: &str) -> Result<Self, StartError> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(StartError::ShortSecret);
        }
        Ok(Self(hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes())))
    }

    /// What a code is of.
    fn message(side: Side, challenge: &[u8], nonce: &[u8], hello: &[u8]) -> Vec<u8> {
        let label: &[u8] = match side {
            Side::Caller => b"ceto-rpc caller\0",
            Side::Callee => b"ceto-rpc callee\0",
        };
        [label, challenge, nonce, hello].concat()
    }

    pub(crate) fn code(&self, side: Side, challenge: &[u8], nonce: &[u8], hello: &[u8]) -> [u8; CODE_BYTES] {
        let tag = hmac::sign(&self.0, &Self::message(side, challenge, nonce, hello));
        let mut code = [0; CODE_BYTES];
        code.copy_from_slice(tag.as_ref());
        code
    }

    /// Whether a code is right; takes the same time whether it is or not.
    pub(crate) fn is_code(&self, code: &[u8], side: Side, challenge: &[u8], nonce: &[u8], hello: &[u8]) -> bool {
        hmac::verify(&self.0, &Self::message(side, challenge, nonce, hello), code).is_ok()
    }
}

/// Bytes of chance.
pub(crate) fn nonce() -> [u8; NONCE_BYTES] {
    let mut bytes = [0; NONCE_BYTES];
    runtime::random_bytes(&mut bytes);
    bytes
}
