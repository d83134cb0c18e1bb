//! Encodes frames for a peer that writes them by hand: a transfer in each encoding that means the same.

use ephor_amqp::frame::Protocol;
use ephor_amqp::performative::Open;

use crate::decoded_frames::Part;

/// A frame of the AMQP layer.
pub(crate) fn frame(channel: u16, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0, 0, 0, 0, 2, 0];
    bytes.extend(channel.to_be_bytes());
    write(&mut bytes);
    let size = bytes.len() as u32;
    bytes[..4].copy_from_slice(&size.to_be_bytes());
    bytes
}

/// The first bytes of a peer without SASL.
pub(crate) fn opening(max_frame_size: u32, channel_max: u16) -> Vec<u8> {
    let open = Open {
        container_id: "raw".into(),
        max_frame_size: Some(max_frame_size),
        channel_max: Some(channel_max),
        ..Open::default()
    };
    [&Protocol::Amqp.header()[..], &frame(0, |into| open.write(into))].concat()
}

/// An unsigned number, in its short form if `short`.
fn uint(into: &mut Vec<u8>, number: Option<u32>, short: bool) {
    match number {
        None => into.push(0x40),
        Some(0) if short => into.push(0x43),
        Some(number) if short && number < 256 => into.extend([0x52, number as u8]),
        Some(number) => {
            into.push(0x70);
            into.extend(number.to_be_bytes());
        }
    }
}

fn flag(into: &mut Vec<u8>, value: bool) {
    into.push(if value { 0x41 } else { 0x42 });
}

/// A transfer. `form` selects one of the encodings that mean the same.
pub(crate) fn transfer(channel: u16, part: &Part, form: u8) -> Vec<u8> {
    let short = form & 1 == 0;
    let mut fields = Vec::new();
    uint(&mut fields, Some(part.handle), short);
    uint(&mut fields, part.delivery_id, short);
    match part.delivery_id {
        Some(id) => {
            fields.extend([0xa0, 4]);
            fields.extend(id.to_be_bytes());
        }
        None => fields.push(0x40),
    }
    uint(&mut fields, part.format, short);
    flag(&mut fields, part.settled);
    flag(&mut fields, part.more);
    let mut count = 6;
    if part.aborted || form & 2 != 0 {
        // rcv-settle-mode and the state: null, or the state `accepted`, which only some decoders expect.
        fields.push(0x40);
        if form & 4 == 0 {
            fields.push(0x40);
        } else {
            fields.extend([0x00, 0x53, 0x24, 0x45]);
        }
        fields.push(0x42);
        flag(&mut fields, part.aborted);
        flag(&mut fields, false);
        count = 11;
    }
    frame(channel, |into| {
        into.extend([0x00, 0x53, 0x14]);
        if form & 8 == 0 {
            into.extend([0xc0, fields.len() as u8 + 1, count]);
        } else {
            into.push(0xd0);
            into.extend((fields.len() as u32 + 4).to_be_bytes());
            into.extend(u32::from(count).to_be_bytes());
        }
        into.extend(&fields);
        into.extend(&part.payload);
    })
}
