//! The last messages of the log, for clients that read them over CQL (`system_views.system_logs`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use log::{Level, Record};

/// What the messages that are kept may take, in bytes.
const BYTES_MAX: usize = 1 << 20;

/// A message of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged {
    /// When, in microseconds since 1970.
    pub wall_us: i64,
    /// How bad.
    pub level: Level,
    /// The module that says it.
    pub module: String,
    /// What it says.
    pub message: String,
}

impl Logged {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.module.len() + self.message.len()
    }
}

/// The newest messages that fit, the oldest first.
pub(crate) struct Recent {
    messages: VecDeque<Arc<Logged>>,
    bytes: usize,
}

impl Recent {
    pub(crate) const fn new() -> Self {
        Self {
            messages: VecDeque::new(),
            bytes: 0,
        }
    }

    fn add(&mut self, message: Logged) {
        self.bytes += message.bytes();
        self.messages.push_back(Arc::new(message));
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.messages.pop_front() else {
                return;
            };
            self.bytes -= oldest.bytes();
        }
    }
}

static RECENT: Mutex<Recent> = Mutex::new(Recent::new());

/// Keeps a message until newer ones need its room.
pub(crate) fn keep(record: &Record<'_>, wall_us: i64, message: &str) {
    let message = Logged {
        wall_us,
        level: record.level(),
        module: record.target().to_owned(),
        message: message.trim_end().to_owned(),
    };
    RECENT.lock().unwrap_or_else(PoisonError::into_inner).add(message);
}

/// The last messages of this process's log, the oldest first: about a mebibyte of them.
#[must_use]
pub fn recent() -> Vec<Arc<Logged>> {
    let recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    recent.messages.iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_messages_that_fit_are_kept() {
        let message = |number: i64, bytes: usize| Logged {
            wall_us: number,
            level: Level::Info,
            module: "module".to_owned(),
            message: "x".repeat(bytes),
        };
        let kept = |recent: &Recent| recent.messages.iter().map(|m| m.wall_us).collect::<Vec<_>>();
        let mut recent = Recent::new();
        (1..=3).for_each(|number| recent.add(message(number, BYTES_MAX / 4)));
        assert_eq!(kept(&recent), [1, 2, 3]);
        recent.add(message(4, BYTES_MAX / 4));
        assert_eq!(kept(&recent), [2, 3, 4], "what they take beside their text counts");
        recent.add(message(5, BYTES_MAX));
        assert_eq!(kept(&recent), [0_i64; 0], "one that is too large for all the room");
        assert_eq!(recent.bytes, 0);
        recent.add(message(6, 1));
        assert_eq!(kept(&recent), [6]);
    }
}
