//! Which tokens a node takes when it joins: a function of its host id, so that a join that is tried again asks for the
//! same.

use std::collections::BTreeSet;
use topology::{HostId, TOKENS_PER_NODE_MAX};
use types::Token;
use types::token::murmur3_x64_128;

/// Tokens that no two nodes have in common, but by a chance of one in 2^64.
pub(crate) fn choose(host: HostId, count: usize) -> Vec<Token> {
    let wanted = count.clamp(1, TOKENS_PER_NODE_MAX);
    let mut tokens = BTreeSet::new();
    let mut seed = 0;
    while tokens.len() < wanted {
        // Each token falls into a part of its own, so that a node's ranges are of like size.
        let part = tokens.len() as u64;
        let (random, _) = murmur3_x64_128(host.0.as_bytes(), seed);
        seed += 1;
        let width = u64::MAX / wanted as u64;
        let place = part * width + random % width;
        let token = Token((place ^ (1 << 63)).cast_signed());
        if token != Token::MIN {
            tokens.insert(token);
        }
    }
    tokens.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn a_node_chooses_the_same_tokens_each_time_and_others_than_its_neighbour() {
        for count in [1, 2, 16, 256, 1536] {
            let one = choose(HostId(Uuid::from_u128(1)), count);
            let two = choose(HostId(Uuid::from_u128(2)), count);
            assert_eq!(one.len(), count);
            assert!(one.is_sorted(), "tokens are in order");
            assert_eq!(one, choose(HostId(Uuid::from_u128(1)), count));
            assert!(one.iter().all(|token| !two.contains(token)), "two nodes share a token");
        }
        assert_eq!(choose(HostId(Uuid::nil()), 0).len(), 1, "a node has a token at least");
    }
}
