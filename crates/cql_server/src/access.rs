//! What statements do, as far as a principal needs permission for it. Statements are checked when they are executed,
//! not when they are prepared.

use front::{Access, Operation, Session};
use plan::Plan;
use query::{Prepared, QueryError, Statement};

/// Refuses a statement that the session's principal may not execute.
#[inline]
pub(crate) fn authorize(session: &Session, prepared: &Prepared) -> Result<(), QueryError> {
    let permitted = session.permits(|| access_of(prepared));
    permitted.map_err(|refusal| QueryError::Unauthorized(refusal.0))
}

fn access_of(prepared: &Prepared) -> Access<'_> {
    let operation = match &*prepared.statement {
        Statement::Plan(Plan::Select(_)) | Statement::Use(_) | Statement::Describe(_) => Operation::Read,
        Statement::Plan(Plan::Write(_) | Plan::Batch(_) | Plan::VirtualWrite(_)) | Statement::Truncate(..) => {
            Operation::Write
        }
        Statement::Ddl(_) => Operation::ChangeSchema,
    };
    let table = prepared.table.as_deref();
    Access {
        operation,
        table: table.map(|table| (&*table.keyspace, &*table.name)),
    }
}
