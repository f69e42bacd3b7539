//! Bytes of what the log is made of: entries, configurations, snapshots. Store and messages share them.
//!
//! ```text
//! bytes          u32 length, the bytes
//! entry          u64 term, u64 index, u8 kind (0 command, 1 membership), bytes context, bytes data
//! configuration  voters, learners, outgoing voters, next learners: each u32 count and so many u64; u8 auto leave
//! snapshot       u64 index, u64 term, configuration, bytes data
//! ```
//!
//! Big endian. A configuration is accepted only if the library would: its own check is a panic.

use raft::eraftpb::{ConfState, Entry, EntryType, Snapshot};
use std::collections::BTreeSet;
use std::fmt;
use stdx::bytes::{Reader, Truncated};

/// Terms and indexes beyond this are not believed: no group lives that long, and arithmetic on them cannot overflow
/// below.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// Nodes that a configuration may name in one list.
pub(crate) const MEMBERS_MAX: usize = 4096;

/// Bytes that are not what they should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Malformed {
    /// What was expected.
    pub expected: &'static str,
    /// Offset in the message or record.
    pub at: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} expected at byte {}", self.expected, self.at)
    }
}

impl std::error::Error for Malformed {}

/// Names what was being read when the bytes ended.
pub(crate) fn expected(what: &'static str) -> impl Fn(Truncated) -> Malformed {
    move |truncated| Malformed {
        expected: what,
        at: truncated.at,
    }
}

pub(crate) fn put_u32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_u64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_be_bytes());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u32(
        out,
        u32::try_from(bytes.len()).expect("commands and snapshots are below 4 GiB"),
    );
    out.extend_from_slice(bytes);
}

pub(crate) fn get_bytes<'a>(reader: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8], Malformed> {
    let length = reader.get_u32().map_err(expected(what))?;
    reader.get_slice(length as usize).map_err(expected(what))
}

/// A term or an index.
pub(crate) fn get_number(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, Malformed> {
    let at = reader.at();
    let value = reader.get_u64().map_err(expected(what))?;
    if value > NUMBER_MAX {
        return Err(Malformed { expected: what, at });
    }
    Ok(value)
}

pub(crate) fn put_entry(out: &mut Vec<u8>, entry: &Entry) {
    put_u64(out, entry.term);
    put_u64(out, entry.index);
    out.push(u8::from(entry.entry_type != EntryType::EntryNormal));
    put_bytes(out, &entry.context);
    put_bytes(out, &entry.data);
}

pub(crate) fn get_entry(reader: &mut Reader<'_>) -> Result<Entry, Malformed> {
    let term = get_number(reader, "the term of an entry")?;
    let index = get_number(reader, "the index of an entry")?;
    let at = reader.at();
    let entry_type = match reader.get_u8().map_err(expected("the kind of an entry"))? {
        0 => EntryType::EntryNormal,
        1 => EntryType::EntryConfChangeV2,
        _ => {
            return Err(Malformed {
                expected: "0 or 1 for the kind of an entry",
                at,
            });
        }
    };
    let context = get_bytes(reader, "the context of an entry")?.to_vec();
    let data = get_bytes(reader, "the data of an entry")?.to_vec();
    Ok(Entry {
        entry_type,
        term,
        index,
        context: context.into(),
        data: data.into(),
        ..Entry::default()
    })
}

pub(crate) fn put_conf(out: &mut Vec<u8>, conf: &ConfState) {
    for ids in [&conf.voters, &conf.learners, &conf.voters_outgoing, &conf.learners_next] {
        put_u32(out, u32::try_from(ids.len()).expect("a group has few members"));
        for id in ids {
            put_u64(out, *id);
        }
    }
    out.push(u8::from(conf.auto_leave));
}

fn get_ids(reader: &mut Reader<'_>) -> Result<Vec<u64>, Malformed> {
    const WHAT: &str = "the members of a configuration";
    let at = reader.at();
    let count = reader.get_u32().map_err(expected(WHAT))?;
    if count as usize > MEMBERS_MAX {
        return Err(Malformed { expected: WHAT, at });
    }
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(reader.get_u64().map_err(expected(WHAT))?);
    }
    Ok(ids)
}

/// A configuration; empty, or one that the library takes.
pub(crate) fn get_conf(reader: &mut Reader<'_>) -> Result<ConfState, Malformed> {
    let at = reader.at();
    let mut conf = ConfState {
        voters: get_ids(reader)?,
        learners: get_ids(reader)?,
        voters_outgoing: get_ids(reader)?,
        learners_next: get_ids(reader)?,
        ..ConfState::default()
    };
    conf.auto_leave = reader
        .get_u8()
        .map_err(expected("whether a configuration is left by itself"))?
        != 0;
    if is_consistent(&conf) {
        Ok(conf)
    } else {
        Err(Malformed {
            expected: "a configuration with a voter and each member in one role",
            at,
        })
    }
}

fn is_consistent(conf: &ConfState) -> bool {
    let set = |ids: &[u64]| -> Option<BTreeSet<u64>> {
        let set: BTreeSet<u64> = ids.iter().copied().collect();
        (set.len() == ids.len() && !set.contains(&0)).then_some(set)
    };
    let (Some(voters), Some(learners), Some(outgoing), Some(next)) = (
        set(&conf.voters),
        set(&conf.learners),
        set(&conf.voters_outgoing),
        set(&conf.learners_next),
    ) else {
        return false;
    };
    if voters.is_empty() {
        return learners.is_empty() && outgoing.is_empty() && next.is_empty() && !conf.auto_leave;
    }
    voters.is_disjoint(&learners)
        && outgoing.is_disjoint(&learners)
        && next.is_subset(&outgoing)
        && next.is_disjoint(&voters)
        && next.is_disjoint(&learners)
        && (!conf.auto_leave || !outgoing.is_empty())
}

pub(crate) fn put_snapshot(out: &mut Vec<u8>, snapshot: &Snapshot) {
    let metadata = snapshot.get_metadata();
    put_u64(out, metadata.index);
    put_u64(out, metadata.term);
    put_conf(out, metadata.get_conf_state());
    put_bytes(out, &snapshot.data);
}

pub(crate) fn get_snapshot(reader: &mut Reader<'_>) -> Result<Snapshot, Malformed> {
    let at = reader.at();
    let index = get_number(reader, "the index of a snapshot")?;
    let term = get_number(reader, "the term of a snapshot")?;
    let conf = get_conf(reader)?;
    if index == 0 || term == 0 || conf.voters.is_empty() {
        return Err(Malformed {
            expected: "a snapshot with an index, a term and voters",
            at,
        });
    }
    let data = get_bytes(reader, "the data of a snapshot")?.to_vec();
    Ok(make_snapshot(index, term, conf, data))
}

pub(crate) fn make_snapshot(index: u64, term: u64, conf: ConfState, data: Vec<u8>) -> Snapshot {
    let mut snapshot = Snapshot {
        data: data.into(),
        ..Snapshot::default()
    };
    let metadata = snapshot.mut_metadata();
    metadata.index = index;
    metadata.term = term;
    metadata.set_conf_state(conf);
    snapshot
}
