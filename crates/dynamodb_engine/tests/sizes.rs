//! What DescribeTable says of how large a table is.

use crate::support::{ask, with_service};

const TABLE: &str = r#"{"TableName":"table","AttributeDefinitions":[{"AttributeName":"p","AttributeType":"S"}],
    "KeySchema":[{"AttributeName":"p","KeyType":"HASH"}],"BillingMode":"PAY_PER_REQUEST"}"#;

/// ItemCount and TableSizeBytes of an answer.
fn sizes(answer: &str) -> (u64, u64) {
    let number = |name: &str| {
        let rest = answer
            .split(&format!("\"{name}\":"))
            .nth(1)
            .unwrap_or_else(|| panic!("{answer} has no {name}"));
        let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
        digits.parse().expect("a size is a number")
    };
    (number("ItemCount"), number("TableSizeBytes"))
}

#[test]
fn sizes_are_those_of_all_shards_and_stay_for_a_while() {
    with_service(1, |service| async move {
        assert_eq!(sizes(&ask(&service, "CreateTable", TABLE).await), (0, 0));
        let put = |number: u32| format!(r#"{{"TableName":"table","Item":{{"p":{{"S":"{number}"}}}}}}"#);
        for number in 0..40 {
            ask(&service, "PutItem", &put(number)).await;
            ask(&service, "PutItem", &put(number)).await;
        }
        let describe = r#"{"TableName":"table"}"#;
        let (items, bytes) = sizes(&ask(&service, "DescribeTable", describe).await);
        assert_eq!(items, 40);
        assert!(bytes > 40 * 5, "{bytes} bytes");
        ask(&service, "PutItem", &put(40)).await;
        assert_eq!(sizes(&ask(&service, "DescribeTable", describe).await), (items, bytes));
    });
}
