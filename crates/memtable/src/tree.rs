//! A B+tree from token to partition number.
//!
//! Nodes are fixed arrays in two vectors, children are numbers. Tokens are hashes, so equal ones are rare; when they
//! occur, their partitions are side by side in key order, which the caller's comparison decides. Nothing is ever
//! removed: a memtable only grows until it is flushed.

const FANOUT: usize = 32;
const NIL: u32 = u32::MAX;

#[derive(Debug)]
struct Leaf {
    len: usize,
    next: u32,
    tokens: [i64; FANOUT],
    partitions: [u32; FANOUT],
}

#[derive(Debug)]
struct Inner {
    /// Number of children.
    len: usize,
    /// `tokens[i]` is at or below every token of child `i`, and above or equal to every one of child `i - 1`.
    tokens: [i64; FANOUT],
    /// The first partition of child `i` when it was split off: decides among equal tokens.
    partitions: [u32; FANOUT],
    children: [u32; FANOUT],
}

/// The tree.
#[derive(Debug, Default)]
pub struct Tree {
    leaves: Vec<Leaf>,
    inners: Vec<Inner>,
    root: u32,
    /// Levels of inner nodes above the leaves.
    height: usize,
    #[cfg(test)]
    len: usize,
}

/// A place in the tree: leaf and position.
#[derive(Clone, Copy, Debug)]
pub struct Position {
    leaf: u32,
    at: usize,
}

impl Tree {
    /// How many partitions there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Bytes of nodes.
    pub fn bytes(&self) -> usize {
        self.leaves.capacity() * size_of::<Leaf>() + self.inners.capacity() * size_of::<Inner>()
    }

    /// The first place whose token is at or above `token`.
    #[inline]
    pub fn lower_bound(&self, token: i64) -> Position {
        if self.leaves.is_empty() {
            return Position { leaf: NIL, at: 0 };
        }
        let mut node = self.root;
        for _ in 0..self.height {
            let inner = &self.inners[node as usize];
            // Equal tokens may begin in the child before the first separator that equals them.
            let i = inner.tokens[1..inner.len].partition_point(|&t| t < token);
            node = inner.children[i];
        }
        let leaf = &self.leaves[node as usize];
        let at = leaf.tokens[..leaf.len].partition_point(|&t| t < token);
        self.normalise(Position { leaf: node, at })
    }

    /// The first place of all.
    #[cfg(test)]
    pub fn first(&self) -> Position {
        self.lower_bound(i64::MIN)
    }

    #[inline]
    fn normalise(&self, mut p: Position) -> Position {
        if p.leaf != NIL && p.at == self.leaves[p.leaf as usize].len {
            p = Position {
                leaf: self.leaves[p.leaf as usize].next,
                at: 0,
            };
        }
        p
    }

    /// Token and partition at a place; None after the last.
    #[inline]
    pub fn get(&self, p: Position) -> Option<(i64, u32)> {
        let leaf = self.leaves.get(p.leaf as usize)?;
        Some((leaf.tokens[p.at], leaf.partitions[p.at]))
    }

    /// The next place.
    #[inline]
    pub fn next(&self, p: Position) -> Position {
        self.normalise(Position {
            leaf: p.leaf,
            at: p.at + 1,
        })
    }

    /// Adds a partition. `before(other)` says whether the new one sorts before a partition of equal token.
    pub fn insert(&mut self, token: i64, partition: u32, before: impl Fn(u32) -> bool) {
        #[cfg(test)]
        {
            self.len += 1;
        }
        if self.leaves.is_empty() {
            self.leaves.push(Leaf {
                len: 0,
                next: NIL,
                tokens: [0; FANOUT],
                partitions: [0; FANOUT],
            });
        }
        // Go down to the last leaf that may hold the token, remembering the way.
        let mut path = [(0u32, 0usize); 16];
        let mut node = self.root;
        for step in path.iter_mut().take(self.height) {
            let inner = &self.inners[node as usize];
            let mut i = inner.tokens[1..inner.len].partition_point(|&t| t <= token);
            // Among equal tokens that fill several leaves the key decides.
            while i > 0 && inner.tokens[i] == token && before(inner.partitions[i]) {
                i -= 1;
            }
            *step = (node, i);
            node = inner.children[i];
        }
        let leaf = &self.leaves[node as usize];
        let mut at = leaf.tokens[..leaf.len].partition_point(|&t| t <= token);
        while at > 0 && leaf.tokens[at - 1] == token && before(leaf.partitions[at - 1]) {
            at -= 1;
        }
        if leaf.len < FANOUT {
            self.leaves[node as usize].put(at, token, partition);
            return;
        }
        // Split the leaf; an append at the very end leaves the old one full.
        let keep = if at == FANOUT && leaf.next == NIL {
            FANOUT
        } else {
            FANOUT / 2
        };
        let right_number = u32::try_from(self.leaves.len()).expect("fewer than 2^32 leaves");
        let left = &mut self.leaves[node as usize];
        let mut right = Leaf {
            len: FANOUT - keep,
            next: left.next,
            tokens: [0; FANOUT],
            partitions: [0; FANOUT],
        };
        right.tokens[..FANOUT - keep].copy_from_slice(&left.tokens[keep..]);
        right.partitions[..FANOUT - keep].copy_from_slice(&left.partitions[keep..]);
        left.len = keep;
        left.next = right_number;
        if at > keep || keep == FANOUT {
            right.put(at - keep, token, partition);
        } else {
            left.put(at, token, partition);
        }
        let separator = (right.tokens[0], right.partitions[0]);
        self.leaves.push(right);
        self.insert_child(&path[..self.height], separator, right_number);
    }

    /// Hooks a new right sibling into the parents on the way, splitting those that are full.
    fn insert_child(&mut self, path: &[(u32, usize)], mut separator: (i64, u32), mut child: u32) {
        for &(number, i) in path.iter().rev() {
            if self.inners[number as usize].len < FANOUT {
                self.inners[number as usize].put(i + 1, separator, child);
                return;
            }
            let half = FANOUT / 2;
            let new_number = u32::try_from(self.inners.len()).expect("fewer than 2^32 nodes");
            let left = &mut self.inners[number as usize];
            let mut right = Inner::new(FANOUT - half);
            right.partitions[..FANOUT - half].copy_from_slice(&left.partitions[half..]);
            right.tokens[..FANOUT - half].copy_from_slice(&left.tokens[half..]);
            right.children[..FANOUT - half].copy_from_slice(&left.children[half..]);
            left.len = half;
            if i + 1 > half {
                right.put(i + 1 - half, separator, child);
            } else {
                left.put(i + 1, separator, child);
            }
            (separator, child) = ((right.tokens[0], right.partitions[0]), new_number);
            self.inners.push(right);
        }
        let mut root = Inner::new(2);
        (root.tokens[0], root.tokens[1], root.partitions[1]) = (i64::MIN, separator.0, separator.1);
        (root.children[0], root.children[1]) = (self.root, child);
        self.root = u32::try_from(self.inners.len()).expect("fewer than 2^32 nodes");
        self.inners.push(root);
        self.height += 1;
    }
}

impl Leaf {
    fn put(&mut self, at: usize, token: i64, partition: u32) {
        self.tokens.copy_within(at..self.len, at + 1);
        self.partitions.copy_within(at..self.len, at + 1);
        self.tokens[at] = token;
        self.partitions[at] = partition;
        self.len += 1;
    }
}

impl Inner {
    fn new(len: usize) -> Self {
        Self {
            len,
            tokens: [0; FANOUT],
            partitions: [0; FANOUT],
            children: [0; FANOUT],
        }
    }

    fn put(&mut self, at: usize, separator: (i64, u32), child: u32) {
        self.tokens.copy_within(at..self.len, at + 1);
        self.partitions.copy_within(at..self.len, at + 1);
        self.children.copy_within(at..self.len, at + 1);
        (self.tokens[at], self.partitions[at]) = separator;
        self.children[at] = child;
        self.len += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inserts tokens, each with a scrambled number that doubles as its key, and reads all back in order.
    fn check(tokens: &[i64]) {
        let mut tree = Tree::default();
        let mut model: Vec<(i64, u32)> = Vec::new();
        for (i, &t) in tokens.iter().enumerate() {
            let i = (i as u32).wrapping_mul(0x9e37_79b1);
            tree.insert(t, i, |other| i < other);
            let at = model.partition_point(|&e| e < (t, i));
            model.insert(at, (t, i));
        }
        let mut p = tree.first();
        let mut seen = Vec::new();
        while let Some(e) = tree.get(p) {
            seen.push(e);
            p = tree.next(p);
        }
        assert_eq!(seen, model, "a walk visits every partition in order");
        for &t in tokens {
            for probe in [t.saturating_sub(1), t, t.saturating_add(1)] {
                let want = model.iter().find(|e| e.0 >= probe).copied();
                assert_eq!(tree.get(tree.lower_bound(probe)), want, "lower bound of {probe}");
            }
        }
        assert_eq!(tree.len(), tokens.len());
    }

    #[test]
    fn keeps_order_under_any_arrival() {
        check(&[]);
        check(&(0..5000).collect::<Vec<i64>>());
        check(&(0..5000).rev().collect::<Vec<i64>>());
        let mut x = 1u64;
        let random: Vec<i64> = (0..20_000)
            .map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                x as i64
            })
            .collect();
        check(&random);
        check(&random.iter().map(|r| r.rem_euclid(300)).collect::<Vec<i64>>());
        check(&[i64::MIN, i64::MAX, 0, i64::MIN, i64::MAX]);
    }
}
