//! The access keys of the DynamoDB API. These paths are ceto's own.

use serde_json::{Value, json};

use super::Handler::Later;
use super::{Answer, Call, Route, failed};
use crate::access_keys::AccessKey;

pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/ceto/dynamodb/keys",
        "Access keys of the DynamoDB API: name, status, and when each was made; without the secrets",
        Later(|call| Box::pin(list(call))),
    ),
    Route::post(
        "/ceto/dynamodb/keys",
        "Make an access key of the DynamoDB API; the answer has its secret, which is not shown again",
        Later(|call| Box::pin(create(call))),
    ),
    Route::post(
        "/ceto/dynamodb/keys/{access_key}",
        "Make an access key active or inactive",
        Later(|call| Box::pin(set_status(call))),
    )
    .takes(&[("status", "Active or Inactive")]),
    Route::delete(
        "/ceto/dynamodb/keys/{access_key}",
        "Delete an access key; nodes refuse it ten seconds later at the latest",
        Later(|call| Box::pin(delete(call))),
    ),
];

fn described(key: &AccessKey) -> Value {
    json!({
        "access_key": key.access_key,
        "status": if key.is_active { "Active" } else { "Inactive" },
        "created": key.created_ms,
    })
}

async fn list(call: &Call) -> Answer {
    let keys = call.operator.access_keys().await.map_err(failed)?;
    Ok(keys.iter().map(described).collect())
}

async fn create(call: &Call) -> Answer {
    let key = call.operator.create_access_key().await.map_err(failed)?;
    Ok(json!({"access_key": key.access_key, "secret": key.secret}))
}

async fn set_status(call: &Call) -> Answer {
    let is_active = match call.parameter("status") {
        Some("Active") => true,
        Some("Inactive") => false,
        _ => return Err((400, "status: expected Active or Inactive".to_owned())),
    };
    let found = call.operator.set_access_key_active(call.part().to_owned(), is_active);
    known(call, found.await)
}

async fn delete(call: &Call) -> Answer {
    let found = call.operator.delete_access_key(call.part().to_owned());
    known(call, found.await)
}

fn known(call: &Call, found: Result<bool, String>) -> Answer {
    if found.map_err(failed)? {
        Ok(Value::Null)
    } else {
        Err((404, format!("there is no access key '{}'", call.part())))
    }
}
