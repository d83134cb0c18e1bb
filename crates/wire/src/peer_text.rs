//! Shortens text of a peer, and removes control characters, before it is repeated in an error or a log.

/// The maximum number of characters: the longest names of a host, a hub and a group fit.
const MAX_CHARACTERS: usize = 600;

/// The beginning of `text`, without control characters: safe for an error or a log.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String =
        text.chars().take(MAX_CHARACTERS).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(MAX_CHARACTERS).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_is_repeated_and_no_control_characters() {
        assert_eq!(quoted("a\nb"), "a b");
        assert_eq!(quoted(&"é".repeat(MAX_CHARACTERS)), "é".repeat(MAX_CHARACTERS));
        assert_eq!(quoted(&"é".repeat(MAX_CHARACTERS + 1)).chars().count(), MAX_CHARACTERS + 1);
    }
}
