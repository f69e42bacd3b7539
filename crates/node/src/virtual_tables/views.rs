//! Tables of Cassandra 5.0's `system_views` about members, streams and repairs, in its columns. What ceto does not know
//! is null.
//!
//! Streams and repairs are tasks ([`tasks`]): a table lists those that run, and those that ended and are still
//! remembered (`task_ttl`).

use std::sync::Arc;

use query::Engine;
use system_tables::{Builder, Definition, Opening, Options, Request, VirtualTable, ready};
use tasks::{Module, State, Status};
use topology::NodeState;

use super::info::{About, NodeInfo, PeerInfo};
use super::measured::{Cell, Gathered, Row, add};

const SYSTEM_PROPERTIES: &str = "system_properties (name text PRIMARY KEY, value text)";
const STREAMING: &str = "streaming (id timeuuid PRIMARY KEY, bytes_received bigint, bytes_sent bigint, bytes_to_receive bigint, bytes_to_send bigint, \
     duration_millis bigint, failure_cause text, files_received bigint, files_sent bigint, files_to_receive bigint, files_to_send bigint, \
     follower boolean, last_updated_at timestamp, operation text, peers frozen<list<text>>, progress_percentage float, status text, \
     status_failure_timestamp timestamp, status_init_timestamp timestamp, status_start_timestamp timestamp, \
     status_success_timestamp timestamp, success_message text)";
const REPAIRS: &str = "repairs (id timeuuid PRIMARY KEY, command_id int, completed boolean, duration_millis bigint, failure_cause text, \
     keyspace_name text, last_updated_at timestamp, options_column_families frozen<set<text>>, options_data_centers frozen<set<text>>, \
     options_force_repair boolean, options_hosts frozen<set<text>>, options_ignore_unreplicated_keyspaces boolean, \
     options_incremental boolean, options_job_threads int, options_optimise_streams boolean, options_parallelism text, \
     options_preview_kind text, options_primary_range boolean, options_pull_repair boolean, options_ranges frozen<set<text>>, \
     options_subrange_repair boolean, options_trace boolean, participants frozen<list<text>>, \
     ranges frozen<list<frozen<list<text>>>>, sessions frozen<set<timeuuid>>, state_failure_timestamp timestamp, \
     state_init_timestamp timestamp, state_prepare_complete_timestamp timestamp, state_prepare_start_timestamp timestamp, \
     state_repair_complete_timestamp timestamp, state_repair_start_timestamp timestamp, state_setup_timestamp timestamp, \
     state_skipped_timestamp timestamp, state_start_timestamp timestamp, state_success_timestamp timestamp, status text, \
     success_message text, table_names frozen<list<text>>, type text, unfiltered_ranges frozen<list<frozen<list<text>>>>)";
const REPAIR_SESSIONS: &str = "repair_sessions (id timeuuid PRIMARY KEY, completed boolean, duration_millis bigint, failure_cause text, \
     jobs frozen<set<uuid>>, keyspace_name text, last_updated_at timestamp, participants frozen<list<text>>, ranges frozen<list<text>>, \
     repair_id timeuuid, state_failure_timestamp timestamp, state_init_timestamp timestamp, state_jobs_start_timestamp timestamp, \
     state_skipped_timestamp timestamp, state_start_timestamp timestamp, state_success_timestamp timestamp, status text, \
     success_message text, table_names frozen<list<text>>)";
const REPAIR_JOBS: &str = "repair_jobs (id uuid PRIMARY KEY, completed boolean, duration_millis bigint, failure_cause text, keyspace_name text, \
     last_updated_at timestamp, participants frozen<list<text>>, ranges frozen<list<text>>, repair_id timeuuid, session_id timeuuid, \
     state_failure_timestamp timestamp, state_init_timestamp timestamp, state_skipped_timestamp timestamp, \
     state_snapshot_complete_timestamp timestamp, state_snapshot_start_timestamp timestamp, state_start_timestamp timestamp, \
     state_stream_start_timestamp timestamp, state_success_timestamp timestamp, state_validation_complete_timestamp timestamp, \
     state_validation_start_timestamp timestamp, status text, success_message text, table_name text)";
const REPAIR_PARTICIPATES: &str = "repair_participates (id timeuuid PRIMARY KEY, completed boolean, duration_millis bigint, failure_cause text, \
     global boolean, incremental boolean, initiator text, last_updated_at timestamp, preview_kind text, ranges frozen<list<text>>, \
     repaired_at timestamp, state_failure_timestamp timestamp, state_init_timestamp timestamp, state_skipped_timestamp timestamp, \
     state_success_timestamp timestamp, success_message text, tables frozen<set<text>>, validations frozen<set<uuid>>)";
const REPAIR_VALIDATIONS: &str = "repair_validations (id uuid PRIMARY KEY, bytes_read bigint, completed boolean, duration_millis bigint, \
     estimated_partitions bigint, estimated_total_bytes bigint, failure_cause text, initiator text, keyspace_name text, \
     last_updated_at timestamp, partitions_processed bigint, progress_percentage float, ranges frozen<list<text>>, repair_id timeuuid, \
     session_id timeuuid, state_accept_timestamp timestamp, state_failure_timestamp timestamp, state_init_timestamp timestamp, \
     state_sending_trees_timestamp timestamp, state_skipped_timestamp timestamp, state_start_timestamp timestamp, \
     state_success_timestamp timestamp, status text, success_message text, table_name text)";

static GOSSIP_INFO: Definition = Definition {
    keyspace: "system_views",
    cql: "gossip_info (address inet, port int, dc text, dc_version int, disk_usage text, disk_usage_version int, generation int, heartbeat int, \
     host_id text, host_id_version int, hostname text, index_status text, index_status_version int, internal_address_and_port text, \
     internal_address_and_port_version int, internal_ip text, internal_ip_version int, load text, load_version int, \
     native_address_and_port text, native_address_and_port_version int, net_version text, net_version_version int, rack text, \
     rack_version int, release_version text, release_version_version int, removal_coordinator text, removal_coordinator_version int, \
     rpc_address text, rpc_address_version int, rpc_ready text, rpc_ready_version int, schema text, schema_version int, severity text, \
     severity_version int, sstable_versions text, sstable_versions_version int, status text, status_version int, status_with_port text, \
     status_with_port_version int, tokens_version int, x1 text, x10 text, x10_version int, x1_version int, x2 text, x2_version int, \
     x3 text, x3_version int, x4 text, x4_version int, x5 text, x5_version int, x6 text, x6_version int, x7 text, x7_version int, x8 text, \
     x8_version int, x9 text, x9_version int, x_11_padding text, x_11_padding_version int, PRIMARY KEY (address, port))",
    options: Options::USUAL,
};

pub(super) fn register(tables: &mut Builder, about: &Arc<About>) {
    tables.virtual_table(Arc::new(GossipInfo(about.clone())));
    // The process is none of Java: it has no such properties.
    add(tables, "system_views", 1, SYSTEM_PROPERTIES, |_| {
        Box::pin(std::future::ready(Vec::new()))
    });
    add(tables, "system_views", 1, STREAMING, |_| {
        Box::pin(std::future::ready(of_tasks(Module::Streaming, is_stream, streaming)))
    });
    add(tables, "system_views", 1, REPAIRS, |_| {
        Box::pin(std::future::ready(of_tasks(Module::Repair, is_repair, repairs)))
    });
    add(tables, "system_views", 1, REPAIR_SESSIONS, |_| {
        Box::pin(std::future::ready(of_tasks(Module::Repair, is_session, sessions)))
    });
    // A session is one range of one table, so it is its own only job.
    add(tables, "system_views", 1, REPAIR_JOBS, |_| {
        Box::pin(std::future::ready(of_tasks(Module::Repair, is_session, jobs)))
    });
    add(tables, "system_views", 1, REPAIR_PARTICIPATES, |_| {
        Box::pin(std::future::ready(of_tasks(Module::Repair, is_served, participates)))
    });
    add(tables, "system_views", 1, REPAIR_VALIDATIONS, |_| {
        Box::pin(std::future::ready(of_tasks(Module::Repair, is_served, validations)))
    });
}

/// All columns of a definition in its order: those that are known, and null.
fn all_columns(cql: &'static str, known: Vec<(&'static str, Cell)>) -> Row {
    let names = Definition {
        keyspace: "system_views",
        cql,
        options: Options::USUAL,
    };
    let mut known: Vec<_> = known.into_iter().map(Some).collect();
    let row = names.column_names().map(|name| {
        let found = known
            .iter_mut()
            .find(|column| column.as_ref().is_some_and(|(known, _)| *known == name));
        found.and_then(Option::take).unwrap_or((name, Cell::Null))
    });
    row.collect()
}

// --- members ---------------------------------------------------------------------------------------------------------

/// `system_views.gossip_info`: the members, this node among them. Nodes learn of each other from the metadata group, so
/// there are no versions of single facts.
struct GossipInfo(Arc<About>);

impl VirtualTable for GossipInfo {
    fn definition(&self) -> &'static Definition {
        &GOSSIP_INFO
    }

    fn open(&self, request: Request) -> Opening<'_> {
        let info = self.0.info();
        let mut rows = vec![own_row(&info, request.schema.version)];
        rows.extend(
            info.peers
                .iter()
                .filter(|peer| peer.state != NodeState::Left)
                .map(peer_row),
        );
        ready(Gathered::new(rows, 1))
    }
}

const fn status_of(state: NodeState) -> &'static str {
    match state {
        NodeState::Normal => "NORMAL",
        NodeState::Joining => "BOOT",
        NodeState::Leaving => "LEAVING",
        NodeState::Left => "LEFT",
    }
}

fn with_token(state: NodeState, tokens: &[String]) -> Cell {
    let status = status_of(state);
    Cell::Text(match tokens.first() {
        Some(token) => format!("{status},{token}"),
        None => status.to_owned(),
    })
}

fn own_row(info: &NodeInfo, schema: uuid::Uuid) -> Row {
    let native = std::net::SocketAddr::new(info.rpc_address, info.port);
    all_columns(
        GOSSIP_INFO.cql,
        vec![
            ("address", Cell::Inet(info.broadcast_address)),
            ("port", Cell::Int(info.storage_port.into())),
            ("dc", Cell::text(&*info.data_center)),
            ("generation", Cell::Int(info.gossip_generation)),
            ("host_id", Cell::Text(info.host_id.to_string())),
            ("native_address_and_port", Cell::Text(native.to_string())),
            ("rack", Cell::text(&*info.rack)),
            ("release_version", Cell::text(&*info.release_version)),
            ("rpc_address", Cell::Text(info.rpc_address.to_string())),
            ("rpc_ready", Cell::text("true")),
            ("schema", Cell::Text(schema.to_string())),
            ("status", with_token(info.state, &info.tokens)),
            ("status_with_port", with_token(info.state, &info.tokens)),
        ],
    )
}

fn peer_row(peer: &PeerInfo) -> Row {
    let schema = peer
        .schema_version
        .map_or(Cell::Null, |version| Cell::Text(version.to_string()));
    all_columns(
        GOSSIP_INFO.cql,
        vec![
            ("address", Cell::Inet(peer.internode.ip())),
            ("port", Cell::Int(peer.internode.port().into())),
            ("dc", Cell::text(&*peer.data_center)),
            ("host_id", Cell::Text(peer.host_id.to_string())),
            ("native_address_and_port", Cell::Text(peer.native.to_string())),
            ("rack", Cell::text(&*peer.rack)),
            ("release_version", Cell::text(&*peer.release_version)),
            ("rpc_address", Cell::Text(peer.native.ip().to_string())),
            ("rpc_ready", Cell::text(if peer.up { "true" } else { "false" })),
            ("schema", schema),
            ("status", with_token(peer.state, &peer.tokens)),
            ("status_with_port", with_token(peer.state, &peer.tokens)),
        ],
    )
}

// --- streams and repairs ---------------------------------------------------------------------------------------------

fn of_tasks(module: Module, is_shown: fn(&Status) -> bool, row: fn(&Status) -> Row) -> Vec<Row> {
    let tasks = Engine::local().coordinator.context.shard.tasks().list(module, true);
    tasks.iter().filter(|status| is_shown(status)).map(row).collect()
}

fn is_stream(status: &Status) -> bool {
    matches!(status.kind.name, "stream tablet" | "serve stream")
}

/// What an operator asked for, or the node began by itself.
fn is_repair(status: &Status) -> bool {
    status.parent.is_none() && !is_served(status)
}

/// What this node does for the repair of another one.
fn is_served(status: &Status) -> bool {
    status.kind.name == "serve repair"
}

/// One range of a repair.
const fn is_session(status: &Status) -> bool {
    status.parent.is_some()
}

fn moment(us: i64) -> Cell {
    match us {
        0 => Cell::Null,
        us => Cell::Timestamp(us / 1000),
    }
}

/// A moment of a task that ended so.
fn moment_of_end(status: &Status, state: State) -> Cell {
    if status.state == state {
        moment(status.ended_us)
    } else {
        Cell::Null
    }
}

fn duration(status: &Status) -> Cell {
    match (status.started_us, status.ended_us) {
        (0, _) | (_, 0) => Cell::Null,
        (started, ended) => Cell::BigInt((ended - started) / 1000),
    }
}

fn last_updated(status: &Status) -> Cell {
    moment(status.created_us.max(status.started_us).max(status.ended_us))
}

fn text_or_null(text: &str) -> Cell {
    match text {
        "" => Cell::Null,
        text => Cell::text(text),
    }
}

const fn has_ended(status: &Status) -> bool {
    matches!(status.state, State::Done | State::Failed)
}

fn streaming(status: &Status) -> Row {
    let (is_sender, is_counted) = (status.kind.name == "serve stream", status.total > 0);
    let of = |is_own: bool, bytes: u64| if is_own { Cell::count(bytes) } else { Cell::BigInt(0) };
    let state = match status.state {
        State::Created => "init",
        State::Running => "start",
        State::Done => "success",
        State::Failed => "failure",
    };
    #[expect(clippy::cast_precision_loss, reason = "a percentage")]
    let percent = status.percent() as f32;
    all_columns(
        STREAMING,
        vec![
            ("id", Cell::Uuid(status.id)),
            ("bytes_received", of(!is_sender, status.completed)),
            ("bytes_sent", of(is_sender, status.completed)),
            (
                "bytes_to_receive",
                if is_counted {
                    of(!is_sender, status.total)
                } else {
                    Cell::Null
                },
            ),
            (
                "bytes_to_send",
                if is_counted {
                    of(is_sender, status.total)
                } else {
                    Cell::Null
                },
            ),
            ("duration_millis", duration(status)),
            ("failure_cause", text_or_null(&status.error)),
            ("follower", Cell::Boolean(is_sender)),
            ("last_updated_at", last_updated(status)),
            ("operation", Cell::text(status.kind.name)),
            ("progress_percentage", Cell::Float(percent)),
            ("status", Cell::text(state)),
            ("status_failure_timestamp", moment_of_end(status, State::Failed)),
            ("status_init_timestamp", moment(status.created_us)),
            ("status_start_timestamp", moment(status.started_us)),
            ("status_success_timestamp", moment_of_end(status, State::Done)),
        ],
    )
}

fn tables_of(status: &Status) -> Cell {
    match status.table.as_str() {
        "" => Cell::Null,
        table => Cell::TextList(vec![table.to_owned()]),
    }
}

fn ranges_of(status: &Status) -> Cell {
    match status.entity.as_str() {
        "" => Cell::Null,
        range => Cell::TextList(vec![range.to_owned()]),
    }
}

/// A set of this id alone, serialised.
fn set_of(id: uuid::Uuid) -> Cell {
    let (elements, length) = (1u32.to_be_bytes(), 16u32.to_be_bytes());
    Cell::Bytes([&elements[..], &length, id.as_bytes()].concat())
}

/// The columns that all tables of repairs share; each has some of them.
fn common(status: &Status) -> Vec<(&'static str, Cell)> {
    vec![
        ("id", Cell::Uuid(status.id)),
        ("completed", Cell::Boolean(has_ended(status))),
        ("duration_millis", duration(status)),
        ("failure_cause", text_or_null(&status.error)),
        ("keyspace_name", text_or_null(&status.keyspace)),
        ("last_updated_at", last_updated(status)),
        ("state_failure_timestamp", moment_of_end(status, State::Failed)),
        ("state_init_timestamp", moment(status.created_us)),
        ("state_start_timestamp", moment(status.started_us)),
        ("state_success_timestamp", moment_of_end(status, State::Done)),
        ("status", Cell::text(status.state.name())),
    ]
}

/// The columns that repairs and their sessions share.
fn repair(status: &Status) -> Vec<(&'static str, Cell)> {
    let mut known = common(status);
    known.push(("table_names", tables_of(status)));
    known
}

fn repairs(status: &Status) -> Row {
    let mut known = repair(status);
    known.push(("type", Cell::text(status.kind.name)));
    if !status.entity.is_empty() {
        known.push(("options_incremental", Cell::Boolean(status.entity != "disabled")));
    }
    all_columns(REPAIRS, known)
}

fn sessions(status: &Status) -> Row {
    let mut known = repair(status);
    known.push(("repair_id", status.parent.map_or(Cell::Null, Cell::Uuid)));
    known.push(("ranges", ranges_of(status)));
    known.push(("jobs", set_of(status.id)));
    all_columns(REPAIR_SESSIONS, known)
}

fn jobs(status: &Status) -> Row {
    let mut known = common(status);
    known.extend([
        ("ranges", ranges_of(status)),
        ("repair_id", status.parent.map_or(Cell::Null, Cell::Uuid)),
        ("session_id", Cell::Uuid(status.id)),
        ("table_name", text_or_null(&status.table)),
    ]);
    all_columns(REPAIR_JOBS, known)
}

fn participates(status: &Status) -> Row {
    let mut known = common(status);
    known.extend([
        ("ranges", ranges_of(status)),
        ("tables", tables_of(status)),
        ("validations", set_of(status.id)),
    ]);
    all_columns(REPAIR_PARTICIPATES, known)
}

fn validations(status: &Status) -> Row {
    let mut known = common(status);
    known.extend([
        ("bytes_read", Cell::count(status.completed)),
        ("ranges", ranges_of(status)),
        ("state_accept_timestamp", moment(status.created_us)),
        ("table_name", text_or_null(&status.table)),
    ]);
    all_columns(REPAIR_VALIDATIONS, known)
}
