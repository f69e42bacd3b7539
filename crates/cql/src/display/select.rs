//! SELECT, selectors and relations.

use std::fmt::{self, Display, Formatter};

use super::term::{FunctionName, SelectedName, name_of_type};
use super::{Name, bracketed, clause, conjunction, entries_of, fields_of, list, maybe, names, when};
use crate::ast::{
    AliasedSelector, ArithmeticOperator, ComparisonOperator, Direction, InValues, Literal, LiteralKind, Ordering,
    Predicate, Relation, Select, Selection, Selector, Subject, Term, TypeName,
};
use crate::quote::quoted;

impl Display for Select {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (json, distinct) = (when(self.json, "JSON "), when(self.distinct, "DISTINCT "));
        write!(f, "SELECT {json}{distinct}{}", self.selection)?;
        match &self.table {
            Some(table) if self.fragments => write!(f, " FROM MUTATION_FRAGMENTS({table})")?,
            table => clause(f, "FROM", maybe(table))?,
        }
        where_clause(f, &self.relations)?;
        if !self.group_by.is_empty() {
            f.write_str(" GROUP BY ")?;
            list(f, &self.group_by)?;
        }
        if !self.order_by.is_empty() {
            f.write_str(" ORDER BY ")?;
            list(f, &self.order_by)?;
        }
        clause(f, "PER PARTITION LIMIT", maybe(&self.per_partition_limit))?;
        clause(f, "LIMIT", maybe(&self.limit))?;
        f.write_str(when(self.allow_filtering, " ALLOW FILTERING"))?;
        f.write_str(when(self.bypass_cache, " BYPASS CACHE"))?;
        clause(f, "USING TIMEOUT", maybe(&self.timeout))
    }
}

pub(super) fn where_clause(f: &mut Formatter<'_>, relations: &[Relation]) -> fmt::Result {
    conjunction(f, "WHERE", relations)
}

impl Display for Selection {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selection::All => f.write_str("*"),
            Selection::Selectors(selectors) => list(f, selectors),
        }
    }
}

impl Display for AliasedSelector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.selector.fmt(f)?;
        match &self.alias {
            Some(alias) => write!(f, " AS {}", Name(alias)),
            None => Ok(()),
        }
    }
}

impl Display for Selector {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Column(name) => SelectedName(name).fmt(f),
            Selector::Term(term) => term.fmt(f),
            Selector::CountRows => f.write_str("count(*)"),
            Selector::FunctionCall { name, arguments } => {
                let counts_rows =
                    name.keyspace.is_none() && name.name == "count" && matches!(&arguments[..], [only] if is_one(only));
                if counts_rows {
                    f.write_str("\"count\"(")?;
                } else {
                    write!(f, "{}(", FunctionName(name))?;
                }
                list(f, arguments)?;
                f.write_str(")")
            }
            Selector::Cast { selector, type_name } => write!(f, "CAST({selector} AS {type_name})"),
            Selector::Element { collection, key } => write!(f, "{}[{key}]", Primary(collection)),
            Selector::Slice { collection, from, to } => {
                write!(f, "{}[", Primary(collection))?;
                if let Some(from) = from {
                    // Without the space, `1` and `..` after it would be the number `1.` and a dot.
                    write!(f, "{from} ")?;
                }
                f.write_str("..")?;
                if let Some(to) = to {
                    write!(f, " {to}")?;
                }
                f.write_str("]")
            }
            Selector::Field { value, field } => {
                // `5.x` would begin with the number `5.`.
                let space = when(ends_with_term(value), " ");
                write!(f, "{}{space}.{}", Primary(value), Name(field))
            }
            Selector::List(elements) => bracketed(f, "[]", |f| list(f, elements)),
            Selector::Set(elements) => bracketed(f, "{}", |f| list(f, elements)),
            Selector::Map(entries) => entries_of(f, entries),
            Selector::UserType(fields) => fields_of(f, fields),
            Selector::Tuple(elements) => bracketed(f, "()", |f| match &elements[..] {
                // Bare, `(int)` in front of `[0]` or `- 1` would be a hint.
                [Selector::Column(name)] if name_of_type(name) => f.write_str(&quoted(name)),
                _ => list(f, elements),
            }),
            Selector::TypeHint { type_name, selector } => write!(f, "({type_name}){}", Hinted(type_name, selector)),
            Selector::Arithmetic { operator, left, right } => {
                let level = precedence(*operator);
                parenthesized_when(
                    f,
                    left,
                    operator_of(left).is_some_and(|inner| precedence(inner) < level),
                )?;
                write!(f, " {operator} ")?;
                parenthesized_when(
                    f,
                    right,
                    operator_of(right).is_some_and(|inner| precedence(inner) <= level),
                )
            }
            Selector::Negation(selector) => {
                f.write_str("- ")?;
                let number = begins_with_number(selector);
                parenthesized_when(f, selector, number || operator_of(selector).is_some())
            }
        }
    }
}

fn is_one(selector: &Selector) -> bool {
    matches!(selector, Selector::Term(Term::Literal(Literal { kind: LiteralKind::Integer, text })) if text == "1")
}

/// Whether a minus sign before the selector would become part of a number.
fn begins_with_number(selector: &Selector) -> bool {
    match selector {
        Selector::Term(Term::Literal(literal)) => {
            let number = matches!(
                literal.kind,
                LiteralKind::Integer | LiteralKind::Float | LiteralKind::Duration
            );
            number && !literal.text.starts_with('-')
        }
        Selector::Element { collection, .. }
        | Selector::Slice { collection, .. }
        | Selector::Field { value: collection, .. } => begins_with_number(collection),
        _ => false,
    }
}

fn operator_of(selector: &Selector) -> Option<ArithmeticOperator> {
    match selector {
        Selector::Arithmetic { operator, .. } => Some(*operator),
        _ => None,
    }
}

fn precedence(operator: ArithmeticOperator) -> u8 {
    match operator {
        ArithmeticOperator::Add | ArithmeticOperator::Subtract => 0,
        ArithmeticOperator::Multiply | ArithmeticOperator::Divide | ArithmeticOperator::Modulo => 1,
    }
}

fn parenthesized_when(f: &mut Formatter<'_>, selector: &Selector, condition: bool) -> fmt::Result {
    if condition {
        write!(f, "({selector})")
    } else {
        selector.fmt(f)
    }
}

/// A selector in front of a subscript or field.
struct Primary<'a>(&'a Selector);

impl Display for Primary<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let loose = matches!(self.0, Selector::Arithmetic { .. } | Selector::Negation(_));
        parenthesized_when(f, self.0, loose)
    }
}

/// Whether the last that is written of a selector is a constant or a marker.
fn ends_with_term(selector: &Selector) -> bool {
    match selector {
        Selector::Term(_) => true,
        Selector::TypeHint { selector, .. } => ends_with_term(selector),
        _ => false,
    }
}

/// A selector after a type hint: in parentheses if it would be read otherwise without them. A hint that is written like
/// a name or a string may also be read as an expression in parentheses.
struct Hinted<'a>(&'a TypeName, &'a Selector);

impl Display for Hinted<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let is_name = matches!(self.0, TypeName::UserType(_) | TypeName::Custom(_));
        let is_loose = match self.1 {
            Selector::Arithmetic { .. }
            | Selector::Element { .. }
            | Selector::Slice { .. }
            | Selector::Field { .. } => true,
            Selector::Negation(_) | Selector::List(_) => is_name,
            Selector::Term(Term::Literal(literal)) => {
                is_name && literal.text.starts_with('-') && literal.kind != LiteralKind::String
            }
            _ => false,
        };
        parenthesized_when(f, self.1, is_loose)
    }
}

impl Display for Ordering {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Name(&self.column).fmt(f)?;
        match &self.direction {
            Direction::Ascending => Ok(()),
            Direction::Descending => f.write_str(" DESC"),
            Direction::NearestTo(term) => write!(f, " ANN OF {term}"),
        }
    }
}

impl Display for Relation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if let (Subject::Index(index), Predicate::Matches(value)) = (&self.subject, &self.predicate) {
            return write!(f, "expr({index}, {value})");
        }
        write!(f, "{} {}", self.subject, self.predicate)
    }
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            // Bare, this could be IF EXISTS.
            Subject::Column(column) if column == "exists" => f.write_str(&quoted(column)),
            Subject::Column(column) => Name(column).fmt(f),
            Subject::Element { column, key } => write!(f, "{}[{key}]", Name(column)),
            Subject::Field { column, field } => write!(f, "{}.{}", Name(column), Name(field)),
            Subject::Columns(columns) => bracketed(f, "()", |f| names(f, columns)),
            Subject::Token(columns) => {
                f.write_str("token(")?;
                names(f, columns)?;
                f.write_str(")")
            }
            Subject::Index(index) => write!(f, "expr({index})"),
        }
    }
}

impl Display for Predicate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Predicate::Compare(operator, value) => write!(f, "{operator} {value}"),
            Predicate::In { negated, values } => write!(f, "{}IN {values}", when(*negated, "NOT ")),
            Predicate::Between(low, high) => write!(f, "BETWEEN {low} AND {high}"),
            Predicate::IsNotNull => f.write_str("IS NOT NULL"),
            Predicate::Matches(value) => value.fmt(f),
        }
    }
}

impl Display for InValues {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            InValues::Terms(terms) => bracketed(f, "()", |f| list(f, terms)),
            InValues::BindMarker(marker) => marker.fmt(f),
        }
    }
}

impl Display for ComparisonOperator {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ComparisonOperator::Equal => "=",
            ComparisonOperator::NotEqual => "!=",
            ComparisonOperator::Less => "<",
            ComparisonOperator::LessOrEqual => "<=",
            ComparisonOperator::Greater => ">",
            ComparisonOperator::GreaterOrEqual => ">=",
            ComparisonOperator::Contains => "CONTAINS",
            ComparisonOperator::ContainsKey => "CONTAINS KEY",
            ComparisonOperator::NotContains => "NOT CONTAINS",
            ComparisonOperator::NotContainsKey => "NOT CONTAINS KEY",
            ComparisonOperator::Like => "LIKE",
        })
    }
}
