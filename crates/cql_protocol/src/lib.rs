//! The CQL native protocol: frames, requests, responses, segments and compression.
