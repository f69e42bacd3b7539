//! Creates and deletes backups.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use dynamodb::backup::{Backup, BackupStatus};
use dynamodb::{Error, ErrorKind};
use topology::{DatacenterNumber, NodeNumber};

use super::{AT_ONCE_MAX, CREATING_MS_MAX, TakenSnapshot, limit_exceeded, now_ms, tag_of, unavailable};
use crate::service::Service;
use crate::table::ItemTable;

/// How long CreateBackup waits for the snapshots; a backup that takes longer is answered as *creating*.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// How often the snapshots are taken again because tablets have moved in between.
const ATTEMPTS: u32 = 5;
/// The pause before the next attempt.
const ATTEMPT_PAUSE: Duration = Duration::from_millis(200);

/// The nodes with replicas of a table, in one version of the cluster.
struct Holders {
    version: u64,
    /// By number: the id, and whether the node is up.
    nodes: BTreeMap<NodeNumber, (String, bool)>,
    /// The nodes of each group of replicas in one datacenter of one tablet, each group once.
    groups: BTreeSet<Vec<NodeNumber>>,
}

#[cold]
fn too_few(why: &str) -> Error {
    unavailable(format!(
        "The backup needs a majority of the replicas of every item, and {why}. Nothing was created"
    ))
}

impl Service {
    /// Creates a backup of a table; it is available, or its snapshots take longer than a request may. On shard 0.
    ///
    /// # Errors
    /// LimitExceededException; ServiceUnavailable, with a node that is missing, and nothing is left of the backup then.
    pub(crate) async fn create_backup(self: &Rc<Self>, table: Arc<ItemTable>, name: String) -> Result<Backup, Error> {
        let created_ms = now_ms();
        let random = u32::try_from(runtime::random_u64() >> 32).unwrap_or_default();
        let mut backup = Backup {
            id: Backup::new_id(created_ms, random),
            name,
            status: BackupStatus::Creating,
            created_ms,
            written_us: 0,
            table: table.definition.clone(),
            data_id: table.table.id.0.to_string(),
            bytes: 0,
            hosts: Vec::new(),
            needs: Vec::new(),
        };
        if self.creating.get() >= AT_ONCE_MAX {
            return Err(limit_exceeded("backups are created"));
        }
        self.check_majorities(&table)?;
        if let Err(error) = self.put_backup(&mut backup).await {
            // Some replicas may have the record.
            self.abandon(&backup).await;
            return Err(error);
        }
        let creating = backup.clone();
        let service = self.clone();
        self.creating.set(self.creating.get() + 1);
        // A task of its own: it ends also if the request does not wait for it.
        let taking = runtime::spawn_in(runtime::Group::BACKGROUND, async move {
            let taken = service.fill_backup(&table, backup.clone()).await;
            if let Err(error) = &taken {
                log::warn!("backup {} of table {} failed: {}", backup.id, table.name, error.message);
                service.abandon(&backup).await;
            }
            service.creating.set(service.creating.get() - 1);
            taken
        });
        match runtime::timeout(ANSWER_WAIT, taking).await {
            Ok(taken) => taken,
            Err(_) => Ok(creating),
        }
    }

    /// Refuses a backup that cannot succeed, before anything is made.
    fn check_majorities(&self, table: &ItemTable) -> Result<(), Error> {
        let holders = self.holders(table)?;
        let is_up = |node: &&NodeNumber| holders.nodes.get(node).is_some_and(|(_, is_up)| *is_up);
        let is_short = |group: &&Vec<NodeNumber>| group.iter().filter(is_up).count() <= group.len() / 2;
        let Some(short) = holders.groups.iter().find(is_short) else {
            return Ok(());
        };
        let down = short
            .iter()
            .filter_map(|node| holders.nodes.get(node))
            .find(|(_, is_up)| !is_up);
        Err(too_few(&format!(
            "node {} is down",
            down.map_or("", |(host, _)| host.as_str())
        )))
    }

    async fn fill_backup(self: &Rc<Self>, table: &Arc<ItemTable>, mut backup: Backup) -> Result<Backup, Error> {
        // What was answered as committed before this request is carried out in the snapshots, whose locks are dropped.
        self.settle_commits_of(table).await?;
        let mut holders = self.holders(table)?;
        let mut taken = BTreeMap::new();
        let mut failure = String::new();
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                runtime::sleep(ATTEMPT_PAUSE).await;
                holders = self.holders(table)?;
            }
            (taken, failure) = self.take_everywhere(table, &holders, &backup.id).await;
            let of_one = |snapshot: &TakenSnapshot| snapshot.version == holders.version;
            if taken.values().all(of_one) && self.holders(table)?.version == holders.version {
                break;
            }
            // The tablets that a node had may be others than this node believes.
            taken.retain(|_, snapshot| of_one(snapshot));
            "the cluster's metadata changes; try again".clone_into(&mut failure);
        }
        // Nodes without files are of no use to a restore.
        let hosts: Vec<NodeNumber> = taken.keys().copied().collect();
        let place = |node: &NodeNumber| hosts.binary_search(node).ok().and_then(|at| u32::try_from(at).ok());
        let group = |nodes: &Vec<NodeNumber>| {
            let least = u32::try_from(nodes.len() / 2 + 1).unwrap_or(u32::MAX);
            (nodes.iter().filter_map(place).collect(), least)
        };
        let copies = holders.groups.iter().map(Vec::len).max().unwrap_or(1).max(1) as u64;
        backup.needs = holders.groups.iter().map(group).collect();
        let host_of = |node: &NodeNumber| holders.nodes.get(node).map(|(host, _)| host.clone());
        backup.hosts = hosts.iter().filter_map(host_of).collect();
        backup.bytes = taken.values().map(|snapshot| snapshot.bytes).sum::<u64>() / copies;
        if !backup.is_complete(|_| true) {
            return Err(too_few(&failure));
        }
        if backup.created_ms + CREATING_MS_MAX / 2 < now_ms() {
            // Nodes soon remove the snapshots of a backup that is not available.
            return Err(unavailable(
                "The snapshots of the backup took too long. Nothing was created",
            ));
        }
        backup.status = BackupStatus::Available;
        self.put_backup(&mut backup).await?;
        Ok(backup)
    }

    /// Takes the snapshots of all nodes that are up, at once. What was taken, and why something was not.
    async fn take_everywhere(
        self: &Rc<Self>,
        table: &Arc<ItemTable>,
        holders: &Holders,
        id: &str,
    ) -> (BTreeMap<NodeNumber, TakenSnapshot>, String) {
        let (mut taken, mut failure) = (BTreeMap::new(), "the nodes have none".to_owned());
        let begun: Vec<_> = holders
            .nodes
            .iter()
            .filter(|(_, (_, is_up))| *is_up)
            .map(|(node, _)| {
                let (service, node, table, name) = (self.clone(), *node, table.table.id, tag_of(id));
                let taking = async move { service.take_on(node, table, &name).await };
                (node, runtime::spawn_in(runtime::Group::BACKGROUND, taking))
            })
            .collect();
        for (host, _) in holders.nodes.values().filter(|(_, is_up)| !is_up) {
            failure = format!("node {host} is down");
        }
        for (node, taking) in begun {
            match taking.await {
                Ok(snapshot) => {
                    taken.insert(node, snapshot);
                }
                Err(why) => {
                    let host = holders.nodes.get(&node).map_or("", |(host, _)| host.as_str());
                    failure = format!("node {host} took no snapshot: {why}");
                }
            }
        }
        (taken, failure)
    }

    /// Removes what is left of a backup that failed. What cannot be removed now, the sweep removes.
    async fn abandon(self: &Rc<Self>, backup: &Backup) {
        if let Err(error) = self.forget_backup(backup).await {
            log::debug!("the record of backup {} stays for a while: {error}", backup.id);
        }
        let members = self.engine.coordinator.context.with_view(|view| {
            let nodes = view
                .topology
                .numbered_nodes()
                .filter(|(_, node)| node.state.serves_reads());
            nodes.map(|(number, _)| number).collect::<Vec<_>>()
        });
        self.remove_files(backup, members).await;
    }

    async fn remove_files(&self, backup: &Backup, nodes: Vec<NodeNumber>) {
        for node in nodes {
            if !self.engine.coordinator.context.is_live(node) {
                continue;
            }
            if let Err(why) = self.remove_on(node, &tag_of(&backup.id)).await {
                log::debug!("files of backup {} stay on a node for a while: {why}", backup.id);
            }
        }
    }

    /// Deletes a backup. Nodes that are down remove their files when they are back. On shard 0.
    ///
    /// # Errors
    /// BackupInUseException when it is being created, or a table is being made of it.
    pub(crate) async fn delete_backup(self: &Rc<Self>, mut backup: Backup, arn: &str) -> Result<Backup, Error> {
        let in_use = |why: &str| Error::new(ErrorKind::BackupInUse, format!("Backup is {why}: {arn}"));
        if backup.status == BackupStatus::Creating {
            return Err(in_use("being created"));
        }
        if !self.restoring_tables_of(&backup.id).is_empty() {
            return Err(in_use("being used to restore a table"));
        }
        self.forget_backup(&backup).await?;
        backup.status = BackupStatus::Deleted;
        let (service, deleted) = (self.clone(), backup.clone());
        drop(runtime::spawn_in(runtime::Group::BACKGROUND, async move {
            let nodes = deleted.hosts.iter().filter_map(|host| service.member(host)).collect();
            service.remove_files(&deleted, nodes).await;
        }));
        Ok(backup)
    }

    fn holders(&self, table: &ItemTable) -> Result<Holders, Error> {
        let context = &self.engine.coordinator.context;
        let view = context.view();
        let route = view.route(table.table.id);
        let route = route.ok_or_else(|| unavailable("The table is not in the cluster's map yet"))?;
        let mut holders = Holders {
            version: view.version,
            nodes: BTreeMap::new(),
            groups: BTreeSet::new(),
        };
        for tablet in route.map.tablets() {
            let mut groups: BTreeMap<DatacenterNumber, Vec<NodeNumber>> = BTreeMap::new();
            for replica in tablet.read_replicas() {
                let group = groups.entry(view.locality.datacenter(replica.node)).or_default();
                group.push(replica.node);
                let node = view.topology.numbered(replica.node);
                if let Some(node) = node {
                    let is_up = context.is_live(replica.node);
                    let known = (node.host_id.0.to_string(), is_up);
                    holders.nodes.insert(replica.node, known);
                }
            }
            for mut group in groups.into_values() {
                group.sort_unstable();
                holders.groups.insert(group);
            }
        }
        Ok(holders)
    }
}
