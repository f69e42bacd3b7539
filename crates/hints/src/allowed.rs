//! For which nodes hints are kept: a switch, and lists of datacenters. A pure value.

use std::collections::BTreeSet;

/// The nodes that hints are kept for, by their datacenters. What is kept already is handed over whatever this says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Allowed {
    /// Whether hints are kept at all. Switching it off and on leaves the lists as they are.
    pub is_enabled: bool,
    /// Nodes of other datacenters get none; None: there is no such list.
    pub only: Option<BTreeSet<String>>,
    /// Nodes of these get none, though `only` may have them.
    pub except: BTreeSet<String>,
}

impl Default for Allowed {
    /// For all nodes.
    fn default() -> Self {
        Self {
            is_enabled: true,
            only: None,
            except: BTreeSet::new(),
        }
    }
}

impl Allowed {
    /// Whether hints are kept for nodes of a datacenter.
    #[must_use]
    pub fn has(&self, datacenter: &str) -> bool {
        self.is_enabled && self.lists_have(datacenter)
    }

    /// Whether the lists allow hints for nodes of a datacenter, whether or not `is_enabled` is set.
    #[must_use]
    pub fn lists_have(&self, datacenter: &str) -> bool {
        !self.except.contains(datacenter) && self.only.as_ref().is_none_or(|only| only.contains(datacenter))
    }

    /// Takes over a change.
    pub fn change(&mut self, change: Change) {
        match change {
            Change::Enable(is_enabled) => self.is_enabled = is_enabled,
            Change::Only(datacenters) => {
                *self = Self {
                    only: Some(datacenters),
                    ..Self::default()
                }
            }
            Change::Datacenter(datacenter, true) => {
                self.except.remove(&datacenter);
                if let Some(only) = &mut self.only {
                    only.insert(datacenter);
                }
            }
            Change::Datacenter(datacenter, false) => {
                self.except.insert(datacenter);
            }
        }
    }
}

/// A change of [`Allowed`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// The switch.
    Enable(bool),
    /// On, for nodes of these datacenters and no others.
    Only(BTreeSet<String>),
    /// Nodes of a datacenter get hints from now on, or none.
    Datacenter(String, bool),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> BTreeSet<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn a_change_says_who_gets_hints_and_the_switch_forgets_no_list() {
        use Change::{Datacenter, Enable, Only};
        let of = |name: &str, on| Datacenter(name.to_owned(), on);
        let cases: [(&str, Vec<Change>, &str); 8] = [
            ("nothing", vec![], "a b c"),
            ("off", vec![Enable(false)], ""),
            ("a list", vec![Only(names("a b"))], "a b"),
            (
                "a list, off and on",
                vec![Only(names("a b")), Enable(false), Enable(true)],
                "a b",
            ),
            ("a list switches on", vec![Enable(false), Only(names("c"))], "c"),
            ("one less", vec![of("b", false)], "a c"),
            ("one less and again", vec![of("b", false), of("b", true)], "a b c"),
            (
                "one more than listed",
                vec![Only(names("a")), of("c", true), of("a", false)],
                "c",
            ),
        ];
        for (name, changes, expected) in cases {
            let mut allowed = Allowed::default();
            changes.into_iter().for_each(|change| allowed.change(change));
            let got: BTreeSet<String> = names("a b c").into_iter().filter(|dc| allowed.has(dc)).collect();
            assert_eq!(got, names(expected), "{name}");
        }
    }
}
