//! Numbers: exact decimals of at most 38 significant digits, from 1E-130 to 9.99...E+125 and their negatives, and zero.
//!
//! A number is `coefficient * 10^exponent`. The coefficient has no trailing zero in decimal, so each number has one
//! form. 10^38 is less than 2^127, so a coefficient is an `i128`, kept as two words so that it needs no alignment of
//! 16 bytes.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use stdx::preempt;

use crate::Error;
use crate::error::clip;

/// Significant digits that a number may have.
pub const DIGITS_MAX: u32 = 38;
/// The power of ten of the first digit, at most.
const MAGNITUDE_MAX: i64 = 125;
/// The power of ten of the first digit, at least.
const MAGNITUDE_MIN: i64 = -130;
/// 10^19, which splits a coefficient into two words of decimal digits.
const WORD: u128 = 10_000_000_000_000_000_000;
/// Bytes of a text between two preemption points.
const STEP_BYTES: usize = 16 << 10;
/// A limit below 10^18 with which exponents in texts are cut, so that their sums do not overflow.
const EXPONENT_CUT: i64 = 1 << 40;

/// A number of DynamoDB.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Number {
    high: u64,
    low: u64,
    exponent: i16,
}

/// Why a number cannot be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NumberError {
    /// The text is not a number.
    Syntax,
    /// More than 38 significant digits.
    Precision,
    /// The magnitude is above 9.99...E+125.
    Overflow,
    /// The magnitude is below 1E-130.
    Underflow,
}

impl NumberError {
    /// The service's message. `text` is what the client sent.
    pub fn message(self, text: &str) -> String {
        match self {
            Self::Syntax if text.is_empty() => "The parameter cannot be converted to a numeric value".to_owned(),
            Self::Syntax => format!("The parameter cannot be converted to a numeric value: {}", clip(text)),
            Self::Precision => "Attempting to store more than 38 significant digits in a Number".to_owned(),
            Self::Overflow => {
                "Number overflow. Attempting to store a number with magnitude larger than supported range".to_owned()
            }
            Self::Underflow => {
                "Number underflow. Attempting to store a number with magnitude smaller than supported range".to_owned()
            }
        }
    }

    /// The service's error for a result of arithmetic.
    pub fn of_arithmetic(self) -> Error {
        Error::validation(self.message(""))
    }
}

impl Number {
    /// Zero.
    pub const ZERO: Self = Self {
        high: 0,
        low: 0,
        exponent: 0,
    };

    /// The number `coefficient * 10^exponent`.
    ///
    /// # Errors
    /// If it has too many digits or is out of range.
    pub fn from_parts(coefficient: i128, exponent: i64) -> Result<Self, NumberError> {
        Self::normalised(coefficient < 0, coefficient.unsigned_abs(), exponent)
    }

    fn normalised(is_negative: bool, mut magnitude: u128, mut exponent: i64) -> Result<Self, NumberError> {
        if magnitude == 0 {
            return Ok(Self::ZERO);
        }
        while magnitude.is_multiple_of(10) {
            magnitude /= 10;
            exponent += 1;
        }
        Self::checked(is_negative, magnitude, exponent)
    }

    /// `magnitude` has no trailing zero.
    fn checked(is_negative: bool, magnitude: u128, exponent: i64) -> Result<Self, NumberError> {
        let digits = digit_count(magnitude);
        let first = exponent + i64::from(digits) - 1;
        if first > MAGNITUDE_MAX {
            return Err(NumberError::Overflow);
        }
        if first < MAGNITUDE_MIN {
            return Err(NumberError::Underflow);
        }
        if digits > DIGITS_MAX {
            return Err(NumberError::Precision);
        }
        let (Ok(coefficient), Ok(exponent)) = (i128::try_from(magnitude), i16::try_from(exponent)) else {
            return Err(NumberError::Overflow);
        };
        let coefficient = if is_negative { -coefficient } else { coefficient };
        let [high, low] = words(coefficient.cast_unsigned());
        Ok(Self { high, low, exponent })
    }

    /// The digits as an integer, without trailing zeros.
    #[inline]
    pub fn coefficient(self) -> i128 {
        (u128::from(self.high) << 64 | u128::from(self.low)).cast_signed()
    }

    /// The power of ten by which the coefficient is multiplied.
    #[inline]
    pub fn exponent(self) -> i16 {
        self.exponent
    }

    /// How many significant digits there are; 0 for zero.
    pub fn digits(self) -> u32 {
        digit_count(self.coefficient().unsigned_abs())
    }

    /// Whether it is below zero.
    pub fn is_negative(self) -> bool {
        self.coefficient() < 0
    }

    /// The sum.
    ///
    /// # Errors
    /// If it has more than 38 digits or is out of range.
    pub fn plus(self, other: Self) -> Result<Self, NumberError> {
        let (a, b) = (self.coefficient(), other.coefficient());
        if a == 0 || b == 0 {
            return Ok(if a == 0 { other } else { self });
        }
        let exponent = self.exponent.min(other.exponent);
        let scaled = |coefficient: i128, own: i16| {
            // A product beyond 128 bits, less a number of 38 digits, has more than 38 digits, and the last one is not
            // zero.
            power_of_ten(i32::from(own) - i32::from(exponent))
                .and_then(|power| coefficient.unsigned_abs().checked_mul(power))
                .ok_or(NumberError::Precision)
        };
        let (x, y) = (scaled(a, self.exponent)?, scaled(b, other.exponent)?);
        let (is_negative, magnitude) = if (a < 0) == (b < 0) {
            (a < 0, x.checked_add(y).ok_or(NumberError::Precision)?)
        } else if x >= y {
            (a < 0, x - y)
        } else {
            (b < 0, y - x)
        };
        Self::normalised(is_negative, magnitude, i64::from(exponent))
    }

    /// The difference.
    ///
    /// # Errors
    /// If it has more than 38 digits or is out of range.
    pub fn minus(self, other: Self) -> Result<Self, NumberError> {
        self.plus(other.negated())
    }

    /// The number with the other sign.
    #[must_use]
    pub fn negated(self) -> Self {
        let [high, low] = words((-self.coefficient()).cast_unsigned());
        Self { high, low, ..self }
    }

    /// Appends the text: a plain decimal without exponent, trailing zeros or negative zero.
    pub fn append_text(self, out: &mut Vec<u8>) {
        let coefficient = self.coefficient();
        if coefficient < 0 {
            out.push(b'-');
        }
        let mut buffer = [0; 40];
        let digits = write_digits(coefficient.unsigned_abs(), &mut buffer);
        let Ok(fraction) = usize::try_from(-i32::from(self.exponent)) else {
            out.extend_from_slice(digits);
            out.resize(out.len() + usize::from(self.exponent.unsigned_abs()), b'0');
            return;
        };
        if fraction == 0 {
            out.extend_from_slice(digits);
        } else if fraction < digits.len() {
            let (whole, fraction) = digits.split_at(digits.len() - fraction);
            out.extend_from_slice(whole);
            out.push(b'.');
            out.extend_from_slice(fraction);
        } else {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + fraction - digits.len(), b'0');
            out.extend_from_slice(digits);
        }
    }

    /// The number that a text says: `[+-] digits [. digits] [e [+-] digits]`.
    ///
    /// # Errors
    /// If it is no number, has too many significant digits, or is out of range.
    pub fn parse(text: &str) -> Result<Self, NumberError> {
        let (is_negative, rest) = match text.as_bytes() {
            [b'-', rest @ ..] => (true, rest),
            [b'+', rest @ ..] => (false, rest),
            rest => (false, rest),
        };
        let mut reader = DigitReader::default();
        let after_whole = reader.read(rest);
        let whole_len = rest.len() - after_whole.len();
        let (fraction_len, rest) = match after_whole {
            [b'.', fraction @ ..] => {
                let rest = reader.read(fraction);
                (fraction.len() - rest.len(), rest)
            }
            rest => (0, rest),
        };
        if whole_len + fraction_len == 0 {
            return Err(NumberError::Syntax);
        }
        let exponent = match rest {
            [] => 0,
            [b'e' | b'E', exponent @ ..] => parse_exponent(exponent)?,
            _ => return Err(NumberError::Syntax),
        };
        let fraction = i64::try_from(fraction_len).map_err(|_| NumberError::Syntax)?;
        reader.number(is_negative, exponent - fraction)
    }
}

/// Collects digits: leading zeros are skipped, trailing ones are counted until another digit follows.
#[derive(Default)]
struct DigitReader {
    magnitude: u128,
    /// Zeros after the last other digit.
    zeros: u64,
    /// Digits from the first that is not zero, those of `zeros` left out.
    digits: u64,
}

impl DigitReader {
    /// Takes digits from the front and returns the rest.
    fn read<'a>(&mut self, mut bytes: &'a [u8]) -> &'a [u8] {
        let mut step = 0;
        while let [byte @ b'0'..=b'9', rest @ ..] = bytes {
            self.push(byte - b'0');
            bytes = rest;
            step += 1;
            if step == STEP_BYTES {
                step = 0;
                preempt::long_step();
            }
        }
        bytes
    }

    #[inline]
    fn push(&mut self, digit: u8) {
        if digit == 0 {
            self.zeros += u64::from(self.digits > 0);
            return;
        }
        let more = self.zeros + 1;
        self.digits += more;
        self.zeros = 0;
        if self.digits <= u64::from(DIGITS_MAX) {
            let power = if more == 1 {
                10
            } else {
                10_u128.pow(u32::try_from(more).unwrap_or(0))
            };
            self.magnitude = self.magnitude * power + u128::from(digit);
        }
    }

    fn number(self, is_negative: bool, exponent: i64) -> Result<Number, NumberError> {
        if self.digits == 0 {
            return Ok(Number::ZERO);
        }
        let cut = |count: u64| i64::try_from(count).unwrap_or(EXPONENT_CUT);
        let exponent = exponent + cut(self.zeros);
        let first = exponent + cut(self.digits) - 1;
        if first > MAGNITUDE_MAX {
            return Err(NumberError::Overflow);
        }
        if first < MAGNITUDE_MIN {
            return Err(NumberError::Underflow);
        }
        if self.digits > u64::from(DIGITS_MAX) {
            return Err(NumberError::Precision);
        }
        Number::checked(is_negative, self.magnitude, exponent)
    }
}

fn parse_exponent(bytes: &[u8]) -> Result<i64, NumberError> {
    let (is_negative, digits) = match bytes {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    if digits.is_empty() {
        return Err(NumberError::Syntax);
    }
    let mut exponent: i64 = 0;
    for piece in digits.chunks(STEP_BYTES) {
        for byte in piece {
            if !byte.is_ascii_digit() {
                return Err(NumberError::Syntax);
            }
            exponent = (exponent * 10 + i64::from(byte - b'0')).min(EXPONENT_CUT);
        }
        if digits.len() > STEP_BYTES {
            preempt::long_step();
        }
    }
    Ok(if is_negative { -exponent } else { exponent })
}

fn words(coefficient: u128) -> [u64; 2] {
    let low = |word: u128| u64::try_from(word & u128::from(u64::MAX)).unwrap_or(0);
    [low(coefficient >> 64), low(coefficient)]
}

/// Ten to a power of at most 38.
fn power_of_ten(power: i32) -> Option<u128> {
    10_u128.checked_pow(u32::try_from(power).ok()?)
}

fn digit_count(magnitude: u128) -> u32 {
    match u64::try_from(magnitude) {
        Ok(0) => 0,
        Ok(word) => word.ilog10() + 1,
        Err(_) => magnitude.ilog10() + 1,
    }
}

/// Writes decimal digits to the end of a buffer and returns them.
fn write_digits(magnitude: u128, buffer: &mut [u8; 40]) -> &[u8] {
    let mut at = buffer.len();
    let mut write = |mut word: u64, digits_min: usize| {
        let end = at - digits_min;
        while word > 0 || at > end {
            at -= 1;
            buffer[at] = b'0' + u8::try_from(word % 10).unwrap_or(0);
            word /= 10;
        }
    };
    let word = |value: u128| u64::try_from(value).unwrap_or(0);
    match u64::try_from(magnitude) {
        Ok(magnitude) => write(magnitude, 1),
        Err(_) => {
            write(word(magnitude % WORD), 19);
            write(word(magnitude / WORD), 1);
        }
    }
    &buffer[at..]
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        let (a, b) = (self.coefficient(), other.coefficient());
        let by_sign = a.signum().cmp(&b.signum());
        if by_sign.is_ne() || self.exponent == other.exponent {
            return by_sign.then_with(|| a.cmp(&b));
        }
        let (a_size, b_size) = (a.unsigned_abs(), b.unsigned_abs());
        let first = |size: u128, exponent: i16| i64::from(exponent) + i64::from(digit_count(size));
        let by_size = first(a_size, self.exponent)
            .cmp(&first(b_size, other.exponent))
            .then_with(|| compare_scaled(a_size, self.exponent, b_size, other.exponent));
        if a < 0 { by_size.reverse() } else { by_size }
    }
}

/// Compares two magnitudes whose first digits have the same power of ten: the one with the greater exponent has fewer
/// digits, so it can be multiplied.
fn compare_scaled(a: u128, a_exponent: i16, b: u128, b_exponent: i16) -> Ordering {
    let shift = |more: i16, less: i16| power_of_ten(i32::from(more) - i32::from(less)).unwrap_or(1);
    if a_exponent > b_exponent {
        a.saturating_mul(shift(a_exponent, b_exponent)).cmp(&b)
    } else {
        a.cmp(&b.saturating_mul(shift(b_exponent, a_exponent)))
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl From<i64> for Number {
    fn from(number: i64) -> Self {
        // Nineteen digits are always in range.
        Self::from_parts(i128::from(number), 0).unwrap_or(Self::ZERO)
    }
}

impl FromStr for Number {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        Self::parse(text)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(48);
        self.append_text(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
