//! The AWS SDK for Rust with serde_dynamo: `dynamodb-test ENDPOINT CUTTING_ENDPOINT PREFIX`. tests/drivers/test_dynamodb.py says what these are.

mod items;
mod many;
mod tables;

use std::collections::HashMap;
use std::process::ExitCode;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::AttributeValue;

pub type Item = HashMap<String, AttributeValue>;
/// What a check found wrong.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

pub struct Application {
    pub client: Client,
    /// A client of the endpoint that loses the answer to each first attempt.
    pub cut: Client,
    pub table: String,
    pub counters: String,
    pub prefix: String,
}

macro_rules! check {
    ($application:ident, $what:literal, $check:path) => {
        match $check(&$application).await {
            Ok(()) => println!("ok: {}", $what),
            Err(error) => {
                println!("failed: {}\n{error:#?}", $what);
                return ExitCode::FAILURE;
            }
        }
    };
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, endpoint, cutting_endpoint, prefix] = arguments.as_slice() else {
        eprintln!("dynamodb-test ENDPOINT CUTTING_ENDPOINT PREFIX");
        return ExitCode::FAILURE;
    };
    let application = Application {
        client: client(endpoint),
        cut: client(cutting_endpoint),
        table: format!("{prefix}-music"),
        counters: format!("{prefix}-counters"),
        prefix: prefix.clone(),
    };
    check!(
        application,
        "a table is created, waited for and described",
        tables::creates
    );
    check!(application, "errors of tables have their types", tables::fails_by_types);
    check!(
        application,
        "a table has a TTL, tags and another billing mode",
        tables::alters
    );
    check!(application, "values of every type come back", items::writes_every_type);
    check!(application, "a struct comes back as it was", items::serializes);
    check!(
        application,
        "a put replaces an item and returns the old one",
        items::puts
    );
    check!(application, "an update returns what was asked for", items::updates);
    check!(application, "a delete removes an item and returns it", items::deletes);
    check!(application, "a query reads all pages", many::queries);
    check!(application, "a scan reads all pages, also in parallel", many::scans);
    check!(
        application,
        "batches are written and read until nothing is left",
        many::batches
    );
    check!(application, "a transaction is done as a whole", many::transacts);
    check!(
        application,
        "a cancelled transaction has a reason for each item",
        many::cancels
    );
    check!(application, "PartiQL statements write and read", many::statements);
    check!(
        application,
        "a request whose answer is lost is sent again and done once",
        many::retries
    );
    check!(application, "a table is deleted and waited for", tables::deletes);
    println!("all as it should be");
    ExitCode::SUCCESS
}

fn client(endpoint: &str) -> Client {
    let config = aws_sdk_dynamodb::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new("any", "any", None, None, "test"))
        .endpoint_url(endpoint)
        .build();
    Client::from_conf(config)
}

pub fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub fn n(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub fn item<const N: usize>(attributes: [(&str, AttributeValue); N]) -> Item {
    attributes.map(|(name, value)| (name.to_owned(), value)).into()
}

pub fn key(p: &str, c: i64) -> Item {
    item([("p", s(p)), ("c", n(c))])
}

pub fn with<const N: usize>(mut to: Item, attributes: [(&str, AttributeValue); N]) -> Item {
    to.extend(item(attributes));
    to
}

#[track_caller]
pub fn equal<T: PartialEq + std::fmt::Debug>(actual: &T, expected: &T) -> Result {
    holds(actual == expected, || format!("{actual:#?}\nis not\n{expected:#?}"))
}

#[track_caller]
pub fn holds(condition: bool, what: impl FnOnce() -> String) -> Result {
    if condition {
        Ok(())
    } else {
        Err(format!("{}: {}", std::panic::Location::caller(), what()).into())
    }
}

/// The service error of a request that has to fail.
pub fn failure<T: std::fmt::Debug, E: std::error::Error + 'static>(
    answer: std::result::Result<T, SdkError<E>>,
) -> Result<E> {
    match answer {
        Ok(answer) => Err(format!("did not fail: {answer:?}").into()),
        Err(SdkError::ServiceError(error)) => Ok(error.into_err()),
        Err(error) => Err(format!("not an error of the service: {error:?}").into()),
    }
}

/// Checks for a ValidationException, which has no type in this SDK, with some of its message.
pub fn refuses<T, E>(answer: std::result::Result<T, SdkError<E>>, message: &str) -> Result
where
    T: std::fmt::Debug,
    E: std::error::Error + ProvideErrorMetadata + 'static,
{
    let error = failure(answer)?;
    let is_refused =
        error.code() == Some("ValidationException") && error.message().unwrap_or_default().contains(message);
    holds(is_refused, || {
        format!("{error:?} is not the ValidationException {message:?}")
    })
}
