//! Clustering prefixes: between the packed form (each component a vint length and its bytes) and the file's.
//!
//! ```text
//! values   for every 32 components: vint of two bits each (1: empty, 2: null), then those that are neither:
//!          of fixed width as they are, others a vint length and bytes
//! prefix   u8 kind; a row: values; a bound: u16 count, values
//! ```

use mutation::{Bound, BoundKind};
use schema::{components, push_component, push_null};
use stdx::bytes::{Reader, Truncated};
use stdx::vint;

/// Kinds of clustering prefix, as numbered in the file.
pub(crate) mod kind {
    pub(crate) const EXCL_END: u8 = 0;
    pub(crate) const INCL_START: u8 = 1;
    pub(crate) const EXCL_END_INCL_START: u8 = 2;
    pub(crate) const ROW: u8 = 4;
    pub(crate) const INCL_END_EXCL_START: u8 = 5;
    pub(crate) const INCL_END: u8 = 6;
    pub(crate) const EXCL_START: u8 = 7;
}

/// What two bits of a prefix say of a value that has no bytes: the empty one, or none, as rows of compact storage may
/// have in their last columns.
const EMPTY: u64 = 1;
const NULL: u64 = 2;

/// The widths of the clustering columns, in key order: None is variable.
pub(crate) type Widths = [Option<usize>];

/// Appends the values of a packed prefix, in the file's form. Err when a value has not the width of its type.
#[inline]
pub(crate) fn encode_values(packed: &[u8], widths: &Widths, out: &mut Vec<u8>) -> Result<(), &'static str> {
    if packed.is_empty() {
        return Ok(());
    }
    let mut rest = packed;
    let mut widths = widths;
    while !rest.is_empty() {
        let (block, later) = widths.split_at(widths.len().min(32));
        if block.is_empty() {
            return Err("more components than the table has clustering columns");
        }
        let mut header = 0u64;
        for (i, component) in components(rest).take(block.len()).enumerate() {
            let bits = component.map_or(NULL, |component| u64::from(component.is_empty()));
            header |= bits << (2 * i);
        }
        vint::put_unsigned(out, header);
        for width in block {
            let Some((component, tail)) = schema::split_component(rest) else {
                if rest.is_empty() {
                    break;
                }
                return Err("a clustering prefix that is cut short");
            };
            rest = tail;
            let Some(component) = component.filter(|component| !component.is_empty()) else {
                continue;
            };
            match width {
                Some(n) if *n != component.len() => {
                    return Err("a clustering value that has not the width of its type");
                }
                Some(_) => {}
                None => vint::put_unsigned(out, component.len() as u64),
            }
            out.extend_from_slice(component);
        }
        widths = later;
    }
    Ok(())
}

/// Appends `count` values to `packed`.
#[inline]
pub(crate) fn decode_values(
    r: &mut Reader<'_>,
    widths: &Widths,
    count: usize,
    packed: &mut Vec<u8>,
) -> Result<(), Truncated> {
    for block in widths[..count].chunks(32) {
        let mut header = r.get_vint()?;
        for width in block {
            if header & NULL != 0 {
                push_null(packed);
            } else if header & EMPTY != 0 {
                push_component(packed, &[]);
            } else {
                let len = match width {
                    Some(n) => *n,
                    None => usize::try_from(r.get_vint()?).unwrap_or(usize::MAX),
                };
                push_component(packed, r.get_slice(len)?);
            }
            header >>= 2;
        }
    }
    Ok(())
}

/// Appends a bound with its kind, as markers and the promoted index have it.
pub(crate) fn encode_bound(kind: u8, packed: &[u8], widths: &Widths, out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.push(kind);
    let count = u16::try_from(components(packed).count()).map_err(|_| "too many components")?;
    out.extend_from_slice(&count.to_be_bytes());
    encode_values(packed, widths, out)
}

/// Appends a row's clustering with its kind, as the promoted index has it.
pub(crate) fn encode_row(packed: &[u8], widths: &Widths, out: &mut Vec<u8>) -> Result<(), &'static str> {
    out.push(kind::ROW);
    encode_values(packed, widths, out)
}

/// The kind of the end of a deletion at `bound`.
pub(crate) fn end_kind(bound: &Bound) -> u8 {
    match bound.kind {
        BoundKind::Before => kind::EXCL_END,
        BoundKind::After => kind::INCL_END,
    }
}

/// The kind of the start of a deletion at `bound`.
pub(crate) fn start_kind(bound: &Bound) -> u8 {
    match bound.kind {
        BoundKind::Before => kind::INCL_START,
        BoundKind::After => kind::EXCL_START,
    }
}

/// The kind of a boundary between two deletions at `bound`.
pub(crate) fn boundary_kind(bound: &Bound) -> u8 {
    match bound.kind {
        BoundKind::Before => kind::EXCL_END_INCL_START,
        BoundKind::After => kind::INCL_END_EXCL_START,
    }
}

/// The side of its prefix on which a marker of this kind is; None if the kind is not a marker.
pub(crate) fn marker_side(kind: u8) -> Option<BoundKind> {
    match kind {
        kind::EXCL_END | kind::INCL_START | kind::EXCL_END_INCL_START => Some(BoundKind::Before),
        kind::INCL_END | kind::EXCL_START | kind::INCL_END_EXCL_START => Some(BoundKind::After),
        _ => None,
    }
}
