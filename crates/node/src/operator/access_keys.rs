//! The access keys of the DynamoDB API, for operators.

use admin::AccessKeys;
use admin::access_keys::{AccessKey, NewAccessKey};
use admin::operator::Local;
use dynamodb_engine::access_keys::{self, Status};

use super::NodeOperator;

impl AccessKeys for NodeOperator {
    fn access_keys(&self) -> Local<'_, Result<Vec<AccessKey>, String>> {
        Box::pin(async move {
            let keys = access_keys::list(&self.engine).await.map_err(|e| e.message())?;
            let shown = keys.into_iter().map(|key| AccessKey {
                access_key: key.access_key,
                created_ms: key.created_ms,
                is_active: key.status == Status::Active,
            });
            Ok(shown.collect())
        })
    }

    fn create_access_key(&self) -> Local<'_, Result<NewAccessKey, String>> {
        Box::pin(async move {
            let key = access_keys::create(&self.engine).await.map_err(|e| e.message())?;
            log::info!("an operator made access key {} of the DynamoDB API", key.access_key);
            Ok(NewAccessKey {
                access_key: key.access_key,
                secret: key.secret,
            })
        })
    }

    fn set_access_key_active(&self, access_key: String, is_active: bool) -> Local<'_, Result<bool, String>> {
        Box::pin(async move {
            let status = if is_active { Status::Active } else { Status::Inactive };
            let set = access_keys::set_status(&self.engine, &access_key, status).await;
            let is_found = set.map_err(|e| e.message())?;
            if is_found {
                let status = status.name();
                log::info!("an operator changed the status of access key {access_key:?} of the DynamoDB API: {status}");
            }
            Ok(is_found)
        })
    }

    fn delete_access_key(&self, access_key: String) -> Local<'_, Result<bool, String>> {
        Box::pin(async move {
            let deleted = access_keys::delete(&self.engine, &access_key).await;
            let is_found = deleted.map_err(|e| e.message())?;
            if is_found {
                log::info!("an operator deleted access key {access_key:?} of the DynamoDB API");
            }
            Ok(is_found)
        })
    }
}
