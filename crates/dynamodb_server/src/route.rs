//! What a request asks, by its method, path and headers.

use http::{Head, RequestError, Target};

use crate::Refusal;

/// Targets of operations on tables and items begin with this.
const TABLES: &str = "DynamoDB_20120810";
/// Targets of operations on streams begin with this.
const STREAMS: &str = "DynamoDBStreams_20120810";
/// The operations on streams: they have that prefix, and no others.
const STREAM_OPERATIONS: [&str; 4] = ["DescribeStream", "GetRecords", "GetShardIterator", "ListStreams"];
/// Longer names are not looked at.
const OPERATION_CHARS_MAX: usize = 64;

/// What a request asks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    /// `GET /`: whether the server is there.
    Health,
    /// `GET /localnodes`: where the API is served, of a datacenter and a rack.
    Nodes {
        /// The datacenter; None: that of this node.
        datacenter: Option<String>,
        /// The rack; None: all of them.
        rack: Option<String>,
    },
    /// OPTIONS: what a page of another site may send.
    Preflight,
    /// An operation.
    Operation(String),
    /// A request that the service does not know at all; it answers without JSON.
    Unknown,
    /// A request that is refused.
    Refused(Refusal),
}

/// Finds what a request asks. `has_body`: whether it has one.
pub(crate) fn route(head: &Head<'_>, has_body: bool) -> Route {
    match head.method {
        "POST" if has_body && !has_json(head) => Route::Unknown,
        "POST" => operation(head),
        "GET" | "HEAD" => page(head).unwrap_or_else(|error| Route::Refused(refusal(&error))),
        "OPTIONS" => Route::Preflight,
        _ => Route::Unknown,
    }
}

fn refusal(error: &RequestError) -> Refusal {
    Refusal::of_http(error.status, error.reason.clone())
}

fn page(head: &Head<'_>) -> Result<Route, RequestError> {
    let target = Target::decode(head.target)?;
    let parameter = |name: &str| target.parameter(name).map(str::to_owned);
    Ok(match target.path.as_str() {
        "/" => Route::Health,
        "/localnodes" => Route::Nodes {
            datacenter: parameter("dc"),
            rack: parameter("rack"),
        },
        _ => Route::Unknown,
    })
}

/// Whether the body is said to be JSON.
fn has_json(head: &Head<'_>) -> bool {
    let value = head.value("content-type").unwrap_or_default();
    let kind = value.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/x-amz-json-1.0") || kind.eq_ignore_ascii_case("application/json")
}

fn operation(head: &Head<'_>) -> Route {
    let target = head.value("x-amz-target").unwrap_or_default();
    let Some((prefix, name)) = target.split_once('.') else {
        return Route::Refused(Refusal::unknown_operation());
    };
    let is_name =
        !name.is_empty() && name.len() <= OPERATION_CHARS_MAX && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let expected = if STREAM_OPERATIONS.contains(&name) {
        STREAMS
    } else {
        TABLES
    };
    if is_name && prefix == expected {
        Route::Operation(name.to_owned())
    } else {
        Route::Refused(Refusal::unknown_operation())
    }
}

#[cfg(test)]
mod tests {
    use http::Limits;

    use super::*;

    const LIMITS: Limits = Limits {
        head_bytes_max: 16 << 10,
        body_bytes_max: 1 << 20,
        takes_chunks: true,
    };

    fn routed(text: &str) -> Route {
        let text = format!("{}\r\n\r\n", text.replace('\n', "\r\n"));
        let head = http::read_head(text.as_bytes(), &LIMITS).expect("it is a head");
        route(&head.expect("it is whole"), true)
    }

    #[test]
    fn requests_reach_what_they_name() {
        let json = "content-type: application/x-amz-json-1.0";
        let post = |target: &str| routed(&format!("POST / HTTP/1.1\n{json}\nX-Amz-Target: {target}"));
        let operation = |name: &str| Route::Operation(name.to_owned());
        let unknown = || Route::Refused(Refusal::unknown_operation());
        assert_eq!(post("DynamoDB_20120810.GetItem"), operation("GetItem"));
        assert_eq!(post("DynamoDBStreams_20120810.GetRecords"), operation("GetRecords"));
        for target in [
            "GetItem",
            "",
            ".",
            "DynamoDB_20120810.",
            "DynamoDB_20111205.GetItem",
            "DynamoDB_20120810.GetRecords",
            "DynamoDBStreams_20120810.GetItem",
            "DynamoDB_20120810.Get/Item",
        ] {
            assert_eq!(post(target), unknown(), "{target}");
        }
        assert_eq!(routed(&format!("POST / HTTP/1.1\n{json}")), unknown());
        let with_charset =
            "POST /x HTTP/1.1\nContent-Type: application/json; charset=utf-8\nX-Amz-Target: DynamoDB_20120810.Scan";
        assert_eq!(routed(with_charset), operation("Scan"));
        for text in [
            "POST / HTTP/1.1\nX-Amz-Target: DynamoDB_20120810.Scan",
            "POST / HTTP/1.1\nContent-Type: text/plain\nX-Amz-Target: DynamoDB_20120810.Scan",
            "PUT / HTTP/1.1",
            "GET /nothing HTTP/1.1",
        ] {
            assert_eq!(routed(text), Route::Unknown, "{text}");
        }
        assert_eq!(routed("GET / HTTP/1.1"), Route::Health);
        assert_eq!(routed("OPTIONS /x HTTP/1.1"), Route::Preflight);
        let nodes = Route::Nodes {
            datacenter: Some("a b".to_owned()),
            rack: None,
        };
        assert_eq!(routed("GET /localnodes?dc=a%20b&rack= HTTP/1.1"), nodes);
        assert!(matches!(routed("GET /%zz HTTP/1.1"), Route::Refused(refusal) if refusal.status == 400));
    }
}
