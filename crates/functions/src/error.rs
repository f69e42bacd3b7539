//! Why a function cannot be made or did not give a result.

use std::fmt;

/// The longest message that a client is shown, in bytes: a function chooses its own words.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Why a function cannot be made or did not give a result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Error {
    /// The source is no function of its language.
    Source(String),
    /// It failed, or gave what is no value of its type.
    Failed(String),
    /// It took longer than so many milliseconds.
    Time(u64),
    /// It asked for more than this many bytes.
    Memory(usize),
}

impl Error {
    pub(crate) fn source(text: impl AsRef<str>) -> Self {
        Self::Source(shortened(text.as_ref()))
    }

    pub(crate) fn failed(text: impl AsRef<str>) -> Self {
        Self::Failed(shortened(text.as_ref()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(text) | Self::Failed(text) => f.write_str(text),
            Self::Time(ms) => write!(
                f,
                "the function took longer than {ms} ms (user_defined_function_time_limit_ms)"
            ),
            Self::Memory(bytes) => write!(
                f,
                "the function needed more than {bytes} bytes of memory (user_defined_function_allocation_limit_bytes)"
            ),
        }
    }
}

impl std::error::Error for Error {}

fn shortened(text: &str) -> String {
    if text.len() <= MESSAGE_BYTES_MAX {
        text.to_owned()
    } else {
        format!("{}…", &text[..text.floor_char_boundary(MESSAGE_BYTES_MAX)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_ends_between_two_characters() {
        let long = "ä".repeat(MESSAGE_BYTES_MAX);
        let Error::Failed(shown) = Error::failed(&long) else {
            panic!()
        };
        assert_eq!(shown, "ä".repeat(MESSAGE_BYTES_MAX / 2) + "…");
    }
}
