//! Fuzzes the start positions of receivers: filter sets, and the selectors in them.

use ephor_wire::selector::{InvalidSelector, MAX_SELECTOR_LENGTH, Start};

/// The maximum length of an error beside the selector that it repeats.
const WORDS_OF_A_REFUSAL: usize = 256;

/// Runs one input.
pub fn run(data: &[u8]) {
    rewrite(Start::from_filter(data), data.len());
    if let Ok(text) = std::str::from_utf8(data) {
        rewrite(Start::parse(text), data.len());
    }
}

fn rewrite(read: Result<Start, InvalidSelector>, length: usize) {
    let start = match read {
        Ok(start) => start,
        // The error repeats the text; ten times its length is a generous bound.
        Err(refused) => return assert!(refused.to_string().len() <= length * 10 + WORDS_OF_A_REFUSAL),
    };
    let selector = start.selector();
    if selector.len() > MAX_SELECTOR_LENGTH {
        // It came without quotes and spaces, and was just short enough.
        return assert!(selector.len() <= MAX_SELECTOR_LENGTH + "> ''".len());
    }
    assert_eq!(Start::parse(&selector).as_ref(), Ok(&start));
    let mut set = Vec::new();
    start.write_filter(&mut set);
    assert_eq!(Start::from_filter(&set).as_ref(), Ok(&start));
    let _ = start.position(None);
}
