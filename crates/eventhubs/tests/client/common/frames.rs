//! Test helper: splits a byte stream into AMQP frames, without decoding them.

/// A protocol header has eight bytes. Its first four, read as a size, are larger than any frame.
const HEADER: &[u8] = b"AMQP";
const HEADER_LENGTH: usize = 8;

/// One direction of a connection, split into protocol headers and frames.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next header or frame, if it is complete.
    pub(crate) fn next(&mut self) -> Option<Vec<u8>> {
        let first = self.bytes.first_chunk::<4>()?;
        let length = match first == HEADER {
            true => HEADER_LENGTH,
            false => u32::from_be_bytes(*first) as usize,
        };
        assert!((8..1 << 24).contains(&length), "{length} bytes are no frame");
        (self.bytes.len() >= length).then(|| self.bytes.drain(..length).collect())
    }
}
