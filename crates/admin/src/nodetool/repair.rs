//! `nodetool repair`.

use super::client::{Client, string};
use super::layout::columns;
use crate::http::escape;

/// What `repair` takes.
pub(super) const USAGE: &str = "[-pr] [-full] [--incremental-mode incremental|full|disabled] [--preview] [-dc NAME,…] [-hosts NODE,…] [-st TOKEN] [-et TOKEN] [KEYSPACE [TABLE…]]";

/// Has the replicas of the node's ranges be equal, waits for it, and prints what differed.
pub(super) async fn repair(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let query = query(words)?;
    let repaired = client.ask("POST", &format!("/ceto/repair?{query}")).await?;
    let repaired = repaired.as_array().map(Vec::as_slice).unwrap_or_default();
    if repaired.is_empty() {
        return Ok(
            "There is nothing to repair: no range of these tables has a replica here and another elsewhere\n"
                .to_owned(),
        );
    }
    let header = [
        "Keyspace",
        "Table",
        "Ranges",
        "Rows",
        "Differing",
        "Bytes sent",
        "Bytes received",
        "Bytes skipped",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(repaired.iter().map(|table| {
        let names = ["keyspace", "table"].map(|name| string(&table[name]).to_owned());
        let counts = [
            "ranges",
            "rows",
            "differing",
            "sent_bytes",
            "received_bytes",
            "skipped_bytes",
        ];
        let counts = counts.map(|name| table[name].to_string());
        names.into_iter().chain(counts).collect()
    }));
    Ok(columns(&rows))
}

/// What `cluster` takes.
pub(super) const CLUSTER_USAGE: &str = "repair [--incremental-mode incremental|full|disabled] [KEYSPACE [TABLE…]]";

/// Has every node repair its ranges, and waits until none is left.
pub(super) async fn repair_cluster(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let ("repair", names) = words
        .split_first()
        .map_or(("", &[][..]), |(first, names)| (*first, names))
    else {
        return Err(format!("cluster: expected {CLUSTER_USAGE}"));
    };
    let is_mode = |name: &str| name == "--incremental-mode" || name.starts_with("--incremental-mode=");
    if let Some(option) = names.iter().find(|name| name.starts_with('-') && !is_mode(name)) {
        return Err(format!(
            "cluster repair: unknown option {option}; expected {CLUSTER_USAGE}"
        ));
    }
    let done = client
        .ask("POST", &format!("/ceto/cluster/repair?{}", query(names)?))
        .await?;
    Ok(format!(
        "All replicas are equal: {} ranges were repaired.\n",
        done["ranges"]
    ))
}

/// The words of the command as parameters of the request.
fn query(words: &[&str]) -> Result<String, String> {
    let mut parameters: Vec<(&str, String)> = Vec::new();
    let mut names: Vec<&str> = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let parameter = match *word {
            "-pr" | "--partitioner-range" => ("primary", "true".to_owned()),
            "--preview" | "-prv" => ("preview", "true".to_owned()),
            "-full" | "--full" => ("incremental_mode", "full".to_owned()),
            "--incremental-mode" => ("incremental_mode", value(word, words.next())?),
            given if given.starts_with("--incremental-mode=") => {
                let (_, mode) = given.split_once('=').expect("it was just seen");
                ("incremental_mode", mode.to_owned())
            }
            // Every repair compares several ranges at a time.
            "-par" | "--parallel" | "--" => continue,
            "-dc" | "--in-dc" => ("datacenters", value(word, words.next())?),
            "-hosts" | "--in-hosts" => ("hosts", value(word, words.next())?),
            "-st" | "--start-token" => ("start_token", value(word, words.next())?),
            "-et" | "--end-token" => ("end_token", value(word, words.next())?),
            option if option.starts_with('-') => {
                return Err(format!("repair: unknown option {option}; expected {USAGE}"));
            }
            name => {
                names.push(name);
                continue;
            }
        };
        parameters.push(parameter);
    }
    if let Some((keyspace, tables)) = names.split_first() {
        parameters.push(("kn", (*keyspace).to_owned()));
        if !tables.is_empty() {
            parameters.push(("cf", tables.join(",")));
        }
    }
    let parameter = |(name, value): &(&str, String)| format!("{name}={}", escape(value));
    Ok(parameters.iter().map(parameter).collect::<Vec<_>>().join("&"))
}

fn value(option: &str, given: Option<&&str>) -> Result<String, String> {
    given
        .map(|given| (*given).to_owned())
        .ok_or_else(|| format!("repair: option {option} needs a value; expected {USAGE}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_become_parameters_and_what_is_unknown_is_refused() {
        let stories: [(&[&str], Result<&str, &str>); 9] = [
            (&["-pr", "--", "ks"], Ok("primary=true&kn=ks")),
            (&[], Ok("")),
            (&["-pr", "ks", "t", "u"], Ok("primary=true&kn=ks&cf=t%2Cu")),
            (
                &["--preview", "-dc", "a,b", "-st", "-5", "ks"],
                Ok("preview=true&datacenters=a%2Cb&start_token=-5&kn=ks"),
            ),
            (&["-full", "ks"], Ok("incremental_mode=full&kn=ks")),
            (&["--incremental-mode", "disabled"], Ok("incremental_mode=disabled")),
            (&["--incremental-mode=full", "ks"], Ok("incremental_mode=full&kn=ks")),
            (&["-hosts"], Err("option -hosts needs a value")),
            (&["-seq", "ks"], Err("unknown option -seq")),
        ];
        for (words, expected) in stories {
            match (query(words), expected) {
                (Ok(query), Ok(expected)) => assert_eq!(query, expected),
                (Err(why), Err(expected)) => assert!(why.contains(expected), "{why}"),
                (found, _) => panic!("{words:?}: {found:?}"),
            }
        }
    }
}
