//! Parses shared access keys: a single key, or a list of keys with their claims and hubs.
//!
//! ```text
//! # name      claims        key                                           hub
//! sensors     send          vDFkZr0b1N2lTn5wq3cQm8yJxE7uHs4oPaGtIiKdLfE=  homes
//! dashboard   listen        mN3bV7cX1zL9kJ5hG2fD8sA4pO6iU0yT-rEwQqWeRtY=  homes
//! operations  send,listen   Qw8eR5tY1uI4oP7aS2dF9gH3jK6lZ0xC+vBnMmNbVcX=
//! ```
//!
//! Each line is one key: its name, its claims (`send`, `listen` or `manage`, with commas between them and no
//! spaces), the key, and the hub that it is for; without a hub it is for all hubs. Empty lines and lines that
//! begin with `#` are ignored. A name may have several keys, so that one can be replaced. No error repeats
//! any of the text, because a line with swapped columns may hold the key anywhere.

use ephor_core::ids::HubName;
use ephor_wire::sas::{Claims, Key, SharedKey};

/// A shorter key could be guessed.
pub const MIN_KEY_LENGTH: usize = 16;
/// A longer text is not a key.
pub const MAX_KEY_LENGTH: usize = 1024;
/// The largest number of keys in a list: every token is compared with all keys of its name.
pub const MAX_KEYS: usize = 1000;
/// A longer name is refused, as the service does.
const MAX_NAME_LENGTH: usize = 256;

const ADVICE: &str = "make one with: openssl rand -base64 32";

/// An error in the text of keys. It repeats nothing of the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKeys {
    /// The text is not a key.
    #[error("{0}")]
    Key(String),
    /// A line of the list is invalid.
    #[error("line {line}: {problem}")]
    Line {
        /// The number of the line, from 1 on.
        line: usize,
        /// The error in that line, and what to write instead.
        problem: String,
    },
    /// The list as a whole is invalid.
    #[error("{0}")]
    List(String),
}

/// Parses one key. Whitespace around it is ignored.
pub fn parse_key(text: &str) -> Result<Key, InvalidKeys> {
    let key = text.trim();
    let wrong = |problem: String| Err(InvalidKeys::Key(format!("{problem}; {ADVICE}")));
    if key.len() > MAX_KEY_LENGTH {
        return wrong(format!("it is longer than {MAX_KEY_LENGTH} bytes, so it is not a key"));
    }
    if key.len() < MIN_KEY_LENGTH {
        return wrong(format!("the key has to have at least {MIN_KEY_LENGTH} characters"));
    }
    if !key.bytes().all(|byte| byte.is_ascii_graphic() && byte != b';') {
        return wrong("the key has to be one line of letters, digits and signs without ';'".to_owned());
    }
    Ok(Key::new(key))
}

/// Parses a list of keys.
///
/// ```
/// let keys = ephor_gateway::parse_keys(
///     "# name   claims       key                      hub
///      sensors  send         0123456789abcdefghij==   homes
///      ops      send,listen  abcdefghij0123456789==",
/// )?;
/// assert_eq!(keys[0].hub.as_ref().unwrap().as_str(), "homes");
/// assert_eq!(keys[1].claims.to_string(), "Send, Listen");
/// # Ok::<(), ephor_gateway::InvalidKeys>(())
/// ```
pub fn parse_keys(text: &str) -> Result<Vec<SharedKey>, InvalidKeys> {
    let mut keys: Vec<(usize, SharedKey)> = Vec::new();
    // Editors of some systems begin a file with a byte-order mark.
    for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let number = index + 1;
        let wrong = |problem: String| InvalidKeys::Line { line: number, problem };
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let key = parse_line(line).map_err(wrong)?;
        if keys.len() == MAX_KEYS {
            return Err(wrong(format!("more than {MAX_KEYS} keys")));
        }
        let same = |(_, other): &&(usize, SharedKey)| {
            other.name == key.name && other.key.reveal() == key.key.reveal()
        };
        if let Some((earlier, _)) = keys.iter().find(same) {
            return Err(wrong(format!(
                "it has the name and the key of line {earlier}; leave one out, or give it a key of its own"
            )));
        }
        keys.push((number, key));
    }
    if keys.is_empty() {
        return Err(InvalidKeys::List("it contains no key; write lines of NAME CLAIMS KEY [HUB]".to_owned()));
    }
    Ok(keys.into_iter().map(|(_, key)| key).collect())
}

fn parse_line(line: &str) -> Result<SharedKey, String> {
    let columns: Vec<&str> = line.split_whitespace().collect();
    let (name, claims, key, hub) = match columns[..] {
        [name, claims, key] => (name, claims, key, None),
        [name, claims, key, hub] => (name, claims, key, Some(hub)),
        _ => {
            return Err(format!(
                "it has {} column{}; write NAME CLAIMS KEY, or NAME CLAIMS KEY HUB, such as: sensors send,listen … homes",
                columns.len(),
                if columns.len() == 1 { "" } else { "s" }
            ));
        }
    };
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.len() > MAX_NAME_LENGTH || !name.bytes().all(allowed) {
        return Err(format!(
            "the name (column 1) has to be at most {MAX_NAME_LENGTH} letters, digits, dots, hyphens and underscores"
        ));
    }
    let claims = claims.split(',').try_fold(Claims::NONE, |all, claim| Some(all | Claims::named(claim)?));
    let claims = claims.ok_or(
        "the claims (column 2) have to be send, listen or manage, with commas between them and no spaces",
    )?;
    let key = parse_key(key).map_err(|error| format!("the key (column 3): {error}"))?;
    let hub = hub.map(str::parse::<HubName>).transpose();
    let hub = hub.map_err(|_| "the hub (column 4) is not the name of a hub".to_owned())?;
    Ok(SharedKey { name: name.to_owned(), key, claims, hub })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANARY: &str = "canary+0123456789/abcdef==";

    #[test]
    fn a_key_is_one_word_that_cannot_be_guessed() {
        assert_eq!(parse_key("  abcdefghijklmnop=\n").unwrap().reveal(), "abcdefghijklmnop=");
        for bad in
            ["", "\n", "short-canary", "canary canary canary", "canary;canary;canary", &"canary".repeat(200)]
        {
            let error = parse_key(bad).unwrap_err().to_string();
            assert!(error.contains("openssl rand"), "{error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[test]
    fn a_line_is_a_key_with_what_it_permits_and_where() {
        let text = format!(
            "\u{feff}# who may do what\r\n\r\n  sensors\tSEND  {CANARY}x homes \n#\nsensors send {CANARY}\n\
             ops listen,send {CANARY}\nroot manage {CANARY} a/b"
        );
        let keys = parse_keys(&text).unwrap();
        let shown: Vec<_> = keys
            .iter()
            .map(|key| format!("{} {:?} {}", key.name, key.hub.as_ref().map(HubName::as_str), key.claims))
            .collect();
        assert_eq!(
            shown,
            [
                "sensors Some(\"homes\") Send",
                "sensors None Send",
                "ops None Send, Listen",
                "root Some(\"a/b\") Send, Listen, Manage"
            ]
        );
        assert_eq!(keys[0].key.reveal(), format!("{CANARY}x"));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line_and_never_shows_the_key() {
        for (line, words) in [
            (CANARY.to_owned(), "it has 1 column; write NAME CLAIMS KEY"),
            (format!("sensors {CANARY}"), "it has 2 columns"),
            (format!("sensors send {CANARY} homes canary"), "it has 5 columns"),
            (format!("{CANARY} send sensors"), "the name (column 1)"),
            (format!("{} send {CANARY}", "n".repeat(257)), "the name (column 1)"),
            (format!("sensors {CANARY} send"), "the claims (column 2)"),
            (format!("sensors send, {CANARY}"), "the claims (column 2)"),
            (
                "sensors send canary".to_owned(),
                "the key (column 3): the key has to have at least 16 characters",
            ),
            ("sensors send SAS_KEY_VALUE".to_owned(), "the key (column 3)"),
            (format!("sensors send {CANARY} {CANARY}"), "the hub (column 4)"),
            (format!("ops send {CANARY}"), "it has the name and the key of line 1"),
        ] {
            let error = parse_keys(&format!("ops manage {CANARY}\n\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 3: ") && error.contains(words), "{line}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
        for empty in ["", "\n \n", "# nothing"] {
            assert!(parse_keys(empty).unwrap_err().to_string().starts_with("it contains no key"));
        }
        let many: String = (0..=MAX_KEYS).map(|n| format!("n{n} send {CANARY}\n")).collect();
        assert_eq!(parse_keys(&many).unwrap_err().to_string(), "line 1001: more than 1000 keys");
    }
}
