//! Why a text is no statement, in the words Cassandra's users know.

use std::fmt;

use crate::lexer::{Token, TokenKind};

/// The place and reason of the first error in a text. At the end of the text Cassandra says `line 0:-1`, and so do we.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntaxError {
    /// Line from 1; 0 at the end of the text.
    pub line: u32,
    /// Character in the line from 0; -1 at the end of the text.
    pub column: i32,
    /// The reason, such as `mismatched input 'FORM' expecting K_FROM (SELECT * [FORM]...)`.
    pub message: String,
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}:{} {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for SyntaxError {}

/// How many characters of an offending token a message repeats.
const QUOTED_CHARACTERS_MAX: usize = 80;

/// How many tokens, white space included, the excerpt shows before the offending one.
const EXCERPT_TOKENS_BEFORE: usize = 10;

/// The text and its tokens, to word errors about them.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    pub(crate) text: &'a str,
    pub(crate) tokens: &'a [Token],
}

impl Source<'_> {
    /// The token is not the one that the grammar requires here.
    pub(crate) fn mismatched(&self, offender: usize, expected: &str) -> SyntaxError {
        if let Some(error) = self.lexical(offender) {
            return error;
        }
        let input = self.token_text(offender);
        let excerpt = self.excerpt(offender, offender);
        self.error(
            offender,
            format!("mismatched input '{input}' expecting {expected}{excerpt}"),
        )
    }

    /// Nothing that begins at the token `start` continues with the offender.
    pub(crate) fn no_viable(&self, start: usize, offender: usize) -> SyntaxError {
        if let Some(error) = self.lexical(offender) {
            return error;
        }
        let input = self.token_text(offender);
        let excerpt = self.excerpt(start, offender);
        self.error(offender, format!("no viable alternative at input '{input}'{excerpt}"))
    }

    /// A reason of our own at a token.
    pub(crate) fn at(&self, token: usize, message: String) -> SyntaxError {
        let mut error = self.error(token, message);
        (error.line, error.column) = self.place(self.tokens[token].start as usize);
        error
    }

    fn error(&self, offender: usize, message: String) -> SyntaxError {
        let token = self.tokens[offender];
        let (line, column) = match token.kind {
            TokenKind::End => (0, -1),
            _ => self.place(token.start as usize),
        };
        SyntaxError { line, column, message }
    }

    /// The error of a token that is none.
    fn lexical(&self, offender: usize) -> Option<SyntaxError> {
        let token = self.tokens[offender];
        let written = &self.text[token.start as usize..token.end as usize];
        match token.kind {
            TokenKind::BadCharacter => {
                let message = format!("no viable alternative at character '{written}'");
                Some(self.error(offender, message))
            }
            TokenKind::Unterminated => {
                let expected = match written.as_bytes().first() {
                    Some(b'"') => "'\"'",
                    Some(b'/') => "'*'",
                    Some(b'$') => "'$'",
                    _ => "'''",
                };
                let (line, column) = self.place(self.text.len());
                Some(SyntaxError {
                    line,
                    column,
                    message: format!("mismatched character '<EOF>' expecting {expected}"),
                })
            }
            _ => None,
        }
    }

    /// Line and column of a byte; columns count characters.
    fn place(&self, position: usize) -> (u32, i32) {
        let before = &self.text[..position];
        let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let column = before[line_start..].chars().count();
        (
            u32::try_from(line).unwrap_or(u32::MAX),
            i32::try_from(column).unwrap_or(i32::MAX),
        )
    }

    /// A token as messages repeat it: strings without their quotes, long ones cut.
    fn token_text(&self, index: usize) -> String {
        let token = self.tokens[index];
        let written = &self.text[token.start as usize..token.end as usize];
        let content = match token.kind {
            TokenKind::End => "<EOF>",
            TokenKind::String => &written[1..written.len() - 1],
            TokenKind::DollarString => &written[2..written.len() - 2],
            _ => written,
        };
        match content.char_indices().nth(QUOTED_CHARACTERS_MAX) {
            Some((end, _)) => format!("{}...", &content[..end]),
            None => content.to_owned(),
        }
    }

    /// ` (...before [start] after...)`: the neighbourhood of an error; nothing at the end of the text.
    fn excerpt(&self, start: usize, offender: usize) -> String {
        if self.tokens[offender].kind == TokenKind::End {
            return String::new();
        }
        // From the offending token backwards.
        let mut before = Vec::new();
        let mut index = start;
        while before.len() <= EXCERPT_TOKENS_BEFORE {
            before.extend(self.hidden_before(index).into_iter().rev());
            if index == 0 {
                break;
            }
            index -= 1;
            before.push(self.written(index));
        }
        let mut excerpt = String::from(" (");
        if before.len() > EXCERPT_TOKENS_BEFORE {
            before.truncate(EXCERPT_TOKENS_BEFORE);
            excerpt.push_str("...");
        }
        before.iter().rev().for_each(|piece| excerpt.push_str(piece));
        excerpt.push_str(&format!("[{}]", self.written(start)));
        let mut shown = start;
        if offender > start {
            let mut after = self.hidden_before(start + 1);
            // One token that is read, or one that is not and the next one.
            let most = 1 + usize::from(!after.is_empty());
            after.push(self.written(start + 1));
            after.truncate(most);
            after.iter().for_each(|piece| excerpt.push_str(piece));
            shown += 1;
        }
        if self
            .tokens
            .get(shown + 1)
            .is_some_and(|next| next.kind != TokenKind::End)
        {
            excerpt.push_str("...");
        }
        excerpt.push(')');
        excerpt
    }

    /// White space and comments before a token, as an excerpt repeats them: without their line breaks.
    fn hidden_before(&self, index: usize) -> Vec<String> {
        let start = index
            .checked_sub(1)
            .map_or(0, |previous| self.tokens[previous].end as usize);
        let mut hidden = &self.text[start..self.tokens[index].start as usize];
        let mut pieces = Vec::new();
        while !hidden.is_empty() {
            let is_white = |c: char| c.is_ascii_whitespace();
            let length = match hidden.find(|c| !is_white(c)) {
                None => hidden.len(),
                Some(0) if hidden.starts_with("/*") => hidden.find("*/").map_or(hidden.len(), |end| end + 2),
                Some(0) => hidden.find('\n').map_or(hidden.len(), |end| end + 1),
                Some(length) => length,
            };
            let (piece, rest) = hidden.split_at(length);
            pieces.push(shortened(piece).replace('\n', ""));
            hidden = rest;
        }
        pieces
    }

    fn written(&self, index: usize) -> String {
        let token = self.tokens[index];
        shortened(&self.text[token.start as usize..token.end as usize])
    }
}

/// A token as an excerpt repeats it: a long one is cut.
fn shortened(written: &str) -> String {
    match written.char_indices().nth(QUOTED_CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &written[..end]),
        None => written.to_owned(),
    }
}
