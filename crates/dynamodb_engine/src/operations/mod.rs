//! The operations of the API: each takes its request and gives the bytes of its answer.

mod backup;
mod batch;
mod item;
mod select;
mod statement;
mod system;
mod table;
mod transact;

use std::rc::Rc;

use dynamodb::answer::{CapacityKind, ConsumedCapacity};
use dynamodb::arn::TableReference;
use dynamodb::capacity::Units;
use dynamodb::request::{Operation, Request};
use dynamodb::value::size;
use dynamodb::{Error, ErrorKind, Item};
use stdx::preempt;

use crate::service::Service;

/// The capacity that a request has consumed on a table.
fn consumed(table: &TableReference, table_units: Units, kind: CapacityKind) -> ConsumedCapacity {
    ConsumedCapacity {
        table: table.given().to_owned(),
        table_units,
        kind,
        ..ConsumedCapacity::default()
    }
}

/// Adds what was consumed on a table to what is known of it.
fn add_consumed(all: &mut Vec<ConsumedCapacity>, more: ConsumedCapacity) {
    match all.iter_mut().find(|known| known.table == more.table) {
        Some(known) => known.table_units = known.table_units.plus(more.table_units),
        None => all.push(more),
    }
}

/// The size of an item; one that is not there has none.
fn bytes_of(item: Option<&Item>) -> usize {
    item.map_or(0, size::item_bytes)
}

impl Service {
    /// Executes an operation; the answer is the body of an HTTP answer with status 200.
    ///
    /// # Errors
    /// Those of the API; [`Error::write_json`] makes the body and [`Error::http_status`] the status.
    pub async fn execute(self: &Rc<Self>, operation: &str, body: &[u8]) -> Result<Vec<u8>, Error> {
        let Some(operation) = Operation::from_name(operation) else {
            return Err(Error::new(ErrorKind::UnknownOperation, ""));
        };
        let writes_max = self.settings.batch_write_items_max;
        let request = preempt::allowed(|| Request::parse_with_writes(operation, body, writes_max))?;
        match request {
            Request::GetItem(request) => self.get_item(request).await,
            Request::PutItem(request) => self.put_item(request).await,
            Request::UpdateItem(request) => self.update_item(request).await,
            Request::DeleteItem(request) => self.delete_item(request).await,
            Request::Query(request) => self.query(request).await,
            Request::Scan(request) => self.scan(request).await,
            Request::BatchGetItem(request) => self.batch_get_item(request).await,
            Request::BatchWriteItem(request) => self.batch_write_item(request).await,
            Request::TransactWriteItems(request) => self.transact_write_items(request).await,
            Request::TransactGetItems(request) => self.transact_get_items(request).await,
            Request::CreateTable(request) => self.create_table_of(*request).await,
            Request::UpdateTable(request) => self.update_table(*request).await,
            Request::DeleteTable(table) => self.delete_table_of(&table).await,
            Request::DescribeTable(table) => self.describe_table(&table).await,
            Request::ListTables(request) => Ok(self.list_tables(&request)),
            Request::TagResource(request) => self.tag_resource(request).await,
            Request::UntagResource(request) => self.untag_resource(request).await,
            Request::ListTagsOfResource(request) => self.list_tags_of_resource(&request),
            Request::UpdateTimeToLive(request) => self.update_time_to_live(request).await,
            Request::DescribeTimeToLive(table) => self.describe_time_to_live(&table),
            Request::DescribeContinuousBackups(table) => self.describe_continuous_backups(&table),
            Request::DescribeEndpoints(()) => Ok(self.describe_endpoints()),
            Request::DescribeLimits(()) => Ok(Self::describe_limits()),
            Request::ExecuteStatement(request) => self.execute_statement(request).await,
            Request::BatchExecuteStatement(request) => self.batch_execute_statement(request).await,
            Request::ExecuteTransaction(request) => self.execute_transaction(request).await,
            Request::CreateBackup(request) => self.create_backup_of(request).await,
            Request::DeleteBackup(arn) => self.delete_backup_of(&arn).await,
            Request::DescribeBackup(arn) => self.describe_backup(&arn).await,
            Request::ListBackups(request) => self.list_backups(&request).await,
            Request::RestoreTableFromBackup(request) => self.restore_table_from_backup(request).await,
        }
    }
}
