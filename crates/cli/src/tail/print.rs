//! An event as one line of text.

use std::fmt::Write as _;

use ephor_core::event::Event;
use ephor_core::ids::PartitionId;

pub(super) fn line(partition: PartitionId, event: &Event) -> String {
    let mut line = format!("{} {partition}/{}", event.enqueued_at, event.sequence);
    if let Some(key) = event.partition_key.as_deref() {
        line.push_str(" key=");
        push_visible(&mut line, key);
    }
    line.push(' ');
    match event.text() {
        Some(text) => push_visible(&mut line, text),
        // Writing to a string does not fail.
        None => drop(write!(line, "({} bytes)", event.body.len())),
    }
    line
}

/// Neither a line break nor what a terminal would take for an order.
fn push_visible(line: &mut String, text: &str) {
    for letter in text.chars() {
        match letter.is_control() || matches!(letter, '\u{2028}' | '\u{2029}') {
            true => line.extend(letter.escape_default()),
            false => line.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_break_the_line_is_escaped_and_nothing_else() {
        let mut line = String::new();
        push_visible(&mut line, "a\r\n\tb\u{1b}[31m \u{85}\u{2028}\\ \"é\" 🚪");
        assert_eq!(line, "a\\r\\n\\tb\\u{1b}[31m \\u{85}\\u{2028}\\ \"é\" 🚪");
    }
}
