//! Extracts the valid sections of a message that was stored without validation, or by laxer rules.

use std::borrow::Cow;
use std::ops::Range;

use super::{Seen, around_the_body, as_data, check_body, conform, property};
use crate::decode::{Malformed, Reader};
use crate::encode;
use crate::format_codes::section;
use crate::message::{Section, Sections};

/// The part of a section or of a body that is kept.
enum Kept {
    Whole(Range<usize>),
    /// The encoding becomes the content of a data section.
    AsData(Range<usize>),
    /// Some pairs of the application properties.
    Pairs(Vec<Range<usize>>),
}

/// Returns a valid message in place of `message`, and the error of `message`, if something was left out.
///
/// Text gets its right type, as by [`conform`]. Sections that cannot be decoded are left out; of the
/// application properties only the invalid ones, if the others can be told apart. A body that cannot be
/// decoded becomes a data section with its encoding; so does a message whose sections cannot be told apart.
pub fn keep_valid(message: &[u8]) -> (Cow<'_, [u8]>, Option<Malformed>) {
    let malformed = match conform(message) {
        Ok(conforming) => return (conforming, None),
        Err(malformed) => malformed,
    };
    let Ok(found) = Sections::scan(message) else {
        return (Cow::Owned(as_data(message)), Some(malformed));
    };
    let mut seen = Seen::default();
    // If there are too many elements without bytes, the body is kept rather than what is around it.
    let body = found.body.whole.clone();
    let mut pieces = vec![match seen.attempt(|seen| check_body(message, &found.body, seen)) {
        Ok(()) if found.body.sections > 0 => (body.start, Kept::Whole(body)),
        _ => (body.start, Kept::AsData(body)),
    }];
    for (section, check) in around_the_body(&found) {
        let bytes = &message[..section.end];
        let kept = match seen.attempt(|seen| check(bytes, section, seen)) {
            Ok(()) => Kept::Whole(section.whole()),
            Err(_) if found.application_properties == Some(section) => {
                match valid_pairs(bytes, section, &mut seen) {
                    Ok(pairs) if !pairs.is_empty() => Kept::Pairs(pairs),
                    _ => continue,
                }
            }
            Err(_) => continue,
        };
        // A footer before the body goes right after it.
        let early = found.early_footer() == Some(section);
        pieces.push((if early { found.body.whole.start + 1 } else { section.start }, kept));
    }
    pieces.sort_by_key(|(start, _)| *start);
    let corrected = seen.corrected(message);
    let mut kept = Vec::with_capacity(message.len());
    for (_, piece) in pieces {
        match piece {
            Kept::Whole(range) => kept.extend_from_slice(&corrected[range]),
            Kept::AsData(range) => kept.extend(as_data(&corrected[range])),
            Kept::Pairs(pairs) => {
                encode::described(&mut kept, section::APPLICATION_PROPERTIES.into());
                let map = encode::begin(&mut kept);
                pairs.iter().for_each(|pair| kept.extend_from_slice(&corrected[pair.clone()]));
                encode::end_map(&mut kept, map, pairs.len());
            }
        }
    }
    (Cow::Owned(kept), Some(malformed))
}

/// The places of those application properties that are valid.
fn valid_pairs(bytes: &[u8], section: Section, seen: &mut Seen) -> Result<Vec<Range<usize>>, Malformed> {
    let mut items = Reader::starting(bytes, section.value).map()?;
    let mut valid = Vec::new();
    loop {
        let (start, mut checked) = (items.at(), items.clone());
        if !items.skip()? {
            return Ok(valid);
        }
        items.skip()?;
        if seen.attempt(|seen| property(&mut checked, seen).map(drop)).is_ok() {
            valid.push(start..items.at());
        }
    }
}
