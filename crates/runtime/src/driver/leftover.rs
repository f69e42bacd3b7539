//! Bytes that a connection has received and that are not read yet.

/// See the module.
#[derive(Default)]
pub(crate) struct Leftover {
    bytes: Vec<u8>,
    taken: usize,
}

impl Leftover {
    /// The bytes after the first `taken`.
    pub(crate) fn new(bytes: Vec<u8>, taken: usize) -> Self {
        Self { bytes, taken }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }

    /// Appends as much as fits to the buffer's spare capacity.
    pub(crate) fn move_to(&mut self, buffer: &mut Vec<u8>) -> usize {
        let count = (self.bytes.len() - self.taken).min(buffer.capacity() - buffer.len());
        buffer.extend_from_slice(&self.bytes[self.taken..self.taken + count]);
        self.taken += count;
        if self.is_empty() {
            *self = Self::default();
        }
        count
    }

    pub(crate) fn into_bytes(mut self) -> Vec<u8> {
        self.bytes.split_off(self.taken)
    }
}
