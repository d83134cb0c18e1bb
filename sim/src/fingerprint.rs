//! Hashes a run to a fingerprint, to compare two runs of a seed: FNV-1a, 64 bits.
//!
//! It needs no key and is the same on every machine, so a fingerprint can be
//! written down beside a seed.

use std::fmt;

/// The fingerprint of all added bytes, in order.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Default for Fingerprint {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fingerprint {
    /// Adds more bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The fingerprint as a number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_published_function() {
        let of = |text: &str| {
            let mut fingerprint = Fingerprint::default();
            fingerprint.add(text.as_bytes());
            fingerprint
        };
        assert_eq!(of("").to_string(), "cbf29ce484222325");
        assert_eq!(of("a").get(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(format!("{:?}", of("foobar")), "85944171f73967e8");
    }

    #[test]
    fn order_matters_and_the_cut_between_pieces_does_not() {
        let mut whole = Fingerprint::default();
        whole.add(b"abc");
        let mut pieces = Fingerprint::default();
        pieces.add(b"a");
        pieces.add(b"bc");
        assert_eq!(whole, pieces);
        let mut turned = Fingerprint::default();
        turned.add(b"cba");
        assert_ne!(whole, turned);
    }
}
