//! Roles, users, identities and permissions.

use super::{Parse, Parser, undollar, unquote};
use crate::ast::{
    AddIdentity, AlterRole, AlterUser, CreateRole, CreateUser, DropIdentity, DropRole, DropUser, Grant, GrantRole,
    ListPermissions, ListRoles, Permission, Permissions, Resource, Revoke, RevokeRole, RoleOption, Statement,
    UserPassword,
};
use crate::keyword::Keyword;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// The name of a role or user, which may also be a string.
    fn role_name(&mut self) -> Parse<String> {
        let token = self.token();
        match token.kind {
            TokenKind::String => {
                self.advance();
                Ok(unquote(self.written(token), '\''))
            }
            TokenKind::DollarString => {
                self.advance();
                Ok(undollar(self.written(token)).to_owned())
            }
            _ => self.name(),
        }
    }

    pub(super) fn create_role(&mut self) -> Parse<CreateRole> {
        let if_not_exists = self.if_not_exists()?;
        Ok(CreateRole {
            if_not_exists,
            name: self.role_name()?,
            options: self.role_options()?,
        })
    }

    pub(super) fn alter_role(&mut self) -> Parse<AlterRole> {
        let if_exists = self.if_exists()?;
        Ok(AlterRole {
            if_exists,
            name: self.role_name()?,
            options: self.role_options()?,
        })
    }

    fn role_options(&mut self) -> Parse<Vec<RoleOption>> {
        if !self.accept_word(Keyword::With) {
            return Ok(Vec::new());
        }
        self.and_separated(Self::role_option)
    }

    fn role_option(&mut self) -> Parse<RoleOption> {
        let option = self.keyword();
        match option {
            Keyword::Password | Keyword::Login | Keyword::Superuser | Keyword::Options => {
                self.advance();
                self.expect(TokenKind::Equal)?;
            }
            Keyword::Hashed => {
                self.advance();
                self.expect_word(Keyword::Password)?;
                self.expect(TokenKind::Equal)?;
            }
            Keyword::Access => {
                self.advance();
                return self.access_option();
            }
            _ => return Err(self.no_viable_here()),
        }
        Ok(match option {
            Keyword::Password => RoleOption::Password(self.string()?),
            Keyword::Hashed => RoleOption::HashedPassword(self.string()?),
            Keyword::Login => RoleOption::Login(self.boolean()?),
            Keyword::Superuser => RoleOption::Superuser(self.boolean()?),
            _ => RoleOption::Options(self.literal_map()?),
        })
    }

    fn boolean(&mut self) -> Parse<bool> {
        let value = self.keyword() == Keyword::True;
        if !value && self.keyword() != Keyword::False {
            return Err(self.mismatched("BOOLEAN"));
        }
        self.advance();
        Ok(value)
    }

    /// What follows ACCESS.
    fn access_option(&mut self) -> Parse<RoleOption> {
        if self.accept_word(Keyword::To) {
            if self.accept_word(Keyword::All) {
                self.expect_word(Keyword::Datacenters)?;
                return Ok(RoleOption::Datacenters(None));
            }
            self.expect_word(Keyword::Datacenters)?;
            return Ok(RoleOption::Datacenters(Some(self.string_set()?)));
        }
        if self.accept_word(Keyword::From) {
            if self.accept_word(Keyword::All) {
                self.expect_word(Keyword::Cidrs)?;
                return Ok(RoleOption::Cidrs(None));
            }
            self.expect_word(Keyword::Cidrs)?;
            return Ok(RoleOption::Cidrs(Some(self.string_set()?)));
        }
        Err(self.no_viable_from(self.position - 1))
    }

    /// `{'a', 'b'}`
    fn string_set(&mut self) -> Parse<Vec<String>> {
        self.expect(TokenKind::LeftBrace)?;
        let strings = self.comma_separated(Self::string)?;
        self.expect(TokenKind::RightBrace)?;
        Ok(strings)
    }

    pub(super) fn create_user(&mut self) -> Parse<CreateUser> {
        let if_not_exists = self.if_not_exists()?;
        let name = self.role_name()?;
        let password = self.user_password()?;
        let superuser = self.user_superuser().unwrap_or(false);
        Ok(CreateUser {
            if_not_exists,
            name,
            password,
            superuser,
        })
    }

    pub(super) fn alter_user(&mut self) -> Parse<AlterUser> {
        let if_exists = self.if_exists()?;
        let name = self.role_name()?;
        let password = self.user_password()?;
        Ok(AlterUser {
            if_exists,
            name,
            password,
            superuser: self.user_superuser(),
        })
    }

    fn user_password(&mut self) -> Parse<Option<UserPassword>> {
        if !self.accept_word(Keyword::With) {
            return Ok(None);
        }
        let hashed = self.accept_word(Keyword::Hashed);
        self.expect_word(Keyword::Password)?;
        Ok(Some(UserPassword {
            hashed,
            text: self.string()?,
        }))
    }

    fn user_superuser(&mut self) -> Option<bool> {
        if self.accept_word(Keyword::Superuser) {
            return Some(true);
        }
        self.accept_word(Keyword::NoSuperuser).then_some(false)
    }

    pub(super) fn add_identity(&mut self) -> Parse<AddIdentity> {
        self.expect_words(&[Keyword::Add, Keyword::Identity])?;
        let if_not_exists = self.if_not_exists()?;
        let identity = self.string()?;
        self.expect_words(&[Keyword::To, Keyword::Role])?;
        Ok(AddIdentity {
            if_not_exists,
            identity,
            role: self.role_name()?,
        })
    }

    /// DROP ROLE, USER and IDENTITY, after IF EXISTS.
    pub(super) fn drop_of_roles(&mut self, word: Keyword, if_exists: bool) -> Parse<Statement> {
        Ok(match word {
            Keyword::Role => Statement::DropRole(DropRole {
                if_exists,
                name: self.role_name()?,
            }),
            Keyword::User => Statement::DropUser(DropUser {
                if_exists,
                name: self.role_name()?,
            }),
            _ => Statement::DropIdentity(DropIdentity {
                if_exists,
                identity: self.string()?,
            }),
        })
    }

    // --- Permissions -------------------------------------------------------------------------------------------------

    pub(super) fn grant(&mut self) -> Parse<Statement> {
        self.expect_word(Keyword::Grant)?;
        if self.is_permission_list() {
            let permissions = self.permissions()?;
            self.expect_word(Keyword::On)?;
            let resource = self.resource()?;
            self.expect_word(Keyword::To)?;
            return Ok(Statement::Grant(Grant {
                permissions,
                resource,
                role: self.role_name()?,
            }));
        }
        let role = self.role_name()?;
        self.expect_word(Keyword::To)?;
        Ok(Statement::GrantRole(GrantRole {
            role,
            grantee: self.role_name()?,
        }))
    }

    pub(super) fn revoke(&mut self) -> Parse<Statement> {
        self.expect_word(Keyword::Revoke)?;
        if self.is_permission_list() {
            let permissions = self.permissions()?;
            self.expect_word(Keyword::On)?;
            let resource = self.resource()?;
            self.expect_word(Keyword::From)?;
            return Ok(Statement::Revoke(Revoke {
                permissions,
                resource,
                role: self.role_name()?,
            }));
        }
        let role = self.role_name()?;
        self.expect_word(Keyword::From)?;
        Ok(Statement::RevokeRole(RevokeRole {
            role,
            grantee: self.role_name()?,
        }))
    }

    /// Whether permissions follow here, and not a role that has such a name.
    fn is_permission_list(&self) -> bool {
        let next = self.ahead(1);
        let is_role = matches!(next.keyword, Keyword::To | Keyword::From);
        !is_role && (self.keyword() == Keyword::All || permission(self.keyword()).is_some())
    }

    /// `ALL [PERMISSIONS]` or `permission [PERMISSION], …`
    fn permissions(&mut self) -> Parse<Permissions> {
        if self.accept_word(Keyword::All) {
            self.accept_word(Keyword::Permissions);
            return Ok(Permissions::All);
        }
        Ok(Permissions::Some(self.comma_separated(|parser| {
            let permission = permission(parser.keyword()).ok_or_else(|| parser.no_viable_here())?;
            parser.advance();
            parser.accept_word(Keyword::Permission);
            Ok(permission)
        })?))
    }

    fn resource(&mut self) -> Parse<Resource> {
        use Keyword as K;
        let word = self.keyword();
        let next = self.ahead(1);
        match word {
            K::All
                if matches!(
                    next.keyword,
                    K::Keyspaces | K::Tables | K::Roles | K::Functions | K::Mbeans
                ) =>
            {
                self.advance();
                self.advance();
                return self.resource_of_all(next.keyword);
            }
            K::Keyspace => {
                self.advance();
                return Ok(Resource::Keyspace(self.name()?));
            }
            K::Table | K::ColumnFamily => {
                self.advance();
                return Ok(Resource::Table(self.table_name()?));
            }
            K::Role if self.is_name(next) || next.kind == TokenKind::String => {
                self.advance();
                return Ok(Resource::Role(self.role_name()?));
            }
            K::Function if self.is_name(next) => {
                self.advance();
                let name = self.function_name()?;
                return Ok(Resource::Function {
                    name,
                    argument_types: self.argument_types()?,
                });
            }
            K::Mbean if next.kind == TokenKind::String => {
                self.advance();
                return Ok(Resource::Mbean(self.string()?));
            }
            K::Mbeans if next.kind == TokenKind::String => {
                self.advance();
                return Ok(Resource::Mbeans(self.string()?));
            }
            _ => {}
        }
        Ok(Resource::Table(self.table_name()?))
    }

    /// `ALL things`, after those words.
    fn resource_of_all(&mut self, things: Keyword) -> Parse<Resource> {
        Ok(match things {
            Keyword::Keyspaces => Resource::AllKeyspaces,
            Keyword::Tables => {
                self.expect_words(&[Keyword::In, Keyword::Keyspace])?;
                Resource::AllTables(self.name()?)
            }
            Keyword::Roles => Resource::AllRoles,
            Keyword::Functions if self.accept_word(Keyword::In) => {
                self.expect_word(Keyword::Keyspace)?;
                Resource::AllFunctionsIn(self.name()?)
            }
            Keyword::Functions => Resource::AllFunctions,
            _ => Resource::AllMbeans,
        })
    }

    pub(super) fn list(&mut self) -> Parse<Statement> {
        self.expect_word(Keyword::List)?;
        match self.keyword() {
            Keyword::Users => {
                self.advance();
                return Ok(Statement::ListUsers);
            }
            Keyword::Superusers => {
                self.advance();
                return Ok(Statement::ListSuperusers);
            }
            Keyword::Roles => {
                self.advance();
                let (role, recursive) = self.of_role()?;
                return Ok(Statement::ListRoles(ListRoles { role, recursive }));
            }
            Keyword::All => {}
            other if permission(other).is_some() => {}
            _ => return Err(self.no_viable_from(self.position - 1)),
        }
        let permissions = self.permissions()?;
        let resource = if self.accept_word(Keyword::On) {
            Some(self.resource()?)
        } else {
            None
        };
        let (role, recursive) = self.of_role()?;
        Ok(Statement::ListPermissions(ListPermissions {
            permissions,
            resource,
            role,
            recursive,
        }))
    }

    /// `[OF role] [NORECURSIVE]`
    fn of_role(&mut self) -> Parse<(Option<String>, bool)> {
        let role = if self.accept_word(Keyword::Of) {
            Some(self.role_name()?)
        } else {
            None
        };
        Ok((role, !self.accept_word(Keyword::NoRecursive)))
    }
}

fn permission(keyword: Keyword) -> Option<Permission> {
    Some(match keyword {
        Keyword::Create => Permission::Create,
        Keyword::Alter => Permission::Alter,
        Keyword::Drop => Permission::Drop,
        Keyword::Select => Permission::Select,
        Keyword::Modify => Permission::Modify,
        Keyword::Authorize => Permission::Authorize,
        Keyword::Describe => Permission::Describe,
        Keyword::Execute => Permission::Execute,
        Keyword::Unmask => Permission::Unmask,
        Keyword::SelectMasked => Permission::SelectMasked,
        _ => return None,
    })
}
