//! Commands about hinted handoff.

use super::client::{Client, pairs, string};
use super::cluster::iso_second;
use super::layout::columns;
use ::http::escape;

const ENABLED: &str = "/storage_proxy/hinted_handoff_enabled";
const BY_DATACENTER: &str = "/storage_proxy/hinted_handoff_enabled_by_dc";

pub(super) async fn enable(client: &mut Client, is_enabled: bool) -> Result<String, String> {
    client.post(&format!("{ENABLED}?enable={is_enabled}")).await?;
    Ok(String::new())
}

pub(super) async fn enable_datacenter(client: &mut Client, name: &str, is_enabled: bool) -> Result<String, String> {
    let path = format!("{BY_DATACENTER}/{}?enable={is_enabled}", escape(name));
    client.post(&path).await?;
    Ok(String::new())
}

pub(super) async fn status(client: &mut Client) -> Result<String, String> {
    let is_enabled = client.get(ENABLED).await?.as_bool() == Some(true);
    let mut out = format!("Hinted handoff is {}running\n", if is_enabled { "" } else { "not " });
    for (datacenter, gets) in pairs(&client.get(BY_DATACENTER).await?) {
        if gets[0] == "false" {
            out.push_str(&format!("Data center {datacenter} is disabled\n"));
        }
    }
    if client.get("/hinted_handoff/pause").await?.as_bool() == Some(true) {
        out.push_str("Hints delivery is paused\n");
    }
    Ok(out)
}

pub(super) async fn pause(client: &mut Client, is_paused: bool) -> Result<String, String> {
    client.post(&format!("/hinted_handoff/pause?pause={is_paused}")).await?;
    Ok(String::new())
}

pub(super) async fn window(client: &mut Client) -> Result<String, String> {
    let ms = client.number("/storage_proxy/max_hint_window").await?;
    Ok(format!("Current max hint window: {ms} ms\n"))
}

pub(super) async fn set_window(client: &mut Client, ms: &str) -> Result<String, String> {
    let path = format!("/storage_proxy/max_hint_window?ms={}", escape(ms));
    client.post(&path).await?;
    Ok(String::new())
}

pub(super) async fn truncate(client: &mut Client, hosts: &[&str]) -> Result<String, String> {
    if hosts.is_empty() {
        client.delete("/hinted_handoff/hints").await?;
    }
    for host in hosts {
        let path = format!("/hinted_handoff/hints?host={}", escape(host));
        client.delete(&path).await?;
    }
    Ok(String::new())
}

pub(super) async fn list(client: &mut Client) -> Result<String, String> {
    let told = client.get("/hinted_handoff/pending").await?;
    let told = told.as_array().map(Vec::as_slice).unwrap_or_default();
    if told.is_empty() {
        return Ok("This node does not have any pending hints\n".to_owned());
    }
    let header = [
        "Host ID",
        "Address",
        "Rack",
        "DC",
        "Status",
        "Total files",
        "Total bytes",
        "Newest",
        "Oldest",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for hints in told {
        // A node that is no member any more has no place.
        let text = |name: &str| hints[name].as_str().unwrap_or("?").to_owned();
        let time = |name: &str| hints[name].as_str().map_or_else(|| "?".to_owned(), date);
        rows.push(vec![
            string(&hints["host_id"]).to_owned(),
            text("address"),
            text("rack"),
            text("datacenter"),
            if hints["is_alive"] == true { "UP" } else { "DOWN" }.to_owned(),
            hints["files"].to_string(),
            hints["bytes"].to_string(),
            time("newest"),
            time("oldest"),
        ]);
    }
    Ok(columns(&rows))
}

pub(super) async fn list_rejected(client: &mut Client) -> Result<String, String> {
    let told = client.get("/hinted_handoff/rejected").await?;
    let told = told.as_array().map(Vec::as_slice).unwrap_or_default();
    if told.is_empty() {
        return Ok("No node has refused hints of this node permanently\n".to_owned());
    }
    let mut rows = vec![["Host ID", "Address", "Hints", "Bytes"].map(str::to_owned).to_vec()];
    for rejected in told {
        rows.push(vec![
            string(&rejected["host_id"]).to_owned(),
            string(&rejected["address"]).to_owned(),
            rejected["hints"].to_string(),
            rejected["bytes"].to_string(),
        ]);
    }
    Ok(columns(&rows))
}

pub(super) async fn clear_rejected(client: &mut Client, hosts: &[&str]) -> Result<String, String> {
    if hosts.is_empty() {
        client.delete("/hinted_handoff/rejected").await?;
    }
    for host in hosts {
        let path = format!("/hinted_handoff/rejected?host={}", escape(host));
        client.delete(&path).await?;
    }
    Ok(String::new())
}

pub(super) async fn list_missed(client: &mut Client) -> Result<String, String> {
    let told = client.get("/storage_service/missed_writes").await?;
    let told = told.as_array().map(Vec::as_slice).unwrap_or_default();
    if told.is_empty() {
        return Ok("No tombstones are kept beyond the grace period\n".to_owned());
    }
    let header = ["Reported by", "Missed by", "From", "Until"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for missed in told {
        rows.push(vec![
            string(&missed["reporter"]).to_owned(),
            missed["target"].as_str().unwrap_or("any (no report)").to_owned(),
            iso_second(missed["first_s"].as_u64().unwrap_or(0)),
            iso_second(missed["last_s"].as_u64().unwrap_or(0)),
        ]);
    }
    Ok(columns(&rows))
}

pub(super) async fn release_tombstones(client: &mut Client, hosts: &[&str]) -> Result<String, String> {
    if hosts.is_empty() {
        client.post("/storage_service/release_tombstones").await?;
    }
    for host in hosts {
        let path = format!("/storage_service/release_tombstones?host={}", escape(host));
        client.post(&path).await?;
    }
    Ok(String::new())
}

/// A moment as Cassandra's tool writes it.
fn date(iso: &str) -> String {
    iso.trim_end_matches('Z').replacen('T', " ", 1).replacen('.', ",", 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_told_as_cassandra_does() {
        assert_eq!(date("2024-02-29T12:34:56.789Z"), "2024-02-29 12:34:56,789");
    }
}
