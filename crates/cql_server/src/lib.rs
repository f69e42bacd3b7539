//! The CQL front door: connections, prepared statements, events.
