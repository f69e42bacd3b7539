//! What changes a topology.
//!
//! A command is applied whole or not at all. Each that is applied raises the version by one; a refused one changes
//! nothing, so every node that applies the same log ends with the same topology.
//!
//! The states of a node, and the commands that lead from one to another:
//!
//! ```text
//!  AddNode           SetState           SetState            SetState
//!  --------> Joining --------> Normal <----------> Leaving ---------> Left
//!               |   SetState     |   RemoveNode       |  RemoveNode     ^
//!               +----------------+--------------------+-----------------+
//! ```
//!
//! `GiveUp` makes a `Normal` or `Leaving` node one that is lost: it stays `Leaving` until it is `Left`.
//! `BecomeZeroToken` leads from `Joining` to `Normal`, and `Stay` from `Leaving` to `Normal`. `Exclude` changes no
//! state.

use std::collections::BTreeSet;
use std::fmt;
use std::net::SocketAddr;

use types::Token;

use crate::codec::TEXT_BYTES_MAX;
use crate::node::{HostId, Loss, NODES_MAX, Node, NodeState, TOKENS_PER_NODE_MAX, Topology};

/// One change of the topology.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TopologyCommand {
    /// A node joins, as `Joining`; the first of a cluster may join as `Normal`.
    AddNode(Box<Node>),
    /// A node changes its state.
    SetState {
        /// The node.
        host_id: HostId,
        /// Its next state.
        state: NodeState,
    },
    /// A joining node gets its places on the ring.
    SetTokens {
        /// The node.
        host_id: HostId,
        /// All its tokens.
        tokens: Vec<Token>,
    },
    /// A node was restarted elsewhere. It may have the address of a member that is down: two may swap theirs.
    ChangeAddress {
        /// The node.
        host_id: HostId,
        /// Where nodes reach it now.
        internode: SocketAddr,
        /// Where clients reach it now.
        native: SocketAddr,
        /// Where clients choose a shard now.
        native_shard_aware_port: Option<u16>,
    },
    /// A node was restarted with another number of shards.
    SetShards {
        /// The node.
        host_id: HostId,
        /// At least one, and as many as its tablets are on.
        shards: u16,
    },
    /// A node was restarted with another release.
    SetFeatures {
        /// The node.
        host_id: HostId,
        /// What it can do; all that is enabled must be there.
        features: BTreeSet<String>,
        /// Its release.
        release: String,
    },
    /// From now on every node must be able to do this; every member can already.
    EnableFeatures(BTreeSet<String>),
    /// A node is gone and will not come back.
    RemoveNode {
        /// The node.
        host_id: HostId,
    },
    /// An operator gives a node up. It stays `Leaving`: others get copies of what it had, then it is
    /// removed.
    GiveUp {
        /// The node.
        host_id: HostId,
        /// The member that takes its place, if one does.
        replaced_by: Option<HostId>,
    },
    /// A joining node without tokens becomes a full member that never has any, nor tablets.
    BecomeZeroToken {
        /// The node.
        host_id: HostId,
    },
    /// An operator declares a member permanently down. It keeps what it owns, no node waits for it, and it may not come
    /// back.
    Exclude {
        /// The node.
        host_id: HostId,
    },
    /// A node that leaves, and is not lost, stays.
    Stay {
        /// The node.
        host_id: HostId,
        /// Its places on the ring, where it has given them away already.
        tokens: Vec<Token>,
    },
}

/// Why a command was not applied.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CommandError {
    /// There is no such node.
    UnknownNode(HostId),
    /// The host id was added before, and may have left.
    KnownNode(HostId),
    /// The cluster has had as many nodes as it can.
    TooManyNodes,
    /// There is no way from one state to the other.
    State {
        /// The node.
        host_id: HostId,
        /// Its state.
        from: NodeState,
        /// The state that was asked for.
        to: NodeState,
    },
    /// A new node has the address of a member.
    AddressInUse {
        /// The address.
        address: SocketAddr,
        /// The node that has it.
        by: HostId,
    },
    /// Another node has the token.
    TokenInUse {
        /// The token.
        token: Token,
        /// The node that has it.
        by: HostId,
    },
    /// Tokens that are not strictly ascending, are too many, or are given to a node that is no longer joining.
    Tokens {
        /// The node.
        host_id: HostId,
        /// What is wrong.
        what: &'static str,
    },
    /// A node that joins cannot be excluded.
    Joining(HostId),
    /// No shards.
    Shards {
        /// The node.
        host_id: HostId,
        /// How many it has.
        from: u16,
        /// How many were asked for.
        to: u16,
    },
    /// A member lacks a feature that is enabled or shall be.
    LacksFeature {
        /// The node.
        host_id: HostId,
        /// The feature.
        feature: String,
    },
    /// A name that is empty or too long.
    Name {
        /// The node.
        host_id: HostId,
        /// Which name.
        what: &'static str,
    },
}

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNode(id) => write!(f, "host id {id} is not a node of this cluster"),
            Self::KnownNode(id) => write!(f, "host id {id} was added before, and is given once only"),
            Self::TooManyNodes => write!(
                f,
                "the cluster has had {NODES_MAX} nodes, which is all it can ever have"
            ),
            Self::State { host_id, from, to } => write!(f, "node {host_id} is {from}, from where no way leads to {to}"),
            Self::AddressInUse { address, by } => write!(f, "address {address} is that of node {by}"),
            Self::TokenInUse { token, by } => write!(f, "token {token} is owned by node {by}"),
            Self::Joining(id) => write!(
                f,
                "node {id} is joining and owns nothing: remove it instead of excluding it"
            ),
            Self::Tokens { host_id, what } => write!(f, "the tokens of node {host_id} {what}"),
            Self::Shards { host_id, from, to } => write!(
                f,
                "node {host_id} cannot go from {from} shards to {to}: it has at least one"
            ),
            Self::LacksFeature { host_id, feature } => {
                write!(f, "node {host_id} lacks feature {feature}, which every node must have")
            }
            Self::Name { host_id, what } => {
                write!(f, "the {what} of node {host_id} is empty or longer than 1024 bytes")
            }
        }
    }
}

impl std::error::Error for CommandError {}

impl Topology {
    /// Applies one command.
    ///
    /// # Errors
    /// When the command would break what holds of a topology; nothing has changed then.
    pub fn apply(&mut self, command: &TopologyCommand) -> Result<(), CommandError> {
        match command {
            TopologyCommand::AddNode(node) => self.add(node)?,
            TopologyCommand::SetState { host_id, state } => self.set_state(*host_id, *state)?,
            TopologyCommand::SetTokens { host_id, tokens } => {
                if self.member(*host_id)?.state != NodeState::Joining {
                    return Err(CommandError::Tokens {
                        host_id: *host_id,
                        what: "can be set only while it joins",
                    });
                }
                self.check_tokens(*host_id, tokens)?;
                self.member_mut(*host_id)?.tokens.clone_from(tokens);
            }
            TopologyCommand::ChangeAddress {
                host_id,
                internode,
                native,
                native_shard_aware_port,
            } => {
                let node = self.member_mut(*host_id)?;
                node.internode = *internode;
                node.native = *native;
                node.native_shard_aware_port = *native_shard_aware_port;
            }
            TopologyCommand::SetShards { host_id, shards } => {
                let node = self.member_mut(*host_id)?;
                if *shards == 0 {
                    return Err(CommandError::Shards {
                        host_id: *host_id,
                        from: node.shards,
                        to: *shards,
                    });
                }
                node.shards = *shards;
            }
            TopologyCommand::SetFeatures {
                host_id,
                features,
                release,
            } => {
                self.check_features(*host_id, features)?;
                check_name(*host_id, "release", release)?;
                let node = self.member_mut(*host_id)?;
                node.features.clone_from(features);
                node.release.clone_from(release);
            }
            TopologyCommand::EnableFeatures(features) => {
                for node in self.members() {
                    if let Some(feature) = features.iter().find(|f| !node.features.contains(*f)) {
                        return Err(CommandError::LacksFeature {
                            host_id: node.host_id,
                            feature: feature.clone(),
                        });
                    }
                }
                self.enabled_features.extend(features.iter().cloned());
            }
            TopologyCommand::RemoveNode { host_id } => self.leave(*host_id)?,
            TopologyCommand::GiveUp { host_id, replaced_by } => self.give_up(*host_id, *replaced_by)?,
            TopologyCommand::BecomeZeroToken { host_id } => self.become_zero_token(*host_id)?,
            TopologyCommand::Exclude { host_id } => self.exclude(*host_id)?,
            TopologyCommand::Stay { host_id, tokens } => self.stay(*host_id, tokens)?,
        }
        self.version += 1;
        Ok(())
    }

    fn add(&mut self, node: &Node) -> Result<(), CommandError> {
        let host_id = node.host_id;
        if self.nodes.contains_key(&host_id) {
            return Err(CommandError::KnownNode(host_id));
        }
        if self.numbers.len() == NODES_MAX {
            return Err(CommandError::TooManyNodes);
        }
        let may_be = match node.state {
            NodeState::Joining => true,
            NodeState::Normal => self.members().next().is_none(),
            NodeState::Leaving | NodeState::Left => false,
        };
        if !may_be {
            return Err(CommandError::State {
                host_id,
                from: NodeState::Joining,
                to: node.state,
            });
        }
        self.check_address(host_id, node.internode)?;
        self.check_node(node)?;
        self.check_features(host_id, &node.features)?;
        self.numbers.push(host_id);
        self.nodes.insert(host_id, node.clone());
        Ok(())
    }

    fn give_up(&mut self, host_id: HostId, replaced_by: Option<HostId>) -> Result<(), CommandError> {
        self.note_loss(host_id, replaced_by)?;
        self.member_mut(host_id)?.state = NodeState::Leaving;
        Ok(())
    }

    /// Gives a node up that stays an owner of the token ring until the change of the ring ends that is under way: then
    /// it is `Leaving`.
    ///
    /// # Errors
    /// As for [`TopologyCommand::GiveUp`].
    pub fn give_up_later(&mut self, host_id: HostId, replaced_by: Option<HostId>) -> Result<(), CommandError> {
        self.note_loss(host_id, replaced_by)?;
        self.version += 1;
        Ok(())
    }

    fn note_loss(&mut self, host_id: HostId, replaced_by: Option<HostId>) -> Result<(), CommandError> {
        // The heir may come afterwards: the one that is lost may be in its way, by its address.
        if let Some(heir) = replaced_by.and_then(|heir| self.nodes.get(&heir)) {
            let is_going = matches!(heir.state, NodeState::Leaving | NodeState::Left);
            if heir.host_id == host_id || heir.loss.is_some() || is_going {
                return Err(CommandError::State {
                    host_id: heir.host_id,
                    from: heir.state,
                    to: NodeState::Normal,
                });
            }
        }
        let node = self.member_mut(host_id)?;
        if node.state == NodeState::Joining {
            return Err(CommandError::State {
                host_id,
                from: node.state,
                to: NodeState::Leaving,
            });
        }
        node.loss = Some(Loss { replaced_by });
        Ok(())
    }

    fn become_zero_token(&mut self, host_id: HostId) -> Result<(), CommandError> {
        let node = self.member_mut(host_id)?;
        if node.state != NodeState::Joining {
            return Err(CommandError::State {
                host_id,
                from: node.state,
                to: NodeState::Normal,
            });
        }
        if !node.tokens.is_empty() {
            let what = "are there, and a zero-token node has none";
            return Err(CommandError::Tokens { host_id, what });
        }
        node.state = NodeState::Normal;
        self.zero_token.insert(host_id);
        Ok(())
    }

    /// Refuses a joining node: it has nothing that another node could wait for, so it is removed instead.
    fn exclude(&mut self, host_id: HostId) -> Result<(), CommandError> {
        let node = self.member(host_id)?;
        if node.state == NodeState::Joining {
            return Err(CommandError::Joining(host_id));
        }
        self.excluded.insert(host_id);
        Ok(())
    }

    fn stay(&mut self, host_id: HostId, tokens: &[Token]) -> Result<(), CommandError> {
        let node = self.member(host_id)?;
        if node.state != NodeState::Leaving || self.is_lost(node) {
            return Err(CommandError::State {
                host_id,
                from: node.state,
                to: NodeState::Normal,
            });
        }
        if self.is_zero_token(host_id) && !tokens.is_empty() {
            let what = "are there, and a zero-token node has none";
            return Err(CommandError::Tokens { host_id, what });
        }
        self.check_tokens(host_id, tokens)?;
        let node = self.member_mut(host_id)?;
        if node.tokens.is_empty() {
            node.tokens = tokens.to_vec();
        }
        node.state = NodeState::Normal;
        Ok(())
    }

    fn leave(&mut self, host_id: HostId) -> Result<(), CommandError> {
        let node = self.member_mut(host_id)?;
        node.state = NodeState::Left;
        node.tokens = Vec::new();
        self.zero_token.remove(&host_id);
        self.excluded.remove(&host_id);
        Ok(())
    }

    fn set_state(&mut self, host_id: HostId, state: NodeState) -> Result<(), CommandError> {
        use NodeState::{Joining, Leaving, Left, Normal};
        let node = self.member_mut(host_id)?;
        match (node.state, state) {
            (Leaving, Normal) if node.loss.is_some() => {
                return Err(CommandError::State {
                    host_id,
                    from: node.state,
                    to: state,
                });
            }
            (Joining | Leaving, Normal) | (Normal, Leaving) => node.state = state,
            (Joining | Leaving, Left) => return self.leave(host_id),
            (from, to) => return Err(CommandError::State { host_id, from, to }),
        }
        Ok(())
    }

    /// Whether ownership of the token ring is about to change: nodes that have tokens are joining or leaving.
    #[must_use]
    pub fn has_ring_change(&self) -> bool {
        let is_changing = |node: &Node| matches!(node.state, NodeState::Joining | NodeState::Leaving);
        self.members().any(|node| is_changing(node) && !node.tokens.is_empty())
    }

    /// Makes the next owners of the token ring its owners: nodes that join and have tokens are full members, and nodes
    /// that leave have no tokens any more. Those that were given up during the change leave from now on.
    pub fn end_ring_change(&mut self) {
        for node in self.nodes.values_mut() {
            match node.state {
                NodeState::Joining if !node.tokens.is_empty() => node.state = NodeState::Normal,
                NodeState::Leaving => node.tokens.clear(),
                NodeState::Normal if node.loss.is_some() => node.state = NodeState::Leaving,
                NodeState::Joining | NodeState::Normal | NodeState::Left => {}
            }
        }
        self.version += 1;
    }

    fn member(&self, host_id: HostId) -> Result<&Node, CommandError> {
        match self.nodes.get(&host_id) {
            Some(node) if node.state != NodeState::Left => Ok(node),
            _ => Err(CommandError::UnknownNode(host_id)),
        }
    }

    fn member_mut(&mut self, host_id: HostId) -> Result<&mut Node, CommandError> {
        match self.nodes.get_mut(&host_id) {
            Some(node) if node.state != NodeState::Left => Ok(node),
            _ => Err(CommandError::UnknownNode(host_id)),
        }
    }

    /// What holds of each member against the others.
    pub(crate) fn check_node(&self, node: &Node) -> Result<(), CommandError> {
        let host_id = node.host_id;
        if node.shards == 0 {
            return Err(CommandError::Shards {
                host_id,
                from: 0,
                to: 0,
            });
        }
        check_name(host_id, "datacenter", &node.location.datacenter)?;
        check_name(host_id, "rack", &node.location.rack)?;
        check_name(host_id, "release", &node.release)?;
        self.check_tokens(host_id, &node.tokens)
    }

    fn check_address(&self, host_id: HostId, address: SocketAddr) -> Result<(), CommandError> {
        // One that is lost does not come back.
        let mut others = self.members().filter(|n| n.host_id != host_id && !self.is_lost(n));
        match others.find(|n| n.internode == address) {
            Some(other) => Err(CommandError::AddressInUse {
                address,
                by: other.host_id,
            }),
            None => Ok(()),
        }
    }

    fn check_tokens(&self, host_id: HostId, tokens: &[Token]) -> Result<(), CommandError> {
        let wrong = |what| Err(CommandError::Tokens { host_id, what });
        if tokens.len() > TOKENS_PER_NODE_MAX {
            return wrong("are more than 1536");
        }
        if !tokens.is_sorted_by(|a, b| a < b) {
            return wrong("are not in ascending order, each once");
        }
        if tokens.first() == Some(&Token::MIN) {
            return wrong("contain the place before the ring, which no node can own");
        }
        // The node that takes the place of a lost one may take its tokens.
        for other in self
            .members()
            .filter(|n| n.host_id != host_id && !n.is_replaced_by(host_id))
        {
            if let Some(token) = tokens.iter().find(|t| other.tokens.binary_search(t).is_ok()) {
                return Err(CommandError::TokenInUse {
                    token: *token,
                    by: other.host_id,
                });
            }
        }
        Ok(())
    }

    pub(crate) fn check_features(&self, host_id: HostId, features: &BTreeSet<String>) -> Result<(), CommandError> {
        match self.enabled_features.iter().find(|f| !features.contains(*f)) {
            Some(feature) => Err(CommandError::LacksFeature {
                host_id,
                feature: feature.clone(),
            }),
            None => Ok(()),
        }
    }
}

fn check_name(host_id: HostId, what: &'static str, name: &str) -> Result<(), CommandError> {
    if name.is_empty() || name.len() > TEXT_BYTES_MAX {
        return Err(CommandError::Name { host_id, what });
    }
    Ok(())
}
