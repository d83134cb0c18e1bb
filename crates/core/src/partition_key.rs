//! Maps a partition key to a partition, with the hash of Azure Event Hubs: client, embedded hub and service
//! compute the same partition.
//!
//! The hash is Bob Jenkins' lookup3 (`hashlittle2` with both seeds 0) over the key's UTF-8. Its two
//! words are folded into 16 bits, read as a signed number.

use crate::ids::PartitionId;

#[cfg(test)]
mod tests;

/// The most characters of a key. The service refuses a longer one.
pub const MAX_KEY_CHARACTERS: usize = 128;

/// The most characters of a key that an error quotes: keys may contain personal data.
const QUOTED_CHARACTERS: usize = 80;

/// The error for a key that is too long.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("partition key {beginning:?}… has {characters} characters; at most {MAX_KEY_CHARACTERS} are allowed")]
pub struct InvalidKey {
    beginning: String,
    characters: usize,
}

/// Checks that the service would accept this key.
pub fn check(key: &str) -> Result<(), InvalidKey> {
    let characters = key.chars().count();
    if characters > MAX_KEY_CHARACTERS {
        return Err(InvalidKey { beginning: key.chars().take(QUOTED_CHARACTERS).collect(), characters });
    }
    Ok(())
}

/// The partition of this key in a hub with this many partitions; partition 0 if there are none.
pub fn partition_for(key: &str, partitions: u32) -> PartitionId {
    // The service takes the remainder first and then its absolute value, which is the same.
    let hash = u32::from(hash(key).unsigned_abs());
    PartitionId(hash.checked_rem(partitions).unwrap_or(0))
}

/// The service's hash of a key; 0 for an empty one.
pub fn hash(key: &str) -> i16 {
    let mut state = Lookup3::new(key.len());
    let mut blocks = key.as_bytes().chunks(Lookup3::BLOCK).peekable();
    while let Some(block) = blocks.next() {
        state.add(block);
        if blocks.peek().is_some() {
            state.mix();
        } else {
            state.finish();
        }
    }
    (state.c ^ state.b) as i16
}

/// The three words of state that lookup3 mixes.
struct Lookup3 {
    a: u32,
    b: u32,
    c: u32,
}

impl Lookup3 {
    /// The bytes of one block.
    const BLOCK: usize = 12;

    fn new(length: usize) -> Self {
        // The algorithm counts lengths in 32 bits.
        let start = 0xdead_beef_u32.wrapping_add(length as u32);
        Self { a: start, b: start, c: start }
    }

    /// Adds a block as three little-endian words; a short block is padded with zeros.
    fn add(&mut self, block: &[u8]) {
        let mut words = [0_u32; 3];
        for (index, byte) in block.iter().enumerate() {
            words[index / 4] |= u32::from(*byte) << (8 * (index % 4));
        }
        self.a = self.a.wrapping_add(words[0]);
        self.b = self.b.wrapping_add(words[1]);
        self.c = self.c.wrapping_add(words[2]);
    }

    /// Mixes the state between two blocks.
    fn mix(&mut self) {
        let Self { a, b, c } = self;
        stir(a, c, b, 4);
        stir(b, a, c, 6);
        stir(c, b, a, 8);
        stir(a, c, b, 16);
        stir(b, a, c, 19);
        stir(c, b, a, 4);
    }

    /// Mixes the state after the last block.
    fn finish(&mut self) {
        let Self { a, b, c } = self;
        settle(c, *b, 14);
        settle(a, *c, 11);
        settle(b, *a, 25);
        settle(c, *b, 16);
        settle(a, *c, 4);
        settle(b, *a, 14);
        settle(c, *b, 24);
    }
}

fn stir(target: &mut u32, from: &mut u32, other: &u32, by: u32) {
    *target = target.wrapping_sub(*from) ^ from.rotate_left(by);
    *from = from.wrapping_add(*other);
}

fn settle(target: &mut u32, from: u32, by: u32) {
    *target = (*target ^ from).wrapping_sub(from.rotate_left(by));
}
