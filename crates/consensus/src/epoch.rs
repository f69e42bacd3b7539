//! The epoch of a group: which of its recoveries it lives after.

use std::fmt;
use std::str::FromStr;

/// The life of a group between two recoveries from a lost majority.
///
/// The number grows with each recovery. The nonce is drawn at random when a survivor is recovered, so two survivors
/// that are recovered independently begin two epochs that differ, although both have the same number. Epochs of a group
/// that was never recovered have the nonce 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Epoch {
    /// How often a majority was given up.
    pub number: u64,
    /// Which of the recoveries with this number.
    pub nonce: u64,
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nonce {
            0 => self.number.fmt(f),
            nonce => write!(f, "{}-{nonce:016x}", self.number),
        }
    }
}

/// A text that names no epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidEpoch;

impl fmt::Display for InvalidEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an epoch is a number, a hyphen and 16 hexadecimal digits, as recover-metadata printed it")
    }
}

impl std::error::Error for InvalidEpoch {}

impl FromStr for Epoch {
    type Err = InvalidEpoch;

    fn from_str(text: &str) -> Result<Self, InvalidEpoch> {
        let (number, nonce) = text.split_once('-').ok_or(InvalidEpoch)?;
        if nonce.len() != 16 {
            return Err(InvalidEpoch);
        }
        Ok(Self {
            number: number.parse().map_err(|_| InvalidEpoch)?,
            nonce: u64::from_str_radix(nonce, 16).map_err(|_| InvalidEpoch)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_read_as_it_is_printed() {
        let epoch = Epoch {
            number: 3,
            nonce: 0x00c0_ffee,
        };
        assert_eq!(epoch.to_string(), "3-0000000000c0ffee");
        assert_eq!(epoch.to_string().parse(), Ok(epoch));
        assert_eq!(Epoch::default().to_string(), "0", "a group that was never recovered");
        for wrong in ["", "1", "1-", "1-c0ffee", "x-0000000000c0ffee", "1-000000000000000g"] {
            assert_eq!(wrong.parse::<Epoch>(), Err(InvalidEpoch), "'{wrong}'");
        }
    }
}
