//! SELECT, and the relations it shares with UPDATE and DELETE.

use stdx::LongVec;

use super::term::{begins_value, product_operator};
use super::{NESTING_MAX, Parse, Parser};
use crate::ast::{
    AliasedSelector, ArithmeticOperator, ComparisonOperator, Direction, InValues, Ordering, Predicate, QualifiedName,
    Relation, Select, Selection, Selector, Subject, Term, TypeName,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn select(&mut self) -> Parse<Select> {
        self.expect_word(Keyword::Select)?;
        let json = self.accept_select_modifier(Keyword::Json);
        let distinct = self.accept_select_modifier(Keyword::Distinct);
        let selection = self.selection()?;
        let mut select = Select {
            json,
            distinct,
            selection,
            table: None,
            fragments: false,
            relations: Vec::new(),
            group_by: Vec::new(),
            order_by: Vec::new(),
            per_partition_limit: None,
            limit: None,
            allow_filtering: false,
            bypass_cache: false,
            timeout: None,
        };
        let ends = matches!(self.kind(), TokenKind::End | TokenKind::Semicolon)
            || matches!(self.keyword(), Keyword::Limit | Keyword::Using);
        if ends && select.may_have_no_table() {
            self.limit(&mut select)?;
            self.timeout(&mut select)?;
            return Ok(select);
        }
        self.expect_from()?;
        let name = self.table_name()?;
        // No other table's name can precede a parenthesis here.
        select.fragments =
            name.keyspace.is_none() && name.name == "mutation_fragments" && self.accept(TokenKind::LeftParenthesis);
        select.table = Some(if select.fragments {
            let of = self.qualified_name()?;
            self.expect(TokenKind::RightParenthesis)?;
            of
        } else {
            name
        });
        if self.accept_word(Keyword::Where) {
            select.relations = self.where_relations()?;
        }
        if self.accept_word(Keyword::Group) {
            self.expect_word(Keyword::By)?;
            select.group_by = self.comma_separated(Self::selector)?;
        }
        if self.accept_word(Keyword::Order) {
            self.expect_word(Keyword::By)?;
            select.order_by = self.comma_separated(Self::ordering)?;
        }
        if self.accept_word(Keyword::Per) {
            self.expect_words(&[Keyword::Partition, Keyword::Limit])?;
            select.per_partition_limit = Some(self.integer_or_marker()?);
        }
        self.limit(&mut select)?;
        if self.accept_word(Keyword::Allow) {
            self.expect_word(Keyword::Filtering)?;
            select.allow_filtering = true;
        }
        if self.accept_word(Keyword::Bypass) {
            self.expect_word(Keyword::Cache)?;
            select.bypass_cache = true;
        }
        self.timeout(&mut select)?;
        Ok(select)
    }

    fn limit(&mut self, select: &mut Select) -> Parse<()> {
        if self.accept_word(Keyword::Limit) {
            select.limit = Some(self.integer_or_marker()?);
        }
        Ok(())
    }

    fn timeout(&mut self, select: &mut Select) -> Parse<()> {
        if self.accept_word(Keyword::Using) {
            self.expect_word(Keyword::Timeout)?;
            select.timeout = Some(self.duration_or_marker()?);
        }
        Ok(())
    }

    /// `JSON` or `DISTINCT`, which are columns' names too when no selection follows.
    fn accept_select_modifier(&mut self, modifier: Keyword) -> bool {
        if self.keyword() != modifier {
            return false;
        }
        let next = self.ahead(1);
        let selection_follows = match next.kind {
            TokenKind::Word => {
                let alias = next.keyword == Keyword::As
                    && !matches!(self.ahead(2).kind, TokenKind::Comma)
                    && self.ahead(2).keyword != Keyword::From;
                !alias && begins_selector(next.keyword)
            }
            TokenKind::Star => self.ahead(2).keyword == Keyword::From,
            // A list or a negation, as in Cassandra: to name an element of a column of that name, or what is left of
            // it, takes quotes.
            TokenKind::QuotedName | TokenKind::LeftParenthesis | TokenKind::LeftBracket | TokenKind::Minus => true,
            other => begins_value(other),
        };
        if selection_follows {
            self.advance();
        }
        selection_follows
    }

    /// `FROM`, or Cassandra's error for any other token.
    fn expect_from(&mut self) -> Parse<()> {
        let previous = self.tokens[self.position - 1];
        if self.is_name(previous) && self.kind() == TokenKind::Word && !self.keyword().is_reserved() {
            return Err(self.no_viable_from(self.position - 1));
        }
        self.expect_word(Keyword::From)
    }

    pub(super) fn selection(&mut self) -> Parse<Selection> {
        if self.accept(TokenKind::Star) {
            return Ok(Selection::All);
        }
        Ok(Selection::Selectors(self.comma_separated(|parser| {
            let selector = parser.selector()?;
            let alias = if parser.accept_word(Keyword::As) {
                Some(parser.name()?)
            } else {
                None
            };
            Ok(AliasedSelector { selector, alias })
        })?))
    }

    // --- Selectors ---------------------------------------------------------------------------------------------------

    pub(super) fn selector(&mut self) -> Parse<Selector> {
        // Most selectors are a column and nothing else: they need none of the calls below.
        let token = self.token();
        if self.is_name(token) && !continues_selector(self.ahead(1).kind) && self.depth < NESTING_MAX {
            self.advance();
            self.height = 0;
            return Ok(Selector::Column(self.name_text(token)));
        }
        let mut left = self.selector_product()?;
        loop {
            let operator = match self.kind() {
                TokenKind::Plus => ArithmeticOperator::Add,
                TokenKind::Minus => ArithmeticOperator::Subtract,
                _ => return Ok(left),
            };
            self.advance();
            let height = self.height;
            let right = self.selector_product()?;
            self.grow_above(height.max(self.height))?;
            left = Selector::Arithmetic {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            };
        }
    }

    fn selector_product(&mut self) -> Parse<Selector> {
        let mut left = self.selector_operand()?;
        while let Some(operator) = product_operator(self.kind()) {
            self.advance();
            let height = self.height;
            let right = self.selector_operand()?;
            self.grow_above(height.max(self.height))?;
            left = Selector::Arithmetic {
                operator,
                left: Box::new(left),
                right: Box::new(right),
            };
        }
        Ok(left)
    }

    fn selector_operand(&mut self) -> Parse<Selector> {
        self.nested(|parser| {
            let mut selector = parser.selector_base()?;
            loop {
                match parser.kind() {
                    TokenKind::Dot => {
                        parser.advance();
                        let field = parser.name()?;
                        parser.grow_above(parser.height)?;
                        selector = Selector::Field {
                            value: Box::new(selector),
                            field,
                        };
                    }
                    TokenKind::LeftBracket => {
                        let height = parser.height;
                        selector = parser.subscript(selector)?;
                        parser.grow_above(height.max(parser.height))?;
                    }
                    _ => return Ok(selector),
                }
            }
        })
    }

    /// `[key]` or `[from..to]` after a selector.
    fn subscript(&mut self, collection: Selector) -> Parse<Selector> {
        self.expect(TokenKind::LeftBracket)?;
        let collection = Box::new(collection);
        if self.accept(TokenKind::Range) {
            let to = Box::new(self.term()?);
            self.expect(TokenKind::RightBracket)?;
            return Ok(Selector::Slice {
                collection,
                from: None,
                to: Some(to),
            });
        }
        let key = Box::new(self.term()?);
        if self.accept(TokenKind::Range) {
            let height = self.height;
            let to = if self.kind() == TokenKind::RightBracket {
                None
            } else {
                Some(Box::new(self.term()?))
            };
            self.height = height.max(self.height);
            self.expect(TokenKind::RightBracket)?;
            return Ok(Selector::Slice {
                collection,
                from: Some(key),
                to,
            });
        }
        self.expect(TokenKind::RightBracket)?;
        Ok(Selector::Element { collection, key })
    }

    fn selector_base(&mut self) -> Parse<Selector> {
        self.height = 0;
        if let Some(literal) = self.literal()? {
            return Ok(Selector::Term(Term::Literal(literal)));
        }
        match self.kind() {
            TokenKind::Question | TokenKind::Colon => Ok(Selector::Term(Term::BindMarker(self.bind_marker()?))),
            TokenKind::Minus => {
                self.advance();
                let operand = self.selector_operand()?;
                self.grow_above(self.height)?;
                Ok(Selector::Negation(Box::new(operand)))
            }
            TokenKind::LeftParenthesis => self.selector_in_parentheses(),
            TokenKind::LeftBracket => {
                self.advance();
                if self.accept(TokenKind::RightBracket) {
                    return Ok(Selector::List(Vec::new()));
                }
                Ok(Selector::List(self.selectors_until(TokenKind::RightBracket)?))
            }
            TokenKind::LeftBrace => self.selector_in_braces(),
            _ if self.keyword() == Keyword::Token => self.selector_function(),
            _ if self.is_function_call() => self.selector_function(),
            _ => Ok(Selector::Column(self.name()?)),
        }
    }

    fn selector_function(&mut self) -> Parse<Selector> {
        if self.keyword() == Keyword::Cast && self.ahead(1).kind == TokenKind::LeftParenthesis {
            self.advance();
            self.advance();
            let selector = Box::new(self.selector()?);
            self.expect_word(Keyword::As)?;
            let place = self.position;
            let type_name = Box::new(self.type_name()?);
            if !matches!(*type_name, TypeName::Native(_)) {
                return Err(self.no_viable_from(place));
            }
            self.expect(TokenKind::RightParenthesis)?;
            self.grow_above(self.height)?;
            return Ok(Selector::Cast { selector, type_name });
        }
        if self.keyword() == Keyword::Count && self.ahead(3).kind == TokenKind::RightParenthesis {
            let argument = self.ahead(2);
            if argument.kind == TokenKind::Star || self.written(argument) == "1" {
                (0..4).for_each(|_| self.advance());
                return Ok(Selector::CountRows);
            }
        }
        let name = Box::new(self.function_name()?);
        self.expect(TokenKind::LeftParenthesis)?;
        if self.accept(TokenKind::RightParenthesis) {
            self.height = 1;
            return Ok(Selector::FunctionCall {
                name,
                arguments: Vec::new(),
            });
        }
        Ok(Selector::FunctionCall {
            name,
            arguments: self.selectors_until(TokenKind::RightParenthesis)?,
        })
    }

    /// `selector, …` and the closing token.
    fn selectors_until(&mut self, close: TokenKind) -> Parse<Vec<Selector>> {
        let mut height = 0;
        let selectors = self.comma_separated(|parser| {
            let selector = parser.selector()?;
            height = height.max(parser.height);
            Ok(selector)
        })?;
        self.expect(close)?;
        self.grow_above(height)?;
        Ok(selectors)
    }

    /// A type hint, a tuple, or a selector grouped by parentheses.
    fn selector_in_parentheses(&mut self) -> Parse<Selector> {
        if let Some(type_name) = self.type_hint() {
            // A subscript after it applies to the hinted selector: `(map<text, int>) {'a': 1}['a']`.
            let selector = self.nested(Self::selector_base)?;
            self.grow_above(self.height)?;
            return Ok(Selector::TypeHint {
                type_name: Box::new(type_name),
                selector: Box::new(selector),
            });
        }
        self.advance();
        self.selectors_until(TokenKind::RightParenthesis).map(Selector::Tuple)
    }

    /// Reads `(type)` when a selector follows it, and otherwise nothing.
    fn type_hint(&mut self) -> Option<TypeName> {
        let inner = self.ahead(1);
        let names_type = self.is_name(inner) || inner.keyword == Keyword::Set || inner.kind == TokenKind::String;
        if !names_type {
            return None;
        }
        let start = self.position;
        self.advance();
        let hint = self
            .type_name()
            .ok()
            .filter(|_| self.accept(TokenKind::RightParenthesis))
            .filter(|type_name| {
                let next = self.token();
                match next.kind {
                    // After a bare name these may also continue an expression: `(a) [1]`, `(a) (b)` is an error anyway.
                    TokenKind::LeftBracket => !matches!(type_name, TypeName::UserType(_) | TypeName::Custom(_)),
                    TokenKind::Word | TokenKind::QuotedName => {
                        begins_selector(next.keyword) && !self.begins_clause_behind_selector()
                    }
                    // `(a) - 1` is a subtraction, `(int) -1` a hint.
                    TokenKind::Minus => !matches!(type_name, TypeName::UserType(_) | TypeName::Custom(_)),
                    // `{(a): b}` is a map, `(a) :b` a hint for a marker.
                    TokenKind::Colon if self.is_key => {
                        !matches!(type_name, TypeName::UserType(_) | TypeName::Custom(_))
                    }
                    other => begins_value(other),
                }
            });
        if hint.is_none() {
            self.position = start;
        }
        hint
    }

    /// Whether the next word is an unreserved one that continues the statement after a selector.
    fn begins_clause_behind_selector(&self) -> bool {
        match self.keyword() {
            Keyword::As => true,
            Keyword::Per => self.ahead(1).keyword == Keyword::Partition,
            Keyword::Bypass => self.ahead(1).keyword == Keyword::Cache,
            _ => false,
        }
    }

    /// A set, map or user-defined type of selectors.
    fn selector_in_braces(&mut self) -> Parse<Selector> {
        self.advance();
        if self.accept(TokenKind::RightBrace) {
            return Ok(Selector::Set(Vec::new()));
        }
        let mut height = 0;
        if self.is_name(self.token()) && self.ahead(1).kind == TokenKind::Colon {
            let fields = self.comma_separated(|parser| {
                let field = parser.name()?;
                parser.expect(TokenKind::Colon)?;
                let selector = parser.selector()?;
                height = height.max(parser.height);
                Ok((field, selector))
            })?;
            self.expect(TokenKind::RightBrace)?;
            self.grow_above(height)?;
            return Ok(Selector::UserType(fields));
        }
        let first = self.selector_of_key()?;
        height = self.height;
        if !self.accept(TokenKind::Colon) {
            let mut elements = vec![first];
            while self.accept(TokenKind::Comma) {
                elements.push(self.selector()?);
                height = height.max(self.height);
            }
            self.expect(TokenKind::RightBrace)?;
            self.grow_above(height)?;
            return Ok(Selector::Set(elements));
        }
        let mut entries = vec![(first, self.selector()?)];
        height = height.max(self.height);
        while self.accept(TokenKind::Comma) {
            let key = self.selector_of_key()?;
            height = height.max(self.height);
            self.expect(TokenKind::Colon)?;
            entries.push((key, self.selector()?));
            height = height.max(self.height);
        }
        self.expect(TokenKind::RightBrace)?;
        self.grow_above(height)?;
        Ok(Selector::Map(entries))
    }

    /// What may be the key of a map; a set begins in the same way.
    fn selector_of_key(&mut self) -> Parse<Selector> {
        let outer = std::mem::replace(&mut self.is_key, true);
        let key = self.selector();
        self.is_key = outer;
        key
    }

    // --- Clauses -----------------------------------------------------------------------------------------------------

    fn ordering(&mut self) -> Parse<Ordering> {
        let column = self.name()?;
        let direction = if self.accept_word(Keyword::Desc) {
            Direction::Descending
        } else if self.accept_word(Keyword::Ann) {
            self.expect_word(Keyword::Of)?;
            Direction::NearestTo(self.term()?)
        } else {
            self.accept_word(Keyword::Asc);
            Direction::Ascending
        };
        Ok(Ordering { column, direction })
    }

    /// The value of LIMIT, TTL and TIMESTAMP.
    pub(super) fn integer_or_marker(&mut self) -> Parse<Term> {
        self.literal_or_marker(&[TokenKind::Integer])
    }

    /// The value of TIMEOUT.
    pub(super) fn duration_or_marker(&mut self) -> Parse<Term> {
        self.literal_or_marker(&[TokenKind::Duration])
    }

    fn literal_or_marker(&mut self, kinds: &[TokenKind]) -> Parse<Term> {
        if matches!(self.kind(), TokenKind::Question | TokenKind::Colon) {
            return Ok(Term::BindMarker(self.bind_marker()?));
        }
        let number = if self.kind() == TokenKind::Minus {
            self.ahead(1)
        } else {
            self.token()
        };
        if kinds.contains(&number.kind)
            && let Some(literal) = self.literal()?
        {
            return Ok(Term::Literal(literal));
        }
        Err(self.no_viable_here())
    }

    /// The relations of WHERE. A wrong word after them is no viable alternative in Cassandra; elsewhere it is a missing
    /// end.
    pub(super) fn where_relations(&mut self) -> Parse<Vec<Relation>> {
        use Keyword as K;
        let relations = self.and_separated(|parser| {
            let start = parser.position;
            let relation = parser.relation()?;
            if let Subject::Field { .. } = relation.subject {
                parser.position = start + 1;
                return Err(parser.no_viable_from(start));
            }
            Ok(relation)
        })?;
        let goes_on = matches!(
            self.keyword(),
            K::Allow
                | K::Apply
                | K::Bypass
                | K::Delete
                | K::Group
                | K::If
                | K::Insert
                | K::Limit
                | K::Order
                | K::Per
                | K::Primary
                | K::Update
                | K::Using
        );
        if self.kind() == TokenKind::Word && !goes_on {
            return Err(self.no_viable_here());
        }
        Ok(relations)
    }

    /// `relation AND …`
    fn relation(&mut self) -> Parse<Relation> {
        self.nested(|parser| {
            if parser.kind() == TokenKind::LeftParenthesis && !parser.is_column_tuple() {
                parser.advance();
                let relation = parser.relation()?;
                parser.expect(TokenKind::RightParenthesis)?;
                return Ok(relation);
            }
            parser.bare_relation()
        })
    }

    /// Whether `(name,` or `(name)` comes next.
    fn is_column_tuple(&self) -> bool {
        self.is_name(self.ahead(1)) && matches!(self.ahead(2).kind, TokenKind::Comma | TokenKind::RightParenthesis)
    }

    pub(super) fn bare_relation(&mut self) -> Parse<Relation> {
        if self.keyword() == Keyword::Expr && self.ahead(1).kind == TokenKind::LeftParenthesis {
            return self.index_expression();
        }
        if self.kind() == TokenKind::LeftParenthesis {
            let columns = self.parenthesized(Self::name)?;
            return Ok(Relation {
                subject: Subject::Columns(columns),
                predicate: self.tuple_predicate()?,
            });
        }
        if self.accept_word(Keyword::Token) {
            let columns = self.parenthesized(Self::name)?;
            return Ok(Relation {
                subject: Subject::Token(columns),
                predicate: self.predicate(self.position)?,
            });
        }
        let start = self.position;
        let column = self.name()?;
        let (subject, start) = match self.kind() {
            TokenKind::LeftBracket => {
                self.advance();
                let key = Box::new(self.term()?);
                self.expect(TokenKind::RightBracket)?;
                (Subject::Element { column, key }, self.position)
            }
            TokenKind::Dot => {
                self.advance();
                (
                    Subject::Field {
                        column,
                        field: self.name()?,
                    },
                    self.position - 1,
                )
            }
            _ => (Subject::Column(column), start),
        };
        Ok(Relation {
            subject,
            predicate: self.predicate(start)?,
        })
    }

    /// `expr(index, value)`
    fn index_expression(&mut self) -> Parse<Relation> {
        self.advance();
        self.advance();
        let index = self.name()?;
        self.expect(TokenKind::Comma)?;
        let value = self.term()?;
        self.expect(TokenKind::RightParenthesis)?;
        let subject = Subject::Index(QualifiedName {
            keyspace: None,
            name: index,
        });
        Ok(Relation {
            subject,
            predicate: Predicate::Matches(value),
        })
    }

    /// The right side of a relation whose left side began at `start`.
    fn predicate(&mut self, start: usize) -> Parse<Predicate> {
        if let Some(operator) = self.accept_comparison() {
            return Ok(Predicate::Compare(operator, self.term()?));
        }
        match self.keyword() {
            Keyword::Like => {
                self.advance();
                Ok(Predicate::Compare(ComparisonOperator::Like, self.term()?))
            }
            Keyword::Contains => self.contains(false),
            Keyword::In => {
                self.advance();
                self.in_values(false, start)
            }
            Keyword::Not if self.ahead(1).keyword == Keyword::In => {
                self.advance();
                self.advance();
                self.in_values(true, start)
            }
            Keyword::Not if self.ahead(1).keyword == Keyword::Contains => {
                self.advance();
                self.contains(true)
            }
            Keyword::Between => {
                self.advance();
                let low = Box::new(self.term()?);
                self.expect_word(Keyword::And)?;
                Ok(Predicate::Between(low, Box::new(self.term()?)))
            }
            Keyword::Is => {
                self.advance();
                self.expect_words(&[Keyword::Not, Keyword::Null])?;
                Ok(Predicate::IsNotNull)
            }
            _ => Err(self.no_viable_from(start)),
        }
    }

    fn accept_comparison(&mut self) -> Option<ComparisonOperator> {
        let operator = match self.kind() {
            TokenKind::Equal => ComparisonOperator::Equal,
            TokenKind::NotEqual => ComparisonOperator::NotEqual,
            TokenKind::Less => ComparisonOperator::Less,
            TokenKind::LessOrEqual => ComparisonOperator::LessOrEqual,
            TokenKind::Greater => ComparisonOperator::Greater,
            TokenKind::GreaterOrEqual => ComparisonOperator::GreaterOrEqual,
            _ => return None,
        };
        self.advance();
        Some(operator)
    }

    fn contains(&mut self, negated: bool) -> Parse<Predicate> {
        self.advance();
        let operator = match (self.accept_word(Keyword::Key), negated) {
            (true, true) => ComparisonOperator::NotContainsKey,
            (true, false) => ComparisonOperator::ContainsKey,
            (false, true) => ComparisonOperator::NotContains,
            (false, false) => ComparisonOperator::Contains,
        };
        Ok(Predicate::Compare(operator, self.term()?))
    }

    /// `(a, b)` or one marker, after IN.
    fn in_values(&mut self, negated: bool, start: usize) -> Parse<Predicate> {
        let values = match self.kind() {
            TokenKind::Question | TokenKind::Colon => InValues::BindMarker(self.bind_marker()?),
            TokenKind::LeftParenthesis => {
                self.advance();
                if self.accept(TokenKind::RightParenthesis) {
                    InValues::Terms(LongVec::new())
                } else {
                    InValues::Terms(self.terms_until(TokenKind::RightParenthesis)?.into())
                }
            }
            _ => return Err(self.no_viable_from(start)),
        };
        Ok(Predicate::In { negated, values })
    }

    /// The right side of `(a, b)`: tuples and markers only.
    fn tuple_predicate(&mut self) -> Parse<Predicate> {
        let start = self.position;
        if let Some(operator) = self.accept_comparison() {
            return Ok(Predicate::Compare(operator, self.tuple_or_marker(start)?));
        }
        let negated = self.keyword() == Keyword::Not && self.ahead(1).keyword == Keyword::In;
        if negated {
            self.advance();
        }
        if self.accept_word(Keyword::Between) {
            let low = Box::new(self.tuple_or_marker(start)?);
            self.expect_word(Keyword::And)?;
            let high = Box::new(self.tuple_or_marker(start)?);
            return Ok(Predicate::Between(low, high));
        }
        if !self.accept_word(Keyword::In) {
            return Err(self.no_viable_from(start));
        }
        if self.kind() == TokenKind::LeftParenthesis && self.ahead(1).kind != TokenKind::RightParenthesis {
            let values = InValues::Terms(self.parenthesized(|parser| parser.tuple_or_marker(start))?.into());
            return Ok(Predicate::In { negated, values });
        }
        self.in_values(negated, start)
    }

    fn tuple_or_marker(&mut self, start: usize) -> Parse<Term> {
        match self.kind() {
            TokenKind::Question | TokenKind::Colon => Ok(Term::BindMarker(self.bind_marker()?)),
            TokenKind::LeftParenthesis => {
                self.advance();
                Ok(Term::Tuple(self.terms_until(TokenKind::RightParenthesis)?.into()))
            }
            _ => Err(self.no_viable_from(start)),
        }
    }
}

/// Whether the token after a name makes the selector more than a column.
fn continues_selector(kind: TokenKind) -> bool {
    matches!(
        kind,
        TokenKind::LeftParenthesis
            | TokenKind::LeftBracket
            | TokenKind::Dot
            | TokenKind::Plus
            | TokenKind::Minus
            | TokenKind::Star
            | TokenKind::Slash
            | TokenKind::Percent
    )
}

/// Whether a selector may begin with this word: any name, and the reserved words that are values or functions.
fn begins_selector(keyword: Keyword) -> bool {
    use Keyword as K;
    !keyword.is_reserved() || matches!(keyword, K::Token | K::Null | K::True | K::False | K::Nan | K::Infinity)
}
