//! The words after a command: options and the rest.

use ::http::escape;

/// Whether a word names an option. A number below zero does not: keys and tokens may be such.
pub(super) fn is_option(word: &str) -> bool {
    let mut rest = word.chars();
    rest.next() == Some('-') && rest.next().is_some_and(|second| !second.is_ascii_digit())
}

/// Why an option is refused, with the known one that it probably means.
pub(super) fn unknown_option<'k>(given: &str, known: impl Iterator<Item = &'k str>) -> String {
    // Any letter is near to any other.
    let is_letter = given.len() < 4;
    match stdx::nearest(given, known).filter(|_| !is_letter) {
        Some(known) => format!("unknown option {given}; did you mean {known}?"),
        None => format!("unknown option {given}"),
    }
}

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
            if !is_option(word) {
                given.words.push(word);
                continue;
            }
            let (spelling, attached) = match word.split_once('=') {
                Some((spelling, value)) => (spelling, Some(value)),
                None => (word, None),
            };
            let found = known.iter().find(|(known, ..)| *known == spelling);
            let (_, name, has_value) =
                found.ok_or_else(|| unknown_option(spelling, known.iter().map(|(known, ..)| *known)))?;
            let value = match (has_value, attached) {
                (true, Some(value)) => value,
                (true, None) => rest.next().ok_or_else(|| format!("{word}: expected a value"))?,
                (false, Some(_)) => return Err(format!("{spelling} takes no value")),
                (false, None) => "",
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
        if given.is_empty() {
            path.to_owned()
        } else {
            format!("{path}?{}", given.join("&"))
        }
    }
}
