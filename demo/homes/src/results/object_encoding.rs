//! Encodes a stored object: magic bytes, version, content, checksum.

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The first bytes of every object.
const MAGIC: &[u8; 7] = b"EPHOMES";
const VERSION: u8 = 1;
const HEADER: usize = MAGIC.len() + 1;
const CHECKSUM: usize = 4;

/// Makes an object of it.
pub(super) fn encode(content: &impl Serialize) -> Result<Bytes, String> {
    let header = [MAGIC.as_slice(), &[VERSION]].concat();
    let mut bytes = postcard::to_extend(content, header).map_err(|error| error.to_string())?;
    let checksum = crc32c::crc32c(&bytes);
    bytes.extend_from_slice(&checksum.to_le_bytes());
    Ok(bytes.into())
}

/// Reads an object, or returns what is wrong with it.
pub(super) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let Some((sealed, checksum)) = bytes.split_last_chunk::<CHECKSUM>() else {
        return Err(format!("it is incomplete: it has {} bytes", bytes.len()));
    };
    let Some((header, content)) = sealed.split_at_checked(HEADER) else {
        return Err(format!("it is incomplete: it has {} bytes", bytes.len()));
    };
    if header[..MAGIC.len()] != *MAGIC {
        return Err("it was not written by this program".into());
    }
    if header[MAGIC.len()] != VERSION {
        return Err(format!(
            "it has version {}, and this program reads version {VERSION} only",
            header[MAGIC.len()]
        ));
    }
    if crc32c::crc32c(sealed) != u32::from_le_bytes(*checksum) {
        return Err("the checksum is wrong".into());
    }
    let (content, rest) = postcard::take_from_bytes(content).map_err(|error| error.to_string())?;
    if rest.is_empty() { Ok(content) } else { Err(format!("it has {} bytes after its end", rest.len())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let content = (7_u64, "host-1".to_owned(), vec![1_u8, 2, 3]);
        let bytes = encode(&content).unwrap();
        assert_eq!(decode::<(u64, String, Vec<u8>)>(&bytes).unwrap(), content);
    }

    #[test]
    fn every_damage_is_noticed() {
        let bytes = encode(&(7_u64, "host-1")).unwrap();
        let read = |bytes: &[u8]| decode::<(u64, String)>(bytes);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "cut to {length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
        assert!(read(&[&bytes[..], &[0]].concat()).is_err());
        assert!(decode::<u64>(&bytes).unwrap_err().contains("bytes after its end"));
    }
}
