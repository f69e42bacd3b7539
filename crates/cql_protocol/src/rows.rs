//! RESULT rows and RESULT prepared.
//!
//! ```text
//! rows      kind 2 [int]  flags [int]  columns [int]  [paging state [bytes]]  [new metadata id [short bytes]]
//!           [column specifications]  rows [int]  rows x columns x cell [bytes]
//! prepared  kind 4 [int]  id [short bytes]  [result metadata id [short bytes]]
//!           flags [int]  columns [int]  [n [int], n x partition key index [short]]  [column specifications]
//!           result flags [int]  result columns [int]  [column specifications]
//! ```
//!
//! Whether there are more pages is known only when the last row has been written, but is encoded before the first one.
//! The paging state is therefore inserted afterwards: one move of one page, and only on pages that have a successor.

use crate::codes::{ProtocolVersion, rows_flags};
use crate::metadata::{EncodedMetadata, PreparedResult};
use crate::response::{RESULT_PREPARED, RESULT_ROWS, put_int, put_short, put_short_bytes};

/// The places to patch in an unfinished RESULT rows.
#[derive(Clone, Copy, Debug)]
#[must_use = "the number of rows is written by finish_rows"]
pub struct RowsMark {
    flags: u32,
    flags_at: usize,
    row_count_at: usize,
}

/// Begins the body of a RESULT rows, after [`crate::begin_response`]; the caller then writes the cells of each row with
/// [`crate::put_bytes`] and [`crate::put_null`], and calls [`finish_rows`].
///
/// `skip_metadata` is what the client asked for. With `new_metadata_id` the client learns that the metadata it holds is
/// stale: then the metadata is sent even if it asked to skip it (version 5, or `SCYLLA_USE_METADATA_ID`).
#[inline]
pub fn begin_rows(
    out: &mut Vec<u8>,
    metadata: &EncodedMetadata,
    skip_metadata: bool,
    new_metadata_id: Option<&[u8]>,
) -> RowsMark {
    put_int(out, RESULT_ROWS);
    let flags_at = out.len();
    let mut flags = 0;
    if new_metadata_id.is_some() {
        flags |= rows_flags::METADATA_CHANGED;
    }
    let with_metadata = !skip_metadata || new_metadata_id.is_some();
    flags |= if with_metadata {
        metadata.flags()
    } else {
        rows_flags::NO_METADATA
    };
    out.extend_from_slice(&flags.to_be_bytes());
    put_int(out, metadata.column_count());
    if let Some(id) = new_metadata_id {
        put_short_bytes(out, id);
    }
    if with_metadata {
        out.extend_from_slice(metadata.specifications());
    }
    let row_count_at = out.len();
    put_int(out, 0);
    RowsMark {
        flags,
        flags_at,
        row_count_at,
    }
}

/// Ends the body of a RESULT rows: its number of rows, and where the next page begins if there is one.
#[inline]
pub fn finish_rows(out: &mut Vec<u8>, mark: RowsMark, rows: u32, paging_state: Option<&[u8]>) {
    out[mark.row_count_at..mark.row_count_at + 4].copy_from_slice(&rows.to_be_bytes());
    if let Some(state) = paging_state {
        insert_paging_state(out, mark, state);
    }
}

#[cold]
fn insert_paging_state(out: &mut Vec<u8>, mark: RowsMark, state: &[u8]) {
    let flags = mark.flags | rows_flags::HAS_MORE_PAGES;
    out[mark.flags_at..mark.flags_at + 4].copy_from_slice(&flags.to_be_bytes());
    let length = i32::try_from(state.len()).expect("a paging state is a key and a few counters");
    let state_at = mark.flags_at + 8;
    out.splice(
        state_at..state_at,
        length.to_be_bytes().into_iter().chain(state.iter().copied()),
    );
}

/// Writes the body of a RESULT prepared, after [`crate::begin_response`].
pub fn write_prepared(out: &mut Vec<u8>, version: ProtocolVersion, prepared: &PreparedResult<'_>) {
    put_int(out, RESULT_PREPARED);
    put_short_bytes(out, prepared.id);
    if let Some(id) = prepared.result_metadata_id {
        put_short_bytes(out, id);
    }
    let variables = prepared.variables;
    let lwt_mark = prepared.lwt_mark.unwrap_or(0);
    out.extend_from_slice(&(variables.flags() | lwt_mark).to_be_bytes());
    put_int(out, variables.column_count());
    if version >= ProtocolVersion::V4 {
        put_int(out, i32::try_from(prepared.partition_key_indexes.len()).unwrap_or(0));
        for position in prepared.partition_key_indexes {
            put_short(out, usize::from(*position));
        }
    }
    out.extend_from_slice(variables.specifications());
    match prepared.result {
        Some(result) => {
            out.extend_from_slice(&result.flags().to_be_bytes());
            put_int(out, result.column_count());
            out.extend_from_slice(result.specifications());
        }
        None => {
            out.extend_from_slice(&rows_flags::NO_METADATA.to_be_bytes());
            put_int(out, 0);
        }
    }
}
