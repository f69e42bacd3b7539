//! Commands that change who is in the cluster.

use super::client::Client;
use super::words::Given;
use crate::http::escape;

pub(super) async fn decommission(client: &mut Client) -> Result<String, String> {
    client.post("/storage_service/decommission").await?;
    Ok(String::new())
}

pub(super) async fn stay(client: &mut Client) -> Result<String, String> {
    client.ask("DELETE", "/storage_service/decommission").await?;
    Ok("The node stays in the cluster\n".to_owned())
}

/// Takes the options of ScyllaDB's command, where the list of dead nodes may be attached by `=`.
pub(super) async fn remove_node(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let (host_id, ignored) = removal(words)?;
    let mut path = format!("/storage_service/remove_node?host_id={}", escape(host_id));
    if !ignored.is_empty() {
        path.push_str(&format!("&ignore_nodes={}", escape(&ignored)));
    }
    client.post(&path).await?;
    Ok(String::new())
}

/// The host id, and the dead nodes that are to be ignored, separated by commas.
fn removal<'w>(words: &[&'w str]) -> Result<(&'w str, String), String> {
    let (attached, words): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--ignore-dead-nodes="));
    let given = Given::parse(&words, &[("--ignore-dead-nodes", "ignore_nodes", true)])?;
    let attached = attached
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(_, nodes)| nodes);
    let ignored: Vec<&str> = attached.chain(given.option("ignore_nodes")).collect();
    match given.words.as_slice() {
        [host_id] => Ok((host_id, ignored.join(","))),
        _ => Err("removenode: expected one HOST_ID".to_owned()),
    }
}

pub(super) async fn exclude_nodes(client: &mut Client, hosts: &[&str]) -> Result<String, String> {
    let path = format!("/storage_service/exclude_node?hosts={}", escape(&hosts.join(",")));
    client.post(&path).await?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_names_one_node_and_any_that_it_ignores() {
        let given = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            removal(&words).map(|(host, ignored)| format!("{host} without {ignored}"))
        };
        assert_eq!(given("h"), Ok("h without ".to_owned()));
        for text in [
            "--ignore-dead-nodes a,b h",
            "h --ignore-dead-nodes a,b",
            "--ignore-dead-nodes=a,b h",
        ] {
            assert_eq!(given(text), Ok("h without a,b".to_owned()));
        }
        assert!(given("").is_err() && given("h i").is_err());
        assert!(given("--frobnicate h").is_err_and(|why| why.contains("--frobnicate")));
    }
}
