//! Which level applies to which module. A value; [`crate`] keeps one for the process.

use std::collections::BTreeMap;
use std::fmt;

use log::LevelFilter;

/// The name for all modules without a level of their own.
pub const ROOT: &str = "root";

/// Every module that logs, one in a line: `./dev rewrite testkit` writes it from the sources.
const MODULES: &str = include_str!("modules.txt");

/// No module of this name, and none below it, logs anything.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnknownModule(String);

impl fmt::Display for UnknownModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut crates: Vec<&str> = MODULES.lines().filter_map(|module| module.split("::").next()).collect();
        crates.dedup();
        write!(
            f,
            "unknown logger '{}': expected {ROOT}, a module as log lines show it in brackets, such as rpc::link, or one of: {}",
            self.0,
            crates.join(", ")
        )
    }
}

/// The level of the options, and the levels set since.
pub(crate) struct Levels {
    configured: LevelFilter,
    root: LevelFilter,
    modules: BTreeMap<String, LevelFilter>,
}

/// Whether `path` is `module` or below it.
fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn is_root(name: &str) -> bool {
    name.eq_ignore_ascii_case(ROOT)
}

fn check(module: &str) -> Result<(), UnknownModule> {
    let is_known = MODULES.lines().any(|known| is_within(known, module));
    is_known.then_some(()).ok_or_else(|| UnknownModule(module.to_owned()))
}

impl Levels {
    pub(crate) const fn new(configured: LevelFilter) -> Self {
        Self {
            configured,
            root: configured,
            modules: BTreeMap::new(),
        }
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.configured);
    }

    pub(crate) fn set(&mut self, name: &str, level: Option<LevelFilter>) -> Result<(), UnknownModule> {
        if is_root(name) {
            self.root = level.unwrap_or(self.configured);
            return Ok(());
        }
        check(name)?;
        match level {
            Some(level) => self.modules.insert(name.to_owned(), level),
            None => self.modules.remove(name),
        };
        Ok(())
    }

    pub(crate) fn get(&self, name: &str) -> Result<LevelFilter, UnknownModule> {
        if is_root(name) {
            return Ok(self.root);
        }
        check(name)?;
        Ok(self.of_target(name))
    }

    /// The level that applies to messages of a module.
    pub(crate) fn of_target(&self, target: &str) -> LevelFilter {
        let matching = self.modules.iter().filter(|(module, _)| is_within(target, module));
        let longest = matching.max_by_key(|(module, _)| module.len());
        longest.map_or(self.root, |(_, level)| *level)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let root = std::iter::once(ROOT.to_owned());
        root.chain(self.modules.keys().cloned()).collect()
    }

    pub(crate) fn most_verbose(&self) -> LevelFilter {
        self.modules.values().copied().fold(self.root, Ord::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LevelFilter::{Debug, Error, Info, Trace, Warn};

    #[test]
    fn the_longest_path_wins_and_a_reset_brings_the_configured_level_back() {
        let mut levels = Levels::new(Info);
        levels.set("rpc", Some(Warn)).expect("rpc logs");
        levels.set("rpc::link", Some(Debug)).expect("rpc::link logs");
        let cases = [
            ("rpc::link", Debug),
            ("rpc::link::inner", Debug),
            ("rpc::server", Warn),
            ("rpc", Warn),
            ("rpc_other", Info),
            ("node::start", Info),
        ];
        for (target, expected) in cases {
            assert_eq!(levels.of_target(target), expected, "{target}");
        }
        assert_eq!(levels.names(), ["root", "rpc", "rpc::link"]);
        assert_eq!(levels.most_verbose(), Debug);
        levels.set("ROOT", Some(Trace)).expect("root is there");
        assert_eq!((levels.get("node"), levels.get("rpc")), (Ok(Trace), Ok(Warn)));
        levels.set("rpc::link", None).expect("rpc::link logs");
        assert_eq!(levels.of_target("rpc::link"), Warn);
        levels.set("root", None).expect("root is there");
        assert_eq!(levels.get("root"), Ok(Info));
        levels.set("root", Some(Error)).expect("root is there");
        levels.reset();
        assert_eq!(
            (levels.names(), levels.of_target("rpc::link")),
            (vec!["root".to_owned()], Info)
        );
    }

    #[test]
    fn a_name_that_logs_nothing_is_refused() {
        let mut levels = Levels::new(Info);
        for name in ["org.apache.cassandra", "rp", "rpc::links", ""] {
            let refused = levels.set(name, Some(Debug)).expect_err(name).to_string();
            assert!(
                refused.starts_with(&format!("unknown logger '{name}': expected root")),
                "{refused}"
            );
            assert!(refused.contains(", rpc"), "{refused}");
            assert!(levels.get(name).is_err(), "{name}");
        }
    }
}
