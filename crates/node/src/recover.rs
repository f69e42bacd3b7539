//! `ceto recover-metadata`: gives up a lost majority of the metadata group, or takes lost metadata from the members, on
//! a node that does not run.
//!
//! Without a confirmation it only reports what would be lost and which confirmation is needed. It locks the workdir as
//! a node does, so it cannot run beside a running node. It asks the voters that would be given up whether they are
//! alive: while a majority of them can be had, there is nothing to give up. It asks them as the node does, by TLS if
//! the node's options say so. Without those options it does not run on the workdir of a node that had them, because it
//! would reach no node.

use std::fmt::Write;
use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use ::cluster::{Epoch, Lost, Prospect, Reach};
use config::Config;
use rpc::Rpc;
use topology::HostId;

use crate::cluster;
use crate::identity::{self, WorkdirLock};

/// Directory of the metadata in the workdir.
pub(crate) const METADATA_DIR: &str = "metadata";

/// What a node is to become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recover {
    /// The only voter.
    Alone,
    /// A member of the group that another survivor has begun again, in this epoch.
    Follow(Epoch),
    /// A member that has lost its metadata or its log, and takes the metadata from the others, under another Raft id.
    Rejoin,
}

/// The workdir of a node that does not run, held as a node holds it.
struct Stopped {
    host_id: HostId,
    /// Directory of the metadata.
    dir: PathBuf,
    _lock: WorkdirLock,
}

/// Holds the workdir of a node that was in a cluster, and whose peers can be asked.
fn hold(config: &Config, what: Recover) -> Result<Stopped, String> {
    let workdir = config.workdir.as_path();
    let was_member = runtime::fs::exists(workdir.join(METADATA_DIR)) || what == Recover::Rejoin;
    if !was_member || !runtime::fs::exists(workdir.join("host_id")) {
        return Err(format!(
            "{}: no node that was ever in a cluster has this workdir",
            workdir.display()
        ));
    }
    let lock = identity::lock(workdir)?;
    if identity::was_encrypted(workdir) && config.encryption.is_none() {
        return Err(
            "this node reaches others by TLS, and its server_encryption_options are not known here, so no node can be asked. Give the --options-file (and \
             --ssl-storage-port, if there is one) that the node is started with. Nothing was changed"
                .to_owned(),
        );
    }
    Ok(Stopped {
        host_id: HostId(identity::host_id(workdir)?),
        dir: workdir.join(METADATA_DIR),
        _lock: lock,
    })
}

/// Gives what is to be printed. Blocks. `config` is that which the node is started with, as far as it says where its
/// files are and how it reaches others.
///
/// # Errors
/// In words for the user. Nothing was changed then.
pub fn recover_metadata(config: &Config, what: Recover, confirmation: Option<&str>) -> Result<String, String> {
    let workdir = config.workdir.as_path();
    let stopped = hold(config, what)?;
    let (dir, host_id) = (&stopped.dir, stopped.host_id);
    let follow = match what {
        Recover::Alone => None,
        Recover::Follow(epoch) => Some(epoch),
        Recover::Rejoin => {
            if let Some(explanation) = check_rejoin(config, host_id, confirmation)? {
                return Ok(explanation);
            }
            let (dir, seeds) = (dir.clone(), seed_addresses(config));
            return with_rpc(config, &cluster_name(config), host_id, move |rpc, reach| {
                Box::pin(take_anew(dir.clone(), host_id, seeds.clone(), rpc, reach))
            })?;
        }
    };
    let prospect = ::cluster::prospect(dir, host_id).map_err(|e| e.to_string())?;
    let answering = answering(config, &prospect)?;
    let Some(confirmation) = confirmation else {
        return Ok(describe(workdir, follow, &prospect, &answering));
    };
    match follow {
        None => {
            refuse_living(&prospect, &answering)?;
            let recovery = ::cluster::recover(dir, host_id, confirmation).map_err(|e| e.to_string())?;
            Ok(format!(
                "This node is the only voter now, in epoch {0}. Start it, then bring the others along as `ceto page recover-metadata` says: each that keeps \
                 its data follows with --follow {0}.\n",
                recovery.epoch
            ))
        }
        Some(epoch) => {
            ::cluster::follow(dir, host_id, epoch, confirmation).map_err(|e| e.to_string())?;
            Ok(format!(
                "This node waits for the metadata of epoch {epoch}, from the node that recovered it. Start it.\n"
            ))
        }
    }
}

/// What [`recover_metadata`] does for [`Recover::Rejoin`], on the shard that runs this: the simulator has operators
/// whose machines are simulated.
///
/// # Errors
/// As [`recover_metadata`].
pub async fn rejoin(config: &Config, confirmation: Option<&str>) -> Result<String, String> {
    let stopped = hold(config, Recover::Rejoin)?;
    let (dir, host_id) = (stopped.dir.clone(), stopped.host_id);
    if let Some(explanation) = check_rejoin(config, host_id, confirmation)? {
        return Ok(explanation);
    }
    let seeds = seed_addresses(config);
    let rpc_config = rpc_config(config, &cluster_name(config), host_id);
    let take = |rpc, reach| take_anew(dir, host_id, seeds, rpc, reach);
    by_rpc(rpc_config, cluster::reach(config), take).await?
}

/// The name of the cluster that the node was in.
fn cluster_name(config: &Config) -> String {
    identity::noted_cluster(&config.workdir).unwrap_or_else(|| config.cluster_name.clone())
}

/// What a rejoin would do, where it is not confirmed yet.
fn check_rejoin(config: &Config, host_id: HostId, confirmation: Option<&str>) -> Result<Option<String>, String> {
    let expected = ::cluster::rejoin_confirmation(host_id);
    let workdir = config.workdir.display();
    match confirmation {
        None => Ok(Some(format!(
            "Node {host_id} in {workdir}\n\n\
             If this node rejoins, it keeps its identity, its tokens and its data, and takes the metadata from the other members. What it has of metadata is \
             replaced. Do this only where the data is the newest that the node had: not on a backup or on a copy of the directory that is older than what ran \
             last, because the node would lack what it has acknowledged since. No process with this identity may run.\n\n\
             Nothing was changed. To do it, say so:\n\n  ceto recover-metadata --workdir {workdir} --rejoin --confirm \"{expected}\"\n"
        ))),
        Some(confirmation) if confirmation != expected => Err(format!(
            "the confirmation is not the one for this node, and nothing was changed; expected \"{expected}\""
        )),
        Some(_) => Ok(None),
    }
}

/// Where the seeds are.
fn seed_addresses(config: &Config) -> Vec<SocketAddr> {
    config.seeds.iter().map(|seed| seed.address).collect()
}

/// Takes the metadata from the members.
async fn take_anew(
    dir: PathBuf,
    host_id: HostId,
    seeds: Vec<SocketAddr>,
    rpc: Rc<Rpc>,
    reach: Reach,
) -> Result<String, String> {
    let taken = ::cluster::rejoin(&dir, host_id, &seeds, &rpc, &reach).await;
    let name = taken.map_err(|e| e.to_string())?;
    Ok(format!(
        "This node has the metadata of cluster '{name}', and another Raft id. Start it with its usual options.\n"
    ))
}

/// The nodes that answer, of those that would be given up.
fn answering(config: &Config, prospect: &Prospect) -> Result<Vec<SocketAddr>, String> {
    let asked = prospect.clone();
    with_rpc(config, &prospect.cluster_name, prospect.host_id, move |rpc, reach| {
        let asked = asked.clone();
        Box::pin(async move { ::cluster::answering(&asked, &rpc, &reach).await })
    })
}

/// Runs something that asks other nodes, as this node does.
fn with_rpc<T: Clone + Send + 'static>(
    config: &Config,
    cluster_name: &str,
    host_id: HostId,
    ask: impl Fn(Rc<Rpc>, Reach) -> Pin<Box<dyn Future<Output = T>>> + Send + Sync + 'static,
) -> Result<T, String> {
    let found = Arc::new(Mutex::new(Err("the other members were not asked".to_owned())));
    let (result, ask) = (found.clone(), Arc::new(ask));
    let rpc_config = rpc_config(config, cluster_name, host_id);
    let reach = cluster::reach(config);
    let options = runtime::Options {
        shards: 1,
        ..runtime::Options::default()
    };
    runtime::run(options, move |_| {
        let (result, ask) = (result.clone(), ask.clone());
        let (rpc_config, reach) = (rpc_config.clone(), reach.clone());
        Box::pin(async move {
            let answer = by_rpc(rpc_config, reach, &*ask).await;
            *result.lock().expect("no thread panics while holding the answer") = answer;
        })
    })
    .map_err(|e| e.to_string())?;
    found.lock().expect("no thread panics while holding the answer").clone()
}

fn rpc_config(config: &Config, cluster_name: &str, host_id: HostId) -> rpc::Config {
    rpc::Config {
        tls: cluster::tls_files(config),
        join_secret: config.join_secret.clone(),
        ..rpc::Config::new(cluster_name, host_id.0)
    }
}

/// Asks other nodes by connections of its own.
async fn by_rpc<T, F: Future<Output = T>>(
    rpc_config: rpc::Config,
    reach: Reach,
    ask: impl FnOnce(Rc<Rpc>, Reach) -> F,
) -> Result<T, String> {
    let rpc = Rpc::client(rpc_config).map_err(|error| format!("the other members cannot be asked: {error}"))?;
    let answer = ask(rpc.clone(), reach).await;
    rpc.stop();
    Ok(answer)
}

/// How many voters there would be, with this node.
fn voters_alive(prospect: &Prospect, answering: &[SocketAddr]) -> usize {
    let lives = |lost: &&Lost| lost.votes && answering.contains(&lost.internode);
    prospect.lost.iter().filter(lives).count() + usize::from(prospect.votes)
}

fn refuse_living(prospect: &Prospect, answering: &[SocketAddr]) -> Result<(), String> {
    let alive = voters_alive(prospect, answering);
    if alive < prospect.majority() {
        return Ok(());
    }
    Err(format!(
        "{alive} of {} voters are there, which is a majority: nothing is lost. Start this node",
        prospect.raft.voters.len()
    ))
}

fn describe(workdir: &Path, follow: Option<Epoch>, prospect: &Prospect, answering: &[SocketAddr]) -> String {
    let mut text = String::new();
    let _ = write_description(&mut text, workdir, follow, prospect, answering);
    text
}

fn write_description(
    out: &mut String,
    workdir: &Path,
    follow: Option<Epoch>,
    prospect: &Prospect,
    answering: &[SocketAddr],
) -> std::fmt::Result {
    let raft = &prospect.raft;
    let vote = |votes: bool| if votes { "voter" } else { "no vote" };
    writeln!(
        out,
        "Cluster '{}', {}, epoch {}",
        prospect.cluster_name, prospect.cluster_id, raft.epoch
    )?;
    writeln!(
        out,
        "This node      {} at {}, {}",
        prospect.host_id,
        prospect.internode,
        vote(prospect.votes)
    )?;
    writeln!(
        out,
        "Its metadata   applied up to change {}; its log ends at {}, of which {} are known to be agreed on",
        prospect.log_index, raft.last, raft.committed
    )?;
    writeln!(
        out,
        "Voters         {}, of which {} are there",
        raft.voters.len(),
        voters_alive(prospect, answering)
    )?;
    for lost in &prospect.lost {
        let lives = if answering.contains(&lost.internode) {
            "answers"
        } else {
            "does not answer"
        };
        writeln!(
            out,
            "Other member   {} at {}, {}, {lives}",
            lost.host_id,
            lost.internode,
            vote(lost.votes)
        )?;
    }
    writeln!(out)?;
    let (option, words) = match follow {
        None => {
            if let Err(reason) = refuse_living(prospect, answering) {
                return writeln!(out, "{reason}. Nothing was changed.");
            }
            writeln!(
                out,
                "If this node continues alone, the cluster permanently loses each change of schema, members and tablets after {}. \
                 Every other member is given up, and stops when it hears of it. A member that runs may follow (--follow EPOCH). \
                 A member that does not run may come back only with an empty data directory.",
                raft.last
            )?;
            (String::new(), prospect.confirmation())
        }
        Some(epoch) => {
            writeln!(
                out,
                "If this node follows, it keeps its data and identity, forgets its own metadata log, and takes the metadata of the node that began \
                 epoch {epoch}. It refuses the messages of every other epoch. Do this only after that node runs."
            )?;
            (format!(" --follow {epoch}"), prospect.follow_confirmation(epoch))
        }
    };
    writeln!(
        out,
        "\nNothing was changed. To do it, say so:\n\n  ceto recover-metadata --workdir {}{option} --confirm \"{words}\"",
        workdir.display()
    )
}
