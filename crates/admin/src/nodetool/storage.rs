//! Commands about what is stored.

use std::collections::BTreeMap;

use serde_json::Value;

use super::client::{Client, pairs, string};
use super::layout::{columns, size};
use super::tasks::{begin_and_wait, follow};
use super::words::Given;
use ::http::escape;

/// The path of a command for keyspaces and tables: those of a keyspace when one is named.
fn path(verb: (&str, &str), names: &[&str]) -> String {
    match names {
        [] => format!("/storage_service/{}", verb.0),
        [keyspace] => format!("/storage_service/{}/{}", verb.1, escape(keyspace)),
        [keyspace, tables @ ..] => {
            format!(
                "/storage_service/{}/{}?cf={}",
                verb.1,
                escape(keyspace),
                escape(&tables.join(","))
            )
        }
    }
}

/// The path that begins such a command and answers with its task.
fn started(verb: &str, names: &[&str]) -> String {
    match names {
        [] => format!("/ceto/tasks/{verb}"),
        [keyspace] => format!("/ceto/tasks/{verb}?kn={}", escape(keyspace)),
        [keyspace, tables @ ..] => format!(
            "/ceto/tasks/{verb}?kn={}&cf={}",
            escape(keyspace),
            escape(&tables.join(","))
        ),
    }
}

pub(super) async fn flush(client: &mut Client, names: &[&str]) -> Result<String, String> {
    let started = started("flush", names);
    follow(client, &path(("flush", "keyspace_flush"), names), &started).await?;
    Ok(String::new())
}

pub(super) async fn compact(client: &mut Client, names: &[&str]) -> Result<String, String> {
    let started = started("compact", names);
    follow(client, &path(("compact", "keyspace_compaction"), names), &started).await?;
    Ok(String::new())
}

/// Moves a tablet to another shard of a node: of the one that is asked, unless another is named. With a second host,
/// moves it to that node instead.
pub(super) async fn move_tablet(client: &mut Client, given: [&str; 4], hosts: &[&str]) -> Result<String, String> {
    let [keyspace, table, token, shard] = given;
    let mut given = vec![
        ("ks", keyspace),
        ("table", table),
        ("token", token),
        ("dst_shard", shard),
    ];
    given.extend(["host", "dst_host"].into_iter().zip(hosts.iter().copied()));
    let query: Vec<String> = given
        .into_iter()
        .map(|(name, value)| format!("{name}={}", escape(value)))
        .collect();
    begin_and_wait(client, &format!("/ceto/tasks/move_tablet?{}", query.join("&"))).await?;
    Ok(String::new())
}

/// Splits each tablet of a table in two, or merges each pair.
pub(super) async fn resize_table(client: &mut Client, given: [&str; 3]) -> Result<String, String> {
    let [keyspace, table, count] = given.map(escape);
    let path = format!("/ceto/tasks/resize_table?ks={keyspace}&table={table}&tablet_count={count}");
    begin_and_wait(client, &path).await?;
    Ok(String::new())
}

/// Makes the files of a table's indexes again: those of some indexes, or of all.
pub(super) async fn rebuild_index(client: &mut Client, given: [&str; 2], indexes: &[&str]) -> Result<String, String> {
    let [keyspace, table] = given.map(escape);
    let mut path = format!("/ceto/tasks/rebuild_index?ks={keyspace}&table={table}");
    if !indexes.is_empty() {
        path.push_str(&format!("&indexes={}", escape(&indexes.join(","))));
    }
    begin_and_wait(client, &path).await?;
    Ok(String::new())
}

pub(super) async fn balance(client: &mut Client) -> Result<String, String> {
    let told = client.get("/storage_service/tablets/balancing").await?;
    let state = if told["enabled"] == true { "on" } else { "off" };
    let head = format!(
        "Balancing of tablets is {state}\nTablets that move between nodes: {}\n",
        told["moving"]
    );
    Ok(head + &standing(&told))
}

/// How balanced the tablets are, according to the leader of the metadata group.
fn standing(told: &Value) -> String {
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let Some(goal) = told["tablet_bytes_goal"].as_u64() else {
        return match string(&told["unknown"]) {
            "" => String::new(),
            why => format!("How tablets stand is not known: {why}\n"),
        };
    };
    let goal = match goal {
        0 => "any size".to_owned(),
        goal => size(goal),
    };
    let mut out = format!("Size of a tablet that is aimed at: {goal}\n");
    for (what, name) in [("Bytes", "bytes_off"), ("Load", "load_off")] {
        let off = |part: &str| told[name][part].as_f64().unwrap_or(0.0) * 100.0;
        let (rack, node, shard) = (off("rack"), off("node"), off("shard"));
        out +=
            &format!("{what} off the fair share by at most: rack {rack:.0} %, node {node:.0} %, shard {shard:.0} %\n");
    }
    for why in told["lacks"].as_array().map(Vec::as_slice).unwrap_or_default() {
        out += &format!("Not where they should be: {}\n", string(why));
    }
    let header = [
        "Table",
        "Tablets",
        "At least",
        "Wanted",
        "Average",
        "Largest",
        "Requests/s",
        "Waits for",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for table in told["tables"].as_array().map(Vec::as_slice).unwrap_or_default() {
        rows.push(vec![
            format!("{}.{}", string(&table["ks"]), string(&table["table"])),
            number(&table["tablets"]).to_string(),
            number(&table["least"]).to_string(),
            number(&table["wanted"]).to_string(),
            size(number(&table["average_bytes"])),
            size(number(&table["largest_bytes"])),
            format!("{:.0}", table["hottest"].as_f64().unwrap_or(0.0)),
            string(&table["waits_for"]).to_owned(),
        ]);
    }
    if rows.len() > 1 {
        out += &format!("\n{}", columns(&rows));
    }
    out
}

pub(super) async fn set_balanced(client: &mut Client, is_balanced: bool) -> Result<String, String> {
    let path = format!("/storage_service/tablets/balancing?enabled={is_balanced}");
    client.post(&path).await?;
    Ok(String::new())
}

pub(super) async fn list_quarantined(client: &mut Client) -> Result<String, String> {
    let listed = client.get("/storage_service/quarantined").await?;
    let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
    if listed.is_empty() {
        return Ok("No sstable is quarantined\n".to_owned());
    }
    let fields = ["ks", "cf", "sstable", "first_token", "last_token", "reason"];
    let header = ["Keyspace", "Table", "Sstable", "First token", "Last token", "Reason"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(
        listed
            .iter()
            .map(|q| fields.map(|field| string(&q[field]).to_owned()).to_vec()),
    );
    Ok(format!("{}\n", columns(&rows)))
}

pub(super) async fn accept_quarantined(client: &mut Client, keyspace: &str, table: &str) -> Result<String, String> {
    let path = format!("/storage_service/quarantined/{}?cf={}", escape(keyspace), escape(table));
    client.delete(&path).await?;
    Ok(String::new())
}

/// The options of both snapshot commands.
const CLEAR_OPTIONS: &[(&str, &str, bool)] = &[("-t", "tag", true), ("--tag", "tag", true), ("--all", "all", false)];
const TAKE_OPTIONS: &[(&str, &str, bool)] = &[
    ("-t", "tag", true),
    ("--tag", "tag", true),
    ("--ttl", "ttl", true),
    ("-cf", "tables", true),
    ("--column-family", "tables", true),
    ("--table", "tables", true),
    ("-kt", "list", true),
    ("--kt-list", "list", true),
    ("-kc", "list", true),
    ("--kc.list", "list", true),
    ("-sf", "skip_flush", false),
    ("--skip-flush", "skip_flush", false),
];

fn parse<'w>(words: &[&'w str], known: &[(&str, &'static str, bool)]) -> Result<Given<'w>, String> {
    let words: Vec<&str> = words.iter().copied().filter(|word| *word != "--").collect();
    Given::parse(&words, known)
}

/// Keyspaces and tables of them, both separated by commas: all if there are none.
type NamedTables = (String, String);

/// What a snapshot is of: a part for each request.
fn snapshot_parts(given: &Given<'_>) -> Result<Vec<NamedTables>, String> {
    let keyspaces = given.words.join(",");
    match (given.option("list"), given.option("tables")) {
        (Some(list), None) if keyspaces.is_empty() => tables_by_keyspace(list),
        (Some(_), _) => Err(
            "snapshot: -kt names tables with their keyspaces: leave out -cf, and keyspaces that are named alone"
                .to_owned(),
        ),
        (None, Some(_)) if given.words.len() != 1 => Err("snapshot: -cf needs the keyspace of the tables".to_owned()),
        (None, tables) => Ok(vec![(keyspaces, tables.unwrap_or_default().to_owned())]),
    }
}

/// Of `KEYSPACE.TABLE,…`: each keyspace with its tables.
fn tables_by_keyspace(list: &str) -> Result<Vec<NamedTables>, String> {
    let mut keyspaces: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for name in list.split(',').map(str::trim) {
        match name.split_once('.') {
            Some((keyspace, table)) if !keyspace.is_empty() && !table.is_empty() => {
                keyspaces.entry(keyspace).or_default().push(table);
            }
            _ => return Err(format!("snapshot: expected KEYSPACE.TABLE, got '{name}'")),
        }
    }
    let named = keyspaces
        .into_iter()
        .map(|(keyspace, tables)| (keyspace.to_owned(), tables.join(",")));
    Ok(named.collect())
}

/// Parameters of a request; those without a value are left out.
fn query(parameters: &[(&str, &str)]) -> String {
    let parameters = parameters.iter().filter(|(_, value)| !value.is_empty());
    let parameters: Vec<String> = parameters
        .map(|(name, value)| format!("{name}={}", escape(value)))
        .collect();
    parameters.join("&")
}

/// What a snapshot command is for, as Cassandra's tool says it.
fn named(keyspaces: &str) -> String {
    match keyspaces {
        "" => "all keyspaces".to_owned(),
        keyspaces => keyspaces.replace(',', ", "),
    }
}

pub(super) async fn take_snapshot(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let given = parse(words, TAKE_OPTIONS)?;
    let now = (runtime::wall_clock_us() / 1000).to_string();
    let tag = given.option("tag").unwrap_or(&now);
    let skips_flush = given.option("skip_flush").is_some();
    let parts = snapshot_parts(&given)?;
    for (keyspaces, tables) in &parts {
        let query = query(&[
            ("tag", tag),
            ("kn", keyspaces),
            ("cf", tables),
            ("ttl", given.option("ttl").unwrap_or_default()),
            ("sf", if skips_flush { "true" } else { "" }),
        ]);
        let (path, started) = (
            format!("/storage_service/snapshots?{query}"),
            format!("/ceto/tasks/snapshot?{query}"),
        );
        follow(client, &path, &started).await?;
    }
    let of = given
        .option("list")
        .map_or_else(|| named(&given.words.join(",")), named);
    Ok(format!(
        "Requested creating snapshot(s) for [{of}] with snapshot name [{tag}] and options {{skipFlush={skips_flush}}}\nSnapshot directory: {tag}\n"
    ))
}

pub(super) async fn clear_snapshots(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let given = parse(words, CLEAR_OPTIONS)?;
    let (tag, keyspaces) = (given.option("tag"), given.words.join(","));
    if tag.is_none() && given.option("all").is_none() {
        return Err("Specify snapshot name or --all".to_owned());
    }
    let query = query(&[("tag", tag.unwrap_or_default()), ("kn", &keyspaces)]);
    client.delete(&format!("/storage_service/snapshots?{query}")).await?;
    Ok(format!(
        "Requested clearing snapshot(s) for [{}] with [{}]\n",
        named(&keyspaces),
        tag.unwrap_or("all snapshots")
    ))
}

pub(super) async fn list_snapshots(client: &mut Client) -> Result<String, String> {
    let snapshots = pairs(&client.get("/storage_service/snapshots").await?);
    if snapshots.is_empty() {
        return Ok("Snapshot Details: \nThere are no snapshots\n".to_owned());
    }
    let header = [
        "Snapshot name",
        "Keyspace name",
        "Column family name",
        "True size",
        "Size on disk",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let mut own = 0;
    for (tag, parts) in &snapshots {
        for part in parts.as_array().map(Vec::as_slice).unwrap_or_default() {
            let bytes = |name: &str| part[name].as_u64().unwrap_or(0);
            own += bytes("live");
            rows.push(vec![
                tag.clone(),
                string(&part["ks"]).to_owned(),
                string(&part["cf"]).to_owned(),
                size(bytes("live")),
                size(bytes("total")),
            ]);
        }
    }
    Ok(format!(
        "Snapshot Details: \n{}\nTotal TrueDiskSpaceUsed: {}\n",
        columns(&rows),
        size(own)
    ))
}

pub(super) async fn throughput(client: &mut Client) -> Result<String, String> {
    let limit = client.number("/storage_service/compaction_throughput").await?;
    Ok(format!("Current compaction throughput: {limit} MB/s\n"))
}

pub(super) async fn set_throughput(client: &mut Client, limit: &str) -> Result<String, String> {
    client
        .post(&format!(
            "/storage_service/compaction_throughput?value={}",
            escape(limit)
        ))
        .await?;
    Ok(String::new())
}

/// Bytes per second of a megabit, and of a mebibyte, per second.
const MEGABIT: u64 = 125_000;
const MEBIBYTE: u64 = 1 << 20;

/// As `nodetool` of Cassandra prints it: in megabits, or with `-m` in mebibytes.
pub(super) async fn stream_throughput(client: &mut Client, is_in_mebibytes: bool) -> Result<String, String> {
    let limit = client.number("/storage_service/stream_throughput").await?;
    Ok(format!(
        "Current stream throughput: {}\n",
        rate_text(limit, is_in_mebibytes)
    ))
}

fn rate_text(bytes_per_second: u64, is_in_mebibytes: bool) -> String {
    match (bytes_per_second, is_in_mebibytes) {
        (0, _) => "unlimited".to_owned(),
        (bytes, true) => format!("{} MiB/s", bytes.div_ceil(MEBIBYTE)),
        (bytes, false) => format!("{} Mb/s", bytes.div_ceil(MEGABIT)),
    }
}

pub(super) async fn set_stream_throughput(
    client: &mut Client,
    limit: &str,
    is_in_mebibytes: bool,
) -> Result<String, String> {
    let bytes = rate(limit, is_in_mebibytes)?;
    let path = format!("/storage_service/stream_throughput?value={bytes}");
    client.post(&path).await?;
    Ok(String::new())
}

fn rate(given: &str, is_in_mebibytes: bool) -> Result<u64, String> {
    let (unit, name) = if is_in_mebibytes {
        (MEBIBYTE, "MiB")
    } else {
        (MEGABIT, "megabits")
    };
    let bytes = given.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    bytes.ok_or_else(|| format!("expected {name} per second (0 is no limit), got '{given}'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_streams_are_in_megabits_or_mebibytes() {
        assert_eq!(rate("200", false), Ok(25_000_000));
        assert_eq!(rate("24", true), Ok(24 << 20));
        assert_eq!(rate("0", true), Ok(0));
        assert!(
            rate("-1", false).is_err() && rate("much", true).is_err() && rate(&u64::MAX.to_string(), true).is_err()
        );
        assert_eq!(rate_text(25_000_000, false), "200 Mb/s");
        assert_eq!(rate_text(24 << 20, true), "24 MiB/s");
        assert_eq!(rate_text(0, false), "unlimited");
    }

    #[test]
    fn commands_for_all_for_a_keyspace_and_for_tables_ask_different_paths() {
        let verb = ("flush", "keyspace_flush");
        assert_eq!(path(verb, &[]), "/storage_service/flush");
        assert_eq!(path(verb, &["Ks"]), "/storage_service/keyspace_flush/Ks");
        assert_eq!(
            path(verb, &["k", "a", "b"]),
            "/storage_service/keyspace_flush/k?cf=a%2Cb"
        );
    }

    #[test]
    fn snapshot_words_become_requests() {
        let parts = |text: &str| {
            let words: Vec<&str> = text.split(' ').filter(|word| !word.is_empty()).collect();
            let parts = parse(&words, TAKE_OPTIONS).and_then(|given| snapshot_parts(&given))?;
            let parts = parts
                .iter()
                .map(|(keyspaces, tables)| query(&[("kn", keyspaces), ("cf", tables)]));
            Ok::<_, String>(parts.collect::<Vec<_>>().join(" "))
        };
        for (text, expected) in [
            ("", Ok("")),
            ("-t a k1 k2", Ok("kn=k1%2Ck2")),
            ("-cf t -- k", Ok("kn=k&cf=t")),
            ("--table=t k", Ok("kn=k&cf=t")),
            ("-kt k.a,l.b,k.c", Ok("kn=k&cf=a%2Cc kn=l&cf=b")),
            ("-kc k.a -sf", Ok("kn=k&cf=a")),
            ("-kt k", Err("snapshot: expected KEYSPACE.TABLE, got 'k'")),
            (
                "-kt k.a l",
                Err(
                    "snapshot: -kt names tables with their keyspaces: leave out -cf, and keyspaces that are named alone",
                ),
            ),
            ("-cf t", Err("snapshot: -cf needs the keyspace of the tables")),
            ("-t", Err("-t: expected a value")),
            (
                "--skip-flsh",
                Err("unknown option --skip-flsh; did you mean --skip-flush?"),
            ),
            ("--skip-flush=1", Err("--skip-flush takes no value")),
        ] {
            assert_eq!(
                parts(text),
                expected.map(str::to_owned).map_err(str::to_owned),
                "{text}"
            );
        }
        assert_eq!(
            query(&[("tag", "a b"), ("ttl", ""), ("sf", "true")]),
            "tag=a%20b&sf=true"
        );
        assert_eq!(named(""), "all keyspaces");
    }
}
