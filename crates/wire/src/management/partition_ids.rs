//! Encodes the ids of all partitions as an AMQP array of strings, because the Rust, Java and Go SDKs do not
//! accept a list; and decodes an array or a list of them.
//!
//! ```text
//! array8 size count string8  length id  length id  …
//! ```

use ephor_amqp::{Reader, Value, format_codes as code};
use ephor_core::ids::PartitionId;

/// Writes the array.
pub(super) fn write(partitions: &[PartitionId], into: &mut Vec<u8>) {
    let mut ids = Vec::new();
    for partition in partitions {
        let id = partition.to_string();
        // A partition id has at most ten digits.
        ids.push(id.len() as u8);
        ids.extend_from_slice(id.as_bytes());
    }
    // The size includes the count and the constructor.
    match (u8::try_from(ids.len() + 2), u8::try_from(partitions.len())) {
        (Ok(size), Ok(count)) => into.extend_from_slice(&[code::ARRAY_8, size, count]),
        _ => {
            into.push(code::ARRAY_32);
            into.extend_from_slice(&(ids.len() as u32 + 5).to_be_bytes());
            into.extend_from_slice(&(partitions.len() as u32).to_be_bytes());
        }
    }
    into.push(code::STRING_8);
    into.extend_from_slice(&ids);
}

/// Parses an array, or a list, of texts that are partition ids.
pub(super) fn read(value: Value<'_>) -> Option<Vec<PartitionId>> {
    let Value::Encoded(encoded) = value else { return None };
    match *encoded.first()? {
        code::ARRAY_8 => elements((*encoded.get(2)?).into(), encoded.get(3..)?),
        code::ARRAY_32 => elements(u32::from_be_bytes(*encoded.get(5..)?.first_chunk()?), encoded.get(9..)?),
        _ => {
            let mut items = Reader::new(encoded).list().ok()?;
            let mut ids = Vec::new();
            while let Some(item) = items.next().ok()? {
                ids.push(item.text()?.parse().ok()?);
            }
            Some(ids)
        }
    }
}

/// Parses the elements after the count. Nothing is allocated by the count alone: each element is read first.
fn elements(count: u32, bytes: &[u8]) -> Option<Vec<PartitionId>> {
    let Some((constructor, mut rest)) = bytes.split_first() else {
        return (count == 0).then(Vec::new);
    };
    let mut ids = Vec::new();
    for _ in 0..count {
        let length = match *constructor {
            code::STRING_8 | code::SYMBOL_8 => {
                let (length, behind) = rest.split_first()?;
                rest = behind;
                usize::from(*length)
            }
            code::STRING_32 | code::SYMBOL_32 => {
                let (length, behind) = rest.split_first_chunk()?;
                rest = behind;
                u32::from_be_bytes(*length) as usize
            }
            _ => return None,
        };
        let (text, behind) = rest.split_at_checked(length)?;
        rest = behind;
        ids.push(std::str::from_utf8(text).ok()?.parse().ok()?);
    }
    rest.is_empty().then_some(ids)
}
