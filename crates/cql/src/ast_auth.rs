//! The part of the syntax tree about roles and permissions.

use crate::ast::{Literal, QualifiedName, TypeName};

/// `CREATE ROLE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateRole {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The role; `'Quoted'` and `"Quoted"` keep their case.
    pub name: String,
    /// `WITH`.
    pub options: Vec<RoleOption>,
}

/// `ALTER ROLE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterRole {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The role.
    pub name: String,
    /// `WITH`.
    pub options: Vec<RoleOption>,
}

/// `DROP ROLE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropRole {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The role.
    pub name: String,
}

/// One option of a role.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RoleOption {
    /// `PASSWORD = 'text'`
    Password(String),
    /// `HASHED PASSWORD = 'hash'`
    HashedPassword(String),
    /// `LOGIN = boolean`
    Login(bool),
    /// `SUPERUSER = boolean`
    Superuser(bool),
    /// `OPTIONS = {…}`: for the authenticator.
    Options(Vec<(Literal, Literal)>),
    /// `ACCESS TO DATACENTERS {…}`; `None` for `ACCESS TO ALL DATACENTERS`.
    Datacenters(Option<Vec<String>>),
    /// `ACCESS FROM CIDRS {…}`; `None` for `ACCESS FROM ALL CIDRS`.
    Cidrs(Option<Vec<String>>),
}

/// `CREATE USER`: the older form of CREATE ROLE with LOGIN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CreateUser {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The user.
    pub name: String,
    /// `WITH PASSWORD`
    pub password: Option<UserPassword>,
    /// `SUPERUSER`
    pub superuser: bool,
}

/// `ALTER USER`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AlterUser {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The user.
    pub name: String,
    /// `WITH PASSWORD`
    pub password: Option<UserPassword>,
    /// `SUPERUSER` or `NOSUPERUSER`, when given.
    pub superuser: Option<bool>,
}

/// The password of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserPassword {
    /// `HASHED PASSWORD`: the text is already a hash.
    pub hashed: bool,
    /// The password or its hash.
    pub text: String,
}

/// `DROP USER`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropUser {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The user.
    pub name: String,
}

/// `ADD IDENTITY 'certificate name' TO ROLE role`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddIdentity {
    /// `IF NOT EXISTS`
    pub if_not_exists: bool,
    /// The name a client's certificate carries.
    pub identity: String,
    /// The role of clients with that certificate.
    pub role: String,
}

/// `DROP IDENTITY 'certificate name'`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DropIdentity {
    /// `IF EXISTS`
    pub if_exists: bool,
    /// The name a client's certificate carries.
    pub identity: String,
}

/// What a role may do to a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[expect(missing_docs, reason = "each variant is the permission of that name")]
pub enum Permission {
    Create,
    Alter,
    Drop,
    Select,
    Modify,
    Authorize,
    Describe,
    Execute,
    Unmask,
    SelectMasked,
}

/// The permissions a statement names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permissions {
    /// `ALL [PERMISSIONS]`
    All,
    /// A list, never empty.
    Some(Vec<Permission>),
}

/// What permissions are held on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// `ALL KEYSPACES`
    AllKeyspaces,
    /// `KEYSPACE name`
    Keyspace(String),
    /// `ALL TABLES IN KEYSPACE name`
    AllTables(String),
    /// `[TABLE] name`
    Table(QualifiedName),
    /// `ALL ROLES`
    AllRoles,
    /// `ROLE name`
    Role(String),
    /// `ALL FUNCTIONS`
    AllFunctions,
    /// `ALL FUNCTIONS IN KEYSPACE name`
    AllFunctionsIn(String),
    /// `FUNCTION name(types)`
    Function {
        /// The function.
        name: QualifiedName,
        /// Its argument types.
        argument_types: Vec<TypeName>,
    },
    /// `ALL MBEANS`
    AllMbeans,
    /// `MBEAN 'name'`
    Mbean(String),
    /// `MBEANS 'pattern'`
    Mbeans(String),
}

/// `GRANT permissions ON resource TO role`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// What is permitted.
    pub permissions: Permissions,
    /// On what.
    pub resource: Resource,
    /// The role that receives them.
    pub role: String,
}

/// `REVOKE permissions ON resource FROM role`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revoke {
    /// What is no longer permitted.
    pub permissions: Permissions,
    /// On what.
    pub resource: Resource,
    /// The role that loses them.
    pub role: String,
}

/// `GRANT role TO grantee`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRole {
    /// The role given.
    pub role: String,
    /// The role that receives it.
    pub grantee: String,
}

/// `REVOKE role FROM grantee`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RevokeRole {
    /// The role taken.
    pub role: String,
    /// The role that loses it.
    pub grantee: String,
}

/// `LIST permissions [ON resource] [OF role] [NORECURSIVE]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListPermissions {
    /// Which permissions.
    pub permissions: Permissions,
    /// On what; anything when `None`.
    pub resource: Option<Resource>,
    /// The role that holds them; any role when `None`.
    pub role: Option<String>,
    /// Also those inherited; `NORECURSIVE` makes it false.
    pub recursive: bool,
}

/// `LIST ROLES [OF role] [NORECURSIVE]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListRoles {
    /// Only the roles granted to this role; all roles when `None`.
    pub role: Option<String>,
    /// Also those inherited; `NORECURSIVE` makes it false.
    pub recursive: bool,
}
