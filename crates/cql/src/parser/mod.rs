//! Recursive descent over the tokens.
//!
//! One method per phrase of the language; each leaves `position` after what it read. A phrase is chosen by looking at
//! most a few tokens ahead, never by trying and going back, so that bind markers are numbered once, in the order of the
//! text (the one speculation, whether parentheses hold a type, reads only types, which hold no markers).
//!
//! Bounds: `depth` counts the phrases the parser is inside of and `height` the levels of the tree it returned last;
//! both stay below [`NESTING_MAX`], so neither parsing nor printing nor dropping a tree can exhaust a stack.

mod auth;
mod describe;
mod modify;
mod schema;
mod select;
mod table;
mod term;
mod type_name;

pub(crate) use type_name::native_type;

use std::collections::HashMap;

use crate::ast::{QualifiedName, Statement, TypeName};
use crate::error::{Source, SyntaxError};
use crate::keyword::Keyword;
use crate::lexer::{Token, TokenKind, tokenize};
use crate::{Parsed, TEXT_BYTES_MAX, Variables};

/// How deep terms, selectors, types and relations may nest.
pub const NESTING_MAX: usize = 100;

pub(crate) type Parse<T> = Result<T, SyntaxError>;

pub(crate) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    position: usize,
    bind_markers: Vec<Option<String>>,
    variables: Variables,
    /// Where those with a name are among the bind markers, when equal names are one variable.
    names: HashMap<String, usize>,
    depth: usize,
    height: usize,
    /// A colon ends what is read: it is the key of a map.
    is_key: bool,
}

pub(crate) fn parse_statement(text: &str, variables: Variables) -> Parse<Parsed> {
    let mut parser = Parser::new(text)?;
    parser.variables = variables;
    let statement = parser.statement()?;
    while parser.accept(TokenKind::Semicolon) {}
    parser.expect_end()?;
    Ok(Parsed {
        statement,
        bind_markers: parser.bind_markers,
    })
}

/// Reads statements separated by semicolons.
pub(crate) fn parse_many(text: &str) -> Parse<Vec<Parsed>> {
    let mut parser = Parser::new(text)?;
    let mut statements = Vec::new();
    while parser.accept(TokenKind::Semicolon) {}
    while parser.kind() != TokenKind::End {
        let statement = parser.statement()?;
        if parser.kind() != TokenKind::Semicolon {
            parser.expect_end()?;
        }
        while parser.accept(TokenKind::Semicolon) {}
        statements.push(Parsed {
            statement,
            bind_markers: std::mem::take(&mut parser.bind_markers),
        });
        parser.names.clear();
    }
    Ok(statements)
}

pub(crate) fn parse_type(text: &str) -> Parse<TypeName> {
    let mut parser = Parser::new(text)?;
    let type_name = parser.type_name()?;
    parser.expect_end()?;
    Ok(type_name)
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parse<Self> {
        if text.len() > TEXT_BYTES_MAX {
            let message = format!(
                "the text has {} bytes, more than the {TEXT_BYTES_MAX} allowed",
                text.len()
            );
            return Err(SyntaxError {
                line: 1,
                column: 0,
                message,
            });
        }
        Ok(Parser {
            text,
            tokens: tokenize(text),
            position: 0,
            bind_markers: Vec::new(),
            variables: Variables::default(),
            names: HashMap::new(),
            depth: 0,
            height: 0,
            is_key: false,
        })
    }

    fn statement(&mut self) -> Parse<Statement> {
        use Keyword as K;
        Ok(match self.keyword() {
            K::Select => Statement::Select(self.select()?),
            K::Insert => Statement::Insert(self.insert()?),
            K::Update => Statement::Update(self.update()?),
            K::Delete => Statement::Delete(self.standalone_delete()?),
            K::Begin => Statement::Batch(self.batch()?),
            K::Truncate => Statement::Truncate(self.truncate()?),
            K::Use => Statement::Use(self.use_keyspace()?),
            K::Create => self.create()?,
            K::Alter => self.alter()?,
            K::Drop => self.drop()?,
            K::Add => Statement::AddIdentity(self.add_identity()?),
            K::Grant => self.grant()?,
            K::Revoke => self.revoke()?,
            K::List => self.list()?,
            K::Describe | K::Desc => Statement::Describe(self.describe()?),
            _ => return Err(self.no_viable_here()),
        })
    }

    // --- Tokens ------------------------------------------------------------------------------------------------------

    fn token(&self) -> Token {
        self.tokens[self.position]
    }

    /// The token a few places ahead; the end of the text when there is none.
    fn ahead(&self, distance: usize) -> Token {
        let last = self.tokens.len() - 1;
        self.tokens[(self.position + distance).min(last)]
    }

    fn kind(&self) -> TokenKind {
        self.token().kind
    }

    fn keyword(&self) -> Keyword {
        self.token().keyword
    }

    fn advance(&mut self) {
        stdx::preempt::point();
        // The last token is the end of the text, which nothing consumes.
        if self.position + 1 < self.tokens.len() {
            self.position += 1;
        }
    }

    fn written(&self, token: Token) -> &'a str {
        &self.text[token.start as usize..token.end as usize]
    }

    fn accept(&mut self, kind: TokenKind) -> bool {
        let found = self.kind() == kind;
        if found {
            self.advance();
        }
        found
    }

    fn expect(&mut self, kind: TokenKind) -> Parse<()> {
        if self.accept(kind) {
            Ok(())
        } else {
            Err(self.mismatched(kind.expected_name()))
        }
    }

    fn accept_word(&mut self, keyword: Keyword) -> bool {
        let found = self.keyword() == keyword;
        if found {
            self.advance();
        }
        found
    }

    fn expect_word(&mut self, keyword: Keyword) -> Parse<()> {
        if self.accept_word(keyword) {
            Ok(())
        } else {
            Err(self.mismatched(&keyword.token_name()))
        }
    }

    fn expect_words(&mut self, keywords: &[Keyword]) -> Parse<()> {
        keywords.iter().try_for_each(|&keyword| self.expect_word(keyword))
    }

    /// `IF NOT EXISTS`
    fn if_not_exists(&mut self) -> Parse<bool> {
        let found = self.accept_word(Keyword::If);
        if found {
            self.expect_words(&[Keyword::Not, Keyword::Exists])?;
        }
        Ok(found)
    }

    /// `IF EXISTS`
    fn if_exists(&mut self) -> Parse<bool> {
        let found = self.accept_word(Keyword::If);
        if found {
            self.expect_word(Keyword::Exists)?;
        }
        Ok(found)
    }

    fn expect_end(&self) -> Parse<()> {
        if self.kind() == TokenKind::End {
            Ok(())
        } else {
            Err(self.mismatched("EOF"))
        }
    }

    // --- Names -------------------------------------------------------------------------------------------------------

    fn is_name(&self, token: Token) -> bool {
        match token.kind {
            TokenKind::Word => !token.keyword.is_reserved(),
            TokenKind::QuotedName => true,
            _ => false,
        }
    }

    /// An identifier.
    fn name(&mut self) -> Parse<String> {
        let token = self.token();
        if !self.is_name(token) {
            return Err(self.no_viable_here());
        }
        self.advance();
        Ok(self.name_text(token))
    }

    fn name_text(&self, token: Token) -> String {
        let written = self.written(token);
        match token.kind {
            TokenKind::QuotedName => unquote(written, '"'),
            _ => written.to_ascii_lowercase(),
        }
    }

    /// `[keyspace.]name`
    fn qualified_name(&mut self) -> Parse<QualifiedName> {
        let first = self.name()?;
        if self.accept(TokenKind::Dot) {
            return Ok(QualifiedName {
                keyspace: Some(first),
                name: self.name()?,
            });
        }
        Ok(QualifiedName {
            keyspace: None,
            name: first,
        })
    }

    /// `[keyspace.]name` of a table, view or type. Cassandra decides between the two forms by looking at the token
    /// after the first name, and complains there about one that can follow neither.
    fn table_name(&mut self) -> Parse<QualifiedName> {
        let name = self.qualified_name()?;
        let token = self.token();
        let follows = match token.kind {
            TokenKind::Word => follows_table(token.keyword),
            TokenKind::End | TokenKind::Semicolon | TokenKind::LeftParenthesis => true,
            TokenKind::BadCharacter | TokenKind::Unterminated => true,
            _ => false,
        };
        if follows {
            Ok(name)
        } else {
            Err(self.no_viable_from(self.position - 1))
        }
    }

    /// `'text'` or `$$text$$`.
    fn string(&mut self) -> Parse<String> {
        let token = self.token();
        let text = match token.kind {
            TokenKind::String => unquote(self.written(token), '\''),
            TokenKind::DollarString => undollar(self.written(token)).to_owned(),
            _ => return Err(self.mismatched("STRING_LITERAL")),
        };
        self.advance();
        Ok(text)
    }

    /// `item, item, …`
    fn comma_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let first = item(self)?;
        // Lists of several items are common, and growing one item by item copies the first ones again and again.
        let is_several = self.kind() == TokenKind::Comma;
        let mut items = Vec::with_capacity(if is_several { 8 } else { 1 });
        items.push(first);
        while self.accept(TokenKind::Comma) {
            let next = item(self)?;
            stdx::preempt::push(&mut items, next);
        }
        Ok(items)
    }

    /// `item AND item …`
    fn and_separated<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.accept_word(Keyword::And) {
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `(item, item, …)`
    fn parenthesized<T>(&mut self, item: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        self.expect(TokenKind::LeftParenthesis)?;
        let items = self.comma_separated(item)?;
        self.expect(TokenKind::RightParenthesis)?;
        Ok(items)
    }

    // --- Bounds ------------------------------------------------------------------------------------------------------

    /// Reads a phrase one level deeper.
    fn nested<T>(&mut self, phrase: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.depth >= NESTING_MAX {
            return Err(self.too_deep());
        }
        self.depth += 1;
        let result = phrase(self);
        self.depth -= 1;
        result
    }

    /// Notes that the tree last returned has grown above a part of this height.
    fn grow_above(&mut self, height: usize) -> Parse<()> {
        self.height = height + 1;
        if self.height > NESTING_MAX {
            Err(self.too_deep())
        } else {
            Ok(())
        }
    }

    fn too_deep(&self) -> SyntaxError {
        self.source()
            .at(self.position, format!("nested deeper than {NESTING_MAX} levels"))
    }

    // --- Errors ------------------------------------------------------------------------------------------------------

    fn source(&self) -> Source<'_> {
        Source {
            text: self.text,
            tokens: &self.tokens,
        }
    }

    #[cold]
    fn mismatched(&self, expected: &str) -> SyntaxError {
        self.source().mismatched(self.position, expected)
    }

    #[cold]
    fn no_viable_here(&self) -> SyntaxError {
        self.source().no_viable(self.position, self.position)
    }

    /// No viable alternative at the present token, for the phrase that began at `start`.
    #[cold]
    fn no_viable_from(&self, start: usize) -> SyntaxError {
        self.source().no_viable(start, self.position)
    }
}

/// Whether some statement has this word after the name of a table.
fn follows_table(keyword: Keyword) -> bool {
    use Keyword as K;
    matches!(
        keyword,
        K::Add
            | K::Allow
            | K::Alter
            | K::And
            | K::Apply
            | K::As
            | K::Bypass
            | K::Drop
            | K::From
            | K::Group
            | K::Json
            | K::Like
            | K::Limit
            | K::NoRecursive
            | K::Of
            | K::Order
            | K::Per
            | K::Primary
            | K::Rename
            | K::Set
            | K::To
            | K::Using
            | K::Where
            | K::With
    )
}

/// The content of a quoted string or name.
fn unquote(written: &str, quote: char) -> String {
    let content = &written[1..written.len() - 1];
    if content.as_bytes().contains(&(quote as u8)) {
        let doubled: String = [quote, quote].iter().collect();
        return content.replace(&doubled, quote.encode_utf8(&mut [0; 4]));
    }
    content.to_owned()
}

fn undollar(written: &str) -> &str {
    &written[2..written.len() - 2]
}
