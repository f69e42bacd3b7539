//! CQL types and values: encoding, ordering, text forms, Murmur3 tokens.
