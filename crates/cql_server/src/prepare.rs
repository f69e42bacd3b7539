//! PREPARE.

use cql_protocol::{
    Extras, LWT_METADATA_MARK, Opcode, ProtocolVersion, begin_response, finish_response, write_prepared,
};
use front::increment;
use plan::Plan;
use query::trace::Trace;
use query::{Prepared, QueryError};

use crate::connection::Connection;
use crate::dispatch::{Batch, FrameOutcome};
use crate::metadata;
use crate::respond::Reply;
use crate::tracing;

impl Connection {
    /// Answers PREPARE.
    pub(crate) fn prepare(&self, text: &str, keyspace: Option<&str>, reply: Reply, batch: &mut Batch) -> FrameOutcome {
        let trace = reply.trace.map(|trace| Trace::begin(trace.id));
        let used = self.keyspace.borrow().clone();
        match self.server.engine.prepare(text, keyspace.or(used.as_deref())) {
            Ok(prepared) if self.is_first_of_user(&prepared) => return FrameOutcome::FirstOfUser,
            Ok(prepared) => {
                let with_id = reply.version >= ProtocolVersion::V5 || self.extensions.result_metadata_id;
                let result = cql_protocol::PreparedResult {
                    id: &prepared.id,
                    result_metadata_id: with_id.then_some(&prepared.metadata_id[..]),
                    variables: metadata::variables(&prepared, reply.version),
                    partition_key_indexes: &prepared.key_markers,
                    lwt_mark: (self.lwt_mark && prepared.is_conditional()).then_some(LWT_METADATA_MARK),
                    result: matches!(prepared.plan(), Some(Plan::Select(_)))
                        .then(|| metadata::result(&prepared, reply.version)),
                };
                let warning = match (keyspace, used.as_deref()) {
                    (None, Some(used)) => self.warning_of_use(&prepared, used),
                    _ => None,
                };
                let extras = reply.extras();
                let warnings = warning.as_deref().into_iter().chain(extras.warnings.iter().copied());
                let warnings: Vec<&str> = warnings.collect();
                let extras = Extras {
                    warnings: &warnings,
                    ..extras
                };
                let out = &mut batch.out;
                let mark = begin_response(out, reply.version, reply.stream, Opcode::Result, &extras);
                write_prepared(out, reply.version, &result);
                if let Err(e) = finish_response(out, mark) {
                    reply.error(out, &QueryError::invalid(e.to_string()));
                }
            }
            Err(e) => reply.error(&mut batch.out, &e),
        }
        tracing::note_prepare(&self.server.engine, trace, self.session.peer, text);
        increment(&self.server.counts.prepares);
        FrameOutcome::Done
    }

    /// The warning for a client that prepares a statement whose meaning depends on the keyspace in use; given once.
    fn warning_of_use(&self, prepared: &Prepared, used: &str) -> Option<String> {
        let table = prepared.table.as_ref().filter(|_| prepared.depends_on_use)?;
        if self.warned_of_use.replace(true) {
            return None;
        }
        let id: String = prepared.id.iter().map(|b| format!("{b:02x}")).collect();
        Some(format!(
            "`USE <keyspace>` with prepared statements is considered to be an anti-pattern due to ambiguity in \
             non-qualified table names. Please consider removing instances of `Session#setKeyspace(<keyspace>)`, \
             `Session#execute(\"USE <keyspace>\")` and `cluster.newSession(<keyspace>)` from your code, and always use \
             fully qualified table names (e.g. <keyspace>.<table>). Keyspace used: {used}, statement keyspace: {}, \
             statement id: {id}",
            table.keyspace
        ))
    }
}
