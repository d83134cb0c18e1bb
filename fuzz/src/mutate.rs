//! Generates an input from a seed: random bytes, or a mutated input of the corpus.

use fastrand::Rng;

use crate::frames;

/// The maximum size of an input.
const MAX_INPUT_LENGTH: usize = 64 << 10;
/// Format codes and descriptors that change the meaning of the bytes after them.
const CODES: [u8; 24] = [
    0x00, 0x40, 0x41, 0x43, 0x45, 0x52, 0x53, 0x56, 0x70, 0x73, 0x74, 0x75, 0x77, 0x80, 0x83, 0xa0, 0xa1,
    0xa3, 0xb0, 0xc0, 0xc1, 0xd0, 0xe0, 0xff,
];
/// Lengths and counts that are one too many, or far too many.
const LENGTHS: [u32; 10] = [0, 1, 3, 4, 7, 8, 513, 1_000_000, i32::MAX as u32, u32::MAX];
const NUMBERS: [i32; 5] = [-2, -1, 1, 2, 16];

/// The input of a seed: one in eight is random, the others are inputs of the corpus with a few mutations.
pub fn input(corpus: &[Vec<u8>], seed: u64) -> Vec<u8> {
    let mut random = Rng::with_seed(seed);
    let Some(found) = random.choice(corpus).filter(|_| random.u8(0..8) > 0) else {
        return made_up(&mut random);
    };
    let mut bytes = found.clone();
    for _ in 0..random.usize(1..6) {
        change(&mut bytes, corpus, &mut random);
    }
    bytes.truncate(MAX_INPUT_LENGTH);
    bytes
}

/// Random bytes, or bytes that resemble AMQP more often than random ones.
fn made_up(random: &mut Rng) -> Vec<u8> {
    let like_amqp = random.bool();
    let length = random.usize(0..200);
    let mut byte = || match like_amqp && random.u8(0..5) > 0 {
        true => CODES[random.usize(0..CODES.len())],
        false => random.u8(..),
    };
    (0..length).map(|_| byte()).collect()
}

fn change(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Rng) {
    if bytes.is_empty() {
        return bytes.push(random.u8(..));
    }
    let at = random.usize(0..bytes.len());
    let end = (at + random.usize(1..64)).min(bytes.len());
    match random.u8(0..12) {
        0 => bytes[at] = random.u8(..),
        1 => bytes[at] ^= 1 << random.u8(0..8),
        2 => bytes[at] = CODES[random.usize(0..CODES.len())],
        3 => drop(bytes.drain(at..end)),
        4 => {
            let again = bytes[at..end].to_vec();
            bytes.splice(at..at, again);
        }
        5 => {
            let noise: Vec<u8> = (at..end).map(|_| random.u8(..)).collect();
            bytes.splice(at..end, noise);
        }
        6 => bytes.truncate(at),
        7 => {
            if let Some(length) = bytes[at..].first_chunk_mut() {
                *length = LENGTHS[random.usize(0..LENGTHS.len())].to_be_bytes();
            }
        }
        8 => bytes[at] = bytes[at].wrapping_add_signed(NUMBERS[random.usize(0..NUMBERS.len())] as i8),
        9 => {
            // The end of another input: valid bytes are followed by bytes that do not belong to them.
            if let Some(other) = random.choice(corpus).filter(|other| !other.is_empty()) {
                let from = random.usize(0..other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
        }
        _ => swap_frames(bytes, random),
    }
}

/// Swaps, repeats or removes frames, to test their order.
fn swap_frames(bytes: &mut Vec<u8>, random: &mut Rng) {
    // Conversations with an engine begin with a configuration byte.
    let first = usize::from(!bytes.starts_with(b"AMQP"));
    let (setup, said) = bytes.split_at(first.min(bytes.len()));
    let frames = frames::split(said);
    if frames.len() < 3 {
        return;
    }
    let mut order: Vec<&[u8]> = frames.iter().map(|frame| &said[frame.clone()]).collect();
    let (one, other) = (random.usize(0..order.len()), random.usize(0..order.len()));
    match random.u8(0..3) {
        0 => order.swap(one, other),
        1 => order.insert(other, order[one]),
        _ => drop(order.remove(one)),
    }
    let mut changed = setup.to_vec();
    changed.extend(order.concat());
    *bytes = changed;
}
