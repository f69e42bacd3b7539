//! From text to syntax tree.
//!
//! The service finds errors in this order: syntax, redundant parentheses, unknown functions, functions in the wrong
//! position, reserved words; what needs names and values follows when the tree is bound. So the parser notes all but
//! syntax errors and reports the first of them at the end.

mod condition;
mod update;

use super::token::{Kind, Tokens};
use super::{Condition, Update, is_reserved};
use super::{
    EXPRESSION_BYTES_MAX, Expression, ExpressionKind, NESTING_MAX, OPERATORS_MAX, Projection, Symbols, ValueId,
};
use crate::Error;
use crate::path::{self, NameId, Path, Step};

/// Parses a condition, filter or key condition.
///
/// # Errors
/// A ValidationException that names the parameter.
pub fn parse_condition(kind: ExpressionKind, text: &str) -> Result<Expression<Condition>, Error> {
    parse(kind, text, Parser::condition)
}

/// Parses a ProjectionExpression.
///
/// # Errors
/// A ValidationException that names the parameter.
pub fn parse_projection(text: &str) -> Result<Expression<Projection>, Error> {
    parse(ExpressionKind::Projection, text, |parser| {
        let mut paths = vec![parser.path()?];
        while parser.tokens.take(Kind::Sign(",")) {
            paths.push(parser.path()?);
        }
        Ok(Projection { paths })
    })
}

/// Parses an UpdateExpression.
///
/// # Errors
/// A ValidationException that names the parameter.
pub fn parse_update(text: &str) -> Result<Expression<Update>, Error> {
    parse(ExpressionKind::Update, text, Parser::update)
}

fn parse<'t, T>(
    kind: ExpressionKind,
    text: &'t str,
    read: impl FnOnce(&mut Parser<'t>) -> Result<T, Error>,
) -> Result<Expression<T>, Error> {
    parse_bare(text, read).map_err(|e| e.prefixed(&format!("Invalid {}: ", kind.parameter())))
}

fn parse_bare<'t, T>(
    text: &'t str,
    read: impl FnOnce(&mut Parser<'t>) -> Result<T, Error>,
) -> Result<Expression<T>, Error> {
    if text.is_empty() {
        return Err(Error::validation("The expression can not be empty;"));
    }
    if text.len() > EXPRESSION_BYTES_MAX {
        let size = text.len();
        return Err(Error::validation(format!(
            "Expression size has exceeded the maximum allowed size; expression size: {size}"
        )));
    }
    let mut parser = Parser::new(text);
    let tree = read(&mut parser)?;
    if parser.tokens.peek().is_some() {
        return Err(parser.tokens.syntax_error());
    }
    parser.check()?;
    let symbols = parser.symbols;
    Ok(Expression { symbols, tree })
}

/// The last position in a list that a path may have.
const INDEX_MAX: u32 = i32::MAX.unsigned_abs();

struct Parser<'t> {
    tokens: Tokens<'t>,
    symbols: Symbols,
    /// Parentheses, functions and NOT around what is read.
    depth: usize,
    operators: usize,
    has_redundant_parentheses: bool,
    unknown_function: Option<&'t str>,
    misused_function: Option<&'t str>,
    reserved_word: Option<&'t str>,
    repeated_section: Option<&'static str>,
    index_out_of_range: Option<&'t str>,
    levels_max: usize,
    in_operands_max: usize,
}

impl<'t> Parser<'t> {
    fn new(text: &'t str) -> Self {
        Self {
            tokens: Tokens::new(text),
            symbols: Symbols::default(),
            depth: 0,
            operators: 0,
            has_redundant_parentheses: false,
            unknown_function: None,
            misused_function: None,
            reserved_word: None,
            repeated_section: None,
            index_out_of_range: None,
            levels_max: 0,
            in_operands_max: 0,
        }
    }

    /// Reports the first of the errors that were noted.
    fn check(&self) -> Result<(), Error> {
        let error = |text: &str, word: &str| Err(Error::validation([text, word].concat()));
        if self.has_redundant_parentheses {
            return error("The expression has redundant parentheses;", "");
        }
        if let Some(name) = self.unknown_function {
            return error("Invalid function name; function: ", name);
        }
        if let Some(name) = self.misused_function {
            let text = "The function is not allowed to be used this way in an expression; function: ";
            return error(text, name);
        }
        if let Some(word) = self.reserved_word {
            return error("Attribute name is a reserved keyword; reserved keyword: ", word);
        }
        if let Some(section) = self.repeated_section {
            let text = format!("The \"{section}\" section can only be used once in an update expression;");
            return error(&text, "");
        }
        if let Some(digits) = self.index_out_of_range {
            let text = format!("List index is not within the allowable range; index: [{digits}]");
            return error(&text, "");
        }
        if self.operators > OPERATORS_MAX {
            let count = self.operators.to_string();
            return error("The expression contains too many operators; operator count: ", &count);
        }
        if self.levels_max > path::NESTING_MAX {
            let levels = self.levels_max.to_string();
            return error(
                "The document path has too many nesting levels; nesting levels: ",
                &levels,
            );
        }
        if self.in_operands_max > super::IN_OPERANDS_MAX {
            let count = self.in_operands_max.to_string();
            return error(
                "The IN operator is provided with too many operands; number of operands: ",
                &count,
            );
        }
        Ok(())
    }

    /// Calls `read` one level deeper. Levels beyond the limit need more parentheses than operators, or functions of
    /// functions; neither can be right.
    fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        stdx::preempt::point();
        if self.depth >= NESTING_MAX {
            return Err(Error::validation("The expression has redundant parentheses;"));
        }
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// A document path.
    fn path(&mut self) -> Result<Path, Error> {
        stdx::preempt::point();
        let attribute = self.name()?;
        let mut path = Path::of_attribute(attribute);
        self.steps(&mut path)?;
        Ok(path)
    }

    /// What follows the first name of a path.
    fn steps(&mut self, path: &mut Path) -> Result<(), Error> {
        loop {
            if self.tokens.take(Kind::Sign(".")) {
                let name = self.name()?;
                path.steps.push(Step::Name(name));
            } else if self.tokens.take(Kind::Sign("[")) {
                let index = self.index()?;
                path.steps.push(Step::Index(index));
            } else {
                self.levels_max = self.levels_max.max(path.steps.len() + 1);
                return Ok(());
            }
        }
    }

    /// The digits of an index and the bracket after them.
    fn index(&mut self) -> Result<u32, Error> {
        let digits = self.tokens.peek_text();
        if self.tokens.peek() != Some(Kind::Digits) {
            return Err(self.tokens.syntax_error());
        }
        let index = digits.parse().ok().filter(|index| *index <= INDEX_MAX);
        if index.is_none() {
            self.index_out_of_range.get_or_insert(digits);
        }
        self.tokens.advance();
        self.tokens.expect(Kind::Sign("]"))?;
        Ok(index.unwrap_or(INDEX_MAX))
    }

    /// The name of an attribute, or a placeholder for one.
    fn name(&mut self) -> Result<NameId, Error> {
        let text = self.tokens.peek_text();
        match self.tokens.peek() {
            Some(Kind::Word) if is_reserved(text) => {
                self.reserved_word.get_or_insert(text);
            }
            Some(Kind::Word | Kind::Name) => {}
            _ => return Err(self.tokens.syntax_error()),
        }
        self.tokens.advance();
        Ok(NameId(intern(&mut self.symbols.names, text)))
    }

    /// The placeholder of a value.
    fn value(&mut self) -> ValueId {
        let text = self.tokens.peek_text();
        self.tokens.advance();
        ValueId(intern(&mut self.symbols.values, text))
    }
}

/// The number of a symbol, which is added if it is new. An expression of 4 KB has at most 2048 symbols.
fn intern(symbols: &mut Vec<String>, text: &str) -> u16 {
    let at = symbols.iter().position(|symbol| symbol == text).unwrap_or_else(|| {
        symbols.push(text.to_owned());
        symbols.len() - 1
    });
    u16::try_from(at).unwrap_or(u16::MAX)
}
