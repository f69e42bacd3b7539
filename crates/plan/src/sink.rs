//! Where the rows of a result go.

/// Takes the rows of a result, value by value: a front end's own form of them.
///
/// The engine writes a row's values in the order of the result's columns and then ends the row. A sink of a long read
/// travels with the read from shard to shard. What it holds after an error is not a result.
pub trait RowSink {
    /// Takes the next value of the row: serialised bytes, or None for null.
    fn value(&mut self, value: Option<&[u8]>);

    /// Ends the row.
    fn end_row(&mut self);

    /// How many bytes it holds: what pages and results without pages are bounded by.
    fn bytes(&self) -> usize;
}

/// A sink that a page owns while it is read: begun empty, it goes where the read goes.
pub trait PageSink: RowSink + Default + Send + 'static {}

impl<S: RowSink + Default + Send + 'static> PageSink for S {}

/// The sink of a caller that wants the values themselves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ValueRows {
    /// The values of each row; None is null.
    pub rows: Vec<Vec<Option<Vec<u8>>>>,
    row: Vec<Option<Vec<u8>>>,
    bytes: usize,
}

impl RowSink for ValueRows {
    fn value(&mut self, value: Option<&[u8]>) {
        self.bytes += size_of::<Option<Vec<u8>>>() + value.map_or(0, <[u8]>::len);
        self.row.push(value.map(<[u8]>::to_vec));
    }

    fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    fn bytes(&self) -> usize {
        self.bytes
    }
}
