//! Options as `system.config` and the REST API show them, and the change of one while the node runs.
//!
//! There is a row for each spelling of an option, as tools of Cassandra and ScyllaDB ask for the spellings that they
//! know. A value is shown as JSON: a switch or a number bare, any other value as a string.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::options::nearest;
use super::table::{Changes, Row, TABLE, Takes, Unit, find};
use super::{Config, SetOptions, Source, value};

/// The option that lets clients change options.
pub(super) const SWITCH: &str = "enable_cql_config_updates";

/// One spelling of an option.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// The spelling.
    pub name: &'static str,
    /// The form of its values, by the names that ScyllaDB has for them.
    pub kind: &'static str,
    /// Where the value is from.
    pub source: Source,
    /// The value as JSON; None when the option has none, or none that the spelling's unit can express.
    pub value: Option<String>,
}

/// All options. Those that the node or an operator has changed besides are in `changed`, by name.
pub fn described(config: &Config, changed: &BTreeMap<&'static str, String>) -> Vec<Described> {
    let mut all = Vec::new();
    for row in TABLE {
        let text = config.settings.get(row.name).cloned().flatten();
        let (text, source) = match changed.get(row.name) {
            Some(other) if Some(other) != text.as_ref() => (Some(other.clone()), Source::Internal),
            _ => (text, config.sources.get(row.name).copied().unwrap_or(Source::Default)),
        };
        let one = |name, unit| Described {
            name,
            kind: kind(row, unit),
            source,
            value: text.as_deref().and_then(|text| shown(row, unit, text)),
        };
        all.push(one(row.name, Unit::Same));
        all.extend(row.spellings.iter().map(|(name, unit)| one(*name, *unit)));
    }
    all
}

fn kind(row: &Row, unit: Unit) -> &'static str {
    if unit != Unit::Same {
        return "integer";
    }
    match row.takes {
        Takes::Address | Takes::Directory | Takes::File | Takes::Name => "string",
        Takes::List => "string list",
        Takes::Duration => "duration",
        Takes::Number if row.name == "critical_disk_utilization_level" => "double",
        Takes::Number | Takes::Port | Takes::PortOrNone | Takes::ProxyPort | Takes::Seconds => "integer",
        Takes::Rate => "rate",
        Takes::Size => "size",
        Takes::Switch => "bool",
    }
}

/// A value of the option as JSON, in the spelling's unit.
fn shown(row: &Row, unit: Unit, text: &str) -> Option<String> {
    let whole = |amount: u64, of: u64| amount.is_multiple_of(of).then(|| (amount / of).to_string());
    match unit {
        Unit::Same => Some(match row.takes {
            Takes::Switch | Takes::Number | Takes::Port | Takes::PortOrNone | Takes::ProxyPort | Takes::Seconds
                if is_bare(text) =>
            {
                text.to_owned()
            }
            _ => serde_json::Value::from(text).to_string(),
        }),
        Unit::Mebibytes if text == "-1" => Some(text.to_owned()),
        Unit::Milliseconds => {
            let time = value::duration(text)?;
            (time.as_nanos() % 1_000_000 == 0).then(|| time.as_millis().to_string())
        }
        Unit::Kibibytes => whole(value::size(text)?, 1 << 10),
        Unit::Mebibytes => whole(value::size(text)?, 1 << 20),
        Unit::MebibytesPerSecond => whole(value::rate(text)?, 1 << 20),
        Unit::MegabitsPerSecond => whole(value::rate(text)?, 125_000),
    }
}

/// Whether a text is a number or a switch of JSON.
fn is_bare(text: &str) -> bool {
    matches!(
        serde_json::from_str(text),
        Ok(serde_json::Value::Bool(_) | serde_json::Value::Number(_))
    )
}

/// What comes of giving options other values.
#[derive(Debug)]
pub struct Changed {
    /// All options that clients have set, with these.
    pub set: SetOptions,
    /// The configuration from here on.
    pub config: Config,
    /// The names of the options that were given.
    pub names: Vec<&'static str>,
}

/// Gives options of a running node other values, all or none. `set` are those that clients have set before.
///
/// # Errors
/// In words for the client: when clients may change nothing, an option does not exist or does not change while the node
/// runs, or a value does not fit.
pub fn set(config: &Config, set: &SetOptions, changes: &[(String, Option<String>)]) -> Result<Changed, String> {
    if !config.changes_by_cql {
        return Err(format!("options are not changed by CQL, as {SWITCH} is false"));
    }
    let Some(given) = &config.given else {
        return Err("this node was started without options that could change".to_owned());
    };
    let mut set = set.clone();
    let mut names = Vec::new();
    for (name, value) in changes {
        let Some((row, _)) = find(name) else {
            let hint = nearest(name).map(|nearest| format!("; did you mean '{nearest}'?"));
            return Err(format!("unknown option '{name}'{}", hint.unwrap_or_default()));
        };
        if row.changes != Changes::Hangup {
            let when = row.changes.words();
            return Err(format!(
                "option '{name}' does not change while the node runs, but {when}"
            ));
        }
        let Some(value) = value else {
            return Err(format!("option '{name}': no value given"));
        };
        if names.contains(&row.name) {
            return Err(format!("option '{}' is given twice", row.name));
        }
        names.push(row.name);
        set.insert(row.name, (name.clone(), unquoted(value)));
    }
    let config = Config {
        given: Some(Arc::clone(given)),
        ..given.config(&set).map_err(|error| error.to_string())?
    };
    Ok(Changed { set, config, names })
}

/// The text of a string of JSON, so that a value may be given as it is shown; any other text as it is.
fn unquoted(text: &str) -> String {
    match serde_json::from_str(text) {
        Ok(serde_json::Value::String(inside)) => inside,
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Given, Machine, ServerArgs};

    /// A node of this options file and command line.
    fn node(yaml: &str, args: &ServerArgs) -> Config {
        let machine = Machine {
            cpus: vec![0, 1],
            ..Machine::detect()
        };
        let file = Some(("ceto.yaml".into(), yaml.to_owned()));
        let given = Arc::new(Given::new(args, &machine, file));
        Config {
            given: Some(given.clone()),
            ..given.config(&SetOptions::new()).expect("the options fit")
        }
    }

    fn change(config: &Config, before: &SetOptions, name: &str, value: &str) -> Result<Changed, String> {
        set(config, before, &[(name.to_owned(), Some(value.to_owned()))])
    }

    /// `source type value` of an option.
    fn shows(config: &Config, name: &str) -> String {
        let all = described(config, &BTreeMap::new());
        let one = all.iter().find(|one| one.name == name).expect("it is an option");
        format!(
            "{} {} {}",
            one.source.name(),
            one.kind,
            one.value.as_deref().unwrap_or("null")
        )
    }

    #[test]
    fn each_spelling_has_a_row_with_its_value_in_its_unit() {
        let args = ServerArgs::default().with("smp", "1");
        let yaml = "write_request_timeout_in_ms: 3000\nhinted_handoff_enabled: false\n";
        let config = node(yaml, &args);
        for (name, expected) in [
            ("smp", "cli integer 1"),
            ("write_request_timeout", "config duration \"3000ms\""),
            ("write_request_timeout_in_ms", "config integer 3000"),
            ("batch_size_fail_threshold_in_kb", "default integer 1024"),
            ("compaction_throughput", "default rate \"0B/s\""),
            ("compaction_throughput_mb_per_sec", "default integer 0"),
            ("stream_throughput_outbound_megabits_per_sec", "default integer 0"),
            ("critical_disk_utilization_level", "default double 0.98"),
            ("auto_snapshot", "default bool true"),
            ("cluster_name", "default string \"Test Cluster\""),
            ("join_secret", "default string null"),
            ("hinted_handoff_enabled", "config string list \"false\""),
        ] {
            assert_eq!(shows(&config, name), expected, "{name}");
        }
        let changed = BTreeMap::from([("default_log_level", "debug".to_owned())]);
        let all = described(&config, &changed);
        let level = all
            .iter()
            .find(|one| one.name == "default_log_level")
            .expect("it is an option");
        assert_eq!(
            (level.source, level.value.as_deref()),
            (Source::Internal, Some("\"debug\""))
        );
    }

    #[test]
    fn a_live_option_changes_and_the_others_stay() {
        let args = ServerArgs::default().with("slow-query-log-timeout".replace('-', "_").as_str(), "1s");
        let config = node("read_request_timeout: 4s\ntombstone_warn_threshold: 7\n", &args);
        let first = change(&config, &SetOptions::new(), "read_request_timeout_in_ms", "1234").expect("it is live");
        assert_eq!(first.names, ["read_request_timeout"]);
        assert_eq!(shows(&first.config, "read_request_timeout"), "cql duration \"1234ms\"");
        assert_eq!(shows(&first.config, "tombstone_warn_threshold"), "config integer 7");
        // What clients have set beats the command line and lasts.
        let second = change(&first.config, &first.set, "slow_query_log_timeout", "\"2s\"").expect("it is live");
        assert_eq!(second.config.slow_request.as_secs(), 2);
        assert_eq!(shows(&second.config, "read_request_timeout_in_ms"), "cql integer 1234");
        // The last value given wins, by whatever spelling.
        let third = change(&second.config, &second.set, "read_request_timeout", "2s").expect("it is live");
        assert_eq!(
            third.set["read_request_timeout"],
            ("read_request_timeout".to_owned(), "2s".to_owned())
        );
    }

    #[test]
    fn lists_and_sizes_are_taken_in_each_form() {
        for (name, given, shown) in [
            (
                "replication_strategy_warn_list",
                "[\"SimpleStrategy\"]",
                "string list \"SimpleStrategy\"",
            ),
            (
                "replication_strategy_fail_list",
                "['SimpleStrategy', EverywhereStrategy]",
                "string list \"SimpleStrategy,EverywhereStrategy\"",
            ),
            ("replication_strategy_warn_list", "[]", "string list \"none\""),
            (
                "table_properties_warned",
                "[ \"comment\", \"cdc\" ]",
                "string list \"comment,cdc\"",
            ),
            (
                "read_consistency_levels_warned",
                "[\"ONE\",\"TWO\"]",
                "string list \"ONE,TWO\"",
            ),
            ("write_consistency_levels_disallowed", "\"ANY\"", "string list \"ANY\""),
            ("query_page_size_in_bytes", "16KiB", "integer 16384"),
            ("max_memory_for_unlimited_query_soft_limit", "16MiB", "integer 16777216"),
            (
                "max_memory_for_unlimited_query_hard_limit",
                "128 MiB",
                "integer 134217728",
            ),
        ] {
            let config = node("", &ServerArgs::default());
            let changed = change(&config, &SetOptions::new(), name, given).expect(name);
            assert_eq!(shows(&changed.config, name), format!("cql {shown}"), "{name} = {given}");
            // A file and the command line have the same forms.
            let from_file = node(&format!("{name}: {given}\n"), &ServerArgs::default());
            assert_eq!(shows(&from_file, name), format!("config {shown}"), "{name}: {given}");
            let args = ServerArgs::default().with(name, given);
            assert_eq!(
                shows(&node("", &args), name),
                format!("cli {shown}"),
                "--{name} {given}"
            );
        }
        let args = ServerArgs::default().with("user_defined_function_allocation_limit_bytes", "2MiB");
        let shown = shows(&node("", &args), "user_defined_function_allocation_limit_bytes");
        assert_eq!(shown, "cli integer 2097152");
    }

    #[test]
    fn what_does_not_change_is_refused_by_name() {
        let config = node("", &ServerArgs::default());
        let refused = |name: &str, value: &str| change(&config, &SetOptions::new(), name, value).expect_err(name);
        for (name, value, expected) in [
            (
                "smp",
                "4",
                "option 'smp' does not change while the node runs, but at a restart",
            ),
            (
                "max_hint_window",
                "1h",
                "option 'max_hint_window' does not change while the node runs, but at a restart; until the next one by `ceto nodetool setmaxhintwindow`",
            ),
            (
                "read_request_timeou",
                "1s",
                "unknown option 'read_request_timeou'; did you mean 'read_request_timeout'?",
            ),
            ("xyzzy", "1s", "unknown option 'xyzzy'"),
        ] {
            assert_eq!(refused(name, value), expected);
        }
        for (name, value) in [
            ("read_request_timeout", "soon"),
            ("read_request_timeout", ""),
            ("read_request_timeout_in_ms", "1.5"),
            ("auto_snapshot", "perhaps"),
            ("default_log_level", "loud"),
        ] {
            let error = refused(name, value);
            assert!(
                error.contains(&format!("option '{name}': '{value}' given, expected ")),
                "{error}"
            );
        }
        let none = set(&config, &SetOptions::new(), &[("auto_snapshot".to_owned(), None)]);
        assert_eq!(
            none.expect_err("it has no value"),
            "option 'auto_snapshot': no value given"
        );
        let twice = [("read_request_timeout", "1s"), ("read_request_timeout_in_ms", "2000")];
        let twice = twice.map(|(name, value)| (name.to_owned(), Some(value.to_owned())));
        let twice = set(&config, &SetOptions::new(), &twice).expect_err("it has two values");
        assert_eq!(twice, "option 'read_request_timeout' is given twice");
    }

    #[test]
    fn clients_change_nothing_where_they_may_not() {
        let config = node(
            "live_updatable_config_params_changeable_via_cql: false\n",
            &ServerArgs::default(),
        );
        let error = change(&config, &SetOptions::new(), "auto_snapshot", "false").expect_err("it is forbidden");
        assert_eq!(
            error,
            "options are not changed by CQL, as enable_cql_config_updates is false"
        );
        // A client may forbid it, and may not allow it again.
        let config = node("", &ServerArgs::default());
        let off = change(&config, &SetOptions::new(), SWITCH, "false").expect("it is live");
        change(&off.config, &off.set, SWITCH, "true").expect_err("it is forbidden");
    }
}
