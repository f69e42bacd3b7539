//! Access keys of the DynamoDB API.

use super::client::{Client, string};
use super::cluster::iso_second;
use super::layout::columns;
use ::http::escape;

const PATH: &str = "/ceto/dynamodb/keys";
pub(super) const USAGE: &str = "[create | activate KEY | deactivate KEY | delete KEY]";

/// Lists the keys.
pub(super) async fn list(client: &mut Client) -> Result<String, String> {
    let keys = client.get(PATH).await?;
    let keys = keys.as_array().map(Vec::as_slice).unwrap_or_default();
    if keys.is_empty() {
        return Ok("There are no access keys\n".to_owned());
    }
    let mut rows = vec![["Access key", "Status", "Created"].map(str::to_owned).to_vec()];
    for key in keys {
        let created = key["created"].as_u64().map(|ms| iso_second(ms / 1000));
        rows.push(vec![
            string(&key["access_key"]).to_owned(),
            string(&key["status"]).to_owned(),
            created.unwrap_or_else(|| "?".to_owned()),
        ]);
    }
    Ok(columns(&rows))
}

/// Makes a key and prints its secret.
pub(super) async fn create(client: &mut Client) -> Result<String, String> {
    let key = client.ask("POST", PATH).await?;
    Ok(format!(
        "aws_access_key_id     = {}\naws_secret_access_key = {}\nThe secret is not shown again.\n",
        string(&key["access_key"]),
        string(&key["secret"])
    ))
}

pub(super) async fn set_status(client: &mut Client, key: &str, status: &str) -> Result<String, String> {
    client.post(&format!("{PATH}/{}?status={status}", escape(key))).await?;
    Ok(String::new())
}

pub(super) async fn delete(client: &mut Client, key: &str) -> Result<String, String> {
    client.delete(&format!("{PATH}/{}", escape(key))).await?;
    Ok(String::new())
}
