//! What the members say of their tablets: what the leader plans by.

use crate::config::TabletBytes;
use crate::metadata::Metadata;
use crate::service::Cluster;
use crate::wire;
use schema::TableId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use topology::{HostId, TabletMap};

/// How long a member may take to say the bytes of its tablets.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// What members said.
#[derive(Clone, Default)]
pub(crate) struct Survey(BTreeMap<TableId, Figures>);

/// What members said of a table's tablets.
#[derive(Clone)]
pub(crate) struct Figures {
    /// The bytes of one copy of each tablet, in order. Copies differ, so the largest counts.
    pub(crate) bytes: Vec<u64>,
    /// By tablet, whether a member said anything of it.
    is_known: Vec<bool>,
    /// Every member that answers had this map before it was asked, so none spoke of tablets as they were before a split or a merge.
    is_of_map: bool,
}

impl Figures {
    /// Whether a table may be split or merged by these figures.
    pub(crate) fn are_complete(&self) -> bool {
        self.is_of_map && self.is_known.iter().all(|is_known| *is_known)
    }
}

impl Survey {
    /// `is_taken` says whether all members that are asked have taken a version of the metadata over.
    pub(crate) fn begin(metadata: &Metadata, is_taken: impl Fn(u64) -> bool) -> Self {
        let tables = metadata.tablets.iter().map(|(table, map)| {
            let count = map.tablet_count() as usize;
            let figures = Figures {
                bytes: vec![0; count],
                is_known: vec![false; count],
                is_of_map: is_taken(map.version()),
            };
            (*table, figures)
        });
        Self(tables.collect())
    }

    /// Counts what a member says.
    pub(crate) fn count(&mut self, metadata: &Metadata, said: Vec<TabletBytes>) {
        for TabletBytes { table, last, bytes } in said {
            let (Some(map), Some(figures)) = (metadata.tablets.get(&table), self.0.get_mut(&table)) else {
                continue;
            };
            let tablet = map.tablet_of(last).id.0 as usize;
            if let (Some(size), Some(is_known)) = (figures.bytes.get_mut(tablet), figures.is_known.get_mut(tablet)) {
                *size = bytes.max(*size);
                *is_known = true;
            }
        }
    }

    /// The figures of a table; None when they are those of another number of tablets.
    pub(crate) fn of(&self, table: TableId, map: &TabletMap) -> Option<&Figures> {
        let figures = self.0.get(&table)?;
        (figures.bytes.len() == map.tablet_count() as usize).then_some(figures)
    }

    /// Whether it has figures of each table's tablets as they are; else members must be asked again.
    pub(crate) fn fits(&self, metadata: &Metadata) -> bool {
        let mut tables = metadata.tablets.iter();
        tables.all(|(table, map)| self.of(*table, map).is_some_and(|figures| figures.is_of_map))
    }
}

impl Cluster {
    /// Asks each member that answers for the bytes of its tablets.
    pub(crate) async fn survey(&self, metadata: &Metadata, live: &BTreeSet<HostId>) -> Survey {
        let is_taken = |version| self.machine.taken_index() >= version && self.peers.all_live_have(version);
        let mut survey = Survey::begin(metadata, is_taken);
        let others = live.iter().filter(|host| **host != self.config.host_id);
        let asked: Vec<_> = others
            .filter_map(|host| self.peers.peer(*host))
            .map(|peer| self.rpc.call(&peer, 0, wire::TABLET_BYTES, Vec::new(), ANSWER_WAIT))
            .collect();
        survey.count(metadata, self.listener.tablet_bytes().await);
        for answer in asked {
            match answer
                .await
                .map_err(|e| e.to_string())
                .and_then(|bytes| wire::decode_tablet_bytes(&bytes).map_err(|e| e.to_string()))
            {
                Ok(said) => survey.count(metadata, said),
                Err(error) => log::debug!("a member does not say the bytes of its tablets: {error}"),
            }
        }
        survey
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Schema;
    use std::sync::Arc;
    use topology::{Boundaries, NodeNumber, Replica, Topology};
    use types::Token;
    use uuid::Uuid;

    const TABLE: TableId = TableId(Uuid::from_u128(7));

    /// Metadata with a table of so many tablets.
    fn metadata(log2: u8) -> Metadata {
        let replica = Replica {
            node: NodeNumber(0),
            shard: 0,
        };
        let all = vec![[replica].into_iter().collect(); 1 << log2];
        let map = TabletMap::new(5, Boundaries::PowerOfTwo(log2), &all).expect("a map");
        let schema = Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::new(),
        };
        let topology = Topology::new("sea", Uuid::nil());
        Metadata {
            tablets: BTreeMap::from([(TABLE, Arc::new(map))]),
            ..Metadata::new(Arc::new(schema), topology)
        }
    }

    fn said(bytes: &[(i64, u64)]) -> Vec<TabletBytes> {
        let of = |(last, bytes): &(i64, u64)| TabletBytes {
            table: TABLE,
            last: Token(*last),
            bytes: *bytes,
        };
        bytes.iter().map(of).collect()
    }

    #[test]
    fn the_largest_copy_of_each_tablet_counts() {
        let metadata = metadata(1);
        let mut survey = Survey::begin(&metadata, |_| true);
        survey.count(&metadata, said(&[(-1, 5), (i64::MAX, 9)]));
        survey.count(&metadata, said(&[(-1, 7), (i64::MAX, 8)]));
        let figures = survey.of(TABLE, &metadata.tablets[&TABLE]).expect("they are there");
        assert_eq!((&figures.bytes[..], figures.are_complete()), (&[7, 9][..], true));
    }

    #[test]
    fn a_table_is_not_resized_by_what_is_not_known_of_all_its_tablets() {
        let metadata = metadata(1);
        let mut survey = Survey::begin(&metadata, |_| true);
        // Of the tablet before a split: its last token is that of its second half.
        survey.count(&metadata, said(&[(i64::MAX, 9)]));
        let map = &metadata.tablets[&TABLE];
        assert!(!survey.of(TABLE, map).expect("they are there").are_complete());
        survey.count(&metadata, said(&[(-1, 0)]));
        assert!(survey.of(TABLE, map).expect("they are there").are_complete());
    }

    #[test]
    fn nor_by_what_a_member_said_before_it_had_the_map() {
        let metadata = metadata(0);
        let mut survey = Survey::begin(&metadata, |version| version < 5);
        survey.count(&metadata, said(&[(-1, 5), (i64::MAX, 9)]));
        assert!(
            !survey
                .of(TABLE, &metadata.tablets[&TABLE])
                .expect("they are there")
                .are_complete()
        );
    }

    #[test]
    fn figures_of_another_number_of_tablets_are_none() {
        let (before, after) = (metadata(1), metadata(2));
        let survey = Survey::begin(&before, |_| true);
        assert!(survey.fits(&before) && !survey.fits(&after));
        assert!(survey.of(TABLE, &after.tablets[&TABLE]).is_none());
    }
}
