//! The words behind a command: options and the rest.

use crate::http::escape;

/// Words without options, and options with their values; those without one have an empty one.
pub(super) struct Given<'w> {
    pub(super) words: Vec<&'w str>,
    options: Vec<(&'static str, &'w str)>,
}

impl<'w> Given<'w> {
    /// `known` are the spellings of an option, the name that it is asked for by, and whether it has a value.
    pub(super) fn parse(words: &[&'w str], known: &[(&str, &'static str, bool)]) -> Result<Self, String> {
        let mut given = Self {
            words: Vec::new(),
            options: Vec::new(),
        };
        let mut rest = words.iter().copied();
        while let Some(word) = rest.next() {
            if !word.starts_with('-') {
                given.words.push(word);
                continue;
            }
            let found = known.iter().find(|(spelling, ..)| *spelling == word);
            let (_, name, has_value) = found.ok_or_else(|| format!("unknown option {word}"))?;
            let value = match has_value {
                true => rest.next().ok_or_else(|| format!("{word}: expected a value"))?,
                false => "",
            };
            given.options.push((name, value));
        }
        Ok(given)
    }

    pub(super) fn option(&self, name: &str) -> Option<&'w str> {
        let found = self.options.iter().rev().find(|(given, _)| *given == name);
        found.map(|(_, value)| *value)
    }

    pub(super) fn seconds(&self, name: &str) -> Result<Option<u64>, String> {
        let given = self.option(name);
        let number = given.map(|text| {
            text.parse()
                .map_err(|_| format!("--{name}: expected a number, got '{text}'"))
        });
        number.transpose()
    }

    /// The path with the options that were given as its parameters.
    pub(super) fn path(&self, path: &str, parameters: &[&str]) -> String {
        let given = parameters.iter().filter_map(|name| {
            let value = self.option(name)?;
            let value = if value.is_empty() { "true" } else { value };
            Some(format!("{name}={}", escape(value)))
        });
        let given: Vec<String> = given.collect();
        match given.is_empty() {
            true => path.to_owned(),
            false => format!("{path}?{}", given.join("&")),
        }
    }
}
