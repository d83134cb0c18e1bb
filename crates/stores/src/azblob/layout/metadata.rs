//! Reads and writes the metadata of blobs: names in lower case, values encoded for HTTP headers.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Names and values. The service ignores the case of names; here they are in lower case.
pub(in crate::azblob) type Metadata = BTreeMap<String, String>;

/// The limit for names and values together. It is below the service's limit of 8 KiB, so that other
/// programs can add values.
pub(in crate::azblob) const MAX_METADATA: usize = 7_000;

/// A header carries visible ASCII. All other characters, and the percent sign, are escaped.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Encodes any text as a value.
pub(in crate::azblob) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Decodes a value that [`escape`] wrote. Other values are returned unchanged, as far as possible.
pub(in crate::azblob) fn unescape(value: &str) -> String {
    percent_decode_str(value).decode_utf8_lossy().into_owned()
}

pub(in crate::azblob) fn pairs<const N: usize>(pairs: [(&str, String); N]) -> Metadata {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// A number in the metadata, if it is there and readable.
pub(in crate::azblob) fn number<T: std::str::FromStr>(metadata: &Metadata, name: &str) -> Option<T> {
    metadata.get(name)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_reads_back_and_fits_in_a_header() {
        for text in
            ["", "host-1#00ab", "two words", "100% a%2Fb", "åäö 日本 🏠", "line\nbreak\t.", "{\"a\":[1]}"]
        {
            let value = escape(text);
            assert!(value.bytes().all(|byte| (0x21..0x7f).contains(&byte)), "{value}");
            assert_eq!(unescape(&value), text);
        }
        // A value without special characters stays readable.
        assert_eq!(escape("host-1#0123456789abcdef"), "host-1#0123456789abcdef");
        assert_eq!(unescape("7f6e-as-another-sdk-writes-it"), "7f6e-as-another-sdk-writes-it");
    }
}
