//! Changes to messages, by chance that follows from a seed.

/// Numbers at which code breaks.
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    7,
    127,
    128,
    255,
    256,
    65_535,
    65_536,
    i32::MAX as u64,
    u32::MAX as u64,
    1 << 32,
    1 << 48,
    1 << 61,
    1 << 62,
    i64::MAX as u64,
    u64::MAX - 1,
    u64::MAX,
];
/// No input is longer.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// Changes messages.
pub struct Mutator(u64);

impl Mutator {
    /// Equal seeds make equal changes.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below a limit that is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from((self.next() >> 11) % limit as u64).expect("below a limit of the same type")
    }

    /// One of the messages, changed in a few places.
    pub fn change(&mut self, messages: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = messages[self.below(messages.len())].clone();
        for _ in 0..self.below(5) {
            self.change_once(&mut bytes, messages);
        }
        bytes.truncate(INPUT_BYTES_MAX);
        bytes
    }

    fn change_once(&mut self, bytes: &mut Vec<u8>, messages: &[Vec<u8>]) {
        let at = self.below(bytes.len() + 1);
        match self.below(8) {
            0 => bytes.truncate(at),
            1 => {
                let byte = self.next().to_be_bytes()[0];
                bytes.insert(at, byte);
            }
            2 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            3 if at < bytes.len() => bytes[at] = self.next().to_be_bytes()[0],
            4 => self.put_number(bytes, at),
            5 => self.move_number(bytes, at),
            6 => {
                // A piece of the message again.
                let end = (at + self.below(32)).min(bytes.len());
                let piece = bytes[at..end].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => {
                // The rest of another message.
                let other = &messages[self.below(messages.len())];
                let from = self.below(other.len() + 1);
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
    }

    fn put_number(&mut self, bytes: &mut [u8], at: usize) {
        let number = NUMBERS[self.below(NUMBERS.len())];
        let width = [1, 2, 4, 8][self.below(4)];
        let little = self.below(2) == 0;
        let Some(place) = bytes.get_mut(at..at + width) else {
            return;
        };
        if little {
            place.copy_from_slice(&number.to_le_bytes()[..width]);
        } else {
            place.copy_from_slice(&number.to_be_bytes()[8 - width..]);
        }
    }

    /// A number that is nearly right is the one that passes most checks.
    fn move_number(&mut self, bytes: &mut [u8], at: usize) {
        let by = self.next() % 5;
        if let Some(place) = bytes.get_mut(at..at + 8) {
            let number = u64::from_be_bytes(place.try_into().expect("eight bytes"));
            place.copy_from_slice(&number.wrapping_add(by).wrapping_sub(2).to_be_bytes());
        }
    }
}
