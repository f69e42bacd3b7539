//! Requests of the API: one type for each operation, made of the JSON body of a call.
//!
//! [`Request::parse`] reads a body and makes all checks that need no table, in the order and with the texts of the
//! service. Checks that need the table are methods of the requests with its definition: `key`, `keys`, `key_range`,
//! `apply`. What an operation returns is in [`crate::answer`].

pub(crate) mod admin;
pub(crate) mod batch;
pub(crate) mod constraints;
pub(crate) mod create_table;
pub(crate) mod expressions;
mod indexes;
pub(crate) mod item;
pub(crate) mod json;
mod key_range;
mod names;
pub(crate) mod options;
pub(crate) mod query;
mod shapes;
pub(crate) mod statement;
pub(crate) mod transact;
pub(crate) mod update_table;

pub use admin::{
    BackupType, CreateBackup, ListBackups, ListTables, ListTagsOfResource, RestoreTableFromBackup, TagResource,
    UntagResource, UpdateTimeToLive,
};
pub use batch::{BatchGetItem, BatchWrite, BatchWriteItem, GivenProjection, TableKeys, TableWrites, WRITES_MAX};
pub use create_table::CreateTable;
pub use expressions::{Clause, Substitutions};
pub use item::{DeleteItem, GetItem, PutItem, UpdateItem};
pub(crate) use item::{check_item_size, check_no_key_update};
pub use key_range::{KeyRange, SortRange};
pub use options::{
    ReturnConsumedCapacity, ReturnItemCollectionMetrics, ReturnValuesOnConditionCheckFailure, Select, WriteOptions,
};
pub use query::{Query, ReadItems, Scan};
pub use statement::{BatchExecuteStatement, ExecuteStatement, ExecuteTransaction, Statement};
pub use transact::{
    TransactGet, TransactGetItems, TransactOperation, TransactWrite, TransactWriteItems, all_keys, check_distinct,
};
pub use update_table::{IndexUpdate, UpdateTable};

use crate::arn::TableReference;
use crate::error::{Error, ErrorKind};

/// Declares the operations, each with what its request holds and how it is read.
macro_rules! operations {
    ($($operation:ident ($held:ty) = $input:ty, $make:expr;)*) => {
        /// An operation of the API.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[expect(missing_docs, reason = "the names are those of the API reference")]
        pub enum Operation {
            $($operation,)*
        }

        /// A request.
        #[derive(Clone, PartialEq, Debug)]
        #[expect(missing_docs, reason = "the names are those of the API reference")]
        pub enum Request {
            $($operation($held),)*
        }

        impl Operation {
            /// All operations.
            pub const ALL: &'static [Self] = &[$(Self::$operation,)*];

            /// The name in the API.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$operation => stringify!($operation),)*
                }
            }

            /// The operation of a name.
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $(stringify!($operation) => Some(Self::$operation),)*
                    _ => None,
                }
            }
        }

        impl Request {
            /// Reads the body of a call.
            ///
            /// # Errors
            /// A SerializationException for a body that is not the JSON of the operation, and a ValidationException
            /// (seldom another) for values that the operation does not take.
            pub fn parse(operation: Operation, body: &[u8]) -> Result<Self, Error> {
                match operation {
                    $(Operation::$operation => {
                        let input: $input = json::read(body)?;
                        $make(input).map(Self::$operation)
                    })*
                }
            }

            /// The operation.
            pub fn operation(&self) -> Operation {
                match self {
                    $(Self::$operation(_) => Operation::$operation,)*
                }
            }
        }
    };
}

operations! {
    BatchExecuteStatement(BatchExecuteStatement) = statement::BatchExecuteStatementInput, statement::batch_execute;
    BatchGetItem(BatchGetItem) = batch::BatchGetItemInput, batch::batch_get_item;
    BatchWriteItem(BatchWriteItem) = batch::BatchWriteItemInput, batch::batch_write_item;
    CreateBackup(CreateBackup) = admin::BackupInput, admin::create_backup;
    CreateTable(Box<CreateTable>) = create_table::CreateTableInput, boxed(create_table::create_table);
    DeleteBackup(String) = admin::BackupInput, admin::backup;
    DeleteItem(DeleteItem) = item::DeleteItemInput, item::delete_item;
    DeleteTable(TableReference) = admin::TableInput, admin::table;
    DescribeBackup(String) = admin::BackupInput, admin::backup;
    DescribeContinuousBackups(TableReference) = admin::TableInput, admin::table;
    DescribeEndpoints(()) = shapes::Opaque, nothing;
    DescribeLimits(()) = shapes::Opaque, nothing;
    DescribeTable(TableReference) = admin::TableInput, admin::table;
    DescribeTimeToLive(TableReference) = admin::TableInput, admin::table;
    ExecuteStatement(ExecuteStatement) = statement::ExecuteStatementInput, statement::execute;
    ExecuteTransaction(ExecuteTransaction) = statement::ExecuteTransactionInput, statement::execute_transaction;
    GetItem(GetItem) = item::GetItemInput, item::get_item;
    ListBackups(ListBackups) = admin::BackupInput, admin::list_backups;
    ListTables(ListTables) = admin::ListTablesInput, admin::list_tables;
    ListTagsOfResource(ListTagsOfResource) = admin::TagsInput, admin::list_tags_of_resource;
    PutItem(PutItem) = item::PutItemInput, item::put_item;
    Query(Query) = query::QueryInput, query::query;
    RestoreTableFromBackup(RestoreTableFromBackup) = admin::BackupInput, admin::restore;
    Scan(Scan) = query::ScanInput, query::scan;
    TagResource(TagResource) = admin::TagsInput, admin::tag_resource;
    TransactGetItems(TransactGetItems) = transact::TransactGetItemsInput, transact::transact_get_items;
    TransactWriteItems(TransactWriteItems) = transact::TransactWriteItemsInput, transact::transact_write_items;
    UntagResource(UntagResource) = admin::TagsInput, admin::untag_resource;
    UpdateItem(UpdateItem) = item::UpdateItemInput, item::update_item;
    UpdateTable(Box<UpdateTable>) = update_table::UpdateTableInput, boxed(update_table::update_table);
    UpdateTimeToLive(UpdateTimeToLive) = admin::UpdateTimeToLiveInput, admin::update_time_to_live;
}

impl Request {
    /// As [`Request::parse`], for a server whose operator has set how many writes a BatchWriteItem may have.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub fn parse_with_writes(operation: Operation, body: &[u8], writes_max: usize) -> Result<Self, Error> {
        if operation == Operation::BatchWriteItem {
            return batch::batch_write_up_to(json::read(body)?, writes_max).map(Self::BatchWriteItem);
        }
        Self::parse(operation, body)
    }
}

/// The request of a body without members.
fn nothing(_: shapes::Opaque) -> Result<(), Error> {
    Ok(())
}

/// Puts a large request into a box.
fn boxed<I, R>(make: impl Fn(I) -> Result<R, Error>) -> impl Fn(I) -> Result<Box<R>, Error> {
    move |input| make(input).map(Box::new)
}

/// The error for a table that is not there, of the operations on items.
pub fn table_not_found() -> Error {
    Error::new(ErrorKind::ResourceNotFound, "Requested resource not found")
}

/// The error for a table that is not there, of the operations on tables.
pub fn named_table_not_found(name: &str) -> Error {
    let text = format!("Requested resource not found: Table: {name} not found");
    Error::new(ErrorKind::ResourceNotFound, text)
}
