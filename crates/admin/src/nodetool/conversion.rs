//! `migrate-to-tablets`: ScyllaDB's command for what `ALTER KEYSPACE … WITH tablets = {'enabled': …}` does here.

use std::time::Duration;

use serde_json::Value;

use super::client::{Client, string, strings};
use ::http::escape;

/// What `migrate-to-tablets` takes.
pub(super) const USAGE: &str = "start|status|finalize KEYSPACE";

/// How often `finalize` asks.
const ASK_PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn migrate(client: &mut Client, words: &[&str]) -> Result<String, String> {
    match words {
        ["start", keyspace] => start(client, keyspace).await,
        ["status", keyspace] => Ok(told(keyspace, &client.get(&path(keyspace)).await?)),
        ["finalize", keyspace] => finalize(client, keyspace).await,
        // Marks for the next start of a node in ScyllaDB, whose nodes convert what they have while they are down.
        ["upgrade", ..] => Err(
            "migrate-to-tablets upgrade: no node has to be upgraded or restarted: all convert what they have while they serve, from `start` on".to_owned(),
        ),
        ["downgrade", ..] => Err(
            "migrate-to-tablets downgrade: no node has to be downgraded: ALTER KEYSPACE … WITH tablets = {'enabled': false} takes a keyspace back to the token ring, \
             also halfway"
                .to_owned(),
        ),
        _ => Err(format!("usage: ceto nodetool migrate-to-tablets {USAGE}")),
    }
}

fn path(keyspace: &str) -> String {
    format!("/ceto/keyspace_kind/{}", escape(keyspace))
}

async fn start(client: &mut Client, keyspace: &str) -> Result<String, String> {
    let warnings = client.ask("POST", &format!("{}?tablets=true", path(keyspace))).await?;
    let mut out: String = strings(&warnings)
        .iter()
        .map(|warning| format!("warning: {warning}\n"))
        .collect();
    out.push_str(&told(keyspace, &client.get(&path(keyspace)).await?));
    Ok(out)
}

/// Waits until all tables have tablets.
async fn finalize(client: &mut Client, keyspace: &str) -> Result<String, String> {
    loop {
        let kind = client.get(&path(keyspace)).await?;
        match string(&kind["status"]) {
            "tablets" => return Ok(told(keyspace, &kind)),
            "migrating_to_tablets" => runtime::sleep(ASK_PERIOD).await,
            _ => {
                return Err(format!(
                    "keyspace {keyspace} is not on its way to tablets: `migrate-to-tablets start {keyspace}` begins that"
                ));
            }
        }
    }
}

/// What a keyspace's tables are.
fn told(keyspace: &str, kind: &Value) -> String {
    let mut out = format!("Keyspace: {keyspace}\nStatus: {}\n", string(&kind["status"]));
    let groups = [
        ("With tablets", "with_tablets"),
        ("On their way", "on_their_way"),
        ("On the token ring", "on_ring"),
    ];
    for (title, name) in groups {
        let tables = strings(&kind[name]);
        if !tables.is_empty() {
            out.push_str(&format!("{title}: {}\n", tables.join(", ")));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keyspace_on_its_way_is_told_with_what_each_table_is() {
        let kind = serde_json::json!({
            "status": "migrating_to_tablets", "with_tablets": ["a", "b"], "on_their_way": ["c"], "on_ring": [],
        });
        assert_eq!(
            told("ks", &kind),
            "Keyspace: ks\nStatus: migrating_to_tablets\nWith tablets: a, b\nOn their way: c\n"
        );
    }
}
