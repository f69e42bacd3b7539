//! The bytes of a tablet map and of a change.
//!
//! ```text
//! map     version · boundaries · tablet of each, in order
//! change  from version · version · count · (distance from the tablet before, tablet) of each, in order
//! steps   count · (kind: u8, tablet, what it is) of each
//!
//! step         1: begin, count: u8, replicas, count: u8, next replicas   or   2: advance, version, stage: u8
//!              or   3: end, version   or   4: copied, version, node number
//! boundaries   0, log2 of the count           or   1, count, last token of the first, distances to the next
//! tablet       count of replicas: 7 bits, 1 bit "moves" · replicas ·
//!              if it moves: stage: 7 bits, 1 bit "some have copied", version, count: u8, replicas ·
//!              if some have copied: count: u8, node numbers
//! replica      node number · shard
//! ```
//!
//! A tablet with three replicas takes seven bytes while node numbers and shards are below 128.

use std::sync::Arc;

use smallvec::SmallVec;
use stdx::vint;
use types::Token;

use crate::codec::{self, DecodeError, Decoder, Form};
use crate::movement::MoveStep;
use crate::node::NodeNumber;
use crate::tablet_map::{
    Boundaries, Builder, MapError, Replica, ReplicaList, Stage, TabletChange, TabletEdit, TabletId, TabletMap,
    Transition,
};

const MAP: Form = Form {
    kind: b'M',
    format: 1,
    name: "tablet map",
};
const CHANGE: Form = Form {
    kind: b'D',
    format: 1,
    name: "tablet change",
};
const STEPS: Form = Form {
    kind: b'S',
    format: 1,
    name: "steps of moves",
};
const MOVES: u8 = 0x80;
const COPIED: u8 = 0x80;

impl TabletMap {
    /// The whole map as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = codec::begin(MAP);
        vint::put_unsigned(&mut out, self.version());
        match self.boundaries() {
            Boundaries::PowerOfTwo(log2) => out.extend_from_slice(&[0, *log2]),
            Boundaries::LastTokens(tokens) => {
                out.push(1);
                vint::put_unsigned(&mut out, tokens.len() as u64);
                let mut before = Token::MIN;
                for token in tokens.iter() {
                    vint::put_unsigned(&mut out, token.0.cast_unsigned().wrapping_sub(before.0.cast_unsigned()));
                    before = *token;
                }
            }
        }
        for tablet in self.tablets() {
            put_tablet(&mut out, tablet.replicas, tablet.transition);
        }
        codec::seal(out)
    }

    /// The map of these bytes.
    ///
    /// # Errors
    /// When they are damaged, of a later format, or describe what cannot be.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::open(bytes, MAP)?;
        let version = d.number("map version")?;
        let boundaries = match d.byte("boundaries")? {
            0 => Boundaries::PowerOfTwo(d.byte("power of two")?),
            1 => Boundaries::LastTokens(last_tokens(&mut d)?),
            _ => return Err(d.invalid("boundaries", "0 or 1")),
        };
        let mut builder = Builder::new(version, boundaries.clone()).map_err(inconsistent)?;
        for _ in 0..boundaries.tablet_count() {
            let (replicas, transition) = tablet(&mut d)?;
            builder.push(&replicas, transition).map_err(inconsistent)?;
        }
        d.end()?;
        builder.finish().map_err(inconsistent)
    }
}

impl TabletChange {
    /// The change as bytes.
    ///
    /// # Panics
    /// When an edit has more than 127 replicas, which no map takes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = codec::begin(CHANGE);
        vint::put_unsigned(&mut out, self.from_version);
        vint::put_unsigned(&mut out, self.version);
        vint::put_unsigned(&mut out, self.edits.len() as u64);
        let mut before = 0;
        for edit in &self.edits {
            // Wraps when edits are not in order, and comes back the same; applying is what refuses them.
            vint::put_unsigned(&mut out, u64::from(edit.tablet.0.wrapping_sub(before)));
            before = edit.tablet.0;
            put_tablet(&mut out, &edit.replicas, edit.transition.as_ref());
        }
        codec::seal(out)
    }

    /// The change of these bytes; whether it fits a map is found when it is applied.
    ///
    /// # Errors
    /// When they are damaged, of a later format, or no change.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut d = Decoder::open(bytes, CHANGE)?;
        let from_version = d.number("version before")?;
        let version = d.number("version")?;
        let count = d.count("edit count", 2)?;
        let mut edits = Vec::new();
        let mut before = 0_u32;
        for _ in 0..count {
            let distance = u32::try_from(d.number("tablet")?).map_err(|_| d.invalid("tablet", "a 32-bit distance"))?;
            before = before.wrapping_add(distance);
            let (replicas, transition) = tablet(&mut d)?;
            edits.push(TabletEdit {
                tablet: TabletId(before),
                replicas,
                transition,
            });
        }
        d.end()?;
        Ok(Self {
            from_version,
            version,
            edits,
        })
    }
}

impl MoveStep {
    /// Steps of one table as bytes.
    ///
    /// # Panics
    /// When a step has more than 127 replicas, which no map takes.
    #[must_use]
    pub fn encode(steps: &[Self]) -> Vec<u8> {
        let mut out = codec::begin(STEPS);
        vint::put_unsigned(&mut out, steps.len() as u64);
        for step in steps {
            let kind = match step {
                Self::Begin { .. } => 1,
                Self::Advance { .. } => 2,
                Self::End { .. } => 3,
                Self::Copied { .. } => 4,
            };
            out.push(kind);
            vint::put_unsigned(&mut out, u64::from(step.tablet().0));
            match step {
                Self::Begin { replicas, next, .. } => {
                    put_replicas(&mut out, replicas, 0);
                    put_replicas(&mut out, next, 0);
                }
                Self::Advance { version, stage, .. } => {
                    vint::put_unsigned(&mut out, *version);
                    out.push(stage.number());
                }
                Self::End { version, .. } => vint::put_unsigned(&mut out, *version),
                Self::Copied { version, node, .. } => {
                    vint::put_unsigned(&mut out, *version);
                    vint::put_unsigned(&mut out, u64::from(node.0));
                }
            }
        }
        codec::seal(out)
    }

    /// The steps of these bytes; whether they fit a map is found when they are applied.
    ///
    /// # Errors
    /// When they are damaged, of a later format, or no steps.
    pub fn decode(bytes: &[u8]) -> Result<Vec<Self>, DecodeError> {
        let mut d = Decoder::open(bytes, STEPS)?;
        let count = d.count("step count", 3)?;
        let mut steps = Vec::new();
        for _ in 0..count {
            let kind = d.byte("step")?;
            let tablet = u32::try_from(d.number("tablet")?).map_err(|_| d.invalid("tablet", "a 32-bit number"))?;
            let tablet = TabletId(tablet);
            steps.push(match kind {
                1 => Self::Begin {
                    tablet,
                    replicas: counted_replicas(&mut d)?,
                    next: counted_replicas(&mut d)?,
                },
                2 => Self::Advance {
                    tablet,
                    version: d.number("transition version")?,
                    stage: stage(&mut d)?,
                },
                3 => Self::End {
                    tablet,
                    version: d.number("transition version")?,
                },
                4 => Self::Copied {
                    tablet,
                    version: d.number("transition version")?,
                    node: NodeNumber(d.small("node number")?),
                },
                _ => return Err(d.invalid("step", "a number from 1 to 4")),
            });
        }
        d.end()?;
        Ok(steps)
    }
}

fn inconsistent(e: MapError) -> DecodeError {
    DecodeError::Inconsistent { what: e.to_string() }
}

fn put_tablet(out: &mut Vec<u8>, replicas: &[Replica], transition: Option<&Transition>) {
    let moves = if transition.is_some() { MOVES } else { 0 };
    put_replicas(out, replicas, moves);
    if let Some(transition) = transition {
        let copied = &transition.copied;
        out.push(transition.stage.number() | if copied.is_empty() { 0 } else { COPIED });
        vint::put_unsigned(out, transition.version);
        put_replicas(out, &transition.next, 0);
        if !copied.is_empty() {
            out.push(u8::try_from(copied.len()).expect("each is one of the next replicas"));
            for node in copied {
                vint::put_unsigned(out, u64::from(node.0));
            }
        }
    }
}

fn put_replicas(out: &mut Vec<u8>, replicas: &[Replica], flag: u8) {
    let count = u8::try_from(replicas.len()).ok().filter(|n| *n < MOVES);
    out.push(count.expect("a tablet has at most 127 replicas") | flag);
    for replica in replicas {
        vint::put_unsigned(out, u64::from(replica.node.0));
        vint::put_unsigned(out, u64::from(replica.shard));
    }
}

fn last_tokens(d: &mut Decoder<'_>) -> Result<Arc<[Token]>, DecodeError> {
    let count = d.count("boundary count", 1)?;
    let mut before = Token::MIN.0.cast_unsigned();
    (0..count)
        .map(|_| {
            before = before.wrapping_add(d.number("boundary")?);
            Ok(Token(before.cast_signed()))
        })
        .collect()
}

fn tablet(d: &mut Decoder<'_>) -> Result<(ReplicaList, Option<Transition>), DecodeError> {
    let count = d.byte("replica count")?;
    let replicas = replicas(d, count & !MOVES)?;
    if count & MOVES == 0 {
        return Ok((replicas, None));
    }
    let number = d.byte("stage")?;
    let stage = stage_of(d, number & !COPIED)?;
    let version = d.number("transition version")?;
    let next = counted_replicas(d)?;
    let copied = match number & COPIED {
        0 => SmallVec::new(),
        _ => copied(d, &next)?,
    };
    let transition = Transition {
        stage,
        next,
        version,
        copied,
    };
    Ok((replicas, Some(transition)))
}

fn copied(d: &mut Decoder<'_>, next: &[Replica]) -> Result<SmallVec<[NodeNumber; 4]>, DecodeError> {
    let count = d.byte("count of those that have copied")?;
    let mut copied = SmallVec::new();
    for _ in 0..count {
        let node = NodeNumber(d.small("node number")?);
        if copied.contains(&node) || next.iter().all(|replica| replica.node != node) {
            return Err(d.invalid("node that has copied", "one of the next replicas, once"));
        }
        copied.push(node);
    }
    if copied.is_empty() {
        Err(d.invalid("count of those that have copied", "at least one"))
    } else {
        Ok(copied)
    }
}

fn counted_replicas(d: &mut Decoder<'_>) -> Result<ReplicaList, DecodeError> {
    let count = d.byte("replica count")?;
    if count & MOVES != 0 {
        return Err(d.invalid("replica count", "at most 127 replicas"));
    }
    replicas(d, count)
}

fn replicas(d: &mut Decoder<'_>, count: u8) -> Result<ReplicaList, DecodeError> {
    (0..count)
        .map(|_| {
            Ok(Replica {
                node: NodeNumber(d.small("node number")?),
                shard: d.small("shard")?,
            })
        })
        .collect()
}

impl Stage {
    /// Its number in files and messages.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Self::AllowWriteBothReadOld => 1,
            Self::WriteBothReadOld => 2,
            Self::Streaming => 3,
            Self::WriteBothReadNew => 4,
            Self::UseNew => 5,
            Self::CleanupTarget => 7,
        }
    }

    /// The stage of a number; None when there is none.
    #[must_use]
    pub fn of_number(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::AllowWriteBothReadOld,
            2 => Self::WriteBothReadOld,
            3 => Self::Streaming,
            4 => Self::WriteBothReadNew,
            5 => Self::UseNew,
            7 => Self::CleanupTarget,
            _ => return None,
        })
    }
}

fn stage(d: &mut Decoder<'_>) -> Result<Stage, DecodeError> {
    let number = d.byte("stage")?;
    stage_of(d, number)
}

fn stage_of(d: &Decoder<'_>, number: u8) -> Result<Stage, DecodeError> {
    Stage::of_number(number).ok_or_else(|| d.invalid("stage", "a number from 1 to 5, or 7"))
}
