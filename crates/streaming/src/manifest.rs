//! The list of a stream's files: what the source answers when the copy is ready.
//!
//! ```text
//! sized text      the table's columns, as the source has them
//! vint            sstables, each:
//!   u8            version: 1 mc, 2 md, 3 me
//!   vint          components, each: u8 number, vint length, u32 CRC-32 of all of the file
//! u8              1 where the target asked for marks and the source has a record of the range, else 0; after 1:
//!   u128 u128     the session that marked last, the hash of its hosts
//!   i64 i64       the mark of the last session that read everything, that of the last
//!   u8 …          for each sstable 1 when it counts as repaired, else 0
//! ```
//!
//! Files are known by their place in the list: no name goes over the wire, so none can lead out of a directory.

use replica::{Inheritance, TokenRange};
use sstable::{Component, FileHosts, RepairRecord, Version};
use stdx::bytes::{Reader, put_sized};
use stdx::vint;

use crate::message::{Malformed, component_of, get_flag, number_of};

/// A file of an sstable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListedFile {
    pub(crate) component: Component,
    pub(crate) len: u64,
    /// CRC-32 of the whole file.
    pub(crate) crc: u32,
}

/// An sstable of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListedSstable {
    pub(crate) version: Version,
    /// Each component once; the list of components last.
    pub(crate) files: Vec<ListedFile>,
}

/// All files of a copy.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Manifest {
    pub(crate) columns: String,
    pub(crate) sstables: Vec<ListedSstable>,
    /// What the source's sstables have in common with other replicas.
    pub(crate) marks: Option<ListedMarks>,
}

/// The source's record of the range, and which sstables of the copy count as repaired.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ListedMarks {
    pub(crate) session: u128,
    pub(crate) replicas: u128,
    pub(crate) since: i64,
    pub(crate) at: i64,
    /// One for each sstable.
    pub(crate) is_marked: Vec<bool>,
}

impl ListedMarks {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.session.to_be_bytes());
        out.extend_from_slice(&self.replicas.to_be_bytes());
        out.extend_from_slice(&self.since.to_be_bytes());
        out.extend_from_slice(&self.at.to_be_bytes());
        out.extend(self.is_marked.iter().map(|is_marked| u8::from(*is_marked)));
    }

    fn get(reader: &mut Reader<'_>, sstables: usize) -> Result<Self, Malformed> {
        let mut marks = Self {
            session: u128::from_be_bytes(reader.get_array()?),
            replicas: u128::from_be_bytes(reader.get_array()?),
            since: reader.get_i64()?,
            at: reader.get_i64()?,
            is_marked: Vec::new(),
        };
        if marks.since <= 0 || marks.at < marks.since {
            return Err(Malformed("marks of repairs are not in order"));
        }
        for _ in 0..sstables {
            marks
                .is_marked
                .push(get_flag(reader, "whether an sstable is marked, 0 or 1")?);
        }
        Ok(marks)
    }

    /// What the replica is known to have in common with others that takes the copy of a range.
    pub(crate) fn inheritance(&self, range: TokenRange) -> Inheritance {
        Inheritance {
            record: RepairRecord {
                after: range.after,
                to: range.to,
                session: self.session,
                replicas: self.replicas,
                since: self.since,
                at: self.at,
                hosts: FileHosts::default(),
            },
            is_marked: self.is_marked.clone(),
        }
    }
}

/// Most sstables of a stream.
pub(crate) const SSTABLES_MAX: usize = 16 << 10;
const VERSIONS: [Version; 3] = [Version::Mc, Version::Md, Version::Me];
/// What every sstable has.
const NEEDED: [Component; 4] = [Component::Data, Component::Index, Component::Statistics, Component::Toc];

impl Manifest {
    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        let files = self.sstables.iter().flat_map(|sstable| &sstable.files);
        files.fold(0, |sum, file| sum.saturating_add(file.len))
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        put_sized(out, self.columns.as_bytes());
        vint::put_unsigned(out, self.sstables.len() as u64);
        for sstable in &self.sstables {
            let version = VERSIONS.iter().position(|version| *version == sstable.version);
            out.push(u8::try_from(version.expect("all versions are listed") + 1).expect("there are three versions"));
            vint::put_unsigned(out, sstable.files.len() as u64);
            for file in &sstable.files {
                out.push(number_of(file.component));
                vint::put_unsigned(out, file.len);
                out.extend_from_slice(&file.crc.to_be_bytes());
            }
        }
        out.push(u8::from(self.marks.is_some()));
        if let Some(marks) = &self.marks {
            marks.put(out);
        }
    }

    pub(crate) fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let columns = std::str::from_utf8(reader.get_sized()?).map_err(|_| Malformed("the columns are not text"))?;
        let mut manifest = Self {
            columns: columns.to_owned(),
            sstables: Vec::new(),
            marks: None,
        };
        let count = reader.get_vint()?;
        if count > SSTABLES_MAX as u64 {
            return Err(Malformed("the list has more sstables than a stream may have"));
        }
        for _ in 0..count {
            let sstable = get_sstable(reader)?;
            manifest.sstables.push(sstable);
        }
        if get_flag(reader, "whether marks follow, 0 or 1")? {
            manifest.marks = Some(ListedMarks::get(reader, manifest.sstables.len())?);
        }
        Ok(manifest)
    }
}

fn get_sstable(reader: &mut Reader<'_>) -> Result<ListedSstable, Malformed> {
    let version = usize::from(reader.get_u8()?).checked_sub(1);
    let version = version.and_then(|at| VERSIONS.get(at));
    let mut sstable = ListedSstable {
        version: *version.ok_or(Malformed("the version of an sstable is not known"))?,
        files: Vec::new(),
    };
    for _ in 0..reader.get_vint()? {
        let file = ListedFile {
            component: component_of(reader.get_u8()?)?,
            len: reader.get_vint()?,
            crc: reader.get_u32()?,
        };
        if sstable.files.iter().any(|other| other.component == file.component) {
            return Err(Malformed("an sstable has a component twice"));
        }
        sstable.files.push(file);
    }
    let has = |component: &Component| sstable.files.iter().any(|file| file.component == *component);
    if NEEDED.iter().all(has) {
        Ok(sstable)
    } else {
        Err(Malformed("an sstable lacks a component that each has"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest() -> Manifest {
        let file = |component, len| ListedFile {
            component,
            len,
            crc: 77,
        };
        let files = vec![
            file(Component::Data, 1 << 33),
            file(Component::Index, 500),
            file(Component::Statistics, 40),
            file(Component::Toc, 60),
        ];
        let sstable = ListedSstable {
            version: Version::Me,
            files,
        };
        Manifest {
            columns: "\"k\" int".to_owned(),
            sstables: vec![
                sstable.clone(),
                ListedSstable {
                    version: Version::Mc,
                    ..sstable
                },
            ],
            marks: None,
        }
    }

    fn decode(bytes: &[u8]) -> Result<Manifest, Malformed> {
        Manifest::get(&mut Reader::new(bytes))
    }

    #[test]
    fn a_list_of_files_is_read_back_and_cut_short_it_is_none() {
        let (manifest, mut bytes) = (manifest(), Vec::new());
        manifest.put(&mut bytes);
        assert_eq!(decode(&bytes), Ok(manifest.clone()));
        assert_eq!(manifest.bytes(), 2 * ((1 << 33) + 600));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        let marks = marks();
        let marked = Manifest {
            marks: Some(marks.clone()),
            ..manifest
        };
        bytes.clear();
        marked.put(&mut bytes);
        assert_eq!(decode(&bytes), Ok(marked.clone()));
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "{len} bytes");
        }
        for (since, at) in [(0, 5), (-1, 5), (6, 5)] {
            let marks = Some(ListedMarks {
                since,
                at,
                ..marks.clone()
            });
            bytes.clear();
            Manifest {
                marks,
                ..marked.clone()
            }
            .put(&mut bytes);
            assert!(decode(&bytes).is_err(), "{since} {at}");
        }
    }

    fn marks() -> ListedMarks {
        ListedMarks {
            session: 1 << 100,
            replicas: 7,
            since: 4,
            at: 5,
            is_marked: vec![true, false],
        }
    }

    #[test]
    fn an_sstable_that_lacks_a_component_or_has_one_twice_is_refused() {
        let changed = |change: fn(&mut Vec<ListedFile>)| {
            let (mut manifest, mut bytes) = (manifest(), Vec::new());
            change(&mut manifest.sstables[1].files);
            manifest.put(&mut bytes);
            decode(&bytes)
        };
        assert_eq!(
            changed(|files| files.truncate(3)),
            Err(Malformed("an sstable lacks a component that each has"))
        );
        assert_eq!(
            changed(|files| files.push(files[0])),
            Err(Malformed("an sstable has a component twice"))
        );
    }
}
