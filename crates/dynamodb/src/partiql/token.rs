//! Tokens of PartiQL.

use stdx::preempt;

use super::malformed;
use crate::error::Error;

/// A token. Keywords are words: their case does not matter, and what is one depends on its position.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Token {
    /// A word without quotes.
    Word(String),
    /// A name in double quotes.
    Quoted(String),
    /// A string in single quotes.
    Text(String),
    /// A number, without a sign.
    Number(String),
    /// A sign: one of `SIGNS`.
    Sign(&'static str),
}

/// The signs, longer ones before their beginnings.
const SIGNS: [&str; 24] = [
    "<<", ">>", "<>", "<=", ">=", "!=", "<", ">", "=", "(", ")", "[", "]", "{", "}", ",", ".", ":", "?", "*", "+", "-",
    "/", ";",
];

/// Cuts a text into tokens.
///
/// # Errors
/// A ValidationException for a character that begins no token, or a text in quotes that does not end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, Error> {
    let mut tokens = Vec::new();
    let mut rest = after_blanks(text)?;
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '\'' => quoted(rest, '\'').map(|(text, length)| (Token::Text(text), length))?,
            '"' => quoted(rest, '"').map(|(text, length)| (Token::Quoted(text), length))?,
            '0'..='9' => {
                let length = number_length(rest.as_bytes());
                (Token::Number(rest[..length].to_owned()), length)
            }
            first if first.is_ascii_alphabetic() || first == '_' => {
                let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$');
                let length = rest.bytes().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                (Token::Word(rest[..length].to_owned()), length)
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => (Token::Sign(sign), sign.len()),
                None => return Err(malformed(format!("Unexpected character '{first}'"))),
            },
        };
        preempt::push(&mut tokens, token);
        preempt::point();
        rest = after_blanks(&rest[length..])?;
    }
    Ok(tokens)
}

/// The text after blanks and comments: `--` to the end of the line, and `/*` to `*/`.
fn after_blanks(text: &str) -> Result<&str, Error> {
    let mut rest = text.trim_start();
    loop {
        let after = if let Some(comment) = rest.strip_prefix("--") {
            comment.split_once('\n').map_or("", |(_, after)| after)
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let ended = comment.split_once("*/");
            ended
                .map(|(_, after)| after)
                .ok_or_else(|| malformed("Unterminated comment"))?
        } else {
            return Ok(rest);
        };
        preempt::point();
        rest = after.trim_start();
    }
}

/// The text in quotes at the beginning, where two quotes are one, and its length with the quotes.
fn quoted(text: &str, quote: char) -> Result<(String, usize), Error> {
    let mut content = String::new();
    let mut characters = text.char_indices().skip(1).peekable();
    while let Some((at, character)) = characters.next() {
        if character != quote {
            content.push(character);
        } else if characters.next_if(|(_, next)| *next == quote).is_some() {
            content.push(quote);
        } else {
            return Ok((content, at + 1));
        }
    }
    Err(malformed(match quote {
        '\'' => "Unterminated string literal",
        _ => "Unterminated quoted identifier",
    }))
}

/// The bytes of digits, a point and an exponent at the beginning.
fn number_length(bytes: &[u8]) -> usize {
    let digits = |from: usize| {
        let count = bytes[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        from + count
    };
    let mut end = digits(0);
    if bytes.get(end) == Some(&b'.') && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
        end = digits(end + 1);
    }
    if matches!(bytes.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
        let exponent = end + 1 + sign;
        if bytes.get(exponent).is_some_and(u8::is_ascii_digit) {
            end = digits(exponent);
        }
    }
    end
}
