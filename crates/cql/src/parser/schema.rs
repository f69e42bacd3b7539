//! CREATE, ALTER and DROP: which of them, and those of types, indexes, views, functions and triggers.

use super::{Parse, Parser};
use crate::ast::{
    AlterMaterializedView, AlterType, CreateAggregate, CreateFunction, CreateIndex, CreateMaterializedView,
    CreateTrigger, CreateType, DropAggregate, DropFunction, DropIndex, DropKeyspace, DropMaterializedView, DropTable,
    DropTrigger, DropType, FieldDefinition, IndexTarget, Signature, Statement, TypeChange, TypeName,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn create(&mut self) -> Parse<Statement> {
        use Keyword as K;
        let start = self.position;
        self.advance();
        let word = self.keyword();
        match word {
            K::Custom | K::Materialized | K::Or => {}
            _ => self.advance(),
        }
        Ok(match word {
            K::Keyspace | K::Schema => Statement::CreateKeyspace(self.create_keyspace()?),
            K::Table | K::ColumnFamily => self.create_table()?,
            K::Type => Statement::CreateType(self.create_type()?),
            K::Index => Statement::CreateIndex(self.create_index(false)?),
            K::Custom => {
                self.expect_words(&[K::Custom, K::Index])?;
                Statement::CreateIndex(self.create_index(true)?)
            }
            K::Materialized => {
                self.expect_words(&[K::Materialized, K::View])?;
                Statement::CreateMaterializedView(self.create_view()?)
            }
            K::Or => {
                self.expect_words(&[K::Or, K::Replace])?;
                if self.accept_word(K::Function) {
                    Statement::CreateFunction(self.create_function(true)?)
                } else if self.accept_word(K::Aggregate) {
                    Statement::CreateAggregate(self.create_aggregate(true)?)
                } else {
                    return Err(self.no_viable_from(start));
                }
            }
            K::Function => Statement::CreateFunction(self.create_function(false)?),
            K::Aggregate => Statement::CreateAggregate(self.create_aggregate(false)?),
            K::Trigger => Statement::CreateTrigger(self.create_trigger()?),
            K::Role => Statement::CreateRole(self.create_role()?),
            K::User => Statement::CreateUser(self.create_user()?),
            _ => return Err(self.no_viable_behind(start)),
        })
    }

    pub(super) fn alter(&mut self) -> Parse<Statement> {
        use Keyword as K;
        let start = self.position;
        self.advance();
        let word = self.keyword();
        self.advance();
        Ok(match word {
            K::Keyspace | K::Schema => Statement::AlterKeyspace(self.alter_keyspace()?),
            K::Table | K::ColumnFamily => Statement::AlterTable(self.alter_table()?),
            K::Type => Statement::AlterType(self.alter_type()?),
            K::Materialized => {
                self.expect_word(K::View)?;
                let if_exists = self.if_exists()?;
                let name = self.table_name()?;
                self.expect_word(K::With)?;
                let properties = self.and_separated(Self::property)?;
                Statement::AlterMaterializedView(AlterMaterializedView {
                    if_exists,
                    name,
                    properties,
                })
            }
            K::Role => Statement::AlterRole(self.alter_role()?),
            K::User => Statement::AlterUser(self.alter_user()?),
            _ => return Err(self.no_viable_behind(start)),
        })
    }

    pub(super) fn drop(&mut self) -> Parse<Statement> {
        use Keyword as K;
        let start = self.position;
        self.advance();
        let word = self.keyword();
        self.advance();
        if word == K::Materialized {
            self.expect_word(K::View)?;
        }
        if !matches!(
            word,
            K::Keyspace
                | K::Schema
                | K::Table
                | K::ColumnFamily
                | K::Type
                | K::Index
                | K::Materialized
                | K::Function
                | K::Aggregate
                | K::Trigger
                | K::Role
                | K::User
                | K::Identity
        ) {
            return Err(self.no_viable_behind(start));
        }
        let if_exists = self.if_exists()?;
        Ok(match word {
            K::Keyspace | K::Schema => Statement::DropKeyspace(DropKeyspace {
                if_exists,
                name: self.name()?,
            }),
            K::Table | K::ColumnFamily => Statement::DropTable(DropTable {
                if_exists,
                table: self.table_name()?,
            }),
            K::Type => Statement::DropType(DropType {
                if_exists,
                name: self.table_name()?,
            }),
            K::Index => Statement::DropIndex(DropIndex {
                if_exists,
                name: self.table_name()?,
            }),
            K::Materialized => Statement::DropMaterializedView(DropMaterializedView {
                if_exists,
                name: self.table_name()?,
            }),
            K::Function => Statement::DropFunction(DropFunction {
                if_exists,
                signature: self.signature()?,
            }),
            K::Aggregate => Statement::DropAggregate(DropAggregate {
                if_exists,
                signature: self.signature()?,
            }),
            K::Trigger => {
                let name = self.name()?;
                self.expect_word(K::On)?;
                Statement::DropTrigger(DropTrigger {
                    if_exists,
                    name,
                    table: self.table_name()?,
                })
            }
            _ => self.drop_of_roles(word, if_exists)?,
        })
    }

    /// No viable alternative at the word after CREATE, ALTER or DROP.
    fn no_viable_behind(&self, start: usize) -> crate::SyntaxError {
        self.source().no_viable(start, (start + 1).min(self.tokens.len() - 1))
    }

    // --- Types -------------------------------------------------------------------------------------------------------

    fn create_type(&mut self) -> Parse<CreateType> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.table_name()?;
        let mut fields = Vec::new();
        self.expect(TokenKind::LeftParenthesis)?;
        loop {
            fields.push(self.field_definition()?);
            if !self.commas_before_another() {
                break;
            }
        }
        self.expect(TokenKind::RightParenthesis)?;
        Ok(CreateType {
            if_not_exists,
            name,
            fields,
        })
    }

    /// `name type`
    fn field_definition(&mut self) -> Parse<FieldDefinition> {
        Ok(FieldDefinition {
            name: self.name()?,
            type_name: self.type_name()?,
        })
    }

    fn alter_type(&mut self) -> Parse<AlterType> {
        let if_exists = self.if_exists()?;
        let name = self.table_name()?;
        let change = match self.keyword() {
            Keyword::Add => {
                self.advance();
                let if_not_exists = self.if_not_exists()?;
                TypeChange::Add {
                    if_not_exists,
                    field: self.field_definition()?,
                }
            }
            Keyword::Rename => {
                self.advance();
                let if_exists = self.if_exists()?;
                TypeChange::Rename {
                    if_exists,
                    fields: self.renames()?,
                }
            }
            Keyword::Alter => {
                self.advance();
                let name = self.name()?;
                self.expect_word(Keyword::Type)?;
                TypeChange::Alter(FieldDefinition {
                    name,
                    type_name: self.type_name()?,
                })
            }
            _ => return Err(self.no_viable_from(self.position - 1)),
        };
        Ok(AlterType {
            if_exists,
            name,
            change,
        })
    }

    // --- Indexes and views -------------------------------------------------------------------------------------------

    fn create_index(&mut self, custom: bool) -> Parse<CreateIndex> {
        let if_not_exists = self.if_not_exists()?;
        let name = if self.keyword() == Keyword::On {
            None
        } else {
            Some(self.name()?)
        };
        self.expect_word(Keyword::On)?;
        let table = self.table_name()?;
        self.expect(TokenKind::LeftParenthesis)?;
        let targets = match self.kind() {
            TokenKind::RightParenthesis => Vec::new(),
            _ => self.comma_separated(Self::index_target)?,
        };
        self.expect(TokenKind::RightParenthesis)?;
        let using = if self.accept_word(Keyword::Using) {
            Some(self.string()?)
        } else {
            None
        };
        let properties = if self.accept_word(Keyword::With) {
            self.and_separated(Self::property)?
        } else {
            Vec::new()
        };
        Ok(CreateIndex {
            custom,
            if_not_exists,
            name,
            table,
            targets,
            using,
            properties,
        })
    }

    fn index_target(&mut self) -> Parse<IndexTarget> {
        if self.kind() == TokenKind::LeftParenthesis {
            return Ok(IndexTarget::PartitionKey(self.parenthesized(Self::name)?));
        }
        let target: fn(String) -> IndexTarget = match self.keyword() {
            Keyword::Values => IndexTarget::Values,
            Keyword::Keys => IndexTarget::Keys,
            Keyword::Entries => IndexTarget::Entries,
            Keyword::Full => IndexTarget::Full,
            _ => return Ok(IndexTarget::Column(self.name()?)),
        };
        if self.ahead(1).kind != TokenKind::LeftParenthesis && !self.keyword().is_reserved() {
            return Ok(IndexTarget::Column(self.name()?));
        }
        self.advance();
        self.expect(TokenKind::LeftParenthesis)?;
        let column = self.name()?;
        self.expect(TokenKind::RightParenthesis)?;
        Ok(target(column))
    }

    fn create_view(&mut self) -> Parse<CreateMaterializedView> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.table_name()?;
        self.expect_words(&[Keyword::As, Keyword::Select])?;
        let selection = self.selection()?;
        self.expect_word(Keyword::From)?;
        let base_table = self.table_name()?;
        let relations = if self.accept_word(Keyword::Where) {
            self.where_relations()?
        } else {
            Vec::new()
        };
        self.expect_words(&[Keyword::Primary, Keyword::Key])?;
        let primary_key = self.primary_key()?;
        let options = self.table_options()?;
        Ok(CreateMaterializedView {
            if_not_exists,
            name,
            selection,
            base_table,
            relations,
            primary_key,
            options,
        })
    }

    // --- Functions, aggregates, triggers -----------------------------------------------------------------------------

    fn create_function(&mut self, or_replace: bool) -> Parse<CreateFunction> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        self.expect(TokenKind::LeftParenthesis)?;
        let arguments = match self.kind() {
            TokenKind::RightParenthesis => Vec::new(),
            _ => self.comma_separated(Self::field_definition)?,
        };
        self.expect(TokenKind::RightParenthesis)?;
        let called_on_null = self.accept_word(Keyword::Called);
        if !called_on_null {
            if !self.accept_word(Keyword::Returns) {
                return Err(self.no_viable_here());
            }
            self.expect_word(Keyword::Null)?;
        }
        self.expect_words(&[Keyword::On, Keyword::Null, Keyword::Input, Keyword::Returns])?;
        let return_type = self.type_name()?;
        self.expect_word(Keyword::Language)?;
        let language = self.name()?;
        self.expect_word(Keyword::As)?;
        let body = self.string()?;
        Ok(CreateFunction {
            or_replace,
            if_not_exists,
            name,
            arguments,
            called_on_null,
            return_type,
            language,
            body,
        })
    }

    fn create_aggregate(&mut self, or_replace: bool) -> Parse<CreateAggregate> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.function_name()?;
        let argument_types = self.argument_types()?;
        self.expect_word(Keyword::SFunc)?;
        let state_function = self.name()?;
        self.expect_word(Keyword::SType)?;
        let state_type = self.type_name()?;
        let reduce_function = if self.accept_word(Keyword::ReduceFunc) {
            Some(self.name()?)
        } else {
            None
        };
        let final_function = if self.accept_word(Keyword::FinalFunc) {
            Some(self.name()?)
        } else {
            None
        };
        let initial_state = if self.accept_word(Keyword::InitCond) {
            Some(self.term()?)
        } else {
            None
        };
        Ok(CreateAggregate {
            or_replace,
            if_not_exists,
            name,
            argument_types,
            state_function,
            state_type,
            reduce_function,
            final_function,
            initial_state,
        })
    }

    /// `(type, …)`, which may be empty.
    pub(super) fn argument_types(&mut self) -> Parse<Vec<TypeName>> {
        self.expect(TokenKind::LeftParenthesis)?;
        let types = match self.kind() {
            TokenKind::RightParenthesis => Vec::new(),
            _ => self.comma_separated(Self::type_name)?,
        };
        self.expect(TokenKind::RightParenthesis)?;
        Ok(types)
    }

    /// A function's name, with its argument types or not.
    fn signature(&mut self) -> Parse<Signature> {
        let name = self.function_name()?;
        let argument_types = match self.kind() {
            TokenKind::LeftParenthesis => Some(self.argument_types()?),
            _ => None,
        };
        Ok(Signature { name, argument_types })
    }

    fn create_trigger(&mut self) -> Parse<CreateTrigger> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.name()?;
        self.expect_word(Keyword::On)?;
        let table = self.table_name()?;
        self.expect_word(Keyword::Using)?;
        Ok(CreateTrigger {
            if_not_exists,
            name,
            table,
            class: self.string()?,
        })
    }
}
