//! Why a configuration is refused.

use std::fmt;
use std::path::PathBuf;

use topology::SnitchError;

/// Where a value was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// On the command line.
    CommandLine,
    /// In the options file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
    /// Nowhere: the default does not fit the other values.
    Default,
}

/// Why a configuration is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The options file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// As the system says.
        reason: String,
    },
    /// The options file is not YAML, or not a list of options.
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser says, with line and column.
        message: String,
    },
    /// A name that nobody knows.
    UnknownOption {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
        /// As written.
        name: String,
        /// A known name that is almost the same.
        nearest: Option<String>,
    },
    /// The file of GossipingPropertyFileSnitch makes no sense.
    Properties {
        /// Where it is.
        dir: PathBuf,
        /// What is wrong with it.
        error: SnitchError,
    },
    /// A value that the option does not take.
    WrongValue {
        /// The spelling used.
        option: String,
        /// Where.
        place: Place,
        /// The value as written.
        given: String,
        /// What it takes.
        expected: String,
    },
    /// Two spellings of one option.
    Twice {
        /// The first.
        first: String,
        /// The second.
        second: String,
        /// Where the second is.
        place: Place,
    },
}

impl ConfigError {
    pub(super) fn wrong(option: &str, place: Place, given: String, expected: &str) -> Self {
        Self::WrongValue {
            option: option.to_owned(),
            place,
            given,
            expected: expected.to_owned(),
        }
    }
}

/// The option as it is written where it was given.
fn in_place(option: &str, place: &Place) -> String {
    match place {
        Place::CommandLine => format!("--{}", option.replace('_', "-")),
        Place::File { path, line } => format!("{}: option '{option}' at line {line}", path.display()),
        Place::Default => format!("option '{option}'"),
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, reason } => write!(f, "cannot read the options file {}: {reason}", path.display()),
            Self::Syntax { path, message } => write!(f, "{}: {message}", path.display()),
            Self::UnknownOption {
                path,
                line,
                name,
                nearest,
            } => {
                write!(f, "{}: unknown option '{name}' at line {line}", path.display())?;
                nearest
                    .as_ref()
                    .map_or(Ok(()), |nearest| write!(f, "; did you mean '{nearest}'?"))
            }
            Self::Properties { dir, error } => write!(f, "{}/{error}", dir.display()),
            Self::WrongValue {
                option,
                place,
                given,
                expected,
            } => {
                write!(f, "{}: '{given}' given, expected {expected}", in_place(option, place))
            }
            Self::Twice { first, second, place } => {
                write!(
                    f,
                    "{}: the same option was given as '{first}' before",
                    in_place(second, place)
                )
            }
        }
    }
}

impl std::error::Error for ConfigError {}
