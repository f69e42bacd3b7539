//! Random writes: rows, statics, collections, counters, deletions of every kind, and lives that end.

use mutation::row::Shared;
use mutation::{Bound, Cell, Liveness, MutationBuilder, RangeTombstone, RowBuilder, Tombstone};
use schema::{CellLayout, ColumnKind, Table};
use stdx::random::SplitMix64;

/// Writes that seldom differ in more than chance wants: few keys, few rows, few timestamps.
pub struct Writer<'t> {
    pub table: &'t Table,
    pub chance: SplitMix64,
    /// The second about which deletions and expiries lie.
    pub now: u32,
    pub keys: u64,
    pub rows: u64,
    /// Whether some lives end soon.
    pub has_short_lives: bool,
}

/// The insert of one row of `(k, c, v)`.
pub fn insert(table: &Table, k: u32, c: u32, at: i64, value: &[u8]) -> Vec<u8> {
    insert_for(table, (k, c), at, (0, 0), value)
}

/// The insert of one row, with a TTL and the second at which it ends.
pub fn insert_for(table: &Table, (k, c): (u32, u32), at: i64, (ttl, expiry): (u32, u32), value: &[u8]) -> Vec<u8> {
    let (mut out, mut clustering) = (Vec::new(), Vec::new());
    schema::push_component(&mut clustering, &c.to_be_bytes());
    let timestamp = at;
    MutationBuilder::begin(&mut out, table.id, &k.to_be_bytes()).row(&clustering, |out| {
        let id = usize::from(table.column("v").expect("a column").id.0);
        let shared = Shared { timestamp, ttl, expiry };
        let marker = Liveness { timestamp, ttl, expiry };
        let mut row = RowBuilder::begin(out, &table.layout, shared, Some(marker), Tombstone::NONE, false, id + 1);
        row.value(id, value);
    });
    out
}

/// The deletion of the rows from one to another.
pub fn delete_range(table: &Table, k: u32, (first, last): (u32, u32), tombstone: Tombstone) -> Vec<u8> {
    let bound = |c: u32| {
        let mut prefix = Vec::new();
        schema::push_component(&mut prefix, &c.to_be_bytes());
        prefix
    };
    let mut out = Vec::new();
    MutationBuilder::begin(&mut out, table.id, &k.to_be_bytes()).range_tombstone(&RangeTombstone {
        start: Bound::before(&bound(first)),
        end: Bound::after(&bound(last)),
        tombstone,
    });
    out
}

/// The deletion of a partition.
pub fn delete_partition(table: &Table, k: u32, tombstone: Tombstone) -> Vec<u8> {
    let mut out = Vec::new();
    MutationBuilder::begin(&mut out, table.id, &k.to_be_bytes()).partition_tombstone(tombstone);
    out
}

impl Writer<'_> {
    fn timestamp(&mut self) -> i64 {
        1 + i64::try_from(self.chance.below(8)).expect("small")
    }

    fn deletion_time(&mut self) -> u32 {
        if self.chance.one_in(3) {
            self.now - 5_000
        } else {
            self.now - 300
        }
    }

    fn tombstone(&mut self) -> Tombstone {
        Tombstone {
            timestamp: self.timestamp(),
            deletion_time: self.deletion_time(),
        }
    }

    /// A ttl and when it ends: none, one that has ended, one that has not.
    fn life(&mut self) -> (u32, u32) {
        match self.chance.below(6) {
            0 => (100, self.deletion_time() + 100),
            1 => (100_000, self.now + 50_000),
            2 if self.has_short_lives => (100, self.now + 100),
            _ => (0, 0),
        }
    }

    fn cell<'v>(&mut self, value: &'v [u8]) -> Cell<'v> {
        let timestamp = self.timestamp();
        if self.chance.one_in(4) {
            return Cell {
                timestamp,
                ttl: 0,
                deletion_time: self.deletion_time(),
                dead: true,
                value: &[],
            };
        }
        let (ttl, deletion_time) = self.life();
        Cell {
            timestamp,
            ttl,
            deletion_time,
            dead: false,
            value,
        }
    }

    fn clustering(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let c = u32::try_from(self.chance.below(self.rows)).expect("small");
        schema::push_component(&mut out, &c.to_be_bytes());
        out
    }

    fn row(&mut self, is_static: bool, out: &mut Vec<u8>) {
        let layout = self.table.layout.clone();
        let timestamp = self.timestamp();
        let shared = Shared {
            timestamp,
            ttl: 0,
            expiry: 0,
        };
        let marker = (!is_static && self.chance.one_in(3)).then(|| {
            let (ttl, expiry) = self.life();
            Liveness { timestamp, ttl, expiry }
        });
        let tombstone = if !is_static && self.chance.one_in(6) {
            self.tombstone()
        } else {
            Tombstone::NONE
        };
        let kind = if is_static {
            ColumnKind::Static
        } else {
            ColumnKind::Regular
        };
        let columns = self.table.columns.iter().filter(|c| c.kind == kind);
        let mut ids: Vec<usize> = columns.map(|c| usize::from(c.id.0)).collect();
        ids.sort_unstable();
        let mut row = RowBuilder::begin(out, &layout, shared, marker, tombstone, true, 16);
        for id in ids {
            if !self.chance.one_in(2) {
                continue;
            }
            let value = [0, 0, 0, u8::try_from(self.chance.below(3)).expect("small")];
            if layout.cell(id) != CellLayout::Complex {
                let cell = self.cell(&value);
                row.cell(id, &cell);
                continue;
            }
            self.collection(id, &mut row);
        }
    }

    /// A collection, or a counter: elements of sources are written once, and so are equal wherever they are.
    fn collection(&mut self, id: usize, row: &mut RowBuilder<'_>) {
        let is_counter = self
            .table
            .columns
            .iter()
            .any(|c| usize::from(c.id.0) == id && c.name == "n");
        let own = if self.chance.one_in(4) {
            self.tombstone()
        } else {
            Tombstone::NONE
        };
        if is_counter {
            let paths: Vec<[u8; 16]> = (1..4u8).filter(|_| self.chance.one_in(2)).map(|n| [n; 16]).collect();
            let clocks: Vec<i64> = paths.iter().map(|_| self.timestamp()).collect();
            let sums: Vec<[u8; 8]> = clocks.iter().map(|clock| (clock * 10).to_be_bytes()).collect();
            let cells = clocks.iter().zip(&sums).map(|(timestamp, sum)| Cell {
                timestamp: *timestamp,
                ttl: 0,
                deletion_time: 0,
                dead: false,
                value: &sum[..],
            });
            row.complex(id, own, paths.iter().map(|p| &p[..]).zip(cells));
            return;
        }
        let value = [0, 0, 0, u8::try_from(self.chance.below(3)).expect("small")];
        let paths: Vec<[u8; 4]> = (0..3u8)
            .filter(|_| self.chance.one_in(2))
            .map(|n| [0, 0, 0, n])
            .collect();
        let cells: Vec<Cell<'_>> = paths.iter().map(|_| self.cell(&value)).collect();
        row.complex(id, own, paths.iter().map(|p| &p[..]).zip(cells));
    }

    /// One write.
    pub fn write(&mut self) -> Vec<u8> {
        let mut out = Vec::new();
        let key = u32::try_from(self.chance.below(self.keys))
            .expect("small")
            .to_be_bytes();
        let has_static = self.table.columns.iter().any(|c| c.kind == ColumnKind::Static);
        let mut builder = MutationBuilder::begin(&mut out, self.table.id, &key);
        match self.chance.below(24) {
            0 => builder.partition_tombstone(self.tombstone()),
            1..4 => {
                let (a, b) = (self.clustering(), self.clustering());
                let (low, high) = if a > b { (b, a) } else { (a, b) };
                let tombstone = self.tombstone();
                builder.range_tombstone(&RangeTombstone {
                    start: Bound::before(&low),
                    end: Bound::after(&high),
                    tombstone,
                });
            }
            4..7 if has_static => builder.static_row(|out| self.row(true, out)),
            _ => {
                let clustering = self.clustering();
                builder.row(&clustering, |out| self.row(false, out));
            }
        }
        out
    }
}
