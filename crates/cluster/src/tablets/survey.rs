//! What the members say of their tablets and disks: what the leader plans by.

use crate::config::{Disk, Splits, TabletBytes, TabletReport};
use crate::messages::wire;
use crate::metadata::Metadata;
use crate::service::Cluster;
use schema::TableId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use stdx::planted::{self, Bug};
use topology::{HostId, TabletMap};

/// How long a member may take to say the bytes of its tablets.
const ANSWER_WAIT: Duration = Duration::from_secs(2);
/// A table is split when each member has no more than this to cut of it: that takes seconds, for which members take no
/// other change of the metadata.
const UNCUT_BYTES_MAX: u64 = 256 << 20;

/// What members said.
#[derive(Clone, Default)]
pub(crate) struct Survey {
    tables: BTreeMap<TableId, Figures>,
    disks: BTreeMap<HostId, Disk>,
    /// The coming splits that members were notified of.
    splits: Splits,
    /// Of these tables, the bytes that the member has still to cut that has most.
    uncut: BTreeMap<TableId, u64>,
    /// Members that did not say what they have still to cut.
    silent: usize,
}

/// What members said of a table's tablets.
#[derive(Clone)]
pub(crate) struct Figures {
    /// The bytes of one copy of each tablet, in order. Copies differ, so the largest counts.
    pub(crate) bytes: Vec<u64>,
    /// The requests per second of one copy of each tablet. The largest counts, too.
    pub(crate) load: Vec<f32>,
    /// By tablet, whether a member said anything of it.
    is_known: Vec<bool>,
    /// By tablet, whether a member said its load.
    has_load: Vec<bool>,
    /// Every member that answers had this map before it was asked, so none spoke of tablets as they were before a split
    /// or a merge.
    is_of_map: bool,
}

impl Figures {
    fn new(count: usize, is_of_map: bool) -> Self {
        Self {
            bytes: vec![0; count],
            load: vec![0.0; count],
            is_known: vec![false; count],
            has_load: vec![false; count],
            is_of_map,
        }
    }

    /// Whether a table may be split or merged by these figures.
    pub(crate) fn are_complete(&self) -> bool {
        self.is_of_map && self.is_known.iter().all(|is_known| *is_known)
    }

    /// Fills in the load of tablets that no member reported yet from the former figures: a tablet that has moved or was
    /// split gets as many requests as before.
    fn inherit_load(&mut self, former: &Self) {
        let (count, before) = (self.load.len(), former.load.len());
        for at in (0..count).filter(|at| !self.has_load[*at]) {
            self.load[at] = match () {
                () if count == before => former.load[at],
                () if count == before * 2 => former.load[at / 2] / 2.0,
                () if count * 2 == before => former.load[at * 2] + former.load[at * 2 + 1],
                () => 0.0,
            };
        }
    }
}

impl Survey {
    /// `is_taken` says whether all members that are asked have taken a version of the metadata over.
    pub(crate) fn begin(metadata: &Metadata, is_taken: impl Fn(u64) -> bool) -> Self {
        let tables = metadata.tablets.iter().map(|(table, map)| {
            let is_of_map = is_taken(map.version()) || planted::is_planted(Bug::StaleFigures);
            (*table, Figures::new(map.tablet_count() as usize, is_of_map))
        });
        Self {
            tables: tables.collect(),
            ..Self::default()
        }
    }

    /// Counts what a member says.
    pub(crate) fn count(&mut self, metadata: &Metadata, host: HostId, report: TabletReport) {
        for tablet in report.tablets {
            self.count_tablet(metadata, tablet);
        }
        self.disks.extend(report.disk.map(|disk| (host, disk)));
        for (table, _) in &self.splits {
            let said = report.uncut.iter().find(|(of, _)| of == table);
            // It may not have the table yet, or the map.
            let bytes = said.map_or(u64::MAX, |(_, bytes)| *bytes);
            let most = self.uncut.entry(*table).or_default();
            *most = bytes.max(*most);
        }
    }

    fn count_tablet(&mut self, metadata: &Metadata, tablet: TabletBytes) {
        let TabletBytes {
            table,
            last,
            bytes,
            load,
        } = tablet;
        let (Some(map), Some(figures)) = (metadata.tablets.get(&table), self.tables.get_mut(&table)) else {
            return;
        };
        let at = map.tablet_of(last).id.0 as usize;
        if at >= figures.bytes.len() {
            return;
        }
        figures.bytes[at] = bytes.max(figures.bytes[at]);
        figures.is_known[at] = true;
        if let Some(load) = load {
            figures.load[at] = load.max(figures.load[at]);
            figures.has_load[at] = true;
        }
    }

    /// Fills gaps with the previous survey.
    fn inherit(&mut self, former: &Self) {
        for (table, figures) in &mut self.tables {
            if let Some(former) = former.tables.get(table) {
                figures.inherit_load(former);
            }
        }
        for (host, disk) in &former.disks {
            self.disks.entry(*host).or_insert(*disk);
        }
    }

    /// The figures of a table; None when they are those of another number of tablets.
    pub(crate) fn of(&self, table: TableId, map: &TabletMap) -> Option<&Figures> {
        let figures = self.tables.get(&table)?;
        (figures.bytes.len() == map.tablet_count() as usize).then_some(figures)
    }

    /// The file system of a member's data.
    pub(crate) fn disk(&self, host: HostId) -> Option<Disk> {
        self.disks.get(&host).copied()
    }

    /// Whether it has figures of each table's tablets as they are; else members must be asked again.
    pub(crate) fn fits(&self, metadata: &Metadata) -> bool {
        let mut tables = metadata.tablets.iter();
        tables.all(|(table, map)| self.of(*table, map).is_some_and(|figures| figures.is_of_map))
    }

    /// Of a table that is to be split, the bytes that the member has still to cut that has most; None when that is not
    /// known.
    pub(crate) fn uncut(&self, table: TableId) -> Option<u64> {
        self.uncut.get(&table).copied().filter(|bytes| *bytes != u64::MAX)
    }

    /// Whether it was made with these splits.
    pub(crate) fn asked_for(&self, splits: &Splits) -> bool {
        self.splits == *splits
    }

    /// Whether every member that answers has cut what it has of a table that is to be split, but for a little.
    pub(crate) fn is_cut(&self, table: TableId, tablet_count: u32) -> bool {
        let is_told = self.splits.contains(&(table, tablet_count));
        is_told && self.silent == 0 && self.uncut.get(&table).is_none_or(|bytes| *bytes <= UNCUT_BYTES_MAX)
    }
}

impl Cluster {
    /// Asks each member that answers for what it has, and has it cut the sstables of tables that are about to be split.
    pub(crate) async fn survey(
        &self,
        metadata: &Metadata,
        live: &BTreeSet<HostId>,
        splits: &Splits,
        former: Option<&Survey>,
    ) -> Survey {
        let is_taken = |version| self.machine.taken_index() >= version && self.peers.all_live_have(version);
        let mut survey = Survey {
            splits: splits.clone(),
            ..Survey::begin(metadata, is_taken)
        };
        let question = wire::encode_splits(splits);
        let others = live.iter().filter(|host| **host != self.config.host_id);
        let asked: Vec<_> = others
            .filter_map(|host| Some((*host, self.peers.peer(*host)?)))
            .map(|(host, peer)| {
                let answer = self
                    .rpc
                    .call(&peer, 0, wire::TABLET_BYTES, question.clone(), ANSWER_WAIT);
                (host, answer)
            })
            .collect();
        let own = self.listener.tablet_report(splits.clone()).await;
        survey.count(metadata, self.config.host_id, own);
        for (host, answer) in asked {
            let answer = answer.await.map_err(|e| e.to_string());
            match answer.and_then(|bytes| wire::decode_tablet_report(&bytes).map_err(|e| e.to_string())) {
                Ok(report) => survey.count(metadata, host, report),
                Err(error) => {
                    survey.silent += 1;
                    log::debug!("a member does not say the bytes of its tablets: {error}");
                }
            }
        }
        if let Some(former) = former {
            survey.inherit(former);
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

    const HOST: HostId = HostId(Uuid::from_u128(3));
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

    fn said(bytes: &[(i64, u64)]) -> TabletReport {
        let of = |(last, bytes): &(i64, u64)| TabletBytes {
            table: TABLE,
            last: Token(*last),
            bytes: *bytes,
            load: None,
        };
        TabletReport {
            tablets: bytes.iter().map(of).collect(),
            ..TabletReport::default()
        }
    }

    #[test]
    fn the_largest_copy_of_each_tablet_counts() {
        let metadata = metadata(1);
        let mut survey = Survey::begin(&metadata, |_| true);
        survey.count(&metadata, HOST, said(&[(-1, 5), (i64::MAX, 9)]));
        survey.count(&metadata, HOST, said(&[(-1, 7), (i64::MAX, 8)]));
        let figures = survey.of(TABLE, &metadata.tablets[&TABLE]).expect("they are there");
        assert_eq!((&figures.bytes[..], figures.are_complete()), (&[7, 9][..], true));
    }

    #[test]
    fn a_table_is_not_resized_by_what_is_not_known_of_all_its_tablets() {
        let metadata = metadata(1);
        let mut survey = Survey::begin(&metadata, |_| true);
        // Of the tablet before a split: its last token is that of its second half.
        survey.count(&metadata, HOST, said(&[(i64::MAX, 9)]));
        let map = &metadata.tablets[&TABLE];
        assert!(!survey.of(TABLE, map).expect("they are there").are_complete());
        survey.count(&metadata, HOST, said(&[(-1, 0)]));
        assert!(survey.of(TABLE, map).expect("they are there").are_complete());
    }

    #[test]
    fn nor_by_what_a_member_said_before_it_had_the_map() {
        let metadata = metadata(0);
        let mut survey = Survey::begin(&metadata, |version| version < 5);
        survey.count(&metadata, HOST, said(&[(-1, 5), (i64::MAX, 9)]));
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

    fn loads(log2: u8, loads: &[Option<f32>], former: Option<&Survey>) -> Survey {
        let metadata = metadata(log2);
        let map = &metadata.tablets[&TABLE];
        let mut survey = Survey::begin(&metadata, |_| true);
        let tablets = map.tablets().zip(loads).map(|(tablet, load)| TabletBytes {
            table: TABLE,
            last: map.token_range(tablet.id).expect("it is of the map").1,
            bytes: 0,
            load: *load,
        });
        let report = TabletReport {
            tablets: tablets.collect(),
            ..TabletReport::default()
        };
        survey.count(&metadata, HOST, report);
        if let Some(former) = former {
            survey.inherit(former);
        }
        survey
    }

    #[test]
    fn a_tablet_that_moved_or_was_split_is_asked_as_much_as_before_until_its_load_is_known() {
        let before = loads(1, &[Some(10.0), Some(30.0)], None);
        let load = |survey: &Survey| survey.tables[&TABLE].load.clone();
        assert_eq!(load(&loads(1, &[None, Some(5.0)], Some(&before))), [10.0, 5.0]);
        assert_eq!(
            load(&loads(2, &[None, Some(7.0), None, None], Some(&before))),
            [5.0, 7.0, 15.0, 15.0]
        );
        assert_eq!(load(&loads(0, &[None], Some(&before))), [40.0]);
        assert_eq!(load(&loads(0, &[None], None)), [0.0]);
    }

    #[test]
    fn a_table_is_split_when_every_member_has_cut_it() {
        let metadata = metadata(1);
        let after = |uncut: &[Option<u64>], silent: usize| {
            let mut survey = Survey {
                splits: vec![(TABLE, 4)],
                silent,
                ..Survey::begin(&metadata, |_| true)
            };
            for uncut in uncut {
                let report = TabletReport {
                    uncut: uncut.map(|bytes| (TABLE, bytes)).into_iter().collect(),
                    ..TabletReport::default()
                };
                survey.count(&metadata, HOST, report);
            }
            survey.is_cut(TABLE, 4)
        };
        assert!(after(&[Some(0), Some(UNCUT_BYTES_MAX)], 0));
        assert!(!after(&[Some(0), Some(UNCUT_BYTES_MAX + 1)], 0), "too much is left");
        assert!(!after(&[Some(0), None], 0), "one did not know of the split");
        assert!(!after(&[Some(0)], 1), "one did not answer");
        let untold = Survey::begin(&metadata, |_| true);
        assert!(!untold.is_cut(TABLE, 4), "nobody was told");
    }
}
