//! What a blob says in its metadata: names in small letters, values as HTTP headers can carry them.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

/// Names and values. Names are compared without case by the service; here they are small.
pub(super) type Metadata = BTreeMap<String, String>;

/// The service takes no more than this, names and values together, and some is left for what others add.
pub(super) const MOST_METADATA: usize = 7_000;

/// A header carries visible ASCII: all else, and the sign of the escape itself, is escaped.
const ESCAPED: &AsciiSet = &CONTROLS.add(b' ').add(b'%');

/// Any text as a value.
pub(super) fn escape(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// The text of a value that [`escape`] made. One that it did not make is taken as it is, as far as that goes.
pub(super) fn unescape(value: &str) -> String {
    percent_decode_str(value).decode_utf8_lossy().into_owned()
}

pub(super) fn pairs<const N: usize>(pairs: [(&str, String); N]) -> Metadata {
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Milliseconds of server time, where a time is written down.
pub(super) fn number<T: std::str::FromStr>(metadata: &Metadata, name: &str) -> Option<T> {
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
        // What needs no escape stays readable.
        assert_eq!(escape("host-1#0123456789abcdef"), "host-1#0123456789abcdef");
        assert_eq!(unescape("7f6e-as-another-sdk-writes-it"), "7f6e-as-another-sdk-writes-it");
    }
}
