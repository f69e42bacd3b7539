//! The access keys of the DynamoDB API, as operators manage them: a part of [`Operator`](crate::Operator).

use crate::operator::Local;

/// The access keys of the cluster. Lives on shard 0; the keys are in a replicated table.
pub trait AccessKeys {
    /// All keys, by name, without their secrets.
    fn access_keys(&self) -> Local<'_, Result<Vec<AccessKey>, String>>;
    /// Makes a key. Its secret is shown this once.
    fn create_access_key(&self) -> Local<'_, Result<NewAccessKey, String>>;
    /// Makes a key active or not. False: there is no such key.
    fn set_access_key_active(&self, access_key: String, is_active: bool) -> Local<'_, Result<bool, String>>;
    /// Deletes a key. False: there is no such key.
    fn delete_access_key(&self, access_key: String) -> Local<'_, Result<bool, String>>;
}

/// A key without its secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessKey {
    /// Its name.
    pub access_key: String,
    /// When it was made, in milliseconds since the epoch, if that is known.
    pub created_ms: Option<i64>,
    /// Whether requests may be signed with it.
    pub is_active: bool,
}

/// A key that was just made. It has no Debug, as that would show the secret.
pub struct NewAccessKey {
    /// Its name.
    pub access_key: String,
    /// Its secret.
    pub secret: String,
}
