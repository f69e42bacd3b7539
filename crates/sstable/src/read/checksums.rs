//! Checksums.db, ceto's own component: what makes damage visible in the files that the format leaves unprotected.
//!
//! ```text
//! u32 version 1, u64 length of Index.db, u32 pages, u32 CRC-32 of each 16 KiB page of it,
//! u32 n, n x {u16 length and name of a component, u64 length, u32 CRC-32}, what is large (`large.rs`),
//! u32 CRC-32 of all of that
//! ```

use std::path::Path;

use stdx::bytes::Reader as Bytes;

use crate::directory::component::Component;
use crate::error::{Damage, Error};
use crate::write::large::LargeData;

/// What Checksums.db has.
#[derive(Debug)]
pub(crate) struct Checksums {
    pub(crate) index_len: u64,
    pub(crate) index: Vec<u32>,
    pub(crate) components: Vec<(Component, u64, u32)>,
    pub(crate) large: LargeData,
}

impl Checksums {
    const VERSION: u32 = 1;

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.index.len() * 4);
        let count = |n: usize| u32::try_from(n).expect("fewer than 2^32 checksums").to_be_bytes();
        out.extend_from_slice(&Self::VERSION.to_be_bytes());
        out.extend_from_slice(&self.index_len.to_be_bytes());
        out.extend_from_slice(&count(self.index.len()));
        self.index.iter().for_each(|c| out.extend_from_slice(&c.to_be_bytes()));
        out.extend_from_slice(&count(self.components.len()));
        for (component, len, crc) in &self.components {
            let name = component.suffix().as_bytes();
            out.extend_from_slice(&u16::try_from(name.len()).expect("short names").to_be_bytes());
            out.extend_from_slice(name);
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(&crc.to_be_bytes());
        }
        self.large.encode(&mut out);
        let crc = crc32fast::hash(&out);
        out.extend_from_slice(&crc.to_be_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let Some((body, crc)) = bytes.split_last_chunk::<4>() else {
            return Err(Damage::new(bytes.len(), "checksums"));
        };
        if u32::from_be_bytes(*crc) != crc32fast::hash(body) {
            return Err(Damage::new(
                body.len(),
                format!("checksum {:08x} of this file", crc32fast::hash(body)),
            ));
        }
        let mut r = Bytes::new(body);
        if r.get_u32()? != Self::VERSION {
            return Err(Damage::new(0, "version 1 of this file"));
        }
        let index_len = r.get_u64()?;
        let pages = r.get_u32()?;
        let mut index = Vec::new();
        for _ in 0..pages {
            index.push(r.get_u32()?);
        }
        let mut components = Vec::new();
        for _ in 0..r.get_u32()? {
            let len = usize::from(r.get_u16()?);
            let name = r.get_slice(len)?;
            let (len, crc) = (r.get_u64()?, r.get_u32()?);
            if let Some(component) = std::str::from_utf8(name).ok().and_then(Component::from_suffix) {
                components.push((component, len, crc));
            }
        }
        Ok(Self {
            index_len,
            index,
            components,
            large: LargeData::decode(&mut r)?,
        })
    }

    pub(crate) fn check(&self, component: Component, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let mut of_component = self.components.iter().filter(|(c, ..)| *c == component);
        let Some((_, len, crc)) = of_component.next() else {
            return Ok(());
        };
        // While a component is replaced, both its old and its new form count.
        let is_other =
            |(_, len, crc): &(Component, u64, u32)| *len == bytes.len() as u64 && *crc == crc32fast::hash(bytes);
        if of_component.any(is_other) {
            return Ok(());
        }
        if *len != bytes.len() as u64 {
            return Err(Error::damaged(
                path,
                bytes.len() as u64,
                format!("a file of {len} bytes"),
            ));
        }
        if *crc != crc32fast::hash(bytes) {
            return Err(Error::damaged(path, 0, format!("a file with checksum {crc:08x}")));
        }
        Ok(())
    }
}
