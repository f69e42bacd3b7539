//! JSON objects, written member by member.

use std::io::Write;

use stdx::preempt;

use crate::value::json::write_string;

/// An object that is being written: it puts commas between members.
pub(crate) struct Object<'o> {
    out: &'o mut Vec<u8>,
    is_first: bool,
}

impl<'o> Object<'o> {
    pub(crate) fn begin(out: &'o mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, is_first: true }
    }

    /// Writes a name, after which its value must be written.
    pub(crate) fn name(&mut self, name: &str) -> &mut Vec<u8> {
        if !std::mem::replace(&mut self.is_first, false) {
            self.out.push(b',');
        }
        write_string(self.out, name);
        self.out.push(b':');
        self.out
    }

    pub(crate) fn text(&mut self, name: &str, value: &str) {
        write_string(self.name(name), value);
    }

    pub(crate) fn integer(&mut self, name: &str, value: impl std::fmt::Display) {
        // Writing to a vector does not fail.
        let _ = write!(self.name(name), "{value}");
    }

    pub(crate) fn flag(&mut self, name: &str, value: bool) {
        let text: &[u8] = if value { b"true" } else { b"false" };
        self.name(name).extend_from_slice(text);
    }

    /// A time, as seconds with three digits after the point.
    pub(crate) fn time(&mut self, name: &str, ms: i64) {
        let _ = write!(self.name(name), "{}", crate::table::seconds(ms));
    }

    /// Writes text that is JSON already.
    pub(crate) fn raw(&mut self, name: &str, json: &str) {
        self.name(name).extend_from_slice(json.as_bytes());
    }

    /// Writes a list, element by element.
    pub(crate) fn list<T>(&mut self, name: &str, list: &[T], write: impl Fn(&mut Vec<u8>, &T)) {
        let out = self.name(name);
        preempt::push(out, b'[');
        for (number, element) in list.iter().enumerate() {
            preempt::point();
            if number > 0 {
                preempt::push(out, b',');
            }
            write(out, element);
        }
        preempt::push(out, b']');
    }

    /// The buffer, for a value that is written in parts.
    pub(crate) fn buffer(&mut self) -> &mut Vec<u8> {
        self.out
    }

    pub(crate) fn end(self) {
        self.out.push(b'}');
    }
}
