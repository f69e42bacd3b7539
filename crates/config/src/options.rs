//! What was given for the options of the [`table`], by the file and by the command line, and every error in it.
//!
//! A wrong value is noted and the default taken in its place, so that a start names everything that is wrong at once.
//! Names of the two files that are no options here are judged by [`wishes`].

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::error::{ConfigError, OptionOrigin};
use super::file::{Entry, Node};
use super::nested::{self, Parts};
use super::wishes::{self, Judgement};
use super::{Source, table, value};

/// Finds the addresses of a host name; the error says why there are none.
pub(super) type Lookup<'w> = &'w dyn Fn(&str) -> Result<Vec<IpAddr>, String>;

/// What was given for an option.
struct Given {
    /// The spelling used.
    spelling: String,
    /// The value as written.
    written: String,
    /// The value as the option's text.
    text: String,
    place: OptionOrigin,
}

/// The options given, and the effective ones as they are asked for.
pub(super) struct Options<'w> {
    given: BTreeMap<&'static str, Given>,
    /// The options that have an error: one is enough for each.
    wrong: BTreeSet<&'static str>,
    lookup: Lookup<'w>,
    /// Every option asked for, as text.
    pub settings: BTreeMap<String, Option<String>>,
    /// What the operator should know.
    pub warnings: Vec<String>,
    errors: Vec<ConfigError>,
}

impl<'w> Options<'w> {
    pub fn new(lookup: Lookup<'w>) -> Self {
        Self {
            given: BTreeMap::new(),
            wrong: BTreeSet::new(),
            lookup,
            settings: BTreeMap::new(),
            warnings: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Takes the options of a file.
    pub fn add_file(&mut self, path: &Path, entries: Vec<Entry>) {
        let mut meaningless = Vec::new();
        for Entry { name, line, value } in entries {
            let place = OptionOrigin::File {
                path: path.to_owned(),
                line,
            };
            match nested::parts(&name, value) {
                Parts::One(value) => self.add_entry(&place, &name, &value, &mut meaningless),
                Parts::Many(entries) => {
                    for (name, value) in entries {
                        self.add_entry(&place, &name, &value, &mut meaningless);
                    }
                }
                Parts::Wrong { given, expected } => self.error(ConfigError::wrong(&name, place, given, expected)),
            }
        }
        if !meaningless.is_empty() {
            let (count, names) = (meaningless.len(), meaningless.join(", "));
            let (options, have) = if count == 1 {
                ("option", "has")
            } else {
                ("options", "have")
            };
            self.warnings.push(format!(
                "{}: {count} {options} {have} no meaning here: {names}",
                path.display()
            ));
        }
    }

    fn add_entry(&mut self, place: &OptionOrigin, name: &str, value: &Node, meaningless: &mut Vec<String>) {
        if table::find(name).is_some() {
            match scalar(value) {
                Ok(None) => {}
                Ok(Some(text)) => self.add(name, text, place.clone()),
                Err(given) => self.error(ConfigError::wrong(name, place.clone(), given, "one value")),
            }
            return;
        }
        match wishes::judge(name, value) {
            Judgement::Met => {}
            Judgement::Refused {
                option,
                given,
                expected,
            } => self.error(ConfigError::wrong(&option, place.clone(), given, &expected)),
            Judgement::NotDone { option, given, reason } => {
                self.warnings
                    .push(format!("{}: '{given}' given, but {reason}", place.of(&option)));
            }
            Judgement::Meaningless => meaningless.push(name.to_owned()),
            Judgement::Unknown => self.error(ConfigError::Unknown {
                name: name.to_owned(),
                place: place.clone(),
                nearest: nearest(name).map(str::to_owned),
            }),
        }
    }

    /// Takes one option of the command line, which beats the file's.
    pub fn add_argument(&mut self, name: &str, text: String) {
        let Some((row, _)) = table::find(name) else {
            // The command line knows the table and what is refused.
            match wishes::judge(name, &Node::Scalar(text)) {
                Judgement::Refused { given, expected, .. } => {
                    self.error(ConfigError::wrong(name, OptionOrigin::CommandLine, given, &expected));
                }
                Judgement::NotDone { given, reason, .. } => {
                    let option = OptionOrigin::CommandLine.of(name);
                    self.warnings.push(format!("{option}: '{given}' given, but {reason}"));
                }
                Judgement::Met | Judgement::Meaningless | Judgement::Unknown => {}
            }
            return;
        };
        if self
            .given
            .get(row.name)
            .is_some_and(|given| given.place != OptionOrigin::CommandLine)
        {
            self.given.remove(row.name);
        }
        self.add(name, text, OptionOrigin::CommandLine);
    }

    /// Takes one option that a client has set, which beats the file's and the command line's.
    pub fn add_set(&mut self, spelling: &str, text: String) {
        let (row, _) = table::find(spelling).expect("it was found when it was set");
        self.given.remove(row.name);
        self.add(spelling, text, OptionOrigin::Cql);
    }

    /// Where each option that was given has its value from.
    pub fn sources(&self) -> BTreeMap<&'static str, Source> {
        let source = |given: &Given| match given.place {
            OptionOrigin::CommandLine => Source::CommandLine,
            OptionOrigin::File { .. } => Source::File,
            OptionOrigin::Cql => Source::Cql,
            OptionOrigin::Default => Source::Default,
        };
        self.given.iter().map(|(name, given)| (*name, source(given))).collect()
    }

    fn add(&mut self, name: &str, written: String, place: OptionOrigin) {
        let (row, unit) = table::find(name).expect("the caller has found it");
        if let Some(first) = self.given.get(row.name) {
            let (first, second) = (first.spelling.clone(), name.to_owned());
            return self.error(ConfigError::Twice { first, second, place });
        }
        let Some(text) = unit.apply(&written) else {
            self.wrong.insert(row.name);
            let expected = "a whole number, because the name has the unit";
            return self.error(ConfigError::wrong(name, place, written, expected));
        };
        self.given.insert(
            row.name,
            Given {
                spelling: name.to_owned(),
                written,
                text,
                place,
            },
        );
    }

    /// An option's value, or none when it was not given or is wrong; `expected` says what `parse` takes.
    pub fn get<T>(&mut self, option: &'static str, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        self.get_or(option, |text| parse(text).ok_or_else(|| expected.to_owned()))
    }

    /// An option's value, or none when it was not given or is wrong; the error of `parse` says what was expected.
    pub fn get_or<T>(&mut self, option: &'static str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
        let given = self.given.get(option)?;
        match parse(&given.text) {
            Ok(value) => {
                self.settings.insert(option.to_owned(), Some(given.text.clone()));
                Some(value)
            }
            Err(expected) => {
                self.refuse(option, &expected);
                None
            }
        }
    }

    /// An address, of a host name the first of IPv4, else the first. `expected` says what `fits` takes.
    pub fn address(&mut self, option: &'static str, expected: &str, fits: impl Fn(IpAddr) -> bool) -> Option<IpAddr> {
        let lookup = self.lookup;
        self.get_or(option, |text| {
            let address = address(text, expected, lookup)?;
            fits(address).then_some(address).ok_or_else(|| expected.to_owned())
        })
    }

    /// How host names are looked up.
    pub fn lookup(&self) -> Lookup<'w> {
        self.lookup
    }

    /// Notes that the value of an option does not fit. One that is wrong already is not reported twice.
    pub fn refuse(&mut self, option: &'static str, expected: &str) {
        if !self.wrong.insert(option) {
            return;
        }
        let error = match self.given.get(option) {
            Some(given) => ConfigError::wrong(&given.spelling, given.place.clone(), given.written.clone(), expected),
            None => ConfigError::wrong(option, OptionOrigin::Default, "the default".to_owned(), expected),
        };
        self.error(error);
    }

    /// Notes an error.
    pub fn error(&mut self, error: ConfigError) {
        self.errors.push(error);
    }

    /// Every error, in the order of the file, then of the command line.
    ///
    /// # Errors
    /// When there are any.
    pub fn check(&mut self) -> Result<(), ConfigError> {
        let mut errors = std::mem::take(&mut self.errors);
        errors.sort_by_key(ConfigError::line);
        match errors.len() {
            0 => Ok(()),
            1 => Err(errors.remove(0)),
            _ => Err(ConfigError::Several(errors)),
        }
    }

    /// Notes the effective value of an option that was not given, or that is shown in another form.
    pub fn note(&mut self, option: &'static str, text: impl ToString) {
        self.settings.insert(option.to_owned(), Some(text.to_string()));
    }

    /// Notes the effective value of an option that may have none, when it was not given or is shown in another form.
    pub fn note_or_none(&mut self, option: &'static str, text: Option<String>) {
        self.settings.insert(option.to_owned(), text);
    }

    /// Whether the operator gave it.
    pub fn is_given(&self, option: &str) -> bool {
        self.given.contains_key(option)
    }
}

/// An address, or what was expected instead.
pub(super) fn address(text: &str, expected: &str, lookup: Lookup<'_>) -> Result<IpAddr, String> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(IpAddr::V4(Ipv4Addr::LOCALHOST));
    }
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if !value::is_host_name(text) {
        return Err(expected.to_owned());
    }
    let found = lookup(text).map_err(|reason| format!("{expected}; the name '{text}' does not resolve: {reason}"))?;
    runtime::net::preferred(&found).ok_or_else(|| format!("{expected}; the name '{text}' has no address"))
}

/// The one scalar of a value, nothing for none; else what it is.
pub(super) fn scalar(value: &Node) -> Result<Option<String>, String> {
    match value {
        Node::Null => Ok(None),
        Node::Scalar(text) => Ok(Some(text.clone())),
        Node::List(items) => match items.as_slice() {
            [] => Ok(None),
            [one] => scalar(one),
            many => Err(format!("{} values", many.len())),
        },
        Node::Map(_) => Err("a mapping".to_owned()),
    }
}

/// The known option that a misspelt one probably means. Names that have an effect win ties.
pub(super) fn nearest(name: &str) -> Option<&'static str> {
    stdx::nearest(name, table::spellings().chain(wishes::names()))
}
