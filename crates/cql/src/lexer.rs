//! Text to tokens.
//!
//! The whole text is cut into one vector of 12-byte tokens before parsing, so the parser may look any distance ahead
//! for free. Every token is a range of the text; nothing is copied. What is no token becomes one of the error kinds,
//! reported only if the parser gets that far; the unterminated kinds end the text. The last token is always
//! [`TokenKind::End`].
//!
//! A minus sign is always a token of its own: the parser folds it into the number that follows.

use crate::keyword::{Keyword, is_word_byte, scan_word};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    /// Of words; `Keyword::None` for all others.
    pub(crate) keyword: Keyword,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum TokenKind {
    /// A letter, then letters, digits and underscores.
    Word,
    /// `"…"`, not empty.
    QuotedName,
    /// `'…'`
    String,
    /// `$$…$$`
    DollarString,
    Integer,
    Float,
    Uuid,
    Blob,
    Duration,
    LeftParenthesis,
    RightParenthesis,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    Comma,
    Semicolon,
    Colon,
    Question,
    Dot,
    Range,
    Plus,
    Minus,
    Star,
    Slash,
    Percent,
    PlusEqual,
    MinusEqual,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    /// The end of the text.
    End,
    /// `""`
    EmptyName,
    /// A character that starts no token.
    BadCharacter,
    /// A string, quoted name or comment that the text ends in.
    Unterminated,
}

impl TokenKind {
    /// How messages name the token when they expected it.
    pub(crate) fn expected_name(self) -> &'static str {
        match self {
            TokenKind::Word => "IDENT",
            TokenKind::QuotedName | TokenKind::EmptyName => "QUOTED_NAME",
            TokenKind::String | TokenKind::DollarString => "STRING_LITERAL",
            TokenKind::Integer => "INTEGER",
            TokenKind::Float => "FLOAT",
            TokenKind::Uuid => "UUID",
            TokenKind::Blob => "HEXNUMBER",
            TokenKind::Duration => "DURATION",
            TokenKind::LeftParenthesis => "'('",
            TokenKind::RightParenthesis => "')'",
            TokenKind::LeftBracket => "'['",
            TokenKind::RightBracket => "']'",
            TokenKind::LeftBrace => "'{'",
            TokenKind::RightBrace => "'}'",
            TokenKind::Comma => "','",
            TokenKind::Semicolon => "';'",
            TokenKind::Colon => "':'",
            TokenKind::Question => "QMARK",
            TokenKind::Dot => "'.'",
            TokenKind::Range => "RANGE",
            TokenKind::Plus => "'+'",
            TokenKind::Minus => "'-'",
            TokenKind::Star => "'*'",
            TokenKind::Slash => "'/'",
            TokenKind::Percent => "'%'",
            TokenKind::PlusEqual => "'+='",
            TokenKind::MinusEqual => "'-='",
            TokenKind::Equal => "'='",
            TokenKind::NotEqual => "'!='",
            TokenKind::Less => "'<'",
            TokenKind::LessOrEqual => "'<='",
            TokenKind::Greater => "'>'",
            TokenKind::GreaterOrEqual => "'>='",
            TokenKind::End | TokenKind::BadCharacter | TokenKind::Unterminated => "EOF",
        }
    }
}

/// Cuts the text into tokens. The caller has checked that the text is shorter than 4 GiB.
pub(crate) fn tokenize(text: &str) -> Vec<Token> {
    let mut tokens = Vec::with_capacity(text.len() / 4 + 8);
    let mut lexer = Lexer {
        bytes: text.as_bytes(),
        position: 0,
    };
    loop {
        stdx::preempt::point();
        let token = lexer.next();
        stdx::preempt::push(&mut tokens, token);
        if matches!(token.kind, TokenKind::Unterminated) {
            let end = text.len() as u32;
            tokens.push(Token {
                kind: TokenKind::End,
                keyword: Keyword::None,
                start: end,
                end,
            });
            return tokens;
        }
        if token.kind == TokenKind::End {
            return tokens;
        }
    }
}

/// What a byte is, where a token may begin.
#[derive(Clone, Copy)]
enum Begins {
    /// White space.
    Nothing,
    /// A token of this byte alone.
    Alone(TokenKind),
    Word,
    Number,
    /// A string or a name.
    Quoted(TokenKind),
    /// A comment, an operator, or no token at all.
    Other,
}

static BEGINS: [Begins; 256] = {
    let mut begins = [Begins::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        begins[byte] = match byte as u8 {
            b' ' | b'\t' | b'\n' | b'\r' => Begins::Nothing,
            b'a'..=b'z' | b'A'..=b'Z' => Begins::Word,
            b'0'..=b'9' => Begins::Number,
            b'\'' => Begins::Quoted(TokenKind::String),
            b'"' => Begins::Quoted(TokenKind::QuotedName),
            b'(' => Begins::Alone(TokenKind::LeftParenthesis),
            b')' => Begins::Alone(TokenKind::RightParenthesis),
            b'[' => Begins::Alone(TokenKind::LeftBracket),
            b']' => Begins::Alone(TokenKind::RightBracket),
            b'{' => Begins::Alone(TokenKind::LeftBrace),
            b'}' => Begins::Alone(TokenKind::RightBrace),
            b',' => Begins::Alone(TokenKind::Comma),
            b';' => Begins::Alone(TokenKind::Semicolon),
            b':' => Begins::Alone(TokenKind::Colon),
            b'?' => Begins::Alone(TokenKind::Question),
            b'*' => Begins::Alone(TokenKind::Star),
            b'%' => Begins::Alone(TokenKind::Percent),
            b'=' => Begins::Alone(TokenKind::Equal),
            _ => Begins::Other,
        };
        byte += 1;
    }
    begins
};

/// A comment does not end.
struct Unterminated;

struct Lexer<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Lexer<'_> {
    #[inline]
    fn at(&self, ahead: usize) -> u8 {
        self.bytes.get(self.position + ahead).copied().unwrap_or(0)
    }

    #[inline]
    fn next(&mut self) -> Token {
        loop {
            let start = self.position;
            let Some(&first) = self.bytes.get(start) else {
                return self.token(TokenKind::End, start);
            };
            match BEGINS[usize::from(first)] {
                Begins::Nothing => self.position += 1,
                Begins::Alone(kind) => {
                    self.position += 1;
                    return self.token(kind, start);
                }
                Begins::Word => return self.word(start),
                Begins::Quoted(kind) => return self.quoted(first, kind),
                Begins::Number => {
                    let kind = self.number();
                    return self.token(kind, start);
                }
                Begins::Other => match self.skip_comment() {
                    Ok(true) => {}
                    Ok(false) => return self.other(first),
                    Err(Unterminated) => {
                        self.position = self.bytes.len();
                        return self.token(TokenKind::Unterminated, start);
                    }
                },
            }
        }
    }

    /// An operator, a string in dollars, or a character that begins nothing.
    fn other(&mut self, first: u8) -> Token {
        let start = self.position;
        if first == b'$' && self.at(1) == b'$' {
            return self.dollar_string();
        }
        let (kind, length) = operator(first, self.at(1));
        self.position += length;
        self.token(kind, start)
    }

    #[inline]
    fn token(&self, kind: TokenKind, start: usize) -> Token {
        // The text is shorter than 4 GiB.
        Token {
            kind,
            keyword: Keyword::None,
            start: start as u32,
            end: self.position as u32,
        }
    }

    /// Skips a comment; false if there is none here.
    fn skip_comment(&mut self) -> Result<bool, Unterminated> {
        match (self.at(0), self.at(1)) {
            (b'-', b'-') | (b'/', b'/') => self.skip_line(),
            (b'/', b'*') => {
                let start = self.position;
                let comment = &self.bytes[start + 2..];
                match comment.windows(2).position(|pair| pair == b"*/") {
                    Some(length) => self.position = start + 2 + length + 2,
                    None => return Err(Unterminated),
                }
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn skip_line(&mut self) {
        let rest = &self.bytes[self.position..];
        let length = rest.iter().position(|&byte| byte == b'\n' || byte == b'\r');
        self.position += length.unwrap_or(rest.len());
    }

    fn word(&mut self, start: usize) -> Token {
        if let Some(end) = self.uuid_end() {
            self.position = end;
            return self.token(TokenKind::Uuid, start);
        }
        if self.at(0) == b'P'
            && let Some(length) = iso_duration_length(&self.bytes[start..])
        {
            self.position += length;
            return self.token(TokenKind::Duration, start);
        }
        let (length, keyword) = scan_word(&self.bytes[start..]);
        self.position += length;
        Token {
            keyword,
            ..self.token(TokenKind::Word, start)
        }
    }

    #[inline]
    fn uuid_end(&self) -> Option<usize> {
        // Most words and numbers have no dash there.
        match self.at(8) {
            b'-' => self.shaped_uuid_end(),
            _ => None,
        }
    }

    fn shaped_uuid_end(&self) -> Option<usize> {
        let candidate = self.bytes.get(self.position..self.position + 36)?;
        let shaped = candidate.iter().enumerate().all(|(index, byte)| match index {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        });
        shaped.then_some(self.position + 36)
    }

    fn number(&mut self) -> TokenKind {
        if let Some(end) = self.uuid_end() {
            self.position = end;
            return TokenKind::Uuid;
        }
        if self.at(0) == b'0' && matches!(self.at(1), b'x' | b'X') {
            self.position += 2;
            while self.at(0).is_ascii_hexdigit() {
                self.position += 1;
            }
            return TokenKind::Blob;
        }
        if let Some(length) = duration_length(&self.bytes[self.position..]) {
            self.position += length;
            return TokenKind::Duration;
        }
        let mut kind = TokenKind::Integer;
        self.skip_digits();
        if self.at(0) == b'.' && self.at(1) != b'.' {
            kind = TokenKind::Float;
            self.position += 1;
            self.skip_digits();
        }
        if matches!(self.at(0), b'e' | b'E') {
            let sign = usize::from(matches!(self.at(1), b'+' | b'-'));
            if self.at(1 + sign).is_ascii_digit() {
                kind = TokenKind::Float;
                self.position += 1 + sign;
                self.skip_digits();
            }
        }
        kind
    }

    fn skip_digits(&mut self) {
        while self.at(0).is_ascii_digit() {
            self.position += 1;
        }
    }

    /// A string or name in which a doubled quote means one.
    fn quoted(&mut self, quote: u8, kind: TokenKind) -> Token {
        let start = self.position;
        let mut at = start + 1;
        loop {
            match self.bytes.get(at) {
                Some(&byte) if byte != quote => at += 1,
                Some(_) if self.bytes.get(at + 1) == Some(&quote) => at += 2,
                Some(_) => break,
                None => {
                    self.position = self.bytes.len();
                    return self.token(TokenKind::Unterminated, start);
                }
            }
        }
        self.position = at + 1;
        let empty_name = kind == TokenKind::QuotedName && at == start + 1;
        self.token(if empty_name { TokenKind::EmptyName } else { kind }, start)
    }

    fn dollar_string(&mut self) -> Token {
        let start = self.position;
        let rest = &self.bytes[start + 2..];
        match rest.windows(2).position(|pair| pair == b"$$") {
            Some(length) => {
                self.position = start + 2 + length + 2;
                self.token(TokenKind::DollarString, start)
            }
            None => {
                self.position = self.bytes.len();
                self.token(TokenKind::Unterminated, start)
            }
        }
    }
}

/// The token of an operator that begins with these two bytes and its length; a character that begins none otherwise.
fn operator(first: u8, second: u8) -> (TokenKind, usize) {
    match (first, second) {
        (b'.', b'.') => (TokenKind::Range, 2),
        (b'.', _) => (TokenKind::Dot, 1),
        (b'/', _) => (TokenKind::Slash, 1),
        (b'+', b'=') => (TokenKind::PlusEqual, 2),
        (b'+', _) => (TokenKind::Plus, 1),
        (b'-', b'=') => (TokenKind::MinusEqual, 2),
        (b'-', _) => (TokenKind::Minus, 1),
        (b'!', b'=') => (TokenKind::NotEqual, 2),
        (b'<', b'=') => (TokenKind::LessOrEqual, 2),
        (b'<', _) => (TokenKind::Less, 1),
        (b'>', b'=') => (TokenKind::GreaterOrEqual, 2),
        (b'>', _) => (TokenKind::Greater, 1),
        _ => (TokenKind::BadCharacter, character_length(first)),
    }
}

/// The length of the UTF-8 character that begins with this byte.
fn character_length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

/// The length of a duration such as `1y2mo3w4d5h6m7s8ms9us10ns`, when the text begins with one.
fn duration_length(text: &[u8]) -> Option<usize> {
    let mut position = 0;
    loop {
        let digits = digits_length(&text[position..]);
        if digits == 0 {
            break;
        }
        let unit = &text[position + digits..];
        let lower = |index: usize| unit.get(index).copied().unwrap_or(0).to_ascii_lowercase();
        let length = match (lower(0), lower(1)) {
            (b'm', b'o' | b's') | (b'u' | b'n', b's') => 2,
            (b'y' | b'w' | b'd' | b'h' | b'm' | b's', _) => 1,
            // The micro sign, U+00B5.
            (0xc2, 0xb5) if lower(2) == b's' => 3,
            _ => return None,
        };
        position += digits + length;
    }
    let ends = !text.get(position).is_some_and(|&byte| is_word_byte(byte));
    (position > 0 && ends).then_some(position)
}

/// The length of an ISO 8601 duration (`P1Y2M3DT4H5M6S`, `P2W`, `P0001-02-03T04:05:06`), when the text begins with one.
/// Its letters are capitals; other text is a word.
fn iso_duration_length(text: &[u8]) -> Option<usize> {
    const ALTERNATIVE: &[u8] = b"Pdddd-dd-ddTdd:dd:dd";
    if text.len() >= ALTERNATIVE.len()
        && ALTERNATIVE.iter().zip(text).all(|(shape, byte)| match shape {
            b'd' => byte.is_ascii_digit(),
            other => byte == other,
        })
    {
        return Some(ALTERNATIVE.len());
    }
    let mut position = 1;
    let mut parts = 0;
    let mut in_time = false;
    let mut units: &[u8] = b"YMD";
    // Weeks cannot be combined with other units.
    let weeks = 1 + digits_length(&text[1..]);
    if weeks > 1 && text.get(weeks) == Some(&b'W') {
        let ends = !text.get(weeks + 1).is_some_and(|&byte| is_word_byte(byte));
        return ends.then_some(weeks + 1);
    }
    loop {
        let digits = digits_length(&text[position..]);
        let unit = text.get(position + digits).copied().unwrap_or(0);
        if digits == 0 {
            let is_time = unit == b'T' && text.get(position + 1).is_some_and(u8::is_ascii_digit);
            if is_time && !in_time {
                in_time = true;
                units = b"HMS";
                position += 1;
                continue;
            }
            break;
        }
        // Units come in falling order.
        let rank = units.iter().position(|&candidate| candidate == unit)?;
        units = &units[rank + 1..];
        parts += 1;
        position += digits + 1;
    }
    let ends = !text.get(position).is_some_and(|&byte| is_word_byte(byte));
    (parts > 0 && ends).then_some(position)
}

fn digits_length(text: &[u8]) -> usize {
    text.iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len())
}
