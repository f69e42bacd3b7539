//! Names and strings as they must be written.

use std::borrow::Cow;

use crate::keyword::{is_word_byte, keyword};

/// A name as it must be written: in double quotes when it is not a lower-case word or is a reserved one.
pub fn quote_identifier(name: &str) -> Cow<'_, str> {
    if is_bare_word(name) && !keyword(name.as_bytes()).is_reserved() {
        return Cow::Borrowed(name);
    }
    Cow::Owned(quoted(name))
}

/// A name in double quotes, whether it needs them or not.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A text as a string literal.
pub fn quote_string(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Whether the name, written bare, is read as one word that keeps its spelling.
fn is_bare_word(name: &str) -> bool {
    let bytes = name.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_lowercase)
        && bytes
            .iter()
            .all(|&byte| is_word_byte(byte) && !byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted_only_when_they_must_be() {
        let cases = [
            ("users", "users"),
            ("user_1", "user_1"),
            ("key", "key"),
            ("Users", "\"Users\""),
            ("select", "\"select\""),
            ("null", "\"null\""),
            ("1st", "\"1st\""),
            ("_a", "\"_a\""),
            ("", "\"\""),
            ("a b", "\"a b\""),
            ("a\"b", "\"a\"\"b\""),
            ("é", "\"é\""),
            ("p1y", "p1y"),
            ("P1Y", "\"P1Y\""),
            ("p1", "p1"),
        ];
        for (name, expected) in cases {
            assert_eq!(quote_identifier(name), expected);
        }
    }

    #[test]
    fn strings_double_their_quotes() {
        assert_eq!(quote_string("it's"), "'it''s'");
        assert_eq!(quote_string(""), "''");
    }
}
