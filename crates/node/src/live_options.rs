//! The options of a running node: those it was started with, those that SIGHUP brought, and those that clients have set
//! since.
//!
//! All shards read them; shard 0 changes them, one change after another ([`crate::reread`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use config::{Config, Described, SetOptions, Source, described};
use tasks::{Class, Tasks};

/// The options as they are now. Lives on the node.
#[derive(Debug)]
pub(crate) struct LiveOptions(Mutex<Current>);

/// A configuration and what is part of it by statements of clients.
#[derive(Clone, Debug)]
pub(crate) struct Current {
    pub(crate) config: Arc<Config>,
    pub(crate) set: SetOptions,
}

impl LiveOptions {
    /// Those that the node is started with.
    pub(crate) fn new(config: &Config) -> Self {
        Self(Mutex::new(Current {
            config: Arc::new(config.clone()),
            set: SetOptions::new(),
        }))
    }

    fn lock(&self) -> MutexGuard<'_, Current> {
        self.0.lock().expect("no thread panics while holding the options")
    }

    /// As they are now.
    pub(crate) fn current(&self) -> Current {
        self.lock().clone()
    }

    /// Makes these the current ones.
    pub(crate) fn replace(&self, config: Config, set: SetOptions) {
        *self.lock() = Current {
            config: Arc::new(config),
            set,
        };
    }

    /// All options in words, with what nodetool has changed since.
    pub(crate) fn described(&self, tasks: &Tasks) -> Vec<Described> {
        described(&self.lock().config, &changed_by_nodetool(tasks))
    }
}

/// The options whose values commands of nodetool replace until the next start or SIGHUP.
fn changed_by_nodetool(tasks: &Tasks) -> BTreeMap<&'static str, String> {
    let rate = |class| config::rate_text(tasks.bytes_per_second(class));
    let (ttl, user_ttl) = tasks.ttls();
    BTreeMap::from([
        ("compaction_throughput", rate(Class::Compaction)),
        ("stream_throughput_outbound", rate(Class::Streaming)),
        ("task_ttl_in_seconds", ttl.as_secs().to_string()),
        ("user_task_ttl_in_seconds", user_ttl.as_secs().to_string()),
    ])
}

/// What clients have set, less what the options file says now: a SIGHUP takes the file's values over.
pub(crate) fn left_by_file(set: &SetOptions, read: &Config) -> SetOptions {
    let is_of_file = |name: &str| read.sources.get(name) == Some(&Source::File);
    let left = set.iter().filter(|(name, _)| !is_of_file(name));
    left.map(|(name, value)| (*name, value.clone())).collect()
}
