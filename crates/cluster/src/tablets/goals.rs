//! Keyspaces that were altered and do not have yet what they want: what they said before, so that an operator can take
//! the change back.
//!
//! `ALTER KEYSPACE` of a replication, or of whether tables have tablets, names a goal. The schema says it at once; the
//! leader brings tablets there (`balancer.rs`, `convert.rs`), and the token ring goes there (`ring.rs`). Until then the
//! metadata keep what the keyspace said before ([`Altered`]): a second ALTER on the way changes the goal, and what was
//! before stays. When the goal is reached, the leader has the group forget it ([`Command::Reached`]).
//!
//! Taking back is an ALTER to what was before, with all that holds of an ALTER: no copy is given up before those that
//! stay have what it has.

use crate::error::ChangeError;
use crate::metadata::command::Command;
use crate::metadata::{Metadata, Rejected};
use crate::ring::parsed_replication;
use crate::service::Cluster;
use crate::tablets::convert::{Left, WantedKind};
use schema::{Keyspace, Schema};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::Replication;
use uuid::Uuid;

/// What a keyspace said before it was altered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Altered {
    /// The index of the command that altered it last.
    pub version: u64,
    /// The options of its replication.
    pub replication: BTreeMap<String, String>,
    /// What it said of tablets.
    pub tablets: Option<BTreeMap<String, String>>,
}

impl Metadata {
    /// Whether the tables of a keyspace have the copies, and are of the kind, that it wants and that the nodes allow.
    pub(crate) fn has_what_it_wants(&self, keyspace: &Keyspace) -> bool {
        let is_on_its_way = |ring: &crate::ring::RingState| {
            ring.former.contains_key(&keyspace.name) || ring.towards.contains_key(&keyspace.name)
        };
        !self.ring.as_ref().is_some_and(is_on_its_way)
            && self.conversion_left(keyspace) == Left::default()
            && self.tablets_with_other_copies(keyspace, |_| true) == 0
    }

    /// Notes what keyspaces said before the command at an index altered them. `former` is the value before.
    pub(crate) fn note_altered(&mut self, index: u64, former: &Self) {
        let schema = self.schema.clone();
        self.altered.retain(|name, _| schema.keyspaces.contains_key(name));
        for keyspace in schema.keyspaces.values() {
            let Some(before) = former.schema.keyspaces.get(&keyspace.name) else {
                continue;
            };
            let is_other =
                before.replication != keyspace.replication || WantedKind::of(before) != WantedKind::of(keyspace);
            if !is_other {
                continue;
            }
            let noted = former.altered.get(&keyspace.name);
            let noted = noted.filter(|_| !former.has_what_it_wants(before)).cloned();
            let altered = noted.unwrap_or_else(|| Altered {
                version: index,
                replication: before.replication.clone(),
                tablets: before.tablets.clone(),
            });
            let is_back = altered.replication == keyspace.replication && altered.tablets == keyspace.tablets;
            if is_back || self.has_what_it_wants(keyspace) {
                self.altered.remove(&keyspace.name);
            } else {
                let altered = Altered {
                    version: index,
                    ..altered
                };
                self.altered.insert(keyspace.name.clone(), altered);
            }
        }
    }

    /// The value when a keyspace has what it wants since it was altered by the command `version`.
    pub(crate) fn reach(&mut self, name: &str, version: u64) -> Result<(), Rejected> {
        match self.altered.get(name) {
            Some(altered) if altered.version == version => {
                self.altered.remove(name);
                Ok(())
            }
            _ => Err(Rejected::Conflict {
                what: format!("The replication of keyspace {name}"),
            }),
        }
    }

    /// The commands by which the group forgets the former options of keyspaces that have reached their present ones.
    pub(crate) fn reached(&self) -> Vec<Command> {
        let has_it = |(name, altered): (&String, &Altered)| {
            let keyspace = self.schema.keyspaces.get(name)?;
            self.has_what_it_wants(keyspace).then(|| Command::Reached {
                keyspace: name.clone(),
                version: altered.version,
            })
        };
        self.altered.iter().filter_map(has_it).collect()
    }

    /// The schema in which a keyspace says again what it said before it was altered.
    ///
    /// # Errors
    /// A sentence, when it cannot go back.
    fn taken_back(&self, name: &str, version: Uuid) -> Result<Schema, String> {
        let keyspace = self.schema.keyspaces.get(name);
        let keyspace = keyspace.ok_or_else(|| format!("there is no keyspace {name}"))?;
        let altered = self.altered.get(name).ok_or_else(|| {
            format!(
                "keyspace {name} has what it wants, or goes back already, so there is nothing to take back: ALTER KEYSPACE names another goal"
            )
        })?;
        if let Some(Replication::NetworkTopology(factors)) = parsed_replication(&self.topology, &altered.replication) {
            let known = self.topology.datacenters_of_data();
            let mut named = factors.iter().filter(|(_, copies)| copies.number() > 0);
            if let Some((datacenter, _)) = named.find(|(datacenter, _)| !known.contains(datacenter.as_str())) {
                return Err(format!(
                    "keyspace {name} had copies in datacenter {datacenter}, in which no node can hold data any more: ALTER KEYSPACE names another goal"
                ));
            }
        }
        let next = Keyspace {
            replication: altered.replication.clone(),
            tablets: altered.tablets.clone(),
            ..Keyspace::clone(keyspace)
        };
        // Without the option, nothing would define where tables go whose conversion is in progress.
        if WantedKind::of(&next) == WantedKind::Any && self.conversion_left(keyspace) != Left::default() {
            return Err(format!(
                "keyspace {name} did not say before whether its tables have tablets, so those that are on their way have nowhere to go back to: \
                 ALTER KEYSPACE … WITH tablets = {{'enabled': …}} names it"
            ));
        }
        let mut schema = Schema::clone(&self.schema);
        schema.keyspaces.insert(name.to_owned(), Arc::new(next));
        schema.version = version;
        Ok(schema)
    }
}

impl Cluster {
    /// Takes an ALTER KEYSPACE back that is not reached yet: the keyspace goes back to what it said before.
    ///
    /// # Errors
    /// When it cannot, with the reason.
    pub(crate) async fn take_back(&self, keyspace: &str) -> Result<(), ChangeError> {
        let version = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
        let version = uuid::Builder::from_random_bytes(*version.as_bytes()).into_uuid();
        loop {
            let metadata = self.barrier().await?;
            let next = metadata.taken_back(keyspace, version).map_err(ChangeError::Refused)?;
            match self.propose_schema(metadata.schema.version, Arc::new(next)).await {
                Err(ChangeError::Conflict) if !self.is_stopping.get() => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    log::info!("keyspace {keyspace} goes back to the replication that it had before it was altered");
                    return Ok(());
                }
            }
        }
    }
}
