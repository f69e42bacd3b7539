//! Signatures: requests that botocore has signed (`sigv4_vectors.txt`, written by `sigv4_vectors.py`) are taken, and
//! changed ones are refused in the service's words.

use dynamodb_server::Refusal;
use dynamodb_server::sigv4::{Claim, Signer, hash_body, sign};
use http::{Limits, Progress, RequestReader};

const LIMITS: Limits = Limits {
    head_bytes_max: 16 << 10,
    body_bytes_max: 1 << 20,
    takes_chunks: true,
};

/// A signed request, with what it was signed with.
#[derive(Clone)]
struct Vector {
    access_key: String,
    secret: String,
    now_s: i64,
    request: String,
}

fn vectors() -> Vec<Vector> {
    let lines = include_str!("sigv4_vectors.txt").lines();
    lines
        .map(|line| {
            let [access_key, secret, now, hex] = line.split(' ').collect::<Vec<_>>()[..] else {
                panic!("a vector has four parts: {line}");
            };
            Vector {
                access_key: access_key.to_owned(),
                secret: secret.to_owned(),
                now_s: now.parse().expect("seconds"),
                request: String::from_utf8(testkit::from_hex(hex)).expect("these requests are text"),
            }
        })
        .collect()
}

impl Vector {
    /// The request with a part of it replaced.
    fn with(&self, from: &str, to: &str) -> Self {
        assert!(self.request.contains(from), "{from:?} is in no request");
        Self {
            request: self.request.replace(from, to),
            ..self.clone()
        }
    }

    fn at(&self, seconds: i64) -> Self {
        Self {
            now_s: self.now_s + seconds,
            ..self.clone()
        }
    }

    fn verify(&self) -> Result<(), Refusal> {
        let mut reader = RequestReader::new(LIMITS);
        let Ok(Progress::Whole(request)) = reader.next(self.request.as_bytes()) else {
            panic!("it is no whole request: {}", self.request);
        };
        let claim = Claim::read(&request.head, self.now_s)?;
        assert_eq!(claim.access_key, self.access_key);
        claim.verify(&self.secret, &hash_body(&request.body.to_vec()))
    }

    /// The type and the first line of the text of its refusal.
    fn refusal(&self) -> String {
        let refusal = self.verify().expect_err("it is taken");
        assert_eq!(refusal.status, 400);
        let message = refusal.message.unwrap_or_default();
        format!("{}: {}", refusal.kind, message.lines().next().unwrap_or_default())
    }
}

const MISMATCH: &str = "InvalidSignatureException: The request signature we calculated does not match the signature you provided. \
                        Check your AWS Secret Access Key and signing method. Consult the service documentation for details.";

#[test]
fn requests_that_botocore_signed_are_taken_with_their_secret_alone() {
    let vectors = vectors();
    assert!(vectors.len() >= 8);
    for vector in vectors {
        assert_eq!(vector.verify(), Ok(()), "{}", vector.request);
        let other = Vector {
            secret: "another".to_owned(),
            ..vector.clone()
        };
        assert_eq!(other.refusal(), MISMATCH);
    }
}

#[test]
fn a_request_that_was_changed_since_is_refused() {
    let all = vectors();
    for (at, from, to) in [
        (0, "\r\n\r\n{}", "\r\n\r\n[]"),
        (0, "PutItem", "GetItem"),
        (0, "POST /", "POST /x"),
        (0, "POST", "PUT"),
        (0, "Host: localhost", "Host: elsewhere"),
        (0, "us-east-1", "us-east-2"),
        (0, "Signature=4", "Signature=5"),
        (0, "Signature=4", "Signature="),
        (0, "Signature=4", "Signature=x"),
        (3, "a   b  c", "a b d"),
        (4, "a=1", "a=2"),
        (6, "X-Amz-Expires=3600", "X-Amz-Expires=3601"),
    ] {
        assert_eq!(all[at].with(from, to).refusal(), MISMATCH, "{from} became {to}");
    }
    // What is not signed may change.
    assert_eq!(all[0].with("Host:", "Accept: x\r\nHost:").verify(), Ok(()));
    assert_eq!(
        all[3].with("a   b  c", "a b c").verify(),
        Ok(()),
        "spaces are one space"
    );
}

#[test]
fn signatures_are_valid_for_15_minutes_and_presigned_ones_for_their_time() {
    let (signed, presigned) = (&vectors()[0], &vectors()[6]);
    let minutes = |minutes: i64| minutes * 60;
    for seconds in [-minutes(15), 0, minutes(15)] {
        assert_eq!(signed.at(seconds).verify(), Ok(()), "{seconds} s later");
    }
    assert_eq!(
        signed.at(minutes(15) + 1).refusal(),
        "InvalidSignatureException: Signature expired: 20240229T235958Z is now earlier than 20240229T235959Z (20240301T001459Z - 15 min.)"
    );
    assert_eq!(
        signed.at(-minutes(15) - 1).refusal(),
        "InvalidSignatureException: Signature not yet current: 20240229T235958Z is still later than 20240229T235957Z (20240229T234457Z + 15 min.)"
    );
    assert_eq!(presigned.at(3600).verify(), Ok(()));
    assert!(presigned.at(3601).refusal().contains("Signature expired"));
}

#[test]
fn a_signature_that_lacks_a_part_is_refused_in_the_services_words() {
    let (signed, presigned) = (&vectors()[0], &vectors()[6]);
    let incomplete = |what: &str| format!("IncompleteSignatureException: {what}");
    let invalid = |what: &str| format!("InvalidSignatureException: {what}");
    let missing = "MissingAuthenticationTokenException: Request is missing Authentication Token";
    assert_eq!(signed.with("Authorization", "X").refusal(), missing);
    assert_eq!(signed.with("AWS4-HMAC-SHA256", "Bearer").refusal(), missing);
    assert!(
        signed
            .with("Credential=", "Credential")
            .refusal()
            .starts_with(&incomplete("'CredentialAKIDEXAMPLE/20240229"))
    );
    assert!(
        signed
            .with(" SignedHeaders=", " X=")
            .with("X-Amz-Date", "X-Date")
            .refusal()
            .starts_with(&incomplete(
                "Authorization header requires 'SignedHeaders' parameter. Authorization header requires existence of either a \
                 'X-Amz-Date' or a 'Date' header. Authorization=AWS4-HMAC-SHA256 Credential="
            ))
    );
    for (from, to, expected) in [
        (
            "X-Amz-Date: 2024",
            "X-Amz-Date: 2",
            incomplete(
                "Date must be in ISO-8601 'basic format'. Got '20229T235958Z'. See http://en.wikipedia.org/wiki/ISO_8601",
            ),
        ),
        (
            "content-type;host;",
            "content-type;",
            invalid("'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization."),
        ),
        (
            ";x-amz-target",
            "",
            invalid("'x-amz-target' must be a 'SignedHeader' in the AWS Authorization."),
        ),
        (
            "content-type;host",
            "host;host",
            invalid("A header must be named once in 'SignedHeaders'."),
        ),
        (
            "AWS4-HMAC-SHA256",
            "AWS4-HMAC-SHA512",
            incomplete("Unsupported AWS 'algorithm': 'AWS4-HMAC-SHA512' (only AWS4-HMAC-SHA256 for now). "),
        ),
        (
            "/dynamodb/aws4_request",
            "/dynamodb",
            incomplete(
                "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term, got 'AKIDEXAMPLE/20240229/us-east-1/dynamodb'",
            ),
        ),
        (
            "20240229/us-east-1/dynamodb/aws4_request",
            "20240228//s3/end",
            invalid(
                "Credential should be scoped to a valid region, not ''. Credential should be scoped to correct service: 'dynamodb'. \
                 Credential should be scoped with a valid terminator: 'aws4_request', not 'end'. Date in Credential scope does not match \
                 YYYYMMDD from ISO-8601 version of date from HTTP: '20240228' != '20240229', from '20240229T235958Z'.",
            ),
        ),
    ] {
        assert_eq!(signed.with(from, to).refusal(), expected, "{from} became {to}");
    }
    let both = presigned.with("Host:", "Authorization: AWS4-HMAC-SHA256 x\r\nHost:");
    assert!(both.refusal().contains("Found both 'X-Amz-Algorithm'"));
    assert_eq!(
        presigned.with("X-Amz-Expires", "X").refusal(),
        incomplete("AWS query-string parameters must include 'X-Amz-Expires'. Re-examine the query-string parameters.")
    );
    let longest = presigned.with("X-Amz-Expires=3600", "X-Amz-Expires=604801").refusal();
    assert!(longest.starts_with(&incomplete("X-Amz-Expires must be")), "{longest}");
    let session = signed.with("Host:", "X-Amz-Security-Token: t\r\nHost:");
    let session = session.with(";x-amz-target", ";x-amz-security-token;x-amz-target");
    assert_eq!(
        session.refusal(),
        "UnrecognizedClientException: The security token included in the request is invalid."
    );
}

#[test]
fn a_request_that_we_sign_is_verified() {
    let signer = Signer {
        access_key: "AKIDEXAMPLE".to_owned(),
        secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY".to_owned(),
        region: "eu-west-1".to_owned(),
    };
    let (host, target, now_s) = ("127.0.0.1:8000", "DynamoDB_20120810.ListTables", 1_440_938_160);
    let signed = sign(&signer, host, target, b"{}", now_s);
    assert_eq!(signed.date, "20150830T123600Z");
    let vector = Vector {
        access_key: signer.access_key.clone(),
        secret: signer.secret.clone(),
        now_s,
        request: format!(
            "POST / HTTP/1.1\r\nHost: {host}\r\nX-Amz-Target: {target}\r\nX-Amz-Date: {}\r\nAuthorization: {}\r\nContent-Length: 2\r\n\r\n{{}}",
            signed.date, signed.authorization
        ),
    };
    vector.verify().expect("it is rightly signed");
    vector
        .with("ListTables", "DeleteTable")
        .verify()
        .expect_err("the operation is signed");
    vector
        .with("\r\n\r\n{}", "\r\n\r\n[]")
        .verify()
        .expect_err("the body is signed");
    assert_eq!(format!("{signer:?}"), "Signer { .. }", "no log has a secret");
}
