//! DESCRIBE.

use super::{Parse, Parser};
use crate::ast::{Describe, DescribeSubject, QualifiedName};
use crate::keyword::{COLUMN_FAMILIES, Keyword};
use crate::lexer::TokenKind;

impl Parser<'_> {
    pub(super) fn describe(&mut self) -> Parse<Describe> {
        self.advance();
        let subject = self.describe_subject()?;
        let with_internals = self.accept_word(Keyword::With);
        if with_internals {
            self.expect_word(Keyword::Internals)?;
        }
        Ok(Describe {
            subject,
            with_internals,
        })
    }

    fn describe_subject(&mut self) -> Parse<DescribeSubject> {
        use Keyword as K;
        // Most of these words are also names; the next token decides.
        let named = self.is_name(self.ahead(1));
        let last =
            matches!(self.ahead(1).kind, TokenKind::End | TokenKind::Semicolon) || self.ahead(1).keyword == K::With;
        let subject = match self.keyword() {
            K::Cluster if last => DescribeSubject::Cluster,
            K::Schema => DescribeSubject::Schema { full: false },
            K::Keyspaces if last => DescribeSubject::Keyspaces,
            K::Tables if last => DescribeSubject::Tables,
            K::Types if last => DescribeSubject::Types,
            K::Functions if last => DescribeSubject::Functions,
            K::Aggregates if last => DescribeSubject::Aggregates,
            K::Full => {
                self.advance();
                self.expect_word(K::Schema)?;
                return Ok(DescribeSubject::Schema { full: true });
            }
            K::Only if self.ahead(1).keyword == K::Keyspace => {
                self.advance();
                return self.describe_keyspace(true);
            }
            K::Keyspace => return self.describe_keyspace(false),
            K::Table | K::ColumnFamily => return self.describe_named(DescribeSubject::Table),
            K::Index => return self.describe_named(DescribeSubject::Index),
            K::Materialized => {
                self.advance();
                if self.keyword() != K::View {
                    return Err(self.mismatched(&K::View.token_name()));
                }
                return self.describe_named(DescribeSubject::MaterializedView);
            }
            K::Type if named => return self.describe_named(DescribeSubject::Type),
            K::Function if named => return self.describe_named(DescribeSubject::Function),
            K::Aggregate if named => return self.describe_named(DescribeSubject::Aggregate),
            _ if last && self.written(self.token()).eq_ignore_ascii_case(COLUMN_FAMILIES) => DescribeSubject::Tables,
            _ => return Ok(DescribeSubject::Any(self.table_name()?)),
        };
        self.advance();
        Ok(subject)
    }

    fn describe_named(&mut self, subject: fn(QualifiedName) -> DescribeSubject) -> Parse<DescribeSubject> {
        self.advance();
        Ok(subject(self.table_name()?))
    }

    fn describe_keyspace(&mut self, only: bool) -> Parse<DescribeSubject> {
        self.advance();
        let name = if self.is_name(self.token()) {
            Some(self.name()?)
        } else {
            None
        };
        Ok(DescribeSubject::Keyspace { only, name })
    }
}
