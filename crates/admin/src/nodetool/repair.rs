//! `nodetool repair`.

use super::client::{Client, string, strings};
use super::layout::columns;
use super::words::Given;
use ::http::escape;

/// What `repair` takes.
pub(super) const USAGE: &str = "[-pr] [-full] [--incremental-mode incremental|full|disabled] [--preview] [-local] [-dc NAME,…] [-hosts NODE,…] [-st TOKEN] [-et TOKEN] [KEYSPACE [TABLE…]]";

/// Makes the replicas of the node's ranges equal, waits for it, and prints what differed.
pub(super) async fn repair(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let is_local = |word: &&str| matches!(*word, "-local" | "--in-local-dc");
    let mut query = query(&words.iter().copied().filter(|word| !is_local(word)).collect::<Vec<_>>())?;
    if words.iter().any(is_local) {
        if query.contains("datacenters=") {
            return Err("repair: -local names the datacenter of the node, and -dc others: give one of them".to_owned());
        }
        let datacenter = client.text("/snitch/datacenter").await?;
        query.push_str(&format!("&datacenters={}", escape(&datacenter)));
    }
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
pub(super) const CLUSTER_USAGE: &str = "repair [--incremental-mode incremental|full|disabled] [--in-dc NAME,…] [--in-hosts ID,…] [--tablet-tokens TOKEN,…] [KEYSPACE [TABLE…]]";

/// The options of `cluster repair`, and the parameter of each.
const CLUSTER_OPTIONS: &[(&str, &str, bool)] = &[
    ("--incremental-mode", "incremental_mode", true),
    ("--in-dc", "dcs_filter", true),
    ("-dc", "dcs_filter", true),
    ("--in-hosts", "hosts_filter", true),
    ("-hosts", "hosts_filter", true),
    ("--tablet-tokens", "tokens", true),
    ("--keyspace", "keyspace", true),
    ("--table", "table", true),
];

/// Makes every node repair its ranges, and waits until none is left; with a choice of tablets or replicas those of
/// tables with tablets, one table after the other.
pub(super) async fn repair_cluster(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let ("repair", rest) = words
        .split_first()
        .map_or(("", &[][..]), |(first, rest)| (*first, rest))
    else {
        return Err(match words.first() {
            Some(&"cleanup") => "cluster cleanup: each node removes by itself what others own now, auto_cleanup_delay_in_seconds after the last change of the token ring; `cleanup` does it on \
                                 one node now"
                .to_owned(),
            _ => format!("cluster: expected {CLUSTER_USAGE}"),
        });
    };
    // `--option=value` as well.
    let rest = rest.iter().filter(|word| **word != "--");
    let rest: Vec<&str> = rest
        .flat_map(|word| match word.split_once('=').filter(|_| word.starts_with('-')) {
            Some((option, value)) => vec![option, value],
            None => vec![*word],
        })
        .collect();
    let given = Given::parse(&rest, CLUSTER_OPTIONS);
    let given = given.map_err(|why| format!("cluster repair: {why}; expected {CLUSTER_USAGE}"))?;
    let names: Vec<&str> = given
        .option("keyspace")
        .into_iter()
        .chain(given.option("table"))
        .collect();
    let names = if names.is_empty() { given.words.clone() } else { names };
    let filters = ["dcs_filter", "hosts_filter", "tokens"];
    if filters.iter().all(|filter| given.option(filter).is_none()) {
        let mode = given
            .option("incremental_mode")
            .map(|mode| vec!["--incremental-mode", mode]);
        let query = query(&mode.into_iter().flatten().chain(names).collect::<Vec<_>>())?;
        let done = client.ask("POST", &format!("/ceto/cluster/repair?{query}")).await?;
        return Ok(format!(
            "All replicas are equal: {} ranges were repaired.\n",
            done["ranges"]
        ));
    }
    let Some((keyspace, tables)) = names.split_first() else {
        return Err(
            "cluster repair: a choice of tablets or replicas needs the keyspace: name one with tablets".to_owned(),
        );
    };
    let all = strings(&client.get("/column_family/name").await?);
    let all = all.iter().filter_map(|name| name.split_once(':'));
    let of_keyspace: Vec<&str> = all.filter(|(of, _)| of == keyspace).map(|(_, table)| table).collect();
    let tables = if tables.is_empty() { &of_keyspace[..] } else { tables };
    if tables.is_empty() {
        return Err(format!(
            "cluster repair: keyspace {keyspace} has no tables, or does not exist"
        ));
    }
    let path = given.path(
        "/storage_service/tablets/repair",
        &["dcs_filter", "hosts_filter", "tokens", "incremental_mode"],
    );
    for table in tables {
        let of_table = format!("{path}&ks={}&table={}", escape(keyspace), escape(table));
        client.ask("POST", &of_table).await?;
    }
    Ok(format!(
        "The replicas that were chosen are equal: {} tables were repaired.\n",
        tables.len()
    ))
}

/// Why an option of Cassandra's `repair` is refused, where that is of use.
fn refusal(option: &str) -> Option<&'static str> {
    Some(match option {
        "-seq" | "--sequential" | "-dcpar" | "--dc-parallel" => {
            "every repair compares all replicas of a range at once, and its bandwidth is limited with tasks limits repair: leave the option out"
        }
        "-j" | "--job-threads" => "how many tables are repaired at once is the node's affair: leave the option out",
        "-tr" | "--trace" => "repairs are not traced: tasks list repair shows the running ones",
        "-vd" | "--validate" => {
            "sstables that are marked as repaired are not compared alone: -full compares everything"
        }
        "-pl" | "--pull" | "-os" | "--optimise-streams" => {
            "a repair sends each row to the replicas that lack it, and to no other: leave the option out"
        }
        "-force" | "--force" => "a replica that is down is never counted as repaired: name the others with -hosts",
        "-iuk" | "--ignore-unreplicated-keyspaces" => {
            "what has no other replica is left out anyway: leave the option out"
        }
        "-paxos-only" | "--paxos-only" | "-skip-paxos" | "--skip-paxos" => {
            "what acceptors know of conditional statements needs no repair: leave the option out"
        }
        _ => return None,
    })
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
                return Err(match refusal(option) {
                    Some(why) => format!("repair: {option} is not supported: {why}"),
                    None => format!("repair: unknown option {option}; expected {USAGE}"),
                });
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
        let stories: [(&[&str], Result<&str, &str>); 10] = [
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
            (&["-seq", "ks"], Err("-seq is not supported: every repair compares")),
            (&["-what", "ks"], Err("unknown option -what")),
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
