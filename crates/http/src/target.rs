//! Targets of requests: a path and a query, percent-decoded.

use crate::RequestError;

/// A target, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Target {
    /// The path, without the query.
    pub path: String,
    /// Names and values after the question mark, in order.
    pub query: Vec<(String, String)>,
}

impl Target {
    /// Decodes a target.
    ///
    /// # Errors
    /// With 400 when an escape is not one, or the text is not UTF-8.
    pub fn decode(target: &str) -> Result<Self, RequestError> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Ok((decode(name, true)?, decode(value, true)?))
        });
        Ok(Self {
            path: decode(path, false)?,
            query: query.collect::<Result<_, RequestError>>()?,
        })
    }

    /// The value of a query parameter; None when it is not given or empty.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Takes percent signs and, in queries, plus signs out of a text.
fn decode(text: &str, plus_is_space: bool) -> Result<String, RequestError> {
    let refused = || RequestError::new(400, format!("'{text}': expected %XX escapes of UTF-8"));
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'%' => {
                let mut digit = || {
                    let digit = bytes.next().and_then(|b| char::from(b).to_digit(16));
                    digit.ok_or_else(refused)
                };
                let (high, low) = (digit()?, digit()?);
                out.push(u8::try_from(high << 4 | low).map_err(|_| refused())?);
            }
            b'+' if plus_is_space => out.push(b' '),
            byte => out.push(byte),
        }
    }
    String::from_utf8(out).map_err(|_| refused())
}

/// The text with everything escaped that means something in a target.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~:".contains(&byte) {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}
