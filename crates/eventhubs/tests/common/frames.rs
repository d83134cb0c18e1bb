//! Where one frame of AMQP ends and the next begins, without reading what is in them.

/// A protocol header is eight bytes, and a frame is never as large as its first four would say.
const HEADER: &[u8] = b"AMQP";
const HEADER_LENGTH: usize = 8;

/// One direction of a connection, cut into protocol headers and frames.
#[derive(Default)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
}

impl Frames {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next header or frame, if it is here to its end.
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
