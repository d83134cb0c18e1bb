//! `transfer`: carries a message, or a part of it.
//!
//! One is decoded and one is encoded for every message, so both are written by hand: nothing is allocated,
//! and the head is built on the stack.

use super::descriptor;
use super::fields::Fields;
use crate::format_codes as code;
use crate::performative::BadPerformative;

/// The fields before a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Transfer<'a> {
    /// The handle of the link.
    pub handle: u32,
    /// The number of the delivery, in the session. The first transfer of a delivery has it.
    pub delivery_id: Option<u32>,
    /// Identifies the delivery among the unsettled ones of the link. It is not used here, because links are
    /// not resumed.
    pub delivery_tag: Option<&'a [u8]>,
    /// The format of the payload; 0 is a message as specified.
    pub message_format: Option<u32>,
    /// True if the sender has settled it already.
    pub settled: Option<bool>,
    /// True if more of the same delivery follows.
    pub more: bool,
    /// True if the delivery is aborted, and the parts that have come have to be discarded.
    pub aborted: bool,
}

impl<'a> Transfer<'a> {
    pub(super) fn read(mut fields: Fields<'a>) -> Result<Self, BadPerformative> {
        let handle = fields.uint("handle")?;
        let mut transfer = Self {
            handle: fields.need(handle, "handle")?,
            delivery_id: fields.uint("delivery-id")?,
            delivery_tag: fields.binary("delivery-tag")?,
            message_format: fields.uint("message-format")?,
            settled: fields.bool("settled")?,
            more: fields.bool("more")?.unwrap_or(false),
            aborted: false,
        };
        let _receiver_settles = fields.any()?;
        let _state = fields.any()?;
        let _resume = fields.any()?;
        transfer.aborted = fields.bool("aborted")?.unwrap_or(false);
        Ok(transfer)
    }

    /// Decodes a transfer in the form that nearly all peers write, and returns the index of its payload.
    /// `None` for any other form, and for any other performative; then use [`super::Performative::read`].
    #[inline]
    pub(crate) fn read_plain(body: &'a [u8]) -> Option<(Self, usize)> {
        let [code::DESCRIBED, code::SMALL_ULONG, descriptor::TRANSFER, list, ..] = *body else { return None };
        let (mut at, end, count) = match list {
            code::LIST_8 => (6, 5 + usize::from(*body.get(4)?), usize::from(*body.get(5)?)),
            code::LIST_32 => {
                let size = u32::from_be_bytes(*body.get(4..)?.first_chunk()?) as usize;
                let count = u32::from_be_bytes(*body.get(8..)?.first_chunk()?) as usize;
                (12, size.checked_add(8)?, count)
            }
            _ => return None,
        };
        let fields = body.get(..end)?;
        if !(1..=11).contains(&count) {
            return None;
        }
        let mut transfer = Self { handle: plain_uint(fields, &mut at)??, ..Self::default() };
        for field in 1..count {
            match field {
                1 => transfer.delivery_id = plain_uint(fields, &mut at)?,
                2 => transfer.delivery_tag = plain_binary(fields, &mut at)?,
                3 => transfer.message_format = plain_uint(fields, &mut at)?,
                4 => transfer.settled = plain_bool(fields, &mut at)?,
                5 => transfer.more = plain_bool(fields, &mut at)?.unwrap_or(false),
                9 => transfer.aborted = plain_bool(fields, &mut at)?.unwrap_or(false),
                _ => {
                    plain_nothing(fields, &mut at)?;
                }
            }
        }
        (at == end).then_some((transfer, end))
    }
}

#[inline]
fn take<'a>(bytes: &'a [u8], at: &mut usize, length: usize) -> Option<&'a [u8]> {
    let taken = bytes.get(*at..*at + length)?;
    *at += length;
    Some(taken)
}

#[inline]
fn plain_uint(bytes: &[u8], at: &mut usize) -> Option<Option<u32>> {
    Some(match take(bytes, at, 1)? {
        [code::NULL] => None,
        [code::UINT_0] => Some(0),
        [code::SMALL_UINT] => Some(take(bytes, at, 1)?[0].into()),
        [code::UINT] => Some(u32::from_be_bytes(*take(bytes, at, 4)?.first_chunk()?)),
        _ => return None,
    })
}

#[inline]
fn plain_bool(bytes: &[u8], at: &mut usize) -> Option<Option<bool>> {
    Some(match take(bytes, at, 1)? {
        [code::NULL] => None,
        [code::TRUE] => Some(true),
        [code::FALSE] => Some(false),
        _ => return None,
    })
}

#[inline]
fn plain_binary<'a>(bytes: &'a [u8], at: &mut usize) -> Option<Option<&'a [u8]>> {
    Some(match take(bytes, at, 1)? {
        [code::NULL] => None,
        [code::BINARY_8] => {
            let length = take(bytes, at, 1)?[0];
            Some(take(bytes, at, length.into())?)
        }
        _ => return None,
    })
}

/// Skips a field that is not used, if it is a single byte.
#[inline]
fn plain_nothing(bytes: &[u8], at: &mut usize) -> Option<()> {
    matches!(take(bytes, at, 1)?, [code::NULL | code::TRUE | code::FALSE]).then_some(())
}

/// The fields that are written before a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TransferHead {
    pub(crate) channel: u16,
    pub(crate) handle: u32,
    /// Number and format, in the first frame of a delivery; its tag is its number.
    pub(crate) begins: Option<(u32, u32)>,
    pub(crate) settled: bool,
    pub(crate) more: bool,
}

/// The most bytes that [`write_transfer_head`] writes.
pub(crate) const MAX_TRANSFER_HEAD: usize = 48;

/// Writes the frame header and all eleven fields of a transfer, and returns their length. The size in the
/// header is that of the whole frame.
#[inline]
pub(crate) fn write_transfer_head(
    buffer: &mut [u8; MAX_TRANSFER_HEAD],
    head: TransferHead,
    payload: usize,
) -> usize {
    const FRAME: usize = crate::frame::HEADER_SIZE;
    let [high, low] = head.channel.to_be_bytes();
    buffer[4..14].copy_from_slice(&[
        2,
        crate::frame::TYPE_AMQP,
        high,
        low,
        code::DESCRIBED,
        code::SMALL_ULONG,
        descriptor::TRANSFER,
        code::LIST_8,
        0,
        11,
    ]);
    let mut at = 14;
    at = put_uint(buffer, at, head.handle);
    match head.begins {
        Some((id, format)) => {
            at = put_uint(buffer, at, id);
            buffer[at..at + 2].copy_from_slice(&[code::BINARY_8, 4]);
            buffer[at + 2..at + 6].copy_from_slice(&id.to_be_bytes());
            at = put_uint(buffer, at + 6, format);
        }
        None => {
            buffer[at..at + 3].fill(code::NULL);
            at += 3;
        }
    }
    let bool = |value: bool| if value { code::TRUE } else { code::FALSE };
    buffer[at..at + 7].copy_from_slice(&[
        bool(head.settled),
        bool(head.more),
        code::NULL,
        code::NULL,
        code::NULL,
        code::NULL,
        code::FALSE,
    ]);
    at += 7;
    // The frame header is followed by the descriptor (3 bytes), the format code, and the size of the rest.
    buffer[FRAME + 4] = (at - FRAME - 5) as u8;
    buffer[..4].copy_from_slice(&((at + payload) as u32).to_be_bytes());
    at
}

#[inline]
fn put_uint(buffer: &mut [u8; MAX_TRANSFER_HEAD], at: usize, value: u32) -> usize {
    match value {
        0 => {
            buffer[at] = code::UINT_0;
            at + 1
        }
        1..=255 => {
            buffer[at..at + 2].copy_from_slice(&[code::SMALL_UINT, value as u8]);
            at + 2
        }
        _ => {
            buffer[at] = code::UINT;
            buffer[at + 1..at + 5].copy_from_slice(&value.to_be_bytes());
            at + 5
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::performative::Performative;

    #[test]
    fn what_is_written_by_hand_is_read_by_hand_and_otherwise() {
        for begins in [None, Some((0, 0)), Some((7, 0x8001_3700)), Some((u32::MAX, 255))] {
            for (handle, settled, more) in [(0, true, false), (255, false, true), (256, true, true)] {
                let head = TransferHead { channel: 3, handle, begins, settled, more };
                let mut buffer = [0; MAX_TRANSFER_HEAD];
                let length = write_transfer_head(&mut buffer, head, 5);
                assert_eq!(u32::from_be_bytes(*buffer.first_chunk().unwrap()), length as u32 + 5);
                let body = &buffer[8..length];
                let (plain, end) = Transfer::read_plain(body).unwrap();
                assert_eq!(Performative::read(body), Ok((Performative::Transfer(plain), end)));
                assert_eq!((end, plain.handle, plain.more), (body.len(), handle, more));
                assert_eq!((plain.delivery_id, plain.message_format), begins.unzip());
            }
        }
    }

    #[test]
    fn reading_by_hand_never_differs_from_reading_with_care() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut agreed = 0;
        for _ in 0..200_000 {
            let head = TransferHead {
                channel: 0,
                handle: random.u32(0..300),
                begins: random.bool().then(|| (random.u32(0..300), random.u32(0..300))),
                settled: random.bool(),
                more: random.bool(),
            };
            let mut buffer = [0; MAX_TRANSFER_HEAD];
            let length = write_transfer_head(&mut buffer, head, 0);
            let mut body = buffer[8..length].to_vec();
            for _ in 0..random.usize(0..3) {
                let at = random.usize(3..body.len());
                body[at] = *random.choice(&[0, 1, 4, 11, 0x40, 0x41, 0x43, 0x52, 0xa0]).unwrap();
            }
            if let Some((plain, end)) = Transfer::read_plain(&body) {
                assert_eq!(
                    Performative::read(&body),
                    Ok((Performative::Transfer(plain), end)),
                    "{body:02x?}"
                );
                agreed += 1;
            }
        }
        assert!(agreed > 50_000);
    }
}
