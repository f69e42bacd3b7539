//! Summary.db: every so many-th entry of Index.db.
//!
//! ```text
//! u32 index interval, u32 n, u64 size of what follows up to the keys, u32 sampling level, u32 n at full sampling,
//! n x u32 offset of an entry from the first offset on, n x {key, u64 position in Index.db}, both little-endian,
//! u32 length and first key, u32 length and last key
//! ```

use stdx::bytes::Reader;
use types::Token;
use types::token::token_of;

use crate::error::Damage;

/// The sampling level of a summary that was never thinned.
const FULL_SAMPLING: u32 = 128;

/// A sampled entry of the index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sample {
    pub(crate) token: Token,
    pub(crate) key: Box<[u8]>,
    /// Of the entry, in Index.db.
    pub(crate) position: u64,
}

/// Summary.db, decoded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Summary {
    pub(crate) interval: u32,
    pub(crate) samples: Vec<Sample>,
    pub(crate) first_key: Box<[u8]>,
    pub(crate) last_key: Box<[u8]>,
}

impl Summary {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let n = u32::try_from(self.samples.len()).expect("fewer than 2^32 samples");
        let entries: usize = self.samples.iter().map(|s| s.key.len() + 8).sum();
        let size = self.samples.len() * 4 + entries;
        let mut out = Vec::with_capacity(size + 64 + self.first_key.len() + self.last_key.len());
        out.extend_from_slice(&self.interval.to_be_bytes());
        out.extend_from_slice(&n.to_be_bytes());
        out.extend_from_slice(&(size as u64).to_be_bytes());
        out.extend_from_slice(&FULL_SAMPLING.to_be_bytes());
        out.extend_from_slice(&n.to_be_bytes());
        let mut offset = self.samples.len() * 4;
        for s in &self.samples {
            out.extend_from_slice(
                &u32::try_from(offset)
                    .expect("a summary is smaller than 4 GiB")
                    .to_le_bytes(),
            );
            offset += s.key.len() + 8;
        }
        for s in &self.samples {
            out.extend_from_slice(&s.key);
            out.extend_from_slice(&s.position.to_le_bytes());
        }
        for key in [&self.first_key, &self.last_key] {
            out.extend_from_slice(&u32::try_from(key.len()).expect("a key is short").to_be_bytes());
            out.extend_from_slice(key);
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let mut r = Reader::new(bytes);
        let interval = r.get_u32()?;
        let n = r.get_u32()? as usize;
        let size = usize::try_from(r.get_u64()?).unwrap_or(usize::MAX);
        let _sampling_level = r.get_u32()?;
        let _full_n = r.get_u32()?;
        let base = r.at();
        let body = r.get_slice(size)?;
        if n.checked_mul(4).is_none_or(|offsets| offsets > size) {
            return Err(Damage::new(4, format!("a number of samples that fits {size} bytes")));
        }
        let offset = |i: usize| -> usize {
            body.get(4 * i..4 * i + 4)
                .and_then(|b| b.try_into().ok())
                .map_or(usize::MAX, |b| u32::from_le_bytes(b) as usize)
        };
        let mut samples: Vec<Sample> = Vec::with_capacity(n);
        for i in 0..n {
            let (start, end) = (offset(i), if i + 1 < n { offset(i + 1) } else { size });
            let wrong = || Damage::new(base + 4 * i, "the offset of a sample");
            if start < 4 * n {
                return Err(wrong());
            }
            let entry = body.get(start..end).ok_or_else(wrong)?;
            let (key, position) = entry.split_last_chunk::<8>().ok_or_else(wrong)?;
            let sample = Sample {
                token: token_of(key),
                key: key.into(),
                position: u64::from_le_bytes(*position),
            };
            let is_ascending = samples
                .last()
                .is_none_or(|l| (l.token, &l.key) < (sample.token, &sample.key) && l.position < sample.position);
            if !is_ascending {
                return Err(Damage::new(
                    base + start,
                    "a key and a position after the previous ones",
                ));
            }
            samples.push(sample);
        }
        let mut key = || -> Result<Box<[u8]>, Damage> {
            let len = r.get_u32()? as usize;
            Ok(r.get_slice(len)?.into())
        };
        Ok(Self {
            interval,
            samples,
            first_key: key()?,
            last_key: key()?,
        })
    }

    /// The samples between which the entry of a key is: the last at or before it.
    #[inline]
    pub(crate) fn page_of(&self, token: Token, key: &[u8]) -> Option<usize> {
        self.samples
            .partition_point(|s| (s.token, &*s.key) <= (token, key))
            .checked_sub(1)
    }

    /// The page in which the first entry after `token` is, or may be.
    pub(crate) fn page_behind(&self, token: Token) -> usize {
        self.samples.partition_point(|s| s.token <= token).saturating_sub(1)
    }

    pub(crate) fn memory(&self) -> usize {
        self.samples.iter().map(|s| s.key.len() + size_of::<Sample>()).sum()
    }
}
