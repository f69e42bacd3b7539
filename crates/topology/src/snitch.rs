//! How a node learns its datacenter and rack.
//!
//! Each node reports its own location when it joins, and others read it from the topology; so a snitch is asked for one
//! node only, its own.

use std::fmt;
use std::net::IpAddr;

use crate::node::Location;

/// The file of GossipingPropertyFileSnitch, for errors.
const RACKDC: &str = "cassandra-rackdc.properties";

/// A way to learn a node's location.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Snitch {
    /// All nodes are in `datacenter1`, `rack1`.
    Simple,
    /// The second octet of the address is the datacenter, the third the rack.
    RackInferring,
    /// What the properties file says.
    GossipingPropertyFile {
        /// Datacenter, with the suffix, and rack.
        location: Location,
        /// Whether nodes of its datacenter reach it by its local address.
        prefer_local: bool,
    },
}

/// A snitch or a properties file that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SnitchError {
    /// A name that no snitch has.
    UnknownSnitch(String),
    /// GossipingPropertyFileSnitch without its file.
    MissingFile,
    /// A line that is no property.
    Line {
        /// Its number, from 1.
        line: usize,
        /// What it holds.
        text: String,
    },
    /// A property that is not known.
    UnknownProperty {
        /// The line.
        line: usize,
        /// The property.
        name: String,
    },
    /// A property given twice.
    Repeated {
        /// The line of the second.
        line: usize,
        /// The property.
        name: &'static str,
    },
    /// A property without a value, or with one that is none.
    Value {
        /// The line.
        line: usize,
        /// The property.
        name: &'static str,
        /// What it may be.
        expected: &'static str,
        /// What it is.
        found: String,
    },
    /// A property that must be there.
    Missing(&'static str),
    /// An address without octets to infer from.
    NotIpv4(IpAddr),
}

impl fmt::Display for SnitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownSnitch(name) => write!(
                f,
                "endpoint_snitch: unknown snitch {name}; known are SimpleSnitch, RackInferringSnitch, GossipingPropertyFileSnitch"
            ),
            Self::MissingFile => write!(f, "GossipingPropertyFileSnitch needs the file {RACKDC}"),
            Self::Line { line, text } => write!(f, "{RACKDC} line {line}: expected name=value, found '{text}'"),
            Self::UnknownProperty { line, name } => write!(
                f,
                "{RACKDC} line {line}: unknown property {name}; known are dc, rack, dc_suffix, prefer_local"
            ),
            Self::Repeated { line, name } => write!(f, "{RACKDC} line {line}: {name} is given a second time"),
            Self::Value {
                line,
                name,
                expected,
                found,
            } => write!(f, "{RACKDC} line {line}: {name} must be {expected}, found '{found}'"),
            Self::Missing(name) => write!(f, "{RACKDC}: {name} is missing"),
            Self::NotIpv4(address) => write!(
                f,
                "RackInferringSnitch infers datacenter and rack from the octets of an IPv4 address, found {address}"
            ),
        }
    }
}

impl std::error::Error for SnitchError {}

impl Snitch {
    /// The snitch of this name, with or without its Java package; `properties` is the text of
    /// cassandra-rackdc.properties, if there is one.
    ///
    /// # Errors
    /// When there is no such snitch, or what it needs is not there.
    pub fn parse(name: &str, properties: Option<&str>) -> Result<Self, SnitchError> {
        let short = name.rsplit('.').next().unwrap_or(name);
        match short {
            "SimpleSnitch" => Ok(Self::Simple),
            "RackInferringSnitch" => Ok(Self::RackInferring),
            "GossipingPropertyFileSnitch" => parse_rackdc(properties.ok_or(SnitchError::MissingFile)?),
            _ => Err(SnitchError::UnknownSnitch(name.to_owned())),
        }
    }

    /// The location of the node that others reach at this address.
    ///
    /// # Errors
    /// When it is to be inferred from an address that is not IPv4.
    pub fn location(&self, internode: IpAddr) -> Result<Location, SnitchError> {
        match self {
            Self::Simple => Ok(Location {
                datacenter: "datacenter1".to_owned(),
                rack: "rack1".to_owned(),
            }),
            Self::RackInferring => {
                let IpAddr::V4(v4) = internode.to_canonical() else {
                    return Err(SnitchError::NotIpv4(internode));
                };
                let [_, datacenter, rack, _] = v4.octets();
                Ok(Location {
                    datacenter: datacenter.to_string(),
                    rack: rack.to_string(),
                })
            }
            Self::GossipingPropertyFile { location, .. } => Ok(location.clone()),
        }
    }
}

fn parse_rackdc(text: &str) -> Result<Snitch, SnitchError> {
    const NAMES: [&str; 4] = ["dc", "rack", "dc_suffix", "prefer_local"];
    let mut values: [Option<(usize, &str)>; 4] = [None; 4];
    for (line, content) in (1..).zip(text.lines().map(str::trim)) {
        if content.is_empty() || content.starts_with(['#', '!']) {
            continue;
        }
        let Some((name, value)) = content.split_once(['=', ':']) else {
            return Err(SnitchError::Line {
                line,
                text: content.to_owned(),
            });
        };
        let (name, value) = (name.trim(), value.trim());
        let Some(known) = NAMES.iter().position(|n| *n == name) else {
            return Err(SnitchError::UnknownProperty {
                line,
                name: name.to_owned(),
            });
        };
        if values[known].replace((line, value)).is_some() {
            return Err(SnitchError::Repeated {
                line,
                name: NAMES[known],
            });
        }
    }
    let [datacenter, rack, suffix, prefer_local] = values;
    let required = |name, value: Option<(usize, &str)>| match value {
        Some((_, text)) if !text.is_empty() => Ok(text.to_owned()),
        Some((line, _)) => Err(SnitchError::Value {
            line,
            name,
            expected: "a name",
            found: String::new(),
        }),
        None => Err(SnitchError::Missing(name)),
    };
    let prefer_local = match prefer_local {
        None => false,
        Some((_, value)) if value.eq_ignore_ascii_case("true") => true,
        Some((_, value)) if value.eq_ignore_ascii_case("false") => false,
        Some((line, value)) => {
            return Err(SnitchError::Value {
                line,
                name: "prefer_local",
                expected: "true or false",
                found: value.to_owned(),
            });
        }
    };
    let datacenter = required("dc", datacenter)? + suffix.map_or("", |(_, value)| value);
    Ok(Snitch::GossipingPropertyFile {
        location: Location {
            datacenter,
            rack: required("rack", rack)?,
        },
        prefer_local,
    })
}
