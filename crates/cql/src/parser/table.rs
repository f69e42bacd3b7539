//! CREATE, ALTER and DROP of keyspaces and tables, and the WITH clauses that views share.

use super::{Parse, Parser};
use crate::ast::{
    AlterKeyspace, AlterTable, ClusteringOrder, ColumnDefinition, ColumnMask, CreateKeyspace, CreateTable,
    CreateTableLike, Literal, MapValue, PrimaryKey, Property, PropertyValue, QualifiedName, Statement, TableChange,
    TableOptions,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

const INDEXES: &str = "indexes";

impl Parser<'_> {
    // Each of these begins after the words that chose it, such as CREATE KEYSPACE.

    pub(super) fn create_keyspace(&mut self) -> Parse<CreateKeyspace> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.name()?;
        // ScyllaDB has defaults for all of it.
        let properties = match self.kind() {
            TokenKind::End | TokenKind::Semicolon => Vec::new(),
            _ => {
                self.expect_word(Keyword::With)?;
                self.and_separated(Self::property)?
            }
        };
        Ok(CreateKeyspace {
            if_not_exists,
            name,
            properties,
        })
    }

    pub(super) fn alter_keyspace(&mut self) -> Parse<AlterKeyspace> {
        let if_exists = self.if_exists()?;
        let name = self.name()?;
        self.expect_word(Keyword::With)?;
        let properties = self.and_separated(Self::property)?;
        Ok(AlterKeyspace {
            if_exists,
            name,
            properties,
        })
    }

    // --- Properties --------------------------------------------------------------------------------------------------

    /// `name = value`
    pub(super) fn property(&mut self) -> Parse<Property> {
        let start = self.position;
        let name = self.name()?;
        if self.kind() != TokenKind::Equal {
            return Err(self.no_viable_from(start));
        }
        self.advance();
        if self.kind() == TokenKind::LeftBrace {
            return Ok(Property {
                name,
                value: PropertyValue::Map(self.map_of(Self::map_value)?),
            });
        }
        if let Some(literal) = self.literal()? {
            return Ok(Property {
                name,
                value: PropertyValue::Literal(literal),
            });
        }
        // Any unreserved keyword may be a value; other words may not.
        let token = self.token();
        if token.keyword == Keyword::None || token.keyword.is_reserved() {
            return Err(self.no_viable_from(start));
        }
        self.advance();
        Ok(Property {
            name,
            value: PropertyValue::Keyword(token.keyword.text().to_owned()),
        })
    }

    /// `{constant: constant, …}`
    pub(super) fn literal_map(&mut self) -> Parse<Vec<(Literal, Literal)>> {
        self.map_of(Self::expect_literal)
    }

    /// A constant, or `[constant, …]`.
    fn map_value(&mut self) -> Parse<MapValue> {
        if !self.accept(TokenKind::LeftBracket) {
            return self.expect_literal().map(MapValue::Literal);
        }
        let mut items = Vec::new();
        if self.accept(TokenKind::RightBracket) {
            return Ok(MapValue::List(items));
        }
        loop {
            items.push(self.expect_literal()?);
            if !self.accept(TokenKind::Comma) {
                break;
            }
        }
        self.expect(TokenKind::RightBracket)?;
        Ok(MapValue::List(items))
    }

    /// `{constant: value, …}`
    fn map_of<V>(&mut self, value: impl Fn(&mut Self) -> Parse<V>) -> Parse<Vec<(Literal, V)>> {
        self.expect(TokenKind::LeftBrace)?;
        let mut entries = Vec::new();
        if self.accept(TokenKind::RightBrace) {
            return Ok(entries);
        }
        loop {
            let key = self.expect_literal()?;
            if entries.is_empty() && self.kind() != TokenKind::Colon {
                return Err(self.no_viable_here());
            }
            self.expect(TokenKind::Colon)?;
            entries.push((key, value(self)?));
            if !self.accept(TokenKind::Comma) {
                break;
            }
        }
        self.expect(TokenKind::RightBrace)?;
        Ok(entries)
    }

    /// The WITH clause of a table or view, or none.
    pub(super) fn table_options(&mut self) -> Parse<TableOptions> {
        let mut options = TableOptions::default();
        if !self.accept_word(Keyword::With) {
            return Ok(options);
        }
        loop {
            if self.keyword() == Keyword::Compact && self.ahead(1).keyword == Keyword::Storage {
                self.advance();
                self.advance();
                options.compact_storage = true;
            } else if self.keyword() == Keyword::Clustering && self.ahead(1).keyword == Keyword::Order {
                self.advance();
                self.advance();
                self.expect_word(Keyword::By)?;
                options
                    .clustering_order
                    .extend(self.parenthesized(Self::clustering_order)?);
            } else {
                options.properties.push(self.property()?);
            }
            if !self.accept_word(Keyword::And) {
                return Ok(options);
            }
        }
    }

    fn clustering_order(&mut self) -> Parse<ClusteringOrder> {
        let start = self.position;
        let column = self.name()?;
        let descending = self.accept_word(Keyword::Desc);
        if !descending && !self.accept_word(Keyword::Asc) {
            return Err(self.no_viable_from(start));
        }
        Ok(ClusteringOrder { column, descending })
    }

    // --- Tables ------------------------------------------------------------------------------------------------------

    pub(super) fn create_table(&mut self) -> Parse<Statement> {
        let if_not_exists = self.if_not_exists()?;
        let table = self.table_name()?;
        if self.accept_word(Keyword::Like) {
            return self.table_like(if_not_exists, table).map(Statement::CreateTableLike);
        }
        self.columns_of_table(if_not_exists, table).map(Statement::CreateTable)
    }

    /// `source [WITH INDEXES AND option AND …]`
    fn table_like(&mut self, if_not_exists: bool, table: QualifiedName) -> Parse<CreateTableLike> {
        let source = self.table_name()?;
        let mut like = CreateTableLike {
            if_not_exists,
            table,
            source,
            has_indexes: false,
            properties: Vec::new(),
        };
        if self.accept_word(Keyword::With) {
            self.and_separated(|parser| parser.property_of_like(&mut like))?;
        }
        Ok(like)
    }

    /// `INDEXES`, which is no keyword, or an option.
    fn property_of_like(&mut self, like: &mut CreateTableLike) -> Parse<()> {
        let is_alone = self.ahead(1).kind != TokenKind::Equal;
        if is_alone && self.written(self.token()).eq_ignore_ascii_case(INDEXES) {
            self.advance();
            like.has_indexes = true;
        } else {
            like.properties.push(self.property()?);
        }
        Ok(())
    }

    /// `(column, …) [WITH …]`
    fn columns_of_table(&mut self, if_not_exists: bool, table: QualifiedName) -> Parse<CreateTable> {
        let mut columns = Vec::new();
        let mut primary_keys = Vec::new();
        self.expect(TokenKind::LeftParenthesis)?;
        loop {
            // `primary` is reserved, so no column is meant.
            if self.accept_word(Keyword::Primary) {
                self.expect_word(Keyword::Key)?;
                primary_keys.push(self.primary_key()?);
            } else {
                let column = self.column_definition()?;
                if self.accept_word(Keyword::Primary) {
                    self.expect_word(Keyword::Key)?;
                    primary_keys.push(PrimaryKey {
                        partition: vec![column.name.clone()],
                        clustering: Vec::new(),
                    });
                }
                columns.push(column);
            }
            if !self.commas_before_another() {
                break;
            }
        }
        self.expect(TokenKind::RightParenthesis)?;
        let options = self.table_options()?;
        Ok(CreateTable {
            if_not_exists,
            table,
            columns,
            primary_keys,
            options,
        })
    }

    /// Whether another column or field follows. Cassandra takes any number of commas between two, and after the last
    /// one; cassandra-stress writes two.
    pub(super) fn commas_before_another(&mut self) -> bool {
        let mut any = false;
        while self.accept(TokenKind::Comma) {
            any = true;
        }
        any && self.kind() != TokenKind::RightParenthesis
    }

    /// `name type [STATIC] [TTL] [MASKED WITH …]`
    fn column_definition(&mut self) -> Parse<ColumnDefinition> {
        let name = self.name()?;
        let type_start = self.position;
        let type_name = self.type_name()?;
        if self.is_name(self.token()) && !matches!(self.keyword(), Keyword::Static | Keyword::Ttl | Keyword::Masked) {
            return Err(self.no_viable_from(type_start));
        }
        let is_static = self.accept_word(Keyword::Static);
        let is_row_ttl = self.accept_word(Keyword::Ttl);
        let mask = if self.keyword() == Keyword::Masked {
            Some(self.column_mask()?)
        } else {
            None
        };
        Ok(ColumnDefinition {
            name,
            type_name,
            is_static,
            is_row_ttl,
            mask,
        })
    }

    /// `MASKED WITH DEFAULT` or `MASKED WITH function(arguments)`
    fn column_mask(&mut self) -> Parse<ColumnMask> {
        self.expect_words(&[Keyword::Masked, Keyword::With])?;
        if self.keyword() == Keyword::Default && !self.is_function_call() {
            self.advance();
            return Ok(ColumnMask::Default);
        }
        Ok(ColumnMask::Function(self.function_call()?))
    }

    /// `(partition, clustering, …)` or `((partition, …), clustering, …)`
    pub(super) fn primary_key(&mut self) -> Parse<PrimaryKey> {
        self.expect(TokenKind::LeftParenthesis)?;
        let partition = match self.kind() {
            TokenKind::LeftParenthesis => self.parenthesized(Self::name)?,
            _ => vec![self.name()?],
        };
        let mut clustering = Vec::new();
        while self.accept(TokenKind::Comma) {
            clustering.push(self.name()?);
        }
        self.expect(TokenKind::RightParenthesis)?;
        Ok(PrimaryKey { partition, clustering })
    }

    pub(super) fn alter_table(&mut self) -> Parse<AlterTable> {
        let if_exists = self.if_exists()?;
        let start = self.position;
        let mut table = self.qualified_name()?;
        // TTL may follow this form of the name only.
        if self.keyword() != Keyword::Ttl {
            self.position = start;
            table = self.table_name()?;
        }
        let change = match self.keyword() {
            Keyword::Alter => self.alter_column()?,
            Keyword::Add => {
                self.advance();
                let if_not_exists = self.if_not_exists()?;
                let columns = match self.kind() {
                    TokenKind::LeftParenthesis => self.parenthesized(Self::column_definition)?,
                    _ => self.comma_separated(Self::column_definition)?,
                };
                TableChange::Add { if_not_exists, columns }
            }
            Keyword::Drop => self.drop_columns()?,
            Keyword::Rename => {
                self.advance();
                let if_exists = self.if_exists()?;
                TableChange::Rename {
                    if_exists,
                    columns: self.renames()?,
                }
            }
            Keyword::Ttl => {
                self.advance();
                let column = if self.accept_word(Keyword::Null) {
                    None
                } else {
                    Some(self.name()?)
                };
                TableChange::RowTtl(column)
            }
            Keyword::With => {
                self.advance();
                TableChange::Properties(self.and_separated(Self::property)?)
            }
            _ => return Err(self.no_viable_from(self.position - 1)),
        };
        Ok(AlterTable {
            if_exists,
            table,
            change,
        })
    }

    fn alter_column(&mut self) -> Parse<TableChange> {
        self.advance();
        let if_exists = self.if_exists()?;
        let column = self.name()?;
        if self.accept_word(Keyword::Type) {
            return Ok(TableChange::AlterType {
                if_exists,
                column,
                type_name: self.type_name()?,
            });
        }
        if self.accept_word(Keyword::Drop) {
            self.expect_word(Keyword::Masked)?;
            return Ok(TableChange::AlterMask {
                if_exists,
                column,
                mask: None,
            });
        }
        if self.keyword() == Keyword::Masked {
            return Ok(TableChange::AlterMask {
                if_exists,
                column,
                mask: Some(self.column_mask()?),
            });
        }
        Err(self.no_viable_from(self.position - 1))
    }

    fn drop_columns(&mut self) -> Parse<TableChange> {
        self.advance();
        if self.keyword() == Keyword::Compact && self.ahead(1).keyword == Keyword::Storage {
            self.advance();
            self.advance();
            return Ok(TableChange::DropCompactStorage);
        }
        let if_exists = self.if_exists()?;
        let columns = match self.kind() {
            TokenKind::LeftParenthesis => self.parenthesized(Self::name)?,
            _ => self.comma_separated(Self::name)?,
        };
        let mut timestamp = None;
        if self.accept_word(Keyword::Using) {
            self.expect_word(Keyword::Timestamp)?;
            let number = if self.kind() == TokenKind::Minus {
                self.ahead(1)
            } else {
                self.token()
            };
            if number.kind != TokenKind::Integer {
                return Err(self.mismatched("INTEGER"));
            }
            timestamp = Some(self.expect_literal()?);
        }
        Ok(TableChange::Drop {
            if_exists,
            columns,
            timestamp,
        })
    }

    /// `a TO b AND …`
    pub(super) fn renames(&mut self) -> Parse<Vec<(String, String)>> {
        self.and_separated(|parser| {
            let old = parser.name()?;
            parser.expect_word(Keyword::To)?;
            Ok((old, parser.name()?))
        })
    }
}
