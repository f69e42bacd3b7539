//! Tokens of expressions.

use crate::Error;

/// What a token is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Letters, digits and underscores, not beginning with a digit.
    Word,
    /// `#` and a word.
    Name,
    /// `:` and a word.
    Value,
    /// Digits without a leading zero.
    Digits,
    /// A word of the grammar, in any case.
    Keyword(Keyword),
    /// One or two characters that mean something.
    Sign(&'static str),
    /// Any other character.
    Other,
}

/// Words of the grammar.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Keyword {
    And,
    Or,
    Not,
    Between,
    In,
    Set,
    Remove,
    Add,
    Delete,
}

const KEYWORDS: [(&str, Keyword); 9] = [
    ("AND", Keyword::And),
    ("OR", Keyword::Or),
    ("NOT", Keyword::Not),
    ("BETWEEN", Keyword::Between),
    ("IN", Keyword::In),
    ("SET", Keyword::Set),
    ("REMOVE", Keyword::Remove),
    ("ADD", Keyword::Add),
    ("DELETE", Keyword::Delete),
];

/// Two characters before one, so that the longest is found first.
const SIGNS: [&str; 14] = ["<=", ">=", "<>", "<", ">", "=", "(", ")", "[", "]", ".", ",", "+", "-"];

/// A token: what it is, and its bytes in the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    start: u16,
    end: u16,
}

/// The tokens of a text of at most 64 KB, and where the parser is.
pub(super) struct Tokens<'t> {
    text: &'t str,
    all: Vec<Token>,
    at: usize,
}

impl<'t> Tokens<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        let mut all = Vec::new();
        let mut start = 0;
        while let Some(rest) = text.get(start..).filter(|rest| !rest.is_empty()) {
            let (kind, len) = first_token(rest);
            if let (Some(kind), Ok(from), Ok(end)) = (kind, u16::try_from(start), u16::try_from(start + len)) {
                stdx::preempt::push(&mut all, Token { kind, start: from, end });
            }
            stdx::preempt::point();
            start += len;
        }
        Self { text, all, at: 0 }
    }

    /// The kind of the next token, `None` at the end.
    pub(super) fn peek(&self) -> Option<Kind> {
        self.all.get(self.at).map(|token| token.kind)
    }

    /// The kind of the token after the next one.
    pub(super) fn peek_second(&self) -> Option<Kind> {
        self.all.get(self.at + 1).map(|token| token.kind)
    }

    /// The text of the next token; empty at the end.
    pub(super) fn peek_text(&self) -> &'t str {
        self.slice(self.at, self.at)
    }

    pub(super) fn advance(&mut self) {
        self.at += 1;
    }

    /// Takes the next token if it is of the kind.
    pub(super) fn take(&mut self, kind: Kind) -> bool {
        let is_next = self.peek() == Some(kind);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes the next token, which must be of the kind.
    pub(super) fn expect(&mut self, kind: Kind) -> Result<(), Error> {
        if self.take(kind) {
            Ok(())
        } else {
            Err(self.syntax_error())
        }
    }

    /// The error for the next token: it names the token, and the text from the one before to the one after.
    #[cold]
    pub(super) fn syntax_error(&self) -> Error {
        let token = match self.peek() {
            Some(_) => self.peek_text(),
            None => "<EOF>",
        };
        let near = match self.all.len() {
            0 => self.text,
            _ => self.slice(self.at.saturating_sub(1), self.at + 1),
        };
        Error::validation(format!("Syntax error; token: \"{token}\", near: \"{near}\""))
    }

    /// The text from one token to another, as far as there are tokens.
    fn slice(&self, first: usize, last: usize) -> &'t str {
        let last = last.min(self.all.len().saturating_sub(1));
        let (Some(first), Some(last)) = (self.all.get(first), self.all.get(last)) else {
            return "";
        };
        self.text
            .get(usize::from(first.start)..usize::from(last.end))
            .unwrap_or("")
    }
}

/// The kind and length of the first token; no kind for white space.
fn first_token(text: &str) -> (Option<Kind>, usize) {
    let bytes = text.as_bytes();
    let word_len = |bytes: &[u8]| bytes.iter().take_while(|byte| is_word(**byte)).count();
    let kind = match bytes.first() {
        None | Some(b' ' | b'\t' | b'\r' | b'\n') => return (None, 1),
        Some(b'0') => return (Some(Kind::Digits), 1),
        Some(b'1'..=b'9') => {
            let len = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
            return (Some(Kind::Digits), len);
        }
        Some(sign @ (b'#' | b':')) => {
            let len = word_len(&bytes[1..]);
            let kind = if *sign == b'#' { Kind::Name } else { Kind::Value };
            return (Some(if len == 0 { Kind::Other } else { kind }), len + 1);
        }
        Some(byte) if is_word(*byte) => {
            let len = word_len(bytes);
            let keyword = KEYWORDS
                .iter()
                .find(|(word, _)| word.eq_ignore_ascii_case(&text[..len]));
            return (
                Some(keyword.map_or(Kind::Word, |(_, keyword)| Kind::Keyword(*keyword))),
                len,
            );
        }
        Some(_) => SIGNS.iter().find(|sign| text.starts_with(**sign)),
    };
    match kind {
        Some(sign) => (Some(Kind::Sign(sign)), sign.len()),
        None => (Some(Kind::Other), text.chars().next().map_or(1, char::len_utf8)),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}
