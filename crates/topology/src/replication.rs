//! A keyspace's replication, from the options that CREATE KEYSPACE gave it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::tablet_map::MapError;

const LOCATOR: &str = "org.apache.cassandra.locator.";
const REPLICATION_FACTOR: &str = "replication_factor";

/// How many copies there are, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replication {
    /// So many, on whatever nodes come next; racks and datacenters do not count on the ring.
    Simple {
        /// How many.
        factor: u16,
    },
    /// So many in each datacenter, on distinct racks while there are enough, or one in each rack of a list.
    NetworkTopology(BTreeMap<String, Copies>),
    /// What a node writes stays on it.
    Local,
    /// One on each node.
    Everywhere,
}

/// The copies of one datacenter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Copies {
    /// So many, on distinct racks while racks with nodes suffice.
    Count(u16),
    /// One in each of these racks, which are distinct and in order.
    Racks(Vec<String>),
}

impl Copies {
    /// How many copies that are.
    #[must_use]
    pub fn number(&self) -> u16 {
        match self {
            Self::Count(count) => *count,
            Self::Racks(racks) => u16::try_from(racks.len()).expect("parse limits the racks of a list"),
        }
    }

    /// Whether an option's value is meant as a list of racks.
    #[must_use]
    pub fn is_list(value: &str) -> bool {
        value.starts_with('[')
    }

    /// The copies that the value of a datacenter's option means: a number, or a list of racks such as `['rack1',
    /// 'rack2']`.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(option: &str, value: &str) -> Result<Self, ReplicationError> {
        if !Self::is_list(value) {
            return parse_factor(option, value).map(Self::Count);
        }
        let refused = |reason| ReplicationError::RackList {
            option: option.to_owned(),
            value: value.to_owned(),
            reason,
        };
        let mut racks =
            parse_list(value).ok_or_else(|| refused("racks in single quotes, separated by commas, are expected"))?;
        if racks.len() > usize::from(u16::MAX) {
            return Err(refused("it is too long"));
        }
        racks.sort_unstable();
        if racks.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(refused("a rack is named twice"));
        }
        Ok(Self::Racks(racks))
    }
}

impl From<u16> for Copies {
    fn from(count: u16) -> Self {
        Self::Count(count)
    }
}

/// The value of the option that [`Replication::parse`] reads.
impl fmt::Display for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => count.fmt(f),
            Self::Racks(racks) => {
                let quoted: Vec<String> = racks.iter().map(|r| format!("'{}'", r.replace('\'', "''"))).collect();
                write!(f, "[{}]", quoted.join(", "))
            }
        }
    }
}

/// Options that are no replication.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicationError {
    /// No `class`.
    MissingClass,
    /// A class that there is not.
    UnknownClass(String),
    /// SimpleStrategy without its one option.
    MissingFactor,
    /// An option that the class does not have; for NetworkTopologyStrategy a datacenter that is not there.
    UnknownOption {
        /// The class.
        class: &'static str,
        /// The option.
        option: String,
        /// The datacenters that there are.
        datacenters: Vec<String>,
    },
    /// No datacenter at all.
    NoDatacenter,
    /// A factor that is no number of copies.
    Factor {
        /// What it belongs to.
        option: String,
        /// What was given.
        value: String,
    },
    /// A list that is no list of distinct racks.
    RackList {
        /// The datacenter.
        option: String,
        /// What was given.
        value: String,
        /// What is wrong with it.
        reason: &'static str,
    },
}

impl fmt::Display for ReplicationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingClass => f.write_str("Missing replication strategy class"),
            Self::UnknownClass(class) => write!(f, "Unable to find replication strategy class '{class}'"),
            Self::MissingFactor => f.write_str("SimpleStrategy requires a replication_factor strategy option."),
            Self::UnknownOption {
                class,
                option,
                datacenters,
            } => {
                write!(f, "Unrecognized strategy option {{{option}}} passed to {class}")?;
                if *class == "NetworkTopologyStrategy" {
                    write!(f, ": the datacenters are {}", datacenters.join(", "))?;
                }
                Ok(())
            }
            Self::NoDatacenter => f.write_str("Configuration for at least one datacenter must be present"),
            Self::Factor { option, value } if value.contains('/') => {
                write!(
                    f,
                    "Transient replication is not supported, found '{value}' for {option}"
                )
            }
            Self::Factor { option, value } => write!(
                f,
                "Replication factor must be a number from 0 to 65535, found '{value}' for {option}"
            ),
            Self::RackList { option, value, reason } => {
                write!(f, "Invalid list of racks {value} for datacenter {option}: {reason}")
            }
        }
    }
}

impl std::error::Error for ReplicationError {}

impl Replication {
    /// The replication that these options name. `replication_factor` of NetworkTopologyStrategy applies to each of
    /// `datacenters` that is not named; a factor of 0, or an empty list of racks, means no copies there.
    ///
    /// # Errors
    /// When the options are no replication, or name a datacenter that is not among `datacenters`.
    pub fn parse(options: &BTreeMap<String, String>, datacenters: &BTreeSet<&str>) -> Result<Self, ReplicationError> {
        let Some(class) = options.get("class") else {
            return Err(ReplicationError::MissingClass);
        };
        let rest = || options.iter().filter(|(name, _)| *name != "class");
        let unknown = |class, option: &str| {
            Err(ReplicationError::UnknownOption {
                class,
                option: option.to_owned(),
                datacenters: datacenters.iter().map(|d| (*d).to_owned()).collect(),
            })
        };
        let without_options = |class, value| match rest().next() {
            Some((option, _)) => unknown(class, option),
            None => Ok(value),
        };
        match class.strip_prefix(LOCATOR).unwrap_or(class) {
            "SimpleStrategy" => {
                if let Some((option, _)) = rest().find(|(name, _)| *name != REPLICATION_FACTOR) {
                    return unknown("SimpleStrategy", option);
                }
                let value = options.get(REPLICATION_FACTOR).ok_or(ReplicationError::MissingFactor)?;
                let factor = parse_factor(REPLICATION_FACTOR, value)?;
                Ok(Self::Simple { factor })
            }
            "NetworkTopologyStrategy" => {
                let mut factors = BTreeMap::new();
                if let Some(value) = options.get(REPLICATION_FACTOR) {
                    let factor = parse_factor(REPLICATION_FACTOR, value)?;
                    factors.extend(datacenters.iter().map(|d| ((*d).to_owned(), Copies::Count(factor))));
                }
                for (name, value) in rest().filter(|(name, _)| *name != REPLICATION_FACTOR) {
                    if !datacenters.contains(name.as_str()) {
                        return unknown("NetworkTopologyStrategy", name);
                    }
                    factors.insert(name.clone(), Copies::parse(name, value)?);
                }
                factors.retain(|_, copies| copies.number() > 0);
                if factors.is_empty() {
                    return Err(ReplicationError::NoDatacenter);
                }
                Ok(Self::NetworkTopology(factors))
            }
            "LocalStrategy" => without_options("LocalStrategy", Self::Local),
            "EverywhereStrategy" => without_options("EverywhereStrategy", Self::Everywhere),
            _ => Err(ReplicationError::UnknownClass(class.clone())),
        }
    }
}

fn parse_factor(option: &str, value: &str) -> Result<u16, ReplicationError> {
    value.parse().map_err(|_| ReplicationError::Factor {
        option: option.to_owned(),
        value: value.to_owned(),
    })
}

/// The strings of a list in CQL's notation: `['a', 'it''s']`.
fn parse_list(text: &str) -> Option<Vec<String>> {
    let mut rest = text.strip_prefix('[')?.strip_suffix(']')?.trim_ascii();
    let mut items = Vec::new();
    while !rest.is_empty() {
        rest = rest.strip_prefix('\'')?;
        let mut item = String::new();
        loop {
            let (before, behind) = rest.split_once('\'')?;
            item.push_str(before);
            rest = behind;
            let Some(behind) = rest.strip_prefix('\'') else { break };
            item.push('\'');
            rest = behind;
        }
        if item.is_empty() {
            return None;
        }
        items.push(item);
        rest = rest.trim_ascii_start();
        if !rest.is_empty() {
            rest = rest.strip_prefix(',')?.trim_ascii_start();
            if rest.is_empty() {
                return None;
            }
        }
    }
    Some(items)
}

/// Why tablets cannot be placed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PlacementError {
    /// A datacenter without nodes.
    UnknownDatacenter {
        /// Its name.
        datacenter: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Fewer nodes than copies.
    NotEnoughNodes {
        /// Where; None when datacenters do not count.
        datacenter: Option<String>,
        /// Copies.
        factor: u16,
        /// Nodes that can hold one.
        nodes: usize,
    },
    /// A rack of a list that has no node that can hold a copy.
    EmptyRack {
        /// Its datacenter.
        datacenter: String,
        /// The rack.
        rack: String,
    },
    /// Copies that racks cannot share evenly.
    RackMismatch {
        /// Where.
        datacenter: String,
        /// Copies.
        factor: u16,
        /// Racks.
        racks: usize,
    },
    /// A count of tablets that is no power of two, or too large.
    TabletCount(u32),
    /// The tables of such a keyspace have no replicas on other nodes.
    Local,
    /// No node owns a token.
    NoTokens,
    /// The placement makes no map.
    Map(MapError),
}

impl fmt::Display for PlacementError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownDatacenter { datacenter, known } => write!(
                f,
                "Unrecognized datacenter {datacenter}: it has no nodes; the datacenters are {}",
                known.join(", ")
            ),
            Self::NotEnoughNodes {
                datacenter: Some(datacenter),
                factor,
                nodes,
            } => write!(
                f,
                "Datacenter {datacenter} doesn't have enough nodes for replication_factor={factor}: it has {nodes}"
            ),
            Self::NotEnoughNodes {
                datacenter: None,
                factor,
                nodes,
            } => write!(
                f,
                "The cluster doesn't have enough nodes for replication_factor={factor}: it has {nodes}"
            ),
            Self::EmptyRack { datacenter, rack } => write!(
                f,
                "Rack {rack} of datacenter {datacenter} has no node that can hold a copy"
            ),
            Self::RackMismatch {
                datacenter,
                factor,
                racks,
            } => write!(
                f,
                "The replication factor {factor} in datacenter {datacenter} is not valid for its {racks} racks: \
                 use {racks}, or 1, or 0"
            ),
            Self::TabletCount(count) => write!(f, "{count} tablets: a power of two up to 4194304 is expected"),
            Self::Local => f.write_str("tables of LocalStrategy are whole on each node and have no tablet map"),
            Self::NoTokens => f.write_str("no node of the ring has a token: start nodes with num_tokens above 0"),
            Self::Map(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for PlacementError {}

impl From<MapError> for PlacementError {
    fn from(e: MapError) -> Self {
        Self::Map(e)
    }
}
