//! What DescribeTable says of how large a table is.

use std::time::Duration;

use crate::support::{ask, with_service};

/// How long an estimate is shown unless an option says otherwise.
const VALIDITY: Duration = Duration::from_secs(6 * 60 * 60);

const TABLE: &str = r#"{"TableName":"t","AttributeDefinitions":[{"AttributeName":"p","AttributeType":"S"}],
    "KeySchema":[{"AttributeName":"p","KeyType":"HASH"}],"BillingMode":"PAY_PER_REQUEST"}"#;

/// ItemCount and TableSizeBytes of an answer.
fn sizes(answer: &str) -> (u64, u64) {
    let number = |name: &str| {
        let rest = answer
            .split(&format!("\"{name}\":"))
            .nth(1)
            .expect("a description has sizes");
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().expect("a size is a number")
    };
    (number("ItemCount"), number("TableSizeBytes"))
}

#[test]
fn sizes_are_those_of_all_shards_and_stay_for_six_hours() {
    with_service(1, |service| async move {
        assert_eq!(sizes(&ask(&service, "CreateTable", TABLE).await), (0, 0));
        let put = |number: u32| format!(r#"{{"TableName":"t","Item":{{"p":{{"S":"{number}"}}}}}}"#);
        for number in 0..40 {
            ask(&service, "PutItem", &put(number)).await;
            ask(&service, "PutItem", &put(number)).await;
        }
        let describe = r#"{"TableName":"t"}"#;
        let (items, bytes) = sizes(&ask(&service, "DescribeTable", describe).await);
        assert_eq!(items, 40);
        assert!(bytes > 40 * 5, "{bytes} bytes");
        ask(&service, "PutItem", &put(40)).await;
        assert_eq!(sizes(&ask(&service, "DescribeTable", describe).await), (items, bytes));
        runtime::sleep(VALIDITY).await;
        let (items, later) = sizes(&ask(&service, "DescribeTable", describe).await);
        assert_eq!(items, 41);
        assert!(later > bytes);
    });
}
