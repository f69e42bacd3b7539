//! Result rows as the protocol's cells: each an i32 length, -1 for null, and the bytes.

use plan::RowSink;
use plan::write::ConditionalAnswer;
use stdx::preempt;

/// Gives values to a buffer of cells that other code owns, such as the answers of a socket read.
#[derive(Debug)]
pub struct CellWriter<'a>(pub &'a mut Vec<u8>);

/// The cells of a page.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Cells(pub Vec<u8>);

/// More than a row mostly takes.
const FIRST_BYTES: usize = 512;

#[inline]
fn put_cell(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(v) if v.len() < preempt::STEP_BYTES => {
            out.extend_from_slice(&(v.len() as u32).to_be_bytes());
            out.extend_from_slice(v);
        }
        Some(v) => put_long_cell(out, v),
    }
}

#[cold]
fn put_long_cell(out: &mut Vec<u8>, value: &[u8]) {
    let len = u32::try_from(value.len()).expect("a value is smaller than 2 GiB");
    out.extend_from_slice(&len.to_be_bytes());
    preempt::append(out, value);
}

impl RowSink for CellWriter<'_> {
    #[inline]
    fn value(&mut self, value: Option<&[u8]>) {
        put_cell(self.0, value);
    }

    #[inline]
    fn end_row(&mut self) {}

    #[inline]
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

impl RowSink for Cells {
    #[inline]
    fn value(&mut self, value: Option<&[u8]>) {
        if self.0.capacity() == 0 {
            self.0.reserve(FIRST_BYTES);
        }
        put_cell(&mut self.0, value);
    }

    #[inline]
    fn end_row(&mut self) {
        // Before it is full: where it grows inside of a row, all of it is copied in one step.
        if self.0.len() >= preempt::STEP_BYTES && self.0.capacity() - self.0.len() < self.0.len() / 8 {
            let more = self.0.len();
            preempt::reserve(&mut self.0, more);
        }
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// The cells of a conditional statement's answer: each row says first whether it was applied.
pub(crate) fn of_answer(answer: &ConditionalAnswer) -> (u32, Vec<u8>) {
    let applied = [u8::from(answer.applied)];
    let mut cells = Vec::new();
    if answer.rows.is_empty() {
        put_cell(&mut cells, Some(&applied));
        return (1, cells);
    }
    for row in &answer.rows {
        put_cell(&mut cells, Some(&applied));
        row.iter().for_each(|value| put_cell(&mut cells, value.as_deref()));
        preempt::point();
    }
    (row_count(answer.rows.len()), cells)
}

/// The cells of rows of values.
pub(crate) fn of_rows(rows: &[Vec<Option<Vec<u8>>>]) -> (u32, Vec<u8>) {
    let mut cells = Vec::new();
    let values = rows.iter().flatten();
    values.for_each(|value| put_cell(&mut cells, value.as_deref()));
    (row_count(rows.len()), cells)
}

fn row_count(rows: usize) -> u32 {
    u32::try_from(rows).expect("the rows fit into memory, and a frame holds fewer than 2^32")
}
