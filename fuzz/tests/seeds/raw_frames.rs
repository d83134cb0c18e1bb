//! Test helper: encodes AMQP frames by hand.

use ephor_amqp::encode;

pub(crate) fn frame(kind: u8, channel: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32 + 8).to_be_bytes().to_vec();
    bytes.extend([2, kind]);
    bytes.extend(channel.to_be_bytes());
    bytes.extend(body);
    bytes
}

/// A frame with the body that `write` writes.
pub(crate) fn amqp(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    frame(0, 0, &written(write))
}

pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// A transfer, with its payload if that fits into one frame.
pub(crate) struct Transfer<'a> {
    pub(crate) handle: u32,
    pub(crate) id: u32,
    pub(crate) format: u32,
    pub(crate) more: bool,
    pub(crate) payload: &'a [u8],
}

impl Transfer<'_> {
    pub(crate) fn write(&self, into: &mut Vec<u8>) {
        encode::described(into, 0x14);
        let list = encode::begin(into);
        encode::uint(into, self.handle);
        encode::uint(into, self.id);
        encode::binary(into, &self.id.to_be_bytes());
        encode::uint(into, self.format);
        encode::bool(into, false);
        encode::bool(into, self.more);
        encode::end_list(into, list, 6);
        into.extend_from_slice(self.payload);
    }
}
