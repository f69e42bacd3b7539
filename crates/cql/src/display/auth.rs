//! Roles, users, identities and permissions.

use std::fmt::{self, Display, Formatter};

use super::{Name, bracketed, conjunction, entries_of, list, separated, when};
use crate::ast::{
    AddIdentity, AlterRole, AlterUser, CreateRole, CreateUser, DropIdentity, DropRole, DropUser, Grant, GrantRole,
    ListPermissions, ListRoles, Permission, Permissions, Resource, Revoke, RevokeRole, RoleOption, UserPassword,
};
use crate::quote::quote_string;

impl Display for CreateRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE ROLE {}{}",
            when(self.if_not_exists, "IF NOT EXISTS "),
            Role(&self.name)
        )?;
        role_options(f, &self.options)
    }
}

impl Display for AlterRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ALTER ROLE {}{}",
            when(self.if_exists, "IF EXISTS "),
            Role(&self.name)
        )?;
        role_options(f, &self.options)
    }
}

impl Display for DropRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DROP ROLE {}{}",
            when(self.if_exists, "IF EXISTS "),
            Role(&self.name)
        )
    }
}

/// The name of a role: a string where an identifier could not be written.
struct Role<'a>(&'a str);

impl Display for Role<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            f.write_str("''")
        } else {
            Name(self.0).fmt(f)
        }
    }
}

fn role_options(f: &mut Formatter<'_>, options: &[RoleOption]) -> fmt::Result {
    conjunction(f, "WITH", options)
}

impl Display for RoleOption {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            RoleOption::Password(text) => write!(f, "PASSWORD = {}", quote_string(text)),
            RoleOption::HashedPassword(text) => write!(f, "HASHED PASSWORD = {}", quote_string(text)),
            RoleOption::Login(value) => write!(f, "LOGIN = {value}"),
            RoleOption::Superuser(value) => write!(f, "SUPERUSER = {value}"),
            RoleOption::Options(entries) => {
                f.write_str("OPTIONS = ")?;
                entries_of(f, entries)
            }
            RoleOption::Datacenters(None) => f.write_str("ACCESS TO ALL DATACENTERS"),
            RoleOption::Datacenters(Some(names)) => {
                f.write_str("ACCESS TO DATACENTERS ")?;
                string_set(f, names)
            }
            RoleOption::Cidrs(None) => f.write_str("ACCESS FROM ALL CIDRS"),
            RoleOption::Cidrs(Some(names)) => {
                f.write_str("ACCESS FROM CIDRS ")?;
                string_set(f, names)
            }
        }
    }
}

fn string_set(f: &mut Formatter<'_>, strings: &[String]) -> fmt::Result {
    bracketed(f, "{}", |f| {
        separated(f, ", ", strings, |f, string| f.write_str(&quote_string(string)))
    })
}

impl Display for CreateUser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE USER {}{}",
            when(self.if_not_exists, "IF NOT EXISTS "),
            Role(&self.name)
        )?;
        user_password(f, &self.password)?;
        f.write_str(when(self.superuser, " SUPERUSER"))
    }
}

impl Display for AlterUser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ALTER USER {}{}",
            when(self.if_exists, "IF EXISTS "),
            Role(&self.name)
        )?;
        user_password(f, &self.password)?;
        f.write_str(match self.superuser {
            Some(true) => " SUPERUSER",
            Some(false) => " NOSUPERUSER",
            None => "",
        })
    }
}

fn user_password(f: &mut Formatter<'_>, password: &Option<UserPassword>) -> fmt::Result {
    match password {
        Some(password) => {
            write!(
                f,
                " WITH {}PASSWORD {}",
                when(password.hashed, "HASHED "),
                quote_string(&password.text)
            )
        }
        None => Ok(()),
    }
}

impl Display for DropUser {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DROP USER {}{}",
            when(self.if_exists, "IF EXISTS "),
            Role(&self.name)
        )
    }
}

impl Display for AddIdentity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let condition = when(self.if_not_exists, "IF NOT EXISTS ");
        write!(
            f,
            "ADD IDENTITY {condition}{} TO ROLE {}",
            quote_string(&self.identity),
            Role(&self.role)
        )
    }
}

impl Display for DropIdentity {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DROP IDENTITY {}{}",
            when(self.if_exists, "IF EXISTS "),
            quote_string(&self.identity)
        )
    }
}

impl Display for Grant {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "GRANT {} ON {} TO {}",
            self.permissions,
            self.resource,
            Role(&self.role)
        )
    }
}

impl Display for Revoke {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "REVOKE {} ON {} FROM {}",
            self.permissions,
            self.resource,
            Role(&self.role)
        )
    }
}

impl Display for GrantRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "GRANT {} TO {}", Role(&self.role), Role(&self.grantee))
    }
}

impl Display for RevokeRole {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "REVOKE {} FROM {}", Role(&self.role), Role(&self.grantee))
    }
}

impl Display for Permissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Permissions::All => f.write_str("ALL PERMISSIONS"),
            Permissions::Some(permissions) => list(f, permissions),
        }
    }
}

impl Display for Permission {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Permission::Create => "CREATE",
            Permission::Alter => "ALTER",
            Permission::Drop => "DROP",
            Permission::Select => "SELECT",
            Permission::Modify => "MODIFY",
            Permission::Authorize => "AUTHORIZE",
            Permission::Describe => "DESCRIBE",
            Permission::Execute => "EXECUTE",
            Permission::Unmask => "UNMASK",
            Permission::SelectMasked => "SELECT_MASKED",
        })
    }
}

impl Display for Resource {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Resource::AllKeyspaces => f.write_str("ALL KEYSPACES"),
            Resource::Keyspace(name) => write!(f, "KEYSPACE {}", Name(name)),
            Resource::AllTables(keyspace) => write!(f, "ALL TABLES IN KEYSPACE {}", Name(keyspace)),
            Resource::Table(name) => write!(f, "TABLE {name}"),
            Resource::AllRoles => f.write_str("ALL ROLES"),
            Resource::Role(name) => write!(f, "ROLE {}", Role(name)),
            Resource::AllFunctions => f.write_str("ALL FUNCTIONS"),
            Resource::AllFunctionsIn(keyspace) => write!(f, "ALL FUNCTIONS IN KEYSPACE {}", Name(keyspace)),
            Resource::Function { name, argument_types } => {
                write!(f, "FUNCTION {}(", super::term::FunctionName(name))?;
                list(f, argument_types)?;
                f.write_str(")")
            }
            Resource::AllMbeans => f.write_str("ALL MBEANS"),
            Resource::Mbean(name) => write!(f, "MBEAN {}", quote_string(name)),
            Resource::Mbeans(pattern) => write!(f, "MBEANS {}", quote_string(pattern)),
        }
    }
}

impl Display for ListPermissions {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "LIST {}", self.permissions)?;
        if let Some(resource) = &self.resource {
            write!(f, " ON {resource}")?;
        }
        of_role(f, &self.role, self.recursive)
    }
}

impl Display for ListRoles {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("LIST ROLES")?;
        of_role(f, &self.role, self.recursive)
    }
}

fn of_role(f: &mut Formatter<'_>, role: &Option<String>, recursive: bool) -> fmt::Result {
    if let Some(role) = role {
        write!(f, " OF {}", Role(role))?;
    }
    f.write_str(when(!recursive, " NORECURSIVE"))
}
