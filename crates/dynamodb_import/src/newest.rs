//! Which change of an item is the newest, where an export has several.
//!
//! The service writes one change for each item of an incremental export. A file that has several nonetheless, in any
//! order, must not bring an older image back. The times of the last [`KEYS_MAX`] keys are remembered, in the order in
//! which they were first seen.

use std::collections::{HashMap, VecDeque};

/// Keys that are remembered, about 60 bytes each.
const KEYS_MAX: usize = 1 << 20;

/// See the module. A key is remembered by its MD5.
pub(crate) struct Newest {
    times: HashMap<[u8; 16], i64>,
    order: VecDeque<[u8; 16]>,
    keys_max: usize,
}

impl Newest {
    pub(crate) fn new() -> Self {
        Self::with_limit(KEYS_MAX)
    }

    fn with_limit(keys_max: usize) -> Self {
        Self {
            times: HashMap::default(),
            order: VecDeque::new(),
            keys_max,
        }
    }

    /// Whether a change of a key at a time, in microseconds, is newer than those that were seen; it is remembered then.
    /// Of two with the same time the later one in the export is.
    pub(crate) fn is_newest(&mut self, key: &[u8], time_us: i64) -> bool {
        let hash = *md5::compute(key);
        if let Some(known) = self.times.get_mut(&hash) {
            let is_newest = time_us >= *known;
            *known = time_us.max(*known);
            return is_newest;
        }
        if self.order.len() >= self.keys_max
            && let Some(oldest) = self.order.pop_front()
        {
            self.times.remove(&oldest);
        }
        self.times.insert(hash, time_us);
        self.order.push_back(hash);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_change_of_a_key_is_no_newest() {
        let mut newest = Newest::new();
        assert!(newest.is_newest(b"a", 20));
        assert!(newest.is_newest(b"b", 10));
        assert!(!newest.is_newest(b"a", 19));
        assert!(newest.is_newest(b"a", 20));
        assert!(newest.is_newest(b"a", 21));
        assert!(!newest.is_newest(b"a", 20));
    }

    #[test]
    fn memory_is_limited() {
        let mut newest = Newest::with_limit(2);
        assert!(newest.is_newest(b"a", 20));
        assert!(newest.is_newest(b"b", 20));
        assert!(newest.is_newest(b"c", 20));
        assert!(newest.is_newest(b"a", 10), "a was forgotten");
        assert!(!newest.is_newest(b"c", 10));
        assert_eq!((newest.times.len(), newest.order.len()), (2, 2));
    }
}
