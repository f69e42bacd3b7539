//! The durable form of changes of the token ring, and of replications that were altered.

use crate::metadata::command::Command;
use crate::ring::{Replications, RingState, RingStep};
use crate::tablets::goals::Altered;
use record::{Field, Message, Of, RecordError};
use std::collections::{BTreeMap, BTreeSet};
use topology::{NodeNumber, Stage};

use super::{host, host_bytes};

/// A step of the token ring: one of the last three.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RingStepRecord {
    #[prost(uint64, tag = "1")]
    version: u64,
    /// The stage that it enters.
    #[prost(uint32, optional, tag = "2")]
    advance: Option<u32>,
    /// The node that has done what the stage asks of next owners.
    #[prost(bytes = "vec", optional, tag = "3")]
    copied: Option<Vec<u8>>,
    #[prost(bool, optional, tag = "4")]
    end: Option<bool>,
}

/// An option of a keyspace's replication.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OptionRecord {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FormerRecord {
    #[prost(string, tag = "1")]
    keyspace: String,
    /// By name.
    #[prost(message, repeated, tag = "2")]
    options: Vec<OptionRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RingRecord {
    #[prost(uint64, tag = "1")]
    version: u64,
    #[prost(uint32, tag = "2")]
    stage: u32,
    /// The numbers of the nodes.
    #[prost(uint32, repeated, packed = "false", tag = "3")]
    copied: Vec<u32>,
    /// By keyspace.
    #[prost(message, repeated, tag = "4")]
    former: Vec<FormerRecord>,
    /// By keyspace.
    #[prost(message, repeated, tag = "5")]
    towards: Vec<FormerRecord>,
    /// The numbers of the nodes.
    #[prost(uint32, repeated, packed = "false", tag = "6")]
    leaving: Vec<u32>,
}

/// What a keyspace said before it was altered.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct AlteredRecord {
    #[prost(string, tag = "1")]
    keyspace: String,
    /// The index of the command that altered it last.
    #[prost(uint64, tag = "2")]
    version: u64,
    /// By name.
    #[prost(message, repeated, tag = "3")]
    replication: Vec<OptionRecord>,
    /// The keyspace said something of tablets.
    #[prost(message, optional, tag = "4")]
    tablets: Option<OptionsRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct OptionsRecord {
    /// By name.
    #[prost(message, repeated, tag = "1")]
    options: Vec<OptionRecord>,
}

/// A keyspace has what it wants.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ReachedRecord {
    #[prost(string, tag = "1")]
    keyspace: String,
    /// The index of the command that altered it last.
    #[prost(uint64, tag = "2")]
    version: u64,
}

pub(super) static RING_STEP: Message = Message::new(
    "ring step",
    &[
        Field::new(1, "version", Of::U64),
        Field::new(2, "advance", Of::U32),
        Field::new(3, "copied", Of::Bytes),
        Field::new(4, "end", Of::Bool),
    ],
);
static OPTION: Message = Message::new(
    "option",
    &[Field::new(1, "name", Of::Text), Field::new(2, "value", Of::Text)],
);
static FORMER: Message = Message::new(
    "former",
    &[
        Field::new(1, "keyspace", Of::Text),
        Field::list(2, "options", Of::Record(&OPTION)),
    ],
);
pub(super) static RING: Message = Message::new(
    "ring",
    &[
        Field::new(1, "version", Of::U64),
        Field::new(2, "stage", Of::U32),
        Field::list(3, "copied", Of::U32),
        Field::list(4, "former", Of::Record(&FORMER)),
        Field::list(5, "towards", Of::Record(&FORMER)),
        Field::list(6, "leaving", Of::U32),
    ],
);
static OPTIONS: Message = Message::new("options", &[Field::list(1, "options", Of::Record(&OPTION))]);
pub(super) static ALTERED: Message = Message::new(
    "altered",
    &[
        Field::new(1, "keyspace", Of::Text),
        Field::new(2, "version", Of::U64),
        Field::list(3, "replication", Of::Record(&OPTION)),
        Field::new(4, "tablets", Of::Record(&OPTIONS)),
    ],
);
pub(super) static REACHED: Message = Message::new(
    "reached",
    &[Field::new(1, "keyspace", Of::Text), Field::new(2, "version", Of::U64)],
);

impl RingStepRecord {
    pub(super) fn of(version: u64, step: RingStep) -> Self {
        let mut record = Self {
            version,
            ..Self::default()
        };
        match step {
            RingStep::Advance { stage } => record.advance = Some(u32::from(stage.number())),
            RingStep::Done { host_id } => record.copied = Some(host_bytes(host_id)),
            RingStep::End => record.end = Some(true),
        }
        record
    }

    pub(super) fn command(self) -> Result<Command, RecordError> {
        let step = match (self.advance, self.copied, self.end) {
            (Some(number), None, None) => RingStep::Advance {
                stage: stage(number, "ring, advance")?,
            },
            (None, Some(bytes), None) => RingStep::Done {
                host_id: host(&bytes, "ring, copied")?,
            },
            (None, None, Some(true)) => RingStep::End,
            _ => return Err(RecordError::damaged("ring", "expected one step")),
        };
        let version = self.version;
        Ok(Command::Ring { version, step })
    }
}

impl RingRecord {
    pub(super) fn of(ring: &RingState) -> Self {
        Self {
            version: ring.version,
            stage: u32::from(ring.stage.number()),
            copied: ring.done.iter().map(|number| u32::from(number.0)).collect(),
            former: former_records(&ring.former),
            towards: former_records(&ring.towards),
            leaving: ring.leaving.iter().map(|number| u32::from(number.0)).collect(),
        }
    }

    pub(super) fn state(self) -> Result<RingState, RecordError> {
        Ok(RingState {
            version: self.version,
            stage: stage(self.stage, "metadata, ring, stage")?,
            done: node_numbers(&self.copied, "metadata, ring, copied")?,
            former: replications(self.former),
            towards: replications(self.towards),
            leaving: node_numbers(&self.leaving, "metadata, ring, leaving")?,
        })
    }
}

fn option_records(options: &BTreeMap<String, String>) -> Vec<OptionRecord> {
    let option = |(name, value): (&String, &String)| OptionRecord {
        name: name.clone(),
        value: value.clone(),
    };
    options.iter().map(option).collect()
}

fn options(records: Vec<OptionRecord>) -> BTreeMap<String, String> {
    records.into_iter().map(|option| (option.name, option.value)).collect()
}

fn former_records(replications: &Replications) -> Vec<FormerRecord> {
    let former = replications.iter().map(|(keyspace, replication)| FormerRecord {
        keyspace: keyspace.clone(),
        options: option_records(replication),
    });
    former.collect()
}

fn replications(records: Vec<FormerRecord>) -> Replications {
    let former = records.into_iter();
    former
        .map(|former| (former.keyspace, options(former.options)))
        .collect()
}

fn node_numbers(numbers: &[u32], place: &str) -> Result<BTreeSet<NodeNumber>, RecordError> {
    let number = |number: &u32| {
        let why = |_| RecordError::damaged(place.to_owned(), format!("there is no node number {number}"));
        u16::try_from(*number).map(NodeNumber).map_err(why)
    };
    numbers.iter().map(number).collect()
}

impl AlteredRecord {
    pub(super) fn of(keyspace: &str, altered: &Altered) -> Self {
        Self {
            keyspace: keyspace.to_owned(),
            version: altered.version,
            replication: option_records(&altered.replication),
            tablets: altered.tablets.as_ref().map(|tablets| OptionsRecord {
                options: option_records(tablets),
            }),
        }
    }

    pub(super) fn altered(self) -> (String, Altered) {
        let altered = Altered {
            version: self.version,
            replication: options(self.replication),
            tablets: self.tablets.map(|tablets| options(tablets.options)),
        };
        (self.keyspace, altered)
    }
}

impl ReachedRecord {
    pub(super) fn of(keyspace: &str, version: u64) -> Self {
        Self {
            keyspace: keyspace.to_owned(),
            version,
        }
    }

    pub(super) fn command(self) -> Command {
        let (keyspace, version) = (self.keyspace, self.version);
        Command::Reached { keyspace, version }
    }
}

fn stage(number: u32, place: &str) -> Result<Stage, RecordError> {
    let stage = u8::try_from(number).ok().and_then(Stage::of_number);
    stage.ok_or_else(|| RecordError::damaged(place.to_owned(), format!("there is no stage {number}")))
}
