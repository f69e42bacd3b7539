//! Balance of tablets, for operators: what the leader knows since its last plan. Other members ask it.

use crate::messages::wire;
use crate::metadata::Metadata;
use crate::metadata::bytes::{Decoder, Encoder, Form, Malformed};
use crate::metadata::command::{Command, TabletsChange};
use crate::service::Cluster;
use schema::TableId;
use std::time::Duration;
use topology::{Deviation, MoveStep};

const BALANCE_FORM: Form = Form {
    kind: b'B',
    oldest: 1,
    format: 1,
    name: "how tablets stand",
};
/// How long the leader may take to answer with its balance report.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// Balance of the cluster's tablets.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct BalanceReport {
    /// Each table that has tablets.
    pub tables: Vec<TableBalance>,
    /// What a replication wants and the cluster cannot give, as sentences.
    pub lacks: Vec<String>,
    /// How large tablets should be on average; 0 for any size.
    pub tablet_bytes_goal: u64,
    /// How far bytes are from the fair shares.
    pub bytes: Deviation,
    /// How far load is.
    pub load: Deviation,
    /// What the node did since it started, as the leader.
    pub done: BalanceCounts,
}

/// What the leader had done.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BalanceCounts {
    /// Tablets that began to move between nodes.
    pub moves: u64,
    /// Tablets that moved between shards.
    pub shard_moves: u64,
    /// Tables that were split.
    pub splits: u64,
    /// Tables that were merged.
    pub merges: u64,
}

/// Balance of a table's tablets.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct TableBalance {
    /// The table.
    pub table: TableId,
    /// How many tablets it has.
    pub tablets: u32,
    /// How many it should have.
    pub wanted: u32,
    /// How many it has at least.
    pub least: u32,
    /// The average bytes of a copy of a tablet.
    pub average_bytes: u64,
    /// The bytes of the largest.
    pub largest_bytes: u64,
    /// The requests per second of the copy that gets most.
    pub hottest: f32,
    /// Bytes of sstables that must still be cut before a split, on the node that has most of them; None where no split
    /// is required.
    pub uncut: Option<u64>,
}

impl BalanceCounts {
    /// Counts a command that was agreed on, by the metadata before it.
    pub(crate) fn count(&mut self, metadata: &Metadata, command: &Command) {
        match command {
            Command::Moves(tables) => {
                let steps = tables.iter().flat_map(|moves| &moves.steps);
                self.moves += steps.filter(|step| matches!(step, MoveStep::Begin { .. })).count() as u64;
            }
            Command::Tablets {
                change: TabletsChange::Part(change),
                ..
            } => self.shard_moves += change.edits.len() as u64,
            Command::Resize {
                table, tablet_count, ..
            } => match metadata.tablets.get(table).map(|map| map.tablet_count()) {
                Some(before) if before < *tablet_count => self.splits += 1,
                Some(_) => self.merges += 1,
                None => {}
            },
            _ => {}
        }
    }
}

impl BalanceReport {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::begin(BALANCE_FORM);
        out.count(self.tables.len());
        for table in &self.tables {
            out.uuid(table.table.0);
            for count in [table.tablets, table.wanted, table.least] {
                out.number(u64::from(count));
            }
            out.number(table.average_bytes);
            out.number(table.largest_bytes);
            out.number(u64::from(table.hottest.to_bits()));
            out.option(table.uncut, Encoder::number);
        }
        out.count(self.lacks.len());
        for why in &self.lacks {
            out.blob(why.as_bytes());
        }
        out.number(self.tablet_bytes_goal);
        for deviation in [self.bytes, self.load] {
            for part in [deviation.rack, deviation.node, deviation.shard] {
                out.number(part.to_bits());
            }
        }
        let BalanceCounts {
            moves,
            shard_moves,
            splits,
            merges,
        } = self.done;
        for count in [moves, shard_moves, splits, merges] {
            out.number(count);
        }
        out.seal()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::open(bytes, BALANCE_FORM)?;
        let mut tables = Vec::new();
        for _ in 0..d.count()? {
            tables.push(TableBalance {
                table: TableId(d.uuid()?),
                tablets: small(&mut d)?,
                wanted: small(&mut d)?,
                least: small(&mut d)?,
                average_bytes: d.number()?,
                largest_bytes: d.number()?,
                hottest: f32::from_bits(small(&mut d)?),
                uncut: d.option(Decoder::number)?,
            });
        }
        let mut lacks = Vec::new();
        for _ in 0..d.count()? {
            lacks.push(d.text()?);
        }
        let report = Self {
            tables,
            lacks,
            tablet_bytes_goal: d.number()?,
            bytes: deviation(&mut d)?,
            load: deviation(&mut d)?,
            done: BalanceCounts {
                moves: d.number()?,
                shard_moves: d.number()?,
                splits: d.number()?,
                merges: d.number()?,
            },
        };
        d.end()?;
        Ok(report)
    }
}

fn small(d: &mut Decoder<'_>) -> Result<u32, Malformed> {
    u32::try_from(d.number()?).map_err(|e| d.malformed(e))
}

fn deviation(d: &mut Decoder<'_>) -> Result<Deviation, Malformed> {
    let mut part = || d.number().map(f64::from_bits);
    Ok(Deviation {
        rack: part()?,
        node: part()?,
        shard: part()?,
    })
}

impl Cluster {
    /// The balance report of this node's last plan as the leader; empty if it never led.
    #[must_use]
    pub fn own_balance_report(&self) -> BalanceReport {
        self.balance_report.borrow().clone()
    }

    /// The balance report of the leader.
    ///
    /// # Errors
    /// A sentence, when there is no leader or it does not answer.
    pub async fn balance_report(&self) -> Result<BalanceReport, String> {
        if self.leads() {
            return Ok(self.own_balance_report());
        }
        let leader = self.status().leader;
        let leader = leader.ok_or_else(|| "the metadata group has no leader at the moment".to_owned())?;
        let peer = self.peers.peer(leader);
        let peer = peer.ok_or_else(|| format!("node {leader}, which leads the metadata group, cannot be reached"))?;
        let answer = self.rpc.call(&peer, 0, wire::BALANCE, Vec::new(), ANSWER_WAIT).await;
        let answer = answer.map_err(|e| format!("node {leader} does not say how tablets stand: {e}"))?;
        BalanceReport::decode(&answer).map_err(|e| e.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    /// One with something in every field.
    fn report() -> BalanceReport {
        let deviation = |rack| Deviation {
            rack,
            node: 0.25,
            shard: 1.0,
        };
        let table = TableBalance {
            table: TableId(Uuid::from_u128(7)),
            tablets: 8,
            wanted: 16,
            least: 4,
            average_bytes: 1 << 40,
            largest_bytes: u64::MAX,
            hottest: 0.5,
            uncut: Some(9),
        };
        BalanceReport {
            tables: vec![table, TableBalance { uncut: None, ..table }],
            lacks: vec!["rack r is empty".to_owned()],
            tablet_bytes_goal: 5 << 30,
            bytes: deviation(0.5),
            load: deviation(0.0),
            done: BalanceCounts {
                moves: 1,
                shard_moves: 2,
                splits: 3,
                merges: 4,
            },
        }
    }

    #[test]
    fn a_report_is_read_and_nothing_shorter_or_longer() {
        let bytes = report().encode();
        assert_eq!(BalanceReport::decode(&bytes), Ok(report()));
        let sealed = |body: &[u8]| [body, &crc32fast::hash(body).to_be_bytes()].concat();
        let body = &bytes[..bytes.len() - 4];
        for wrong in [&body[..body.len() - 1], &[body, &[0]].concat()] {
            assert!(BalanceReport::decode(&sealed(wrong)).is_err(), "{} bytes", wrong.len());
        }
    }
}
