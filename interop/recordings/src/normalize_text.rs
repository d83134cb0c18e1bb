//! Normalizes error texts: ids and times that differ in every run are replaced before texts are compared.

/// Replaces ids of requests and containers, tracking ids and times.
pub(crate) fn normalized(text: &str) -> String {
    // Each machine that an error passes adds its own ids; how many there are is nobody's promise.
    let mut text = without_ids(text).replace(" Reference:…,", "");
    while text.contains(TWICE) {
        text = text.replace(TWICE, TAIL);
    }
    text
}

const TAIL: &str = "TrackingId:…, SystemTracker:…, Timestamp:…";
const TWICE: &str = "TrackingId:…, SystemTracker:…, Timestamp:… TrackingId:…, SystemTracker:…, Timestamp:…";

fn without_ids(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(character) = rest.chars().next() {
        if let Some(label) = LABELS.iter().find(|label| rest.starts_with(**label)) {
            result.push_str(label);
            result.push('…');
            rest = &rest[label.len()..];
            rest = &rest[rest.find([',', ' ', ';']).unwrap_or(rest.len())..];
            continue;
        }
        let id = rest.find(|next: char| !is_id(next)).unwrap_or(rest.len());
        if id >= SHORTEST_ID && rest[..id].bytes().any(|byte| byte.is_ascii_digit()) {
            result.push('…');
            rest = after_suffix(&rest[id..]);
            continue;
        }
        // Words are taken whole, so that the end of one is not taken for an id.
        let word = rest.find(|next: char| !next.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let taken = word.max(character.len_utf8());
        result.push_str(&rest[..taken]);
        rest = &rest[taken..];
    }
    result
}

/// The names before values that identify a request or a moment.
const LABELS: [&str; 4] = ["TrackingId:", "SystemTracker:", "Timestamp:", "Reference:"];

/// Digits and hyphens of the shortest id: a container's number without its hyphens.
const SHORTEST_ID: usize = 32;

fn is_id(character: char) -> bool {
    character.is_ascii_hexdigit() || character == '-'
}

/// The rest after the gateway's number, `_G15`, which follows some ids.
fn after_suffix(rest: &str) -> &str {
    let Some(suffix) = rest.strip_prefix('_') else { return rest };
    let end = suffix.find(|next: char| !next.is_ascii_alphanumeric()).unwrap_or(suffix.len());
    &suffix[end..]
}

#[cfg(test)]
mod tests {
    use super::{TAIL, normalized};

    #[test]
    fn ids_and_times_are_replaced_and_words_stay() {
        let text = "closed by container '00112233445566778899aabbccddeeff_G1'. TrackingId:0123-4567_B8, \
                    SystemTracker:a:b~1|c, Timestamp:2026-01-02T03:04:05 and 0123 faced";
        assert_eq!(
            normalized(text),
            "closed by container '…'. TrackingId:…, SystemTracker:…, Timestamp:… and 0123 faced"
        );
        let relayed = format!("no TrackingId:a, SystemTracker:b, Timestamp:c Reference:d, {TAIL} {TAIL}");
        assert_eq!(normalized(&relayed), format!("no {TAIL}"));
        assert_eq!(
            normalized("hub00000001-0002-0003-0004-000000000005"),
            "hub00000001-0002-0003-0004-000000000005"
        );
    }
}
