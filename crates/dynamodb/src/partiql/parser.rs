//! The parser: recursive descent over tokens, with a limit on nesting.

use stdx::preempt;

use super::token::{Token, tokens};
use super::{Command, Delete, Insert, Select, Update, malformed};
use crate::arn::TableReference;
use crate::error::Error;
use crate::expression::{
    Action, Change, Comparison, Condition, Expression, ExpressionKind, Function, Operand, Projection, SetOperand,
    SetValue, Symbols, Tree, Update as Changes, ValueId,
};
use crate::legacy::Legacy;
use crate::path::{NameId, Path, Step};
use crate::request::Clause;
use crate::update::ReturnValues;
use crate::value::{AttributeValue, Item, Number, Set, copy_value};

/// Levels of parentheses, NOT, lists and maps.
const NESTING_MAX: usize = 32;
/// Operands of IN, as the developer guide limits them for keys.
const IN_MAX: usize = 100;
/// Conditions, paths or changes of one statement.
const PARTS_MAX: usize = 1000;

type Parsed<T> = Result<T, Error>;

struct Parser<'p> {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    parameters: std::slice::Iter<'p, AttributeValue>,
    symbols: Symbols,
    values: Item,
}

/// The error for tokens in another order.
fn unexpected() -> Error {
    malformed("Unexpected term")
}

pub(super) fn parse(text: &str, parameters: &[AttributeValue]) -> Parsed<Command> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        parameters: parameters.iter(),
        symbols: Symbols::default(),
        values: Item::new(),
    };
    let command = parser.command()?;
    parser.accept(";");
    if parser.at < parser.tokens.len() {
        return Err(malformed("Unexpected token after expression"));
    }
    match parser.parameters.next() {
        Some(_) => Err(wrong_parameters()),
        None => Ok(command),
    }
}

fn wrong_parameters() -> Error {
    Error::validation("Number of parameters in request and statement don't match.")
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn next(&mut self) -> Option<Token> {
        preempt::point();
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// Takes a sign if it is next.
    fn accept(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect(&mut self, sign: &str) -> Parsed<()> {
        if self.accept(sign) { Ok(()) } else { Err(unexpected()) }
    }

    /// The error for another token than the one that must follow.
    fn instead_of(&self, expected: &str) -> Error {
        match self.peek() {
            Some(Token::Word(text) | Token::Number(text) | Token::Text(text) | Token::Quoted(text)) => {
                malformed(format!("Expected '{expected}' but got '{text}'"))
            }
            Some(Token::Sign(sign)) => malformed(format!("Expected '{expected}' but got '{sign}'")),
            None => unexpected(),
        }
    }

    /// Whether a word follows at a distance.
    fn is_word(&self, distance: usize, word: &str) -> bool {
        let token = self.tokens.get(self.at + distance);
        matches!(token, Some(Token::Word(next)) if next.eq_ignore_ascii_case(word))
    }

    /// Takes a word if it is next.
    fn accept_word(&mut self, word: &str) -> bool {
        let is_next = self.is_word(0, word);
        self.at += usize::from(is_next);
        is_next
    }

    fn expect_word(&mut self, word: &str) -> Parsed<()> {
        if self.accept_word(word) {
            Ok(())
        } else {
            Err(self.instead_of(word))
        }
    }

    /// Enters a level of nesting, which `leave` ends.
    fn enter(&mut self) -> Parsed<()> {
        self.depth += 1;
        if self.depth > NESTING_MAX {
            Err(malformed("Nesting levels have exceeded the supported limit"))
        } else {
            Ok(())
        }
    }

    fn leave(&mut self) {
        self.depth -= 1;
    }

    /// A clause with the symbols since the last one.
    fn clause<T: Tree>(&mut self, kind: ExpressionKind, tree: T) -> Parsed<Clause<T>> {
        let mut symbols = std::mem::take(&mut self.symbols);
        symbols.names_are_literal = true;
        let values = std::mem::take(&mut self.values);
        let expression = Expression { symbols, tree };
        let values = (!values.is_empty()).then_some(values);
        let clause = Clause::legacy(kind, Legacy { expression, values });
        clause.check()?;
        Ok(clause)
    }

    fn command(&mut self) -> Parsed<Command> {
        let word = match self.next() {
            Some(Token::Word(word)) => word,
            Some(_) => return Err(malformed("Expected data manipulation")),
            None => return Err(malformed("Empty statement")),
        };
        match word.to_ascii_uppercase().as_str() {
            "SELECT" => self.select().map(Command::Select),
            "INSERT" => self.insert().map(Command::Insert),
            "UPDATE" => self.update().map(Command::Update),
            "DELETE" => self.delete().map(Command::Delete),
            "EXISTS" => {
                self.expect("(")?;
                self.expect_word("SELECT")?;
                let select = self.select()?;
                self.expect(")")?;
                Ok(Command::Exists(select))
            }
            _ => Err(malformed("Expected data manipulation")),
        }
    }

    /// A name, in quotes or not.
    fn name(&mut self) -> Parsed<String> {
        match self.next() {
            Some(Token::Word(name) | Token::Quoted(name)) => Ok(name),
            _ => Err(unexpected()),
        }
    }

    /// `table` or `table.index`.
    fn target(&mut self) -> Parsed<(TableReference, Option<String>)> {
        let name = self.name()?;
        let index = if self.accept(".") { Some(self.name()?) } else { None };
        match TableReference::new(name) {
            Some(table) => Ok((table, index)),
            None => Err(malformed("Invalid table name")),
        }
    }

    fn table(&mut self) -> Parsed<TableReference> {
        match self.target()? {
            (table, None) => Ok(table),
            (_, Some(_)) => Err(unexpected()),
        }
    }

    fn select(&mut self) -> Parsed<Select> {
        let projection = if self.accept("*") {
            None
        } else {
            let mut paths = vec![self.path()?];
            while self.accept(",") {
                check_count(paths.len())?;
                paths.push(self.path()?);
            }
            Some(self.clause(ExpressionKind::Projection, Projection { paths })?)
        };
        self.expect_word("FROM")?;
        let (table, index) = self.target()?;
        let condition = self.where_clause()?;
        let mut order = Vec::new();
        if self.accept_word("ORDER") {
            self.expect_word("BY")?;
            loop {
                check_count(order.len())?;
                let name = self.name()?;
                let descending = self.accept_word("DESC");
                if !descending {
                    self.accept_word("ASC");
                }
                order.push((name, descending));
                if !self.accept(",") {
                    break;
                }
            }
        }
        Ok(Select {
            table,
            index,
            projection,
            condition,
            order,
        })
    }

    fn insert(&mut self) -> Parsed<Insert> {
        self.expect_word("INTO")?;
        let table = self.table()?;
        self.expect_word("VALUE")?;
        if !matches!(self.peek(), Some(Token::Sign("{" | "?"))) {
            return Err(self.instead_of("{"));
        }
        match self.value()? {
            AttributeValue::M(item) => Ok(Insert { table, item }),
            _ => Err(malformed("Expected a tuple of attributes after VALUE")),
        }
    }

    fn update(&mut self) -> Parsed<Update> {
        let table = self.table()?;
        let mut changes = Changes::default();
        loop {
            check_count(changes.actions.len())?;
            if self.accept_word("SET") {
                loop {
                    check_count(changes.actions.len())?;
                    let path = self.path()?;
                    self.expect("=")?;
                    let change = self.change(&path)?;
                    changes.actions.push(Action { path, change });
                    if !self.accept(",") {
                        break;
                    }
                }
            } else if self.accept_word("REMOVE") {
                let path = self.path()?;
                let change = Change::Remove;
                changes.actions.push(Action { path, change });
            } else {
                break;
            }
        }
        if changes.actions.is_empty() {
            return Err(malformed("UPDATE requires at least one SET or REMOVE clause"));
        }
        let changes = self.clause(ExpressionKind::Update, changes)?;
        let condition = self.where_clause()?;
        let returning = self.returning()?.unwrap_or_default();
        Ok(Update {
            table,
            changes,
            condition,
            returning,
        })
    }

    fn delete(&mut self) -> Parsed<Delete> {
        if !self.accept_word("FROM") {
            return Err(malformed("Expected FROM after DELETE"));
        }
        let table = self.table()?;
        let condition = self.where_clause()?;
        let returns_old = match self.returning()? {
            None => false,
            Some(ReturnValues::AllOld) => true,
            Some(other) => {
                let words = match other {
                    ReturnValues::AllNew => "ALL NEW",
                    ReturnValues::UpdatedOld => "MODIFIED OLD",
                    _ => "MODIFIED NEW",
                };
                return Err(Error::validation(format!(
                    "Invalid returning clause: RETURNING {words} *. Only RETURNING ALL OLD * is allowed in DELETE \
                     statements."
                )));
            }
        };
        Ok(Delete {
            table,
            condition,
            returns_old,
        })
    }

    fn returning(&mut self) -> Parsed<Option<ReturnValues>> {
        if !self.accept_word("RETURNING") {
            return Ok(None);
        }
        let is_all = match (self.accept_word("ALL"), self.accept_word("MODIFIED")) {
            (true, false) => true,
            (false, true) => false,
            _ => return Err(unexpected()),
        };
        let is_old = match (self.accept_word("OLD"), self.accept_word("NEW")) {
            (true, false) => true,
            (false, true) => false,
            _ => return Err(unexpected()),
        };
        self.expect("*")?;
        Ok(Some(match (is_all, is_old) {
            (true, true) => ReturnValues::AllOld,
            (true, false) => ReturnValues::AllNew,
            (false, true) => ReturnValues::UpdatedOld,
            (false, false) => ReturnValues::UpdatedNew,
        }))
    }

    fn where_clause(&mut self) -> Parsed<Option<Clause<Condition>>> {
        if !self.accept_word("WHERE") {
            Ok(None)
        } else {
            let condition = self.or()?;
            self.clause(ExpressionKind::Filter, condition).map(Some)
        }
    }

    fn or(&mut self) -> Parsed<Condition> {
        let mut parts = vec![self.and()?];
        while self.accept_word("OR") {
            check_count(parts.len())?;
            parts.push(self.and()?);
        }
        Ok(joined(parts, Condition::Or))
    }

    fn and(&mut self) -> Parsed<Condition> {
        let mut parts = vec![self.not()?];
        while self.accept_word("AND") {
            check_count(parts.len())?;
            parts.push(self.not()?);
        }
        Ok(joined(parts, Condition::And))
    }

    fn not(&mut self) -> Parsed<Condition> {
        if self.accept_word("NOT") {
            self.enter()?;
            let inner = self.not()?;
            self.leave();
            return Ok(Condition::Not(Box::new(inner)));
        }
        if self.accept("(") {
            self.enter()?;
            let inner = self.or()?;
            self.leave();
            self.expect(")")?;
            return Ok(inner);
        }
        self.predicate()
    }

    /// Whether a name with an opening parenthesis follows: a function.
    fn is_call(&self) -> bool {
        matches!(self.peek(), Some(Token::Word(_))) && matches!(self.tokens.get(self.at + 1), Some(Token::Sign("(")))
    }

    fn predicate(&mut self) -> Parsed<Condition> {
        if self.is_call() && !self.is_word(0, "size") {
            return self.call();
        }
        let left = self.operand()?;
        if self.accept_word("BETWEEN") {
            let low = self.operand()?;
            self.expect_word("AND")?;
            let high = self.operand()?;
            return Ok(Condition::Between {
                operand: left,
                low,
                high,
            });
        }
        if self.accept_word("IN") {
            return self.in_list(left);
        }
        if self.accept_word("IS") {
            return self.is(left);
        }
        let Some(Token::Sign(sign)) = self.next() else {
            return Err(unexpected());
        };
        let comparison = match sign {
            "=" => Comparison::Equal,
            "<>" | "!=" => Comparison::NotEqual,
            "<" => Comparison::Less,
            "<=" => Comparison::LessOrEqual,
            ">" => Comparison::Greater,
            ">=" => Comparison::GreaterOrEqual,
            _ => return Err(unexpected()),
        };
        let right = self.operand()?;
        Ok(Condition::Compare {
            comparison,
            left,
            right,
        })
    }

    fn in_list(&mut self, operand: Operand) -> Parsed<Condition> {
        let close = match (self.accept("["), self.accept("(")) {
            (true, false) => "]",
            (false, true) => ")",
            _ => return Err(unexpected()),
        };
        let mut list = vec![self.operand()?];
        while self.accept(",") {
            if list.len() == IN_MAX {
                return Err(Error::validation("The IN operator is provided with too many operands"));
            }
            list.push(self.operand()?);
        }
        self.expect(close)?;
        Ok(Condition::In { operand, list })
    }

    /// `IS [NOT] MISSING` and `IS [NOT] NULL`.
    fn is(&mut self, operand: Operand) -> Parsed<Condition> {
        let negated = self.accept_word("NOT");
        let condition = if self.accept_word("MISSING") {
            Condition::Call(Function::AttributeNotExists, vec![operand])
        } else if self.accept_word("NULL") {
            let name = self.constant(AttributeValue::S("NULL".to_owned()))?;
            Condition::Call(Function::AttributeType, vec![operand, Operand::Value(name)])
        } else {
            return Err(unexpected());
        };
        Ok(if negated {
            Condition::Not(Box::new(condition))
        } else {
            condition
        })
    }

    fn arguments<T>(&mut self, read: impl Fn(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect("(")?;
        self.enter()?;
        let mut arguments = vec![read(self)?];
        while self.accept(",") {
            check_count(arguments.len())?;
            arguments.push(read(self)?);
        }
        self.leave();
        self.expect(")")?;
        Ok(arguments)
    }

    fn call(&mut self) -> Parsed<Condition> {
        let name = self.name()?;
        let function = match name.to_ascii_lowercase().as_str() {
            "attribute_exists" => Function::AttributeExists,
            "attribute_not_exists" | "missing" => Function::AttributeNotExists,
            "attribute_type" => Function::AttributeType,
            "begins_with" => Function::BeginsWith,
            "contains" => Function::Contains,
            _ => return Err(Error::validation(format!("Unrecognized function: {name}"))),
        };
        let operands = self.arguments(Self::operand)?;
        Ok(Condition::Call(function, operands))
    }

    fn operand(&mut self) -> Parsed<Operand> {
        if self.is_call() && self.is_word(0, "size") {
            self.at += 1;
            return self.arguments(Self::plain_operand).map(Operand::Size);
        }
        self.plain_operand()
    }

    fn plain_operand(&mut self) -> Parsed<Operand> {
        if self.is_path() {
            self.path().map(Operand::Path)
        } else {
            let value = self.value()?;
            self.constant(value).map(Operand::Value)
        }
    }

    /// Whether a path follows and not a value: words of values are not names.
    fn is_path(&self) -> bool {
        let is_value = ["TRUE", "FALSE", "NULL"].iter().any(|word| self.is_word(0, word));
        matches!(self.peek(), Some(Token::Word(_) | Token::Quoted(_))) && !is_value
    }

    fn path(&mut self) -> Parsed<Path> {
        let name = self.name()?;
        let mut path = Path::of_attribute(self.name_id(name)?);
        loop {
            if path.steps.len() >= crate::path::NESTING_MAX {
                return Err(Error::validation("The document path has too many nesting levels"));
            }
            if self.accept(".") {
                let name = self.name()?;
                path.steps.push(Step::Name(self.name_id(name)?));
            } else if self.accept("[") {
                path.steps.push(self.step()?);
                self.expect("]")?;
            } else {
                return Ok(path);
            }
        }
    }

    /// What brackets of a path have: a position, or a name in single quotes.
    fn step(&mut self) -> Parsed<Step> {
        match self.next() {
            Some(Token::Number(number)) => number.parse().map(Step::Index).map_err(|_| unexpected()),
            Some(Token::Text(name)) => self.name_id(name).map(Step::Name),
            _ => Err(unexpected()),
        }
    }

    fn name_id(&mut self, name: String) -> Parsed<NameId> {
        let names = &mut self.symbols.names;
        let at = names.iter().position(|known| *known == name);
        let at = at.unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        u16::try_from(at).map(NameId).map_err(|_| unexpected())
    }

    /// A value that the expression refers to.
    fn constant(&mut self, value: AttributeValue) -> Parsed<ValueId> {
        let values = &mut self.symbols.values;
        let id = u16::try_from(values.len()).map(ValueId).map_err(|_| unexpected())?;
        let key = format!(":{}", values.len());
        values.push(key.clone());
        self.values.insert(key, value);
        Ok(id)
    }

    /// What SET assigns to a path.
    fn change(&mut self, path: &Path) -> Parsed<Change> {
        if self.is_call() {
            let is_add = self.is_word(0, "set_add");
            if is_add || self.is_word(0, "set_delete") {
                self.at += 1;
                return self.set_change(path, is_add);
            }
        }
        let first = self.set_operand()?;
        let value = if self.accept("+") {
            SetValue::Plus(first, self.set_operand()?)
        } else if self.accept("-") {
            SetValue::Minus(first, self.set_operand()?)
        } else {
            SetValue::Operand(first)
        };
        Ok(Change::Set(value))
    }

    /// `set_add(path, set)` and `set_delete(path, set)`, assigned to the same path.
    fn set_change(&mut self, path: &Path, is_add: bool) -> Parsed<Change> {
        self.expect("(")?;
        let source = self.path()?;
        self.expect(",")?;
        let value = self.value()?;
        self.expect(")")?;
        if source != *path {
            return Err(Error::validation(
                "The first argument of set_add and set_delete must be the path that is assigned",
            ));
        }
        let value = self.constant(value)?;
        Ok(if is_add {
            Change::Add(value)
        } else {
            Change::Delete(value)
        })
    }

    fn set_operand(&mut self) -> Parsed<SetOperand> {
        if self.is_call() {
            let name = self.name()?;
            self.enter()?;
            let operands = self.arguments(Self::set_operand)?;
            self.leave();
            return match name.to_ascii_lowercase().as_str() {
                "list_append" => Ok(SetOperand::ListAppend(operands)),
                "if_not_exists" => Ok(SetOperand::IfNotExists(operands)),
                _ => Err(Error::validation(format!("Unrecognized function: {name}"))),
            };
        }
        if self.is_path() {
            self.path().map(SetOperand::Path)
        } else {
            let value = self.value()?;
            self.constant(value).map(SetOperand::Value)
        }
    }

    fn value(&mut self) -> Parsed<AttributeValue> {
        self.enter()?;
        let value = self.any_value()?;
        self.leave();
        Ok(value)
    }

    fn any_value(&mut self) -> Parsed<AttributeValue> {
        match self.next().ok_or_else(unexpected)? {
            Token::Text(text) => Ok(AttributeValue::S(text)),
            Token::Number(text) => number(&text),
            Token::Sign("-") => match self.next() {
                Some(Token::Number(text)) => number(&["-", &text].concat()),
                _ => Err(unexpected()),
            },
            Token::Sign("?") => self.parameters.next().map(copy_value).ok_or_else(wrong_parameters),
            Token::Sign("[") => {
                let list = self.elements("]")?;
                Ok(AttributeValue::L(list))
            }
            Token::Sign("<<") => {
                let elements = self.elements(">>")?;
                set(elements)
            }
            Token::Sign("{") => self.map(),
            Token::Word(word) => match word.to_ascii_uppercase().as_str() {
                "TRUE" => Ok(AttributeValue::Bool(true)),
                "FALSE" => Ok(AttributeValue::Bool(false)),
                "NULL" => Ok(AttributeValue::Null),
                _ => Err(unexpected()),
            },
            _ => Err(unexpected()),
        }
    }

    fn elements(&mut self, close: &str) -> Parsed<Vec<AttributeValue>> {
        let mut list = Vec::new();
        if self.accept(close) {
            return Ok(list);
        }
        loop {
            preempt::push(&mut list, self.value()?);
            if !self.accept(",") {
                break;
            }
        }
        self.expect(close)?;
        Ok(list)
    }

    fn map(&mut self) -> Parsed<AttributeValue> {
        let mut map = Item::new();
        if self.accept("}") {
            return Ok(AttributeValue::M(map));
        }
        loop {
            let (Some(Token::Text(name) | Token::Quoted(name)), true) = (self.next(), self.accept(":")) else {
                return Err(unexpected());
            };
            let value = self.value()?;
            if map.insert(name, value).is_some() {
                return Err(malformed("Duplicate attribute in a tuple"));
            }
            if !self.accept(",") {
                break;
            }
        }
        self.expect("}")?;
        Ok(AttributeValue::M(map))
    }
}

fn check_count(count: usize) -> Parsed<()> {
    if count >= PARTS_MAX {
        Err(malformed("Too many terms"))
    } else {
        Ok(())
    }
}

/// One part as it is, several as a list.
fn joined(mut parts: Vec<Condition>, join: impl Fn(Vec<Condition>) -> Condition) -> Condition {
    match parts.pop() {
        Some(only) if parts.is_empty() => only,
        Some(last) => {
            parts.push(last);
            join(parts)
        }
        None => join(parts),
    }
}

fn number(text: &str) -> Parsed<AttributeValue> {
    match Number::parse(text) {
        Ok(number) => Ok(AttributeValue::N(number)),
        Err(error) => Err(Error::validation(error.message(text))),
    }
}

/// A set of elements of one type.
fn set(elements: Vec<AttributeValue>) -> Parsed<AttributeValue> {
    let mixed = || Error::validation("Sets must have elements of one type: string, number or binary");
    let duplicates =
        || Error::validation("One or more parameter values were invalid: Input collection contains duplicates");
    let text = |value: &AttributeValue| matches!(value, AttributeValue::S(_));
    let number = |value: &AttributeValue| matches!(value, AttributeValue::N(_));
    match elements.first() {
        None => Err(Error::validation(
            "One or more parameter values were invalid: An string set  may not be empty",
        )),
        Some(first) if text(first) => {
            let strings = elements.into_iter().map(|value| match value {
                AttributeValue::S(text) => Ok(text),
                _ => Err(mixed()),
            });
            let strings = preempt::try_collect(strings)?;
            Set::new(strings).map(AttributeValue::Ss).map_err(|_| duplicates())
        }
        Some(first) if number(first) => {
            let numbers = elements.into_iter().map(|value| match value {
                AttributeValue::N(number) => Ok(number),
                _ => Err(mixed()),
            });
            let numbers = preempt::try_collect(numbers)?;
            Set::new(numbers).map(AttributeValue::Ns).map_err(|_| duplicates())
        }
        Some(_) => {
            let binaries = elements.into_iter().map(|value| match value {
                AttributeValue::B(bytes) => Ok(bytes),
                _ => Err(mixed()),
            });
            let binaries = preempt::try_collect(binaries)?;
            Set::new(binaries).map(AttributeValue::Bs).map_err(|_| duplicates())
        }
    }
}
