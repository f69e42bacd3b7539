//! The principal of a session, and what it may do: the one place that refuses a request.
//!
//! Clients do not log in yet, so every session has the anonymous superuser. A front door asks [`Session::permits`]
//! before it executes a request, and answers [`Unauthorized`] in its protocol.

use std::fmt;
use std::rc::Rc;

use crate::session::Session;

/// The name of every principal, as long as clients do not log in.
pub const ANONYMOUS: &str = "anonymous";

/// The user or role that a session acts for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    name: Rc<str>,
    permissions: Permissions,
}

/// The operations that a principal may do, a bit each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Permissions(u8);

impl Permissions {
    /// All operations, those of later releases too: a superuser's.
    pub const ALL: Self = Self(u8::MAX);

    /// These operations.
    #[must_use]
    pub fn only(operations: &[Operation]) -> Self {
        Self(operations.iter().fold(0, |bits, operation| bits | operation.bit()))
    }

    fn contains(self, operation: Operation) -> bool {
        self.0 & operation.bit() != 0
    }
}

/// What a request does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Reads rows.
    Read,
    /// Writes or deletes rows.
    Write,
    /// Changes the schema.
    ChangeSchema,
}

impl Operation {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// What a request does, and to what.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Access<'a> {
    /// What it does.
    pub operation: Operation,
    /// The keyspace and the table; None where the request is about no table that exists.
    pub table: Option<(&'a str, &'a str)>,
}

/// The session's principal may not do this; the text is for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unauthorized(pub String);

impl fmt::Display for Unauthorized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unauthorized {}

impl Principal {
    /// A principal of this name.
    #[must_use]
    pub fn new(name: &str, permissions: Permissions) -> Self {
        Self {
            name: name.into(),
            permissions,
        }
    }

    /// The principal of a client that has not logged in.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new(ANONYMOUS, Permissions::ALL)
    }

    #[cold]
    fn check(&self, access: Access<'_>) -> Result<(), Unauthorized> {
        if self.permissions.contains(access.operation) {
            return Ok(());
        }
        let may_not = match access.operation {
            Operation::Read => "may not read",
            Operation::Write => "may not write",
            Operation::ChangeSchema => "may not change the schema",
        };
        let table = access
            .table
            .map(|(keyspace, table)| format!(" <table {keyspace}.{table}>"));
        Err(Unauthorized(format!(
            "User {} {may_not}{}",
            self.name,
            table.unwrap_or_default()
        )))
    }
}

impl Session {
    /// Whether the session's principal may do what a request does. What that is has to be found only for principals
    /// that are no superusers.
    ///
    /// # Errors
    /// When it may not.
    #[inline]
    pub fn permits<'a>(&self, access: impl FnOnce() -> Access<'a>) -> Result<(), Unauthorized> {
        match self.principal.permissions {
            Permissions::ALL => Ok(()),
            _ => self.principal.check(access()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_principal_that_may_only_read_is_told_what_it_may_not_do() {
        let access = |operation| Access {
            operation,
            table: Some(("ks", "t")),
        };
        let reader = Principal::new("ann", Permissions::only(&[Operation::Read]));
        let refused = |text: &str| Err(Unauthorized(text.to_owned()));
        assert_eq!(reader.check(access(Operation::Read)), Ok(()));
        assert_eq!(
            reader.check(access(Operation::Write)),
            refused("User ann may not write <table ks.t>")
        );
        let schema = Access {
            operation: Operation::ChangeSchema,
            table: None,
        };
        assert_eq!(reader.check(schema), refused("User ann may not change the schema"));
        assert_eq!(Principal::anonymous().check(schema), Ok(()), "it is a superuser");
    }
}
