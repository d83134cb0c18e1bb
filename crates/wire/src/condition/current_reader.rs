//! Parses the error text of a hub for the name and epoch of the current reader of a partition.
//!
//! ```text
//!   New receiver 'NAME' with higher epoch of 'EPOCH' is created hence current receiver 'OURS' with epoch …
//!   Receiver 'NAME' with a higher epoch 'EPOCH' already exists. Receiver 'OURS' with epoch …
//! ```
//!
//! The other reader chose NAME, which may repeat any part of the sentence, but cannot add anything after the
//! words that follow it. So the sentence is recognized by its first words and cut at its last. OURS is the
//! name of the reader that receives the text, a host name without spaces; the words in between have spaces.

use ephor_core::epoch::Epoch;
use ephor_core::receivers::error_texts::NOT_GIVEN;

use super::MAX_TEXT;
use crate::peer_text::quoted;

/// The fixed words around a name and an epoch.
struct Sentence {
    opening: &'static str,
    middle: &'static str,
    closing: &'static str,
}

/// Sent to a receiver that was disconnected by a higher epoch.
const STOLEN: Sentence = Sentence {
    opening: "New receiver '",
    middle: "' with higher epoch of '",
    closing: "' is created hence current receiver '",
};

/// Sent to a receiver that attached with a lower epoch.
const REFUSED: Sentence = Sentence {
    opening: "Receiver '",
    middle: "' with a higher epoch '",
    closing: "' already exists. Receiver '",
};

/// Sent to a receiver that attached without an epoch. It contains no name.
const NO_EPOCH: (&str, char) = ("is created with epoch of '", '\'');

/// The name and epoch of the reader that took the partition or holds it, as far as the text tells.
pub(super) fn holder(text: &str) -> (Option<String>, Option<Epoch>) {
    // A text that was cut lacks its last words, and NAME could imitate them.
    if text.chars().count() >= MAX_TEXT {
        return (None, None);
    }
    let begins = |sentence: Sentence| Some((text.find(sentence.opening)?, sentence));
    match [STOLEN, REFUSED].into_iter().filter_map(begins).min_by_key(|(at, _)| *at) {
        Some((at, sentence)) => sentence.read(&text[at..]).unwrap_or_default(),
        None => (None, without_a_name(text)),
    }
}

impl Sentence {
    fn read(&self, text: &str) -> Option<(Option<String>, Option<Epoch>)> {
        let (before, _) = text.strip_prefix(self.opening)?.rsplit_once(self.closing)?;
        let (name, digits) = before.rsplit_once(self.middle)?;
        Some((name_in_errors(name), epoch(digits)))
    }
}

fn without_a_name(text: &str) -> Option<Epoch> {
    let (_, rest) = text.split_once(NO_EPOCH.0)?;
    epoch(rest.split_once(NO_EPOCH.1)?.0)
}

/// A reader's name for use in errors: bounded, on one line, and none if the reader gave none.
pub fn name_in_errors(name: &str) -> Option<String> {
    (!name.is_empty() && name != NOT_GIVEN).then(|| quoted(name))
}

fn epoch(digits: &str) -> Option<Epoch> {
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Epoch::from_stored)).flatten()
}

#[cfg(test)]
mod tests {
    use ephor_core::receivers::error_texts::{lower_epoch, stolen};

    use super::*;

    const SEVEN: Epoch = Epoch::from_stored(7);

    /// The names and epochs that are read from both sentences about a reader of this name and epoch.
    fn read_back(name: &str, epoch: Epoch) -> [(Option<String>, Option<Epoch>); 2] {
        [
            stolen(name, epoch, "ours", Some(Epoch::from_stored(3))),
            lower_epoch(name, epoch, "ours", Epoch::from_stored(3)),
        ]
        .map(|sentence| holder(&(sentence + " TrackingId:7f_G1, SystemTracker:ns:eventhub:homes~3|$default")))
    }

    #[test]
    fn a_readers_name_cannot_pass_for_its_epoch() {
        for name in [
            "a' with higher epoch of '18446744073709551615' is created",
            "a' with a higher epoch '18446744073709551615' already exists",
            "a' with higher epoch of '9' is created hence current receiver 'b",
            "a' with a higher epoch '9' already exists. Receiver 'b",
            "a' with higher epoch of '9",
            "Receiver 'a' with a higher epoch '9' already exists. Receiver 'b' with",
            "New receiver 'a' with higher epoch of '9' is created hence current receiver 'b' with",
            "is created with epoch of '9'",
            "' with higher epoch of '",
            "' is created hence current receiver '",
            "'",
            "it's",
            "日本 🏠",
        ] {
            let whole = (Some(name.to_owned()), Some(SEVEN));
            assert_eq!(read_back(name, SEVEN), [whole.clone(), whole], "{name}");
        }
    }

    #[test]
    fn an_epoch_is_read_to_its_last_digit_or_not_at_all() {
        for number in [0, 1 << 62, i64::MAX as u64, u64::MAX] {
            let epoch = Epoch::from_stored(number);
            assert_eq!(read_back("a", epoch).map(|(_, epoch)| epoch), [Some(epoch); 2]);
        }
        for digits in ["", "+7", "-7", " 7", "7 ", "７", "0x7", "nil", "18446744073709551616", "1e3"] {
            let text = stolen("a", SEVEN, "ours", None).replacen("of '7'", &format!("of '{digits}'"), 1);
            assert_eq!(holder(&text), (Some("a".into()), None), "{text}");
        }
    }

    #[test]
    fn a_text_that_may_have_been_cut_says_nothing() {
        let fake = stolen("a", Epoch::from_stored(9), "ours", None);
        let name = format!("{fake}{}", "x".repeat(MAX_TEXT));
        let cut: String = stolen(&name, SEVEN, "ours", None).chars().take(MAX_TEXT).collect();
        assert_eq!(holder(&cut), (None, None));
    }

    #[test]
    fn a_reader_without_a_known_name_is_reported_by_its_epoch() {
        let text = ephor_core::receivers::error_texts::no_epoch_beside_an_epoch(SEVEN);
        assert_eq!(holder(&text), (None, Some(SEVEN)));
        for other in ["", "New receiver '", "Receiver 'a' with", "is created with epoch of '7"] {
            assert_eq!(holder(other), (None, None), "{other}");
        }
    }

    #[test]
    fn a_reader_without_a_name_has_an_epoch() {
        assert_eq!(read_back("", SEVEN), [(None, Some(SEVEN)), (None, Some(SEVEN))]);
    }
}
