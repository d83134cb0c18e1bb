//! Test helper: events in a hash chain. Each contains a hash of all events before it in its partition.
//!
//! ```text
//! 0  partition  4  round  8  ordinal  16  index in its batch  20  size of its batch  24  hash  32  filler
//! ```
//!
//! The hash covers the hash before it and all fields; the filler is computed from the hash. So an event that is missing,
//! repeated, moved or changed breaks the chain.

use bytes::Bytes;

const HEADER: usize = 32;

/// Bodies differ in length, so that commits end at every alignment.
const MAX_FILLER: u64 = 200;

/// Where an event stands, by its own words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) partition: u32,
    /// Which process sent it.
    pub(crate) round: u32,
    pub(crate) ordinal: u64,
    pub(crate) index: u32,
    pub(crate) size: u32,
    pub(crate) hash: u64,
}

/// The end of a chain: what the next event has to build on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) ordinal: u64,
    pub(crate) hash: u64,
}

/// The fault of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Break {
    /// Events before it are missing.
    Gap { missing: u64 },
    /// It has been here before.
    Again,
    /// It is not what was sent, or not behind what was sent before it.
    Changed,
}

impl Tail {
    /// Behind this event.
    pub(crate) fn behind(link: &Link) -> Self {
        Self { ordinal: link.ordinal + 1, hash: link.hash }
    }

    /// The next batch of the chain, and where it leaves the chain.
    pub(crate) fn batch(self, partition: u32, round: u32, size: u32) -> (Vec<Bytes>, Self) {
        let mut tail = self;
        let bodies = (0..size).map(|index| {
            let link = Link { partition, round, ordinal: tail.ordinal, index, size, hash: 0 };
            let link = Link { hash: link.hash_behind(tail.hash), ..link };
            tail = Self::behind(&link);
            link.encode()
        });
        (bodies.collect(), tail)
    }

    /// Goes on behind this event, whatever is wrong with it.
    pub(crate) fn follow(&mut self, partition: u32, body: &[u8]) -> (Option<Link>, Result<(), Break>) {
        let Some(link) = Link::decode(body).filter(|link| link.partition == partition) else {
            self.ordinal += 1;
            return (None, Err(Break::Changed));
        };
        let judged = match link.ordinal {
            ordinal if ordinal > self.ordinal => Err(Break::Gap { missing: ordinal - self.ordinal }),
            ordinal if ordinal < self.ordinal => Err(Break::Again),
            _ if link.hash != link.hash_behind(self.hash) => Err(Break::Changed),
            _ => Ok(()),
        };
        if judged != Err(Break::Again) {
            *self = Self::behind(&link);
        }
        (Some(link), judged)
    }
}

impl Link {
    fn hash_behind(&self, before: u64) -> u64 {
        let place = u64::from(self.partition) << 32 | u64::from(self.round);
        let batch = u64::from(self.index) << 32 | u64::from(self.size);
        mix(mix(mix(before, place), self.ordinal), batch)
    }

    fn encode(&self) -> Bytes {
        let mut body = Vec::with_capacity(HEADER + MAX_FILLER as usize);
        body.extend(self.partition.to_le_bytes());
        body.extend(self.round.to_le_bytes());
        body.extend(self.ordinal.to_le_bytes());
        body.extend(self.index.to_le_bytes());
        body.extend(self.size.to_le_bytes());
        body.extend(self.hash.to_le_bytes());
        body.extend(filler(self.hash));
        body.into()
    }

    /// None if the body is not what `encode` makes of any link.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let four = |at: usize| Some(u32::from_le_bytes(body.get(at..at + 4)?.try_into().ok()?));
        let eight = |at: usize| Some(u64::from_le_bytes(body.get(at..at + 8)?.try_into().ok()?));
        let link = Self {
            partition: four(0)?,
            round: four(4)?,
            ordinal: eight(8)?,
            index: four(16)?,
            size: four(20)?,
            hash: eight(24)?,
        };
        (link.encode() == body).then_some(link)
    }

    /// Whether it ends its batch.
    pub(crate) fn is_last(&self) -> bool {
        self.index + 1 == self.size
    }
}

fn filler(hash: u64) -> impl Iterator<Item = u8> {
    (0..hash % MAX_FILLER).map(move |at| (hash >> (at % 8 * 8)) as u8 ^ at as u8)
}

/// Not a secret, only unlikely to agree by chance (the finalizer of SplitMix64).
fn mix(before: u64, value: u64) -> u64 {
    let mut z = before.rotate_left(5) ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
