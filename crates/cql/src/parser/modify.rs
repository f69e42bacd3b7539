//! INSERT, UPDATE, DELETE, BATCH, TRUNCATE and USE.

use stdx::LongVec;

use super::{Parse, Parser};
use crate::ast::{
    Assignment, Attributes, Batch, BatchKind, ComparisonOperator, Conditions, Delete, Insert, InsertValues,
    Modification, Operation, Predicate, Relation, Subject, Target, Term, Truncate, Update, Use,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

/// The attributes a USING clause may name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttributesOf {
    /// INSERT and UPDATE.
    Write,
    /// DELETE, which has no TTL.
    Delete,
}

impl Parser<'_> {
    pub(super) fn insert(&mut self) -> Parse<Insert> {
        self.expect_words(&[Keyword::Insert, Keyword::Into])?;
        let table = self.table_name()?;
        let values = match self.kind() {
            TokenKind::LeftParenthesis => {
                let columns = self.parenthesized(Self::name)?;
                self.expect_word(Keyword::Values)?;
                self.expect(TokenKind::LeftParenthesis)?;
                let values = self.terms_until(TokenKind::RightParenthesis)?;
                InsertValues::Columns { columns, values }
            }
            _ if self.accept_word(Keyword::Json) => self.json_values()?,
            _ => return Err(self.no_viable_from(self.position - 1)),
        };
        let if_not_exists = self.if_not_exists()?;
        let attributes = self.attributes(AttributesOf::Write)?;
        Ok(Insert {
            table,
            values,
            if_not_exists,
            attributes,
        })
    }

    fn json_values(&mut self) -> Parse<InsertValues> {
        let value = match self.kind() {
            TokenKind::Question | TokenKind::Colon => Term::BindMarker(self.bind_marker()?),
            TokenKind::String | TokenKind::DollarString => Term::Literal(self.expect_literal()?),
            _ => return Err(self.no_viable_here()),
        };
        let mut default_unset = false;
        if self.accept_word(Keyword::Default) {
            default_unset = self.accept_word(Keyword::Unset);
            if !default_unset && !self.accept_word(Keyword::Null) {
                return Err(self.no_viable_here());
            }
        }
        Ok(InsertValues::Json { value, default_unset })
    }

    /// `USING …`, or no attributes.
    fn attributes(&mut self, of: AttributesOf) -> Parse<Attributes> {
        let mut attributes = Attributes::default();
        if !self.accept_word(Keyword::Using) {
            return Ok(attributes);
        }
        loop {
            let place = self.position;
            let replaced = match self.keyword() {
                Keyword::Timestamp => {
                    self.advance();
                    attributes.timestamp.replace(self.integer_or_marker()?)
                }
                Keyword::Timeout => {
                    self.advance();
                    attributes.timeout.replace(self.duration_or_marker()?)
                }
                Keyword::Ttl if of == AttributesOf::Write => {
                    self.advance();
                    attributes.ttl.replace(self.integer_or_marker()?)
                }
                _ if of == AttributesOf::Delete => return Err(self.mismatched("K_TIMESTAMP")),
                _ => return Err(self.no_viable_here()),
            };
            // The last one counts, as in Cassandra; a marker that does not count would have no type.
            let is_refused = matches!(replaced, Some(Term::BindMarker(_))) || of == AttributesOf::Delete;
            if replaced.is_some() && is_refused {
                let attribute = self.written(self.tokens[place]);
                return Err(self.source().at(place, format!("USING names {attribute} twice")));
            }
            if !self.accept_word(Keyword::And) {
                return Ok(attributes);
            }
        }
    }

    pub(super) fn update(&mut self) -> Parse<Update> {
        self.expect_word(Keyword::Update)?;
        let table = self.table_name()?;
        let attributes = self.attributes(AttributesOf::Write)?;
        self.expect_word(Keyword::Set)?;
        let assignments = self.comma_separated(Self::assignment)?;
        self.expect_word(Keyword::Where)?;
        let relations = self.where_relations()?;
        let conditions = self.conditions()?;
        Ok(Update {
            table,
            attributes,
            assignments: assignments.into(),
            relations,
            conditions,
        })
    }

    fn assignment(&mut self) -> Parse<Assignment> {
        let start = self.position;
        let target = self.target()?;
        if let Target::Column(column) = &target {
            let operation = match self.kind() {
                TokenKind::PlusEqual => {
                    self.advance();
                    Operation::Add(self.term()?)
                }
                TokenKind::MinusEqual => {
                    self.advance();
                    Operation::Subtract(self.term()?)
                }
                TokenKind::Equal => {
                    self.advance();
                    self.column_operation(column)?
                }
                _ => return Err(self.no_viable_from(start)),
            };
            return Ok(Assignment { target, operation });
        }
        self.expect(TokenKind::Equal)?;
        Ok(Assignment {
            target,
            operation: Operation::Set(self.term()?),
        })
    }

    /// What follows `column =`.
    fn column_operation(&mut self, column: &str) -> Parse<Operation> {
        let signed = matches!(self.ahead(1).kind, TokenKind::Plus | TokenKind::Minus);
        if signed && self.is_column_reference(0) {
            let subtracts = self.ahead(1).kind == TokenKind::Minus;
            self.expect_same_column(column, if subtracts { "X - <value>" } else { "X +<value>" })?;
            self.advance();
            let value = self.term()?;
            return Ok(if subtracts {
                Operation::Subtract(value)
            } else {
                Operation::Add(value)
            });
        }
        let value = self.term()?;
        if self.kind() == TokenKind::Plus {
            self.advance();
            self.expect_same_column(column, "<value> + X")?;
            return Ok(Operation::Prepend(value));
        }
        Ok(Operation::Set(value))
    }

    /// The assigned column itself, as an operand of its new value.
    fn expect_same_column(&mut self, column: &str, form: &str) -> Parse<()> {
        let place = self.position;
        if self.name()? == column {
            return Ok(());
        }
        let message = format!("Only expressions of the form X = {form} are supported.");
        Err(self.source().at(place, message))
    }

    /// A column, element or field.
    fn target(&mut self) -> Parse<Target> {
        let column = self.name()?;
        match self.kind() {
            TokenKind::LeftBracket => {
                self.advance();
                let key = self.term()?;
                self.expect(TokenKind::RightBracket)?;
                let key = Box::new(key);
                Ok(Target::Element { column, key })
            }
            TokenKind::Dot => {
                self.advance();
                Ok(Target::Field {
                    column,
                    field: self.name()?,
                })
            }
            _ => Ok(Target::Column(column)),
        }
    }

    fn conditions(&mut self) -> Parse<Conditions> {
        if !self.accept_word(Keyword::If) {
            return Ok(Conditions::None);
        }
        // `exists` may also be a column.
        if self.keyword() == Keyword::Exists
            && matches!(
                self.ahead(1).kind,
                TokenKind::End | TokenKind::Semicolon | TokenKind::Word
            )
            && !matches!(
                self.ahead(1).keyword,
                Keyword::In | Keyword::Contains | Keyword::Is | Keyword::Not
            )
        {
            self.advance();
            return Ok(Conditions::Exists);
        }
        Ok(Conditions::All(self.and_separated(Self::condition)?))
    }

    /// A relation of IF: on one column, and with fewer operators than WHERE has.
    fn condition(&mut self) -> Parse<Relation> {
        let start = self.position;
        if !self.is_name(self.token()) {
            return Err(self.no_viable_here());
        }
        let relation = self.bare_relation()?;
        let is_condition = match (&relation.subject, &relation.predicate) {
            (Subject::Columns(_) | Subject::Token(_) | Subject::Index(_), _) => false,
            (Subject::Element { .. } | Subject::Field { .. }, Predicate::Compare(operator, _)) => operator.is_order(),
            (Subject::Column(_), Predicate::Compare(operator, _)) => {
                operator.is_order()
                    || matches!(
                        operator,
                        ComparisonOperator::Contains | ComparisonOperator::ContainsKey | ComparisonOperator::Like
                    )
            }
            (_, Predicate::In { .. } | Predicate::Between(..)) => true,
            (_, Predicate::IsNotNull | Predicate::Matches(_)) => false,
        };
        if is_condition {
            Ok(relation)
        } else {
            let message = "IF takes =, !=, <, <=, >, >=, IN, NOT IN and BETWEEN, and on whole columns CONTAINS, CONTAINS KEY and LIKE";
            Err(self.source().at(start, message.to_owned()))
        }
    }

    pub(super) fn delete(&mut self) -> Parse<Delete> {
        self.expect_word(Keyword::Delete)?;
        let targets = if self.is_name(self.token()) {
            self.comma_separated(Self::target)?
        } else {
            Vec::new()
        };
        if matches!(targets.last(), Some(Target::Column(_))) && self.keyword() != Keyword::From {
            return Err(self.no_viable_from(self.position - 1));
        }
        self.expect_word(Keyword::From)?;
        let table = self.table_name()?;
        let attributes = self.attributes(AttributesOf::Delete)?;
        self.expect_word(Keyword::Where)?;
        let relations = self.where_relations()?;
        let conditions = self.conditions()?;
        Ok(Delete {
            targets: targets.into(),
            table,
            attributes,
            relations,
            conditions,
            bypasses_large_data_guardrails: false,
        })
    }

    /// One that is no part of a batch.
    pub(super) fn standalone_delete(&mut self) -> Parse<Delete> {
        let mut delete = self.delete()?;
        if self.accept_word(Keyword::Bypass) {
            self.expect_word(Keyword::LargeDataGuardrails)?;
            delete.bypasses_large_data_guardrails = true;
        }
        Ok(delete)
    }

    pub(super) fn batch(&mut self) -> Parse<Batch> {
        self.expect_word(Keyword::Begin)?;
        let kind = if self.accept_word(Keyword::Unlogged) {
            BatchKind::Unlogged
        } else if self.accept_word(Keyword::Counter) {
            BatchKind::Counter
        } else {
            BatchKind::Logged
        };
        self.expect_word(Keyword::Batch)?;
        let attributes = self.attributes(AttributesOf::Write)?;
        let mut statements = LongVec::new();
        loop {
            statements.push(match self.keyword() {
                Keyword::Insert => Modification::Insert(self.insert()?),
                Keyword::Update => Modification::Update(self.update()?),
                Keyword::Delete => Modification::Delete(self.delete()?),
                _ => break,
            });
            self.accept(TokenKind::Semicolon);
        }
        self.expect_words(&[Keyword::Apply, Keyword::Batch])?;
        Ok(Batch {
            kind,
            attributes,
            statements,
        })
    }

    pub(super) fn truncate(&mut self) -> Parse<Truncate> {
        self.expect_word(Keyword::Truncate)?;
        self.accept_word(Keyword::Table);
        self.accept_word(Keyword::ColumnFamily);
        let table = self.table_name()?;
        let mut timeout = None;
        if self.accept_word(Keyword::Using) {
            self.expect_word(Keyword::Timeout)?;
            timeout = Some(self.duration_or_marker()?);
        }
        Ok(Truncate { table, timeout })
    }

    pub(super) fn use_keyspace(&mut self) -> Parse<Use> {
        self.expect_word(Keyword::Use)?;
        Ok(Use { keyspace: self.name()? })
    }
}
