//! The command line of a server, made from the [`table`] of options. Every value is kept as text: it goes through the
//! same parser as the file's, so that both accept and refuse the same things in the same words.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::{Arg, ArgMatches, Command};

use super::table::{self, DefaultValue, Row, TABLE, Takes};
use super::wishes;

/// The options given to a server on its command line.
#[derive(Clone, Default, Debug)]
pub struct ServerArgs {
    /// What is no option of the file.
    pub mode: Mode,
    /// Options of the file by the spelling used.
    given: BTreeMap<&'static str, String>,
}

/// What only the command line has.
#[derive(clap::Args, Clone, Default, Debug)]
#[command(next_help_heading = "Server options")]
pub struct Mode {
    /// YAML file with names of cassandra.yaml or scylla.yaml [default: ceto.yaml in the workdir, if it is there]
    #[arg(long, value_name = "FILE")]
    pub options_file: Option<PathBuf>,
    /// Print a ceto.yaml of all options with their defaults, or with the values given beside it, and end
    #[arg(long, conflicts_with = "options_file")]
    pub print_config: bool,
    /// Keep every shard busy with a background task, to measure what that costs requests.
    #[arg(long, hide = true)]
    pub background_hog: bool,
    /// Hold the node at an older level: a feature that it does not show to others. May be given several times.
    #[arg(long, hide = true, value_name = "FEATURE")]
    pub hold_back_feature: Vec<String>,
    /// Seconds by which the node's clock is wrong, to test what a cluster makes of that; only with --developer-mode.
    #[arg(long, hide = true, value_name = "SECONDS", allow_hyphen_values = true)]
    pub clock_wrong_by: Option<i64>,
}

impl ServerArgs {
    /// Gives an option a value, or takes back what it has.
    ///
    /// # Panics
    /// When there is no such option.
    pub fn set(&mut self, spelling: &str, value: Option<impl Into<String>>) {
        let spelling = table::spellings()
            .find(|known| *known == spelling)
            .expect("callers name options of the table");
        match value {
            Some(value) => self.given.insert(spelling, value.into()),
            None => self.given.remove(spelling),
        };
    }

    /// Gives an option a value and returns the arguments, for chained calls.
    ///
    /// # Panics
    /// When there is no such option.
    #[must_use]
    pub fn with(mut self, spelling: &str, value: impl Into<String>) -> Self {
        self.set(spelling, Some(value));
        self
    }

    /// What was given, by spelling.
    pub(super) fn given(&self) -> impl Iterator<Item = (&'static str, &String)> {
        self.given.iter().map(|(spelling, value)| (*spelling, value))
    }

    /// The value of a spelling.
    pub(super) fn get(&self, spelling: &str) -> Option<&str> {
        self.given.get(spelling).map(String::as_str)
    }
}

impl clap::Args for ServerArgs {
    fn augment_args(command: Command) -> Command {
        let command = Mode::augment_args(command);
        let command = command.args(TABLE.iter().map(argument));
        let older = TABLE
            .iter()
            .flat_map(|row| row.spellings.iter().map(move |(spelling, _)| hidden(row, spelling)));
        command.args(older).args(wishes::refused_names().map(refused))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ServerArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = table::spellings()
            .chain(wishes::refused_names())
            .filter_map(|spelling| Some((spelling, matches.get_one::<String>(spelling)?.clone())));
        Ok(Self {
            mode: Mode::from_arg_matches(matches)?,
            given: given.collect(),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// An option by its own name.
fn argument(row: &'static Row) -> Arg {
    let default = match row.default {
        DefaultValue::Is(text) | DefaultValue::Follows(text) => text,
    };
    let argument = plain(row, row.name)
        .help(format!("{} [default: {default}]", row.meaning))
        .help_heading(format!("Server options: {}", row.group.title().to_lowercase()));
    let argument = match row.name {
        "workdir" => argument.short('W'),
        "smp" => argument.short('c'),
        "memory" => argument.short('m'),
        _ => argument,
    };
    match row.name {
        "data_center" => argument.alias("dc"),
        "default_log_level" => argument.alias("log-level"),
        _ => argument,
    }
}

/// An option by an older name, which `--help` does not show.
fn hidden(row: &'static Row, spelling: &'static str) -> Arg {
    plain(row, spelling).hide(true)
}

/// An option that stops the start. It is parsed so that the start can report the reason.
fn refused(name: &'static str) -> Arg {
    Arg::new(name)
        .long(dashed(name))
        .hide(true)
        .num_args(0..=1)
        .default_missing_value("true")
}

fn plain(row: &'static Row, spelling: &'static str) -> Arg {
    let argument = Arg::new(spelling)
        .long(dashed(spelling))
        .value_name(row.takes.placeholder());
    match row.takes {
        Takes::Switch => argument.num_args(0..=1).default_missing_value("true"),
        Takes::Number | Takes::Size => argument.allow_negative_numbers(true),
        Takes::List if row.name == "initial_token" => argument.allow_hyphen_values(true),
        _ => argument,
    }
}

fn dashed(name: &str) -> String {
    name.replace('_', "-")
}
