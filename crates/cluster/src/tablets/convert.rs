//! Tables that go from the token ring to tablets, and back: what `tablets = {'enabled': …}` of their keyspace names as
//! the goal. See docs/dev/replication-kinds.md.
//!
//! Every command here leaves the replicas of each token as they are, shards included. So it does not matter in which
//! order nodes take it over. In between, tablets move.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schema::{Keyspace, TableId};
use topology::{Boundaries, Conversion as Goal, TABLETS_MAX, TabletMap, first_tablet_count};

use crate::metadata::command::Command;
use crate::metadata::{Metadata, Rejected};
use crate::ring::{is_of_system, parsed_replication};
use crate::tablets::survey::Survey;

/// How many tables are in conversion at once: each has as many tablets as the token ring has ranges.
const TABLES_AT_ONCE: usize = 4;
/// In place of a number of tablets, where nodes are asked to cut sstables before a table's map is cut: as the ring is
/// cut.
pub(crate) const RING_CUT: u32 = 0;

/// A step of a table from the token ring to tablets, or back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Conversion {
    /// A table of the ring gets the ring's map as its own, cut where so many tablets of equal size end besides.
    Begin {
        /// A power of two.
        tablet_count: u32,
    },
    /// The pieces of each tablet of equal size have the same replicas, and become one.
    Align {
        /// The version of the map that it was decided by.
        from_version: u64,
    },
    /// A table with tablets is to be of the ring: its map is cut where the ring's is.
    Cut {
        /// The version of the map that it was decided by.
        from_version: u64,
    },
    /// The map says what the ring says: the table is of the ring.
    End {
        /// The version of the map that it was decided by.
        from_version: u64,
    },
}

/// What a keyspace says of the tablets of its tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WantedKind {
    Tablets,
    Ring,
    /// Nothing: tables stay what they are.
    Any,
}

impl WantedKind {
    pub(crate) fn of(keyspace: &Keyspace) -> Self {
        let enabled = keyspace.tablets.as_ref().and_then(|tablets| tablets.get("enabled"));
        match enabled.map(String::as_str) {
            _ if is_of_system(&keyspace.name) => Self::Any,
            Some("true") => Self::Tablets,
            Some(_) => Self::Ring,
            None => Self::Any,
        }
    }
}

/// How a table is spread over the nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TableKind {
    /// By tablets of its own.
    Tablets,
    /// By the token ring.
    Ring,
    /// It goes from one to the other.
    BetweenBoth,
}

/// What the tables of a keyspace are and are to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyspaceKinds {
    /// Whether they are to have tablets of their own; None if the keyspace leaves them as they are.
    pub wants_tablets: Option<bool>,
    /// Each table, by name.
    pub tables: Vec<(String, TableKind)>,
}

/// The tables in conversion, and what is next for each.
#[derive(Default)]
pub(crate) struct Conversions {
    /// The commands that are due.
    pub(crate) commands: Vec<Command>,
    /// Of tables with tablets: where these are to go.
    goals: BTreeMap<TableId, OwnedGoal>,
}

enum OwnedGoal {
    Align,
    ToRing(Arc<TabletMap>),
    Rest,
}

impl Conversions {
    /// Where the tablets of a table go that is in conversion.
    pub(crate) fn goal(&self, table: TableId) -> Option<Goal<'_>> {
        self.goals.get(&table).map(|goal| match goal {
            OwnedGoal::Align => Goal::Align,
            OwnedGoal::ToRing(ring) => Goal::ToRing(ring),
            OwnedGoal::Rest => Goal::Rest,
        })
    }
}

/// What is left of the conversions of a keyspace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Left {
    /// Tables that have not begun.
    pub(crate) waiting: u64,
    /// Tables that have.
    pub(crate) begun: u64,
    /// Their tablets that are to get other replicas or shards, as far as it is known.
    pub(crate) tablets: u64,
}

impl Metadata {
    /// Whether a table has a kind that its keyspace does not want, or is on its way.
    pub(crate) fn has_conversions(&self) -> bool {
        self.schema.keyspaces.values().any(|keyspace| {
            let wanted = WantedKind::of(keyspace);
            let mut tables = keyspace.tables.values();
            tables.any(|table| self.is_in_conversion(wanted, table.id) || self.waits_to_begin(wanted, table.id))
        })
    }

    /// Whether a table's tablets are pieces.
    pub(crate) fn is_in_conversion(&self, wanted: WantedKind, table: TableId) -> bool {
        let map = self.tablets.get(&table);
        wanted != WantedKind::Any && map.is_some_and(|map| matches!(map.boundaries(), Boundaries::LastTokens(_)))
    }

    /// Whether a step of a table's conversion may be proposed: nodes have cut what they have where the map is to be
    /// cut, and nothing moves.
    pub(crate) fn is_due(&self, table: TableId, step: Conversion, survey: &Survey) -> bool {
        match step {
            Conversion::Begin { tablet_count } => survey.is_cut(table, tablet_count),
            Conversion::Cut { .. } => {
                let map = self.tablets.get(&table);
                survey.is_cut(table, RING_CUT) && map.is_some_and(|map| map.moving().next().is_none())
            }
            Conversion::Align { .. } | Conversion::End { .. } => true,
        }
    }

    /// Whether a table is all of the kind that its keyspace does not want.
    fn waits_to_begin(&self, wanted: WantedKind, table: TableId) -> bool {
        match (wanted, self.tablets.get(&table)) {
            (WantedKind::Tablets, None) => true,
            (WantedKind::Ring, Some(map)) => matches!(map.boundaries(), Boundaries::PowerOfTwo(_)),
            _ => false,
        }
    }

    /// What is next for tables that go from the ring to tablets or back.
    pub(crate) fn conversions(&self, survey: &Survey) -> Conversions {
        let mut all = Conversions::default();
        if !self.has_conversions() {
            return all;
        }
        let of_users = || {
            let keyspaces = self.schema.keyspaces.values();
            keyspaces.flat_map(|keyspace| {
                let wanted = WantedKind::of(keyspace);
                keyspace.tables.values().map(move |table| (keyspace, wanted, table.id))
            })
        };
        let begun: Vec<_> = of_users()
            .filter(|(_, wanted, id)| self.is_in_conversion(*wanted, *id))
            .collect();
        let free = TABLES_AT_ONCE.saturating_sub(begun.len());
        // A table leaves the ring only while it is at rest, and nothing is gained by keeping others from coming back
        // until then.
        let may_begin = |wanted: WantedKind| wanted == WantedKind::Ring || self.ring.is_none();
        let next = of_users().filter(|(_, wanted, id)| self.waits_to_begin(*wanted, *id) && may_begin(*wanted));
        let mut rings: BTreeMap<&str, Option<Arc<TabletMap>>> = BTreeMap::new();
        for (keyspace, wanted, table) in begun.into_iter().chain(next.take(free)) {
            let ring = match wanted {
                WantedKind::Ring => rings
                    .entry(&keyspace.name)
                    .or_insert_with(|| self.ring_map_of(keyspace).map(Arc::new))
                    .clone(),
                WantedKind::Tablets | WantedKind::Any => None,
            };
            self.convert_next(keyspace, table, (ring, survey), &mut all);
        }
        all
    }

    fn convert_next(
        &self,
        keyspace: &Keyspace,
        table: TableId,
        (ring, survey): (Option<Arc<TabletMap>>, &Survey),
        all: &mut Conversions,
    ) {
        let convert = |step| Command::Convert { table, step };
        let Some(map) = self.tablets.get(&table) else {
            let replication = parsed_replication(&self.topology, &keyspace.replication);
            let counts = self.tablet_counts(table, 0);
            if let Some(tablet_count) = replication.and_then(|of| counts.first(&self.topology, &of)) {
                all.commands.push(convert(Conversion::Begin { tablet_count }));
            }
            return;
        };
        let from_version = map.version();
        let is_at_rest = map.moving().next().is_none();
        if WantedKind::of(keyspace) == WantedKind::Tablets {
            if is_at_rest && map.aligned(from_version).is_ok() {
                all.commands.push(convert(Conversion::Align { from_version }));
            }
            all.goals.insert(table, OwnedGoal::Align);
            return;
        }
        let goal = match ring {
            Some(ring) if !map.is_cut_at(ring.boundaries()) => {
                // Nodes cut their sstables first, which takes a while for large tables. Only then it is kept still.
                all.commands.push(convert(Conversion::Cut { from_version }));
                if !survey.is_cut(table, RING_CUT) {
                    return;
                }
                OwnedGoal::Rest
            }
            Some(ring) => {
                if self.ring.is_none() && map.says_the_same(&ring) {
                    all.commands.push(convert(Conversion::End { from_version }));
                }
                OwnedGoal::ToRing(ring)
            }
            // No node has tokens: the tablets stay where they are, and are balanced among themselves.
            None => return,
        };
        all.goals.insert(table, goal);
    }

    /// How many tablets a table of a keyspace gets that leaves the ring and has no options of its own; None where none
    /// can be placed.
    fn first_tablet_count(&self, keyspace: &Keyspace) -> Option<u32> {
        let replication = parsed_replication(&self.topology, &keyspace.replication)?;
        let initial = keyspace.tablets.as_ref().and_then(|tablets| tablets.get("initial"));
        let initial = initial
            .and_then(|initial| initial.parse().ok())
            .filter(|initial| *initial > 0);
        first_tablet_count(&self.topology, &replication, initial).ok()
    }

    /// Whether tables of a keyspace have a place where it wants them: nodes that may hold tablets, or owners of the
    /// ring.
    pub(crate) fn has_place_for(&self, keyspace: &Keyspace) -> bool {
        match WantedKind::of(keyspace) {
            WantedKind::Ring => self.ring_map_of(keyspace).is_some(),
            WantedKind::Tablets | WantedKind::Any => self.first_tablet_count(keyspace).is_some(),
        }
    }

    /// The value after a step of a table's conversion.
    pub(crate) fn convert(&mut self, index: u64, table: TableId, step: Conversion) -> Result<(), Rejected> {
        let conflict = |what: String| Rejected::Conflict { what };
        let named = self.table_name(table);
        let keyspace = self.schema.table_by_id(table).map(|table| table.keyspace.clone());
        let keyspace = keyspace.and_then(|name| self.schema.keyspaces.get(&name)).cloned();
        let keyspace = keyspace.ok_or_else(|| invalid(format!("there is no table {named}")))?;
        let wanted = WantedKind::of(&keyspace);
        let of_keyspace = || conflict(format!("The kind of keyspace {}", keyspace.name));
        let of_map = || conflict(format!("The tablet map of table {named}"));
        let of_ring = || conflict("The token ring".to_owned());
        let ring_map = || self.ring_map_of(&keyspace).ok_or_else(of_ring);
        let (to, version) = match step {
            Conversion::Begin { .. } => (WantedKind::Tablets, None),
            Conversion::Align { from_version } => (WantedKind::Tablets, Some(from_version)),
            Conversion::Cut { from_version } | Conversion::End { from_version } => {
                (WantedKind::Ring, Some(from_version))
            }
        };
        if wanted != to {
            return Err(of_keyspace());
        }
        let map = self.tablets.get(&table);
        if map.map(|map| map.version()) != version {
            return Err(of_map());
        }
        let next = match (step, map) {
            (Conversion::Begin { tablet_count }, _) => {
                if self.ring.is_some() {
                    return Err(of_ring());
                }
                if !tablet_count.is_power_of_two() || tablet_count > TABLETS_MAX {
                    return Err(invalid(format!("a table cannot have {tablet_count} tablets")));
                }
                let log2 = u8::try_from(tablet_count.ilog2()).map_err(invalid)?;
                Some(ring_map()?.cut(index, &Boundaries::PowerOfTwo(log2)).map_err(invalid)?)
            }
            (Conversion::Align { .. }, Some(map)) => Some(map.aligned(index).map_err(invalid)?),
            (Conversion::Cut { .. }, Some(map)) => Some(map.cut(index, ring_map()?.boundaries()).map_err(invalid)?),
            (Conversion::End { .. }, Some(map)) => {
                if self.ring.is_some() || !ring_map()?.says_the_same(map) {
                    return Err(of_ring());
                }
                None
            }
            (_, None) => return Err(of_map()),
        };
        match next {
            Some(map) => self.tablets.insert(table, Arc::new(map)),
            None => self.tablets.remove(&table),
        };
        Ok(())
    }

    /// What is left of the conversions of a keyspace's tables.
    pub(crate) fn conversion_left(&self, keyspace: &Keyspace) -> Left {
        let mut left = Left::default();
        let wanted = WantedKind::of(keyspace);
        if wanted == WantedKind::Any {
            return left;
        }
        let mut ring = None;
        for table in keyspace.tables.values() {
            left.waiting += u64::from(self.waits_to_begin(wanted, table.id));
            let Some(map) = self
                .tablets
                .get(&table.id)
                .filter(|_| self.is_in_conversion(wanted, table.id))
            else {
                continue;
            };
            left.begun += 1;
            left.tablets += match wanted {
                WantedKind::Ring => {
                    let ring = ring.get_or_insert_with(|| self.ring_map_of(keyspace));
                    ring.as_ref().map_or(0, |ring| unlike(map, ring))
                }
                WantedKind::Tablets | WantedKind::Any => map.apart() as u64,
            };
        }
        left
    }

    /// What a keyspace's tables are, and what they are to be; None if there is no keyspace of that name.
    #[must_use]
    pub fn kinds_of(&self, keyspace: &str) -> Option<KeyspaceKinds> {
        let keyspace = self.schema.keyspaces.get(keyspace)?;
        let wanted = WantedKind::of(keyspace);
        let kind_of = |table: TableId| {
            if self.is_in_conversion(wanted, table) {
                TableKind::BetweenBoth
            } else if self.tablets.contains_key(&table) {
                TableKind::Tablets
            } else {
                TableKind::Ring
            }
        };
        let tables = keyspace
            .tables
            .values()
            .map(|table| (table.name.clone(), kind_of(table.id)));
        Some(KeyspaceKinds {
            wants_tablets: match wanted {
                WantedKind::Tablets => Some(true),
                WantedKind::Ring => Some(false),
                WantedKind::Any => None,
            },
            tables: tables.collect(),
        })
    }

    /// The tables that are in conversion.
    pub(crate) fn tables_in_conversion(&self) -> BTreeSet<TableId> {
        let keyspaces = self.schema.keyspaces.values();
        let of = keyspaces.flat_map(|keyspace| {
            let wanted = WantedKind::of(keyspace);
            let ids = keyspace.tables.values().map(|table| table.id);
            ids.filter(move |id| self.is_in_conversion(wanted, *id))
        });
        of.collect()
    }
}

/// How many pieces have other replicas than the ring gives them.
fn unlike(map: &TabletMap, ring: &TabletMap) -> u64 {
    let is_other = |piece: &topology::Tablet<'_>| {
        let Some((_, last)) = map.token_range(piece.id) else {
            return false;
        };
        let goal = ring.tablet_of(last);
        let goal = goal.transition.map_or(goal.replicas, |transition| &transition.next);
        let is_there =
            piece.replicas.len() == goal.len() && goal.iter().all(|replica| piece.replicas.contains(replica));
        piece.transition.is_some() || !is_there
    };
    map.tablets().filter(is_other).count() as u64
}

fn invalid(why: impl std::fmt::Display) -> Rejected {
    Rejected::Invalid { why: why.to_string() }
}
