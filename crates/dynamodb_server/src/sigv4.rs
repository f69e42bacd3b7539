//! AWS Signature Version 4 of requests, in the header Authorization or in the query (presigned).
//!
//! Source: "AWS Signature Version 4 for API requests" in the IAM User Guide. A client signs
//!
//! ```text
//! canonical request  method LF path LF query LF header:value LF … LF LF signed;headers LF hex(SHA-256(body))
//! string to sign     AWS4-HMAC-SHA256 LF time LF date/region/dynamodb/aws4_request LF hex(SHA-256(canonical request))
//! key                HMAC(HMAC(HMAC(HMAC("AWS4" + secret, date), region), "dynamodb"), "aws4_request")
//! signature          hex(HMAC(key, string to sign))
//! ```
//!
//! [`Claim::read`] checks everything that needs no secret, in the order in which the service does, and
//! [`Claim::verify`] the signature. Neither reads a clock or does I/O. The texts of errors are the service's. A
//! [`SigningKey`] is valid for a day and a region, so it can be kept for the next requests of the same client.

use http::Head;
use ring::digest::{self, SHA256};
use ring::hmac;
use stdx::preempt;
use tz::UtcDateTime;

use crate::Refusal;

/// How far the time of a signature may be from the node's clock.
const WINDOW_S: i64 = 15 * 60;
/// How long a presigned request may be valid.
const EXPIRES_MAX_S: i64 = 7 * 24 * 60 * 60;
/// Headers that may be signed: a request has no more.
const SIGNED_HEADERS_MAX: usize = http::HEADERS_MAX;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const SERVICE: &str = "dynamodb";
const TERMINATOR: &str = "aws4_request";
const BASIC_FORMAT: &str = "See http://en.wikipedia.org/wiki/ISO_8601";

/// SHA-256 of a body.
pub type BodyHash = digest::Digest;

/// What a request says of its signature, checked as far as that is possible without the secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Claim {
    /// The access key that names the secret.
    pub access_key: String,
    date: String,
    region: String,
    /// The time of the signature, as it was sent.
    time: String,
    signature: Vec<u8>,
    /// The canonical request without the hash of the body.
    canonical: String,
}

/// The key with which the requests of a day and a region are signed: it follows from the secret.
pub struct SigningKey {
    date: String,
    region: String,
    key: hmac::Key,
}

/// What signs requests of our own: an access key, its secret, and the region that they are signed for.
#[derive(Clone, PartialEq, Eq)]
pub struct Signer {
    /// The access key.
    pub access_key: String,
    /// Its secret.
    pub secret: String,
    /// The region, such as `us-east-1`.
    pub region: String,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Signer").finish_non_exhaustive()
    }
}

/// The headers of a signed request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Signature {
    /// The value of X-Amz-Date.
    pub date: String,
    /// The value of Authorization.
    pub authorization: String,
}

/// Signs a request of our own: a POST to `/` with the values of Host and X-Amz-Target, at `now_s`, seconds since the
/// Unix epoch.
#[must_use]
pub fn sign(signer: &Signer, host: &str, target: &str, body: &[u8], now_s: i64) -> Signature {
    const SIGNED: &str = "host;x-amz-date;x-amz-target";
    let time = basic_format(now_s);
    let date = time.get(..8).unwrap_or_default().to_owned();
    let canonical = format!("POST\n/\n\nhost:{host}\nx-amz-date:{time}\nx-amz-target:{target}\n\n{SIGNED}\n");
    let claim = Claim {
        access_key: signer.access_key.clone(),
        date,
        region: signer.region.clone(),
        time,
        signature: Vec::new(),
        canonical,
    };
    let (_, to_sign) = claim.signed_texts(&hash_body(body));
    let signature = hmac::sign(&claim.signing_key(&signer.secret).key, to_sign.as_bytes());
    let (access_key, date, region) = (&claim.access_key, &claim.date, &claim.region);
    Signature {
        authorization: format!(
            "{ALGORITHM} Credential={access_key}/{date}/{region}/{SERVICE}/{TERMINATOR}, SignedHeaders={SIGNED}, Signature={}",
            hex(signature.as_ref())
        ),
        date: claim.time,
    }
}

/// The parts of a signature as they were sent.
struct Sent<'r> {
    credential: String,
    signed_headers: String,
    signature: String,
    time: &'r str,
    algorithm: &'r str,
    /// Seconds that it is valid for, if it is in the query.
    expires_s: Option<i64>,
}

fn incomplete(message: impl Into<String>) -> Refusal {
    Refusal::new("IncompleteSignatureException", message)
}

fn invalid(message: impl Into<String>) -> Refusal {
    Refusal::new("InvalidSignatureException", message)
}

/// The refusal of an access key that is not known.
#[must_use]
pub fn unrecognized() -> Refusal {
    Refusal::new(
        "UnrecognizedClientException",
        "The security token included in the request is invalid.",
    )
}

/// The refusal of an access key that is not valid any more.
#[must_use]
pub fn expired() -> Refusal {
    Refusal::new(
        "ExpiredTokenException",
        "The security token included in the request is expired",
    )
}

/// SHA-256 of a body, with preemption points.
#[must_use]
pub fn hash_body(body: &[u8]) -> BodyHash {
    let mut context = digest::Context::new(&SHA256);
    for piece in body.chunks(preempt::STEP_BYTES / 4) {
        context.update(piece);
        preempt::long_step();
    }
    context.finish()
}

impl Claim {
    /// Reads the signature of a request that arrived at `now_s`, seconds since the Unix epoch.
    ///
    /// # Errors
    /// When there is none, a part of it is missing or malformed, or it is not valid at this time.
    pub fn read(head: &Head<'_>, now_s: i64) -> Result<Self, Refusal> {
        let query = Query::of(head.target);
        let authorization = head.value("authorization").map(str::trim);
        let sent = match (authorization, query.value("X-Amz-Algorithm")) {
            (Some(_), Some(_)) => {
                return Err(invalid(
                    "Found both 'X-Amz-Algorithm' as a query-string param and 'Authorization' as HTTP header.",
                ));
            }
            (Some(header), None) if header.starts_with("AWS4-") => sent_in_header(head, header)?,
            (None, Some(algorithm)) => sent_in_query(&query, algorithm)?,
            _ => {
                return Err(Refusal::new(
                    "MissingAuthenticationTokenException",
                    "Request is missing Authentication Token",
                ));
            }
        };
        check_time(&sent, now_s)?;
        let names = signed_names(head, &sent.signed_headers)?;
        if sent.algorithm != ALGORITHM {
            return Err(incomplete(format!(
                "Unsupported AWS 'algorithm': '{}' (only {ALGORITHM} for now). ",
                shown(sent.algorithm)
            )));
        }
        let [access_key, date, region] = check_scope(&sent)?;
        // Sessions of temporary credentials do not exist here.
        if head.value("x-amz-security-token").is_some() || query.value("X-Amz-Security-Token").is_some() {
            return Err(unrecognized());
        }
        Ok(Self {
            access_key,
            date,
            region,
            time: sent.time.to_owned(),
            signature: from_hex(&sent.signature).ok_or_else(|| mismatch(""))?,
            canonical: canonical_head(head, &query, &names),
        })
    }

    /// Checks the signature with the secret of the access key and the hash of the body as it was sent.
    ///
    /// # Errors
    /// When the request was signed with another secret, or changed since.
    pub fn verify(&self, secret: &str, body: &BodyHash) -> Result<(), Refusal> {
        self.verify_with(&self.signing_key(secret), body)
    }

    /// The key that signs the requests of this day and region.
    #[must_use]
    pub fn signing_key(&self, secret: &str) -> SigningKey {
        let mut key = format!("AWS4{secret}").into_bytes();
        for part in [self.date.as_str(), &self.region, SERVICE, TERMINATOR] {
            let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes());
            key = derived.as_ref().to_vec();
        }
        SigningKey {
            date: self.date.clone(),
            region: self.region.clone(),
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
        }
    }

    /// Whether a key is of the day and the region of this request.
    #[must_use]
    pub fn is_signed_by(&self, key: &SigningKey) -> bool {
        key.date == self.date && key.region == self.region
    }

    /// Checks the signature, in constant time, with a key of its day and region and the hash of the body as it was
    /// sent.
    ///
    /// # Errors
    /// As [`Claim::verify`].
    pub fn verify_with(&self, key: &SigningKey, body: &BodyHash) -> Result<(), Refusal> {
        debug_assert!(self.is_signed_by(key), "the key is of another day or region");
        let (canonical, to_sign) = self.signed_texts(body);
        hmac::verify(&key.key, to_sign.as_bytes(), &self.signature).map_err(|_| {
            mismatch(&format!(
                "\n\nThe Canonical String for this request should have been\n'{canonical}'\n\nThe String-to-Sign should have been\n'{to_sign}'\n"
            ))
        })
    }

    /// The canonical request and the string to sign.
    fn signed_texts(&self, body: &BodyHash) -> (String, String) {
        let canonical = format!("{}{}", self.canonical, hex(body.as_ref()));
        let hash = hex(digest::digest(&SHA256, canonical.as_bytes()).as_ref());
        let (time, date, region) = (&self.time, &self.date, &self.region);
        let to_sign = format!("{ALGORITHM}\n{time}\n{date}/{region}/{SERVICE}/{TERMINATOR}\n{hash}");
        (canonical, to_sign)
    }
}

fn mismatch(details: &str) -> Refusal {
    invalid(format!(
        "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method. \
         Consult the service documentation for details.{details}"
    ))
}

fn sent_in_header<'r>(head: &Head<'r>, header: &'r str) -> Result<Sent<'r>, Refusal> {
    let (algorithm, parameters) = header.split_once(' ').unwrap_or((header, ""));
    let (mut credential, mut signed_headers, mut signature) = (None, None, None);
    for part in parameters.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, value)) = part.split_once('=') else {
            return Err(incomplete(format!(
                "'{}' not a valid key=value pair (missing equal-sign) in Authorization header: '{}'.",
                shown(part),
                shown(header)
            )));
        };
        let slot = match name.trim() {
            "Credential" => &mut credential,
            "SignedHeaders" => &mut signed_headers,
            "Signature" => &mut signature,
            _ => continue,
        };
        *slot = Some(value.trim().to_owned());
    }
    let time = head.value("x-amz-date").or(head.value("date"));
    let missing = [
        (credential.is_none(), "Credential"),
        (signature.is_none(), "Signature"),
        (signed_headers.is_none(), "SignedHeaders"),
    ];
    let missing = missing.iter().filter(|(is_missing, _)| *is_missing);
    let mut message: String = missing
        .map(|(_, name)| format!("Authorization header requires '{name}' parameter. "))
        .collect();
    if time.is_none() {
        message += "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header. ";
    }
    match (credential, signed_headers, signature, time) {
        (Some(credential), Some(signed_headers), Some(signature), Some(time)) => Ok(Sent {
            credential,
            signed_headers,
            signature,
            time,
            algorithm,
            expires_s: None,
        }),
        _ => Err(incomplete(format!("{message}Authorization={}", shown(header)))),
    }
}

fn sent_in_query<'r>(query: &'r Query<'r>, algorithm: &'r str) -> Result<Sent<'r>, Refusal> {
    let mut message = String::new();
    let mut value = |name: &str| {
        let value = query.value(name).filter(|value| !value.is_empty());
        if value.is_none() {
            message += &format!("AWS query-string parameters must include '{name}'. ");
        }
        value
    };
    let (credential, signature) = (value("X-Amz-Credential"), value("X-Amz-Signature"));
    let (signed_headers, time) = (value("X-Amz-SignedHeaders"), value("X-Amz-Date"));
    let expires = value("X-Amz-Expires");
    let (Some(credential), Some(signature), Some(signed_headers), Some(time), Some(expires)) =
        (credential, signature, signed_headers, time, expires)
    else {
        return Err(incomplete(format!("{message}Re-examine the query-string parameters.")));
    };
    let expires_s = expires
        .parse()
        .ok()
        .filter(|seconds| (0..=EXPIRES_MAX_S).contains(seconds));
    let Some(expires_s) = expires_s else {
        return Err(incomplete(format!(
            "X-Amz-Expires must be a number of seconds from 0 to {EXPIRES_MAX_S}, got '{}'",
            shown(expires)
        )));
    };
    Ok(Sent {
        credential: credential.to_owned(),
        signed_headers: signed_headers.to_owned(),
        signature: signature.to_owned(),
        time,
        algorithm,
        expires_s: Some(expires_s),
    })
}

fn check_time(sent: &Sent<'_>, now_s: i64) -> Result<(), Refusal> {
    let signed_s = seconds(sent.time).ok_or_else(|| {
        let time = shown(sent.time);
        incomplete(format!(
            "Date must be in ISO-8601 'basic format'. Got '{time}'. {BASIC_FORMAT}"
        ))
    })?;
    let (now, minutes) = (basic_format(now_s), WINDOW_S / 60);
    if let Some(expires_s) = sent.expires_s.filter(|expires_s| now_s > signed_s + expires_s) {
        let end = basic_format(signed_s + expires_s);
        return Err(invalid(format!("Signature expired: {end} is now earlier than {now}")));
    }
    if sent.expires_s.is_none() && signed_s < now_s - WINDOW_S {
        let earliest = basic_format(now_s - WINDOW_S);
        return Err(invalid(format!(
            "Signature expired: {} is now earlier than {earliest} ({now} - {minutes} min.)",
            sent.time
        )));
    }
    if signed_s > now_s + WINDOW_S {
        let latest = basic_format(now_s + WINDOW_S);
        return Err(invalid(format!(
            "Signature not yet current: {} is still later than {latest} ({now} + {minutes} min.)",
            sent.time
        )));
    }
    Ok(())
}

/// The names of the signed headers. The host must be among them, and every header of the request that begins with
/// `x-amz-`: they say what the request does.
fn signed_names<'s>(head: &Head<'_>, signed_headers: &'s str) -> Result<Vec<&'s str>, Refusal> {
    let names: Vec<&str> = signed_headers.split(';').take(SIGNED_HEADERS_MAX + 1).collect();
    let is_signed = |name: &str| names.iter().any(|signed| signed.eq_ignore_ascii_case(name));
    if !is_signed("host") && !is_signed(":authority") {
        return Err(invalid(
            "'Host' or ':authority' must be a 'SignedHeader' in the AWS Authorization.",
        ));
    }
    for header in &head.headers {
        let name = header.name.to_ascii_lowercase();
        if name.starts_with("x-amz-") && !is_signed(&name) {
            return Err(invalid(format!(
                "'{name}' must be a 'SignedHeader' in the AWS Authorization."
            )));
        }
    }
    // Each name once: a header of 16 KiB that is named a thousand times would become a text of 16 MiB.
    let is_repeated = |(at, name): (usize, &&str)| names[..at].contains(name);
    if names.len() > SIGNED_HEADERS_MAX || names.iter().enumerate().any(is_repeated) {
        return Err(invalid("A header must be named once in 'SignedHeaders'."));
    }
    Ok(names)
}

/// The access key, the date and the region of a credential.
fn check_scope(sent: &Sent<'_>) -> Result<[String; 3], Refusal> {
    let parts: Vec<&str> = sent.credential.trim_end_matches('/').split('/').collect();
    let [access_key, date, region, service, terminator] = parts[..] else {
        return Err(incomplete(format!(
            "Credential must have exactly 5 slash-delimited elements, e.g. keyid/date/region/service/term, got '{}'",
            shown(&sent.credential)
        )));
    };
    let mut message = String::new();
    if region.is_empty() {
        message += &format!("Credential should be scoped to a valid region, not '{region}'. ");
    }
    if service != SERVICE {
        message += &format!("Credential should be scoped to correct service: '{SERVICE}'. ");
    }
    if terminator != TERMINATOR {
        let terminator = shown(terminator);
        message +=
            &format!("Credential should be scoped with a valid terminator: '{TERMINATOR}', not '{terminator}'. ");
    }
    let day = sent.time.get(..8).unwrap_or_default();
    if date != day {
        message += &format!(
            "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP: '{}' != '{day}', from '{}'. ",
            shown(date),
            sent.time
        );
    }
    match message.trim_end() {
        "" => Ok([access_key.to_owned(), date.to_owned(), region.to_owned()]),
        message => Err(invalid(message)),
    }
}

/// The canonical request up to the hash of the body.
fn canonical_head(head: &Head<'_>, query: &Query<'_>, names: &[&str]) -> String {
    let path = head.target.split_once('?').map_or(head.target, |(path, _)| path);
    let mut out = format!("{}\n", head.method);
    match path {
        "" => out.push('/'),
        path => append_encoded(path.as_bytes(), b"/", &mut out),
    }
    out.push('\n');
    out += &query.canonical();
    out.push('\n');
    for name in names {
        out += &name.to_ascii_lowercase();
        out.push(':');
        let mut is_first = true;
        for value in head.values(name) {
            if !std::mem::take(&mut is_first) {
                out.push(',');
            }
            append_value(&String::from_utf8_lossy(value), &mut out);
        }
        out.push('\n');
    }
    out.push('\n');
    out += &names.join(";");
    out.push('\n');
    out
}

/// Appends a value with one space in the place of several.
fn append_value(value: &str, out: &mut String) {
    let mut words = value.split(' ').filter(|word| !word.is_empty());
    out.push_str(words.next().unwrap_or_default());
    for word in words {
        out.push(' ');
        out.push_str(word);
    }
}

/// Names and values of a query, percent-decoded.
struct Query<'r>(Vec<(Vec<u8>, Vec<u8>)>, std::marker::PhantomData<&'r str>);

impl<'r> Query<'r> {
    fn of(target: &'r str) -> Self {
        let query = target.split_once('?').map_or("", |(_, query)| query);
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        Self(pairs.collect(), std::marker::PhantomData)
    }

    fn value(&self, name: &str) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(given, _)| given == name.as_bytes())?;
        std::str::from_utf8(value).ok()
    }

    /// The query in canonical form: sorted, and without the signature.
    fn canonical(&self) -> String {
        let signed = self.0.iter().filter(|(name, _)| name != b"X-Amz-Signature");
        let encoded = signed.map(|(name, value)| {
            let (mut encoded_name, mut encoded_value) = (String::new(), String::new());
            append_encoded(name, b"", &mut encoded_name);
            append_encoded(value, b"", &mut encoded_value);
            (encoded_name, encoded_value)
        });
        let mut pairs: Vec<_> = encoded.collect();
        pairs.sort();
        let pairs: Vec<_> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join("&")
    }
}

/// A text without its percent escapes. What is no escape stays as it is.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let escape = bytes.get(at + 1..at + 3).filter(|_| bytes[at] == b'%');
        match escape
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(from_hex)
        {
            Some(byte) => {
                out.extend(byte);
                at += 3;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    out
}

/// Appends a text with everything escaped but letters, digits, `-`, `.`, `_`, `~` and what is in `keep`.
fn append_encoded(text: &[u8], keep: &[u8], out: &mut String) {
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || keep.contains(byte) {
            out.push(char::from(*byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = text.chars().map(|c| c.to_digit(16)).collect();
    let pairs = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    let bytes = pairs.chunks(2).map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok());
    bytes.collect()
}

/// Seconds since the Unix epoch of a time such as `20130609T100015Z`.
fn seconds(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let is_basic = bytes.len() == 16
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 => *byte == b'T',
            15 => *byte == b'Z',
            _ => byte.is_ascii_digit(),
        });
    if !is_basic {
        return None;
    }
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u8>().ok();
    let year = text.get(..4)?.parse().ok()?;
    let (month, day) = (part(4, 6)?, part(6, 8)?);
    let (hour, minute, second) = (part(9, 11)?, part(11, 13)?, part(13, 15)?);
    let time = UtcDateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    Some(time.unix_time())
}

/// A time as signatures have it.
fn basic_format(seconds: i64) -> String {
    let Ok(time) = UtcDateTime::from_timespec(seconds, 0) else {
        return String::new();
    };
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        time.year(),
        time.month(),
        time.month_day(),
        time.hour(),
        time.minute(),
        time.second()
    )
}

/// What is shown of a client's text in an error.
fn shown(text: &str) -> String {
    text.chars().take(400).collect()
}
