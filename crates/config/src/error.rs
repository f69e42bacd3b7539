//! Why a configuration is refused.

use std::fmt;
use std::path::PathBuf;

use topology::SnitchError;

/// Where a value was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OptionOrigin {
    /// On the command line.
    CommandLine,
    /// In the options file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: u64,
    },
    /// By a statement on `system.config`.
    Cql,
    /// Nowhere: the default does not fit the other values.
    Default,
}

impl OptionOrigin {
    /// The option as it is written here.
    pub(super) fn of(&self, option: &str) -> String {
        match self {
            Self::CommandLine => format!("--{}", option.replace('_', "-")),
            Self::File { path, line } => format!("{}: option '{option}' at line {line}", path.display()),
            Self::Cql | Self::Default => format!("option '{option}'"),
        }
    }
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
    /// An unknown name.
    Unknown {
        /// As written.
        name: String,
        /// Where.
        place: OptionOrigin,
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
        place: OptionOrigin,
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
        place: OptionOrigin,
    },
    /// More than one of these, in the order of the file.
    Several(Vec<Self>),
}

impl ConfigError {
    pub(super) fn wrong(option: &str, place: OptionOrigin, given: String, expected: &str) -> Self {
        Self::WrongValue {
            option: option.to_owned(),
            place,
            given,
            expected: expected.to_owned(),
        }
    }

    /// The line of the file where it is. Errors without a line sort after all that have one.
    pub(super) fn line(&self) -> u64 {
        match self {
            Self::Unknown { place, .. } | Self::WrongValue { place, .. } | Self::Twice { place, .. } => match place {
                OptionOrigin::File { line, .. } => *line,
                OptionOrigin::CommandLine | OptionOrigin::Cql | OptionOrigin::Default => u64::MAX,
            },
            Self::Unreadable { .. } | Self::Syntax { .. } | Self::Properties { .. } | Self::Several(_) => u64::MAX,
        }
    }
}

impl fmt::Display for ConfigError {
    /// One line for each error.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, reason } => write!(f, "cannot read the options file {}: {reason}", path.display()),
            Self::Syntax { path, message } => write!(f, "{}: {message}", path.display()),
            Self::Unknown { name, place, nearest } => {
                match place {
                    OptionOrigin::File { path, line } => {
                        write!(f, "{}: unknown option '{name}' at line {line}", path.display())?
                    }
                    OptionOrigin::CommandLine | OptionOrigin::Cql | OptionOrigin::Default => {
                        write!(f, "unknown option '{name}'")?
                    }
                }
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
                write!(f, "{}: '{given}' given, expected {expected}", place.of(option))
            }
            Self::Twice { first, second, place } => {
                write!(f, "{}: the same option was given as '{first}' before", place.of(second))
            }
            Self::Several(errors) => {
                for (i, error) in errors.iter().enumerate() {
                    let newline = if i == 0 { "" } else { "\n" };
                    write!(f, "{newline}{error}")?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for ConfigError {}
