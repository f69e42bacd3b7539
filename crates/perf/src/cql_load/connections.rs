//! The connections of a run: opened, used to fill the table, given their keys.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use stdx::random::SplitMix64;
use types::token;

use super::client::{Handshake, Setup};
use super::frames::{Expected, Frames};
use super::{Host, Options};
use crate::load::{self, Client, Keys, LoadError, Plan};

/// Connections are opened again and again until each shard has its share; at most this many times the number needed.
const SHARD_ATTEMPTS_MAX: u32 = 20;

/// Most in flight on a connection while the table is filled: polite to a server that sheds load.
const POPULATE_DEPTH_MAX: u16 = 128;

/// The connections of a run, each with its host's number and the shard it reached.
pub(super) struct Connections {
    open: Vec<(usize, Handshake)>,
    shard_aware: bool,
}

impl Connections {
    pub(super) async fn open(setup: &Setup, hosts: &[Host], options: &Options) -> Result<Connections, LoadError> {
        let mut open = Vec::new();
        if options.shard_aware {
            let wanted = options.load.connections as usize;
            for (number, host) in hosts.iter().enumerate() {
                let share = (wanted + hosts.len() - 1 - number) / hosts.len();
                open.extend(
                    spread(setup, host.address, share as u32)
                        .await?
                        .into_iter()
                        .map(|c| (number, c)),
                );
            }
        } else {
            for (_, number) in (0..options.load.connections).zip((0..hosts.len()).cycle()) {
                open.push((number, setup.open(hosts[number].address).await?));
            }
        }
        Ok(Connections {
            open,
            shard_aware: options.shard_aware,
        })
    }

    /// Writes every key once.
    pub(super) async fn populate(self, hosts: &[Host], options: &Options) -> Result<Connections, LoadError> {
        let next = Rc::new(Cell::new(0));
        let keys = vec![
            Keys::Sequence {
                next,
                end: options.partitions
            };
            self.open.len()
        ];
        let shard_aware = self.shard_aware;
        let known: Vec<_> = self.open.iter().map(|(host, open)| (*host, open.sharding)).collect();
        let plan = Plan {
            depth: options.load.plan()?.depth.min(POPULATE_DEPTH_MAX),
            rate: None,
            warm_up: Duration::ZERO,
            duration: None,
            operations: None,
            interval: None,
            server_pids: Vec::new(),
        };
        let clients = self.into_clients(keys, |host| Frames::new(hosts[host].fill.clone(), Expected::Nothing));
        let (report, streams) = load::drive_and_keep("populate".to_string(), clients, plan).await?;
        if let Some(first) = report.first_error {
            return Err(LoadError::Refused(format!("filling the table: {first}")));
        }
        let open = streams
            .into_iter()
            .zip(known)
            .map(|(stream, (host, sharding))| (host, Handshake::again(stream, sharding)));
        Ok(Connections {
            open: open.collect(),
            shard_aware,
        })
    }

    /// Which keys each connection asks for.
    pub(super) fn keys(&self, own: bool, options: &Options) -> Vec<Keys> {
        if options.contended {
            return vec![Keys::Only(0); self.open.len()];
        }
        let below = options.partitions;
        let seed = |position: usize| {
            let run = options.load.seed.wrapping_mul(0x1_0000_0001);
            run.wrapping_add(position as u64)
        };
        if own {
            let depth = u64::from(options.load.depth);
            let own = |position| Keys::Own {
                random: SplitMix64::new(seed(position)),
                client_of_slot_0: position as u64 * depth,
                clients: self.open.len() as u64 * depth,
                below,
            };
            return (0..self.open.len()).map(own).collect();
        }
        let all = |position| Keys::Uniform {
            random: SplitMix64::new(seed(position)),
            below,
        };
        let first = self.open.first().filter(|_| self.shard_aware);
        let Some(sharding) = first.and_then(|(_, first)| first.sharding) else {
            return (0..self.open.len()).map(all).collect();
        };
        let mut of_shard = vec![Vec::new(); sharding.shards as usize];
        for key in 0..below {
            let token = token::token_of(&key.to_be_bytes());
            let shard = token::shard_of(token, sharding.shards, sharding.ignore_msb);
            of_shard[shard as usize].push(key);
        }
        let of_shard: Vec<Rc<Vec<u64>>> = of_shard.into_iter().map(Rc::new).collect();
        let one_of = |(position, (_, connection)): (usize, &(usize, Handshake))| {
            let shard = connection.sharding.map_or(0, |sharding| sharding.shard);
            Keys::OneOf {
                random: SplitMix64::new(seed(position)),
                keys: of_shard.get(shard as usize).map(Rc::clone).unwrap_or_default(),
            }
        };
        self.open.iter().enumerate().map(one_of).collect()
    }

    /// Clients with the frames of their hosts.
    pub(super) fn into_clients(self, keys: Vec<Keys>, frames: impl Fn(usize) -> Frames) -> Vec<Client<Frames>> {
        let pairs = self.open.into_iter().zip(keys);
        pairs
            .map(|((host, connection), keys)| Client {
                stream: connection.stream,
                protocol: frames(host),
                keys,
            })
            .collect()
    }
}

/// Connections to one host, as many to each of its shards.
async fn spread(setup: &Setup, address: SocketAddr, wanted: u32) -> Result<Vec<Handshake>, LoadError> {
    let first = setup.open(address).await?;
    let Some(sharding) = first.sharding else {
        return Err(LoadError::Options(
            "--shard-aware: the server announces no shards".to_string(),
        ));
    };
    let shard_address = match sharding.port {
        Some(port) => SocketAddr::new(address.ip(), port),
        None => address,
    };
    // On the shard-aware port the source port decides, elsewhere the server: both spread, so we keep what is needed.
    let per_shard = wanted.div_ceil(sharding.shards);
    let mut open = Vec::new();
    let mut counts = vec![0_u32; sharding.shards as usize];
    for _ in 0..wanted * SHARD_ATTEMPTS_MAX {
        if open.len() as u32 == wanted {
            break;
        }
        let connection = setup.open(shard_address).await?;
        let shard = connection.sharding.map_or(0, |sharding| sharding.shard) as usize;
        if let Some(count) = counts.get_mut(shard)
            && *count < per_shard
        {
            *count += 1;
            open.push(connection);
        }
    }
    if counts.contains(&0) || (open.len() as u32) < wanted {
        let message = format!("--shard-aware: {wanted} connections did not spread over the shards: {counts:?}");
        return Err(LoadError::Options(message));
    }
    Ok(open)
}
