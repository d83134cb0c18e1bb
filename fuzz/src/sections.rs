//! Fuzzes the splitting of an AMQP message into its sections.

use ephor_amqp::Sections;

/// Runs one input.
pub fn run(data: &[u8]) {
    let found = match Sections::scan(data) {
        Ok(found) => found,
        Err(malformed) => return assert!(malformed.at <= data.len(), "{malformed}"),
    };
    let single = [
        found.header,
        found.delivery_annotations,
        found.message_annotations,
        found.properties,
        found.application_properties,
        found.footer,
    ];
    let mut places = vec![found.body.whole.clone()];
    for section in single.into_iter().flatten() {
        assert!(section.start < section.value && section.value < section.end, "{section:?}");
        places.push(section.whole());
    }
    places.sort_by_key(|place| place.start);
    let mut at = 0;
    for place in places {
        assert_eq!(place.start, at, "sections neither overlap nor leave gaps");
        at = place.end;
    }
    assert_eq!(at, data.len(), "nothing follows the last section");
    let body = &found.body;
    if body.sections == 0 {
        assert!(body.whole.is_empty() && body.content == body.whole, "{body:?}");
        assert_eq!(found.early_footer(), None, "what follows is after it");
    } else {
        assert!(body.whole.start < body.content.start);
    }
    assert!(body.content.start <= body.content.end && body.content.end <= body.whole.end);
    assert_eq!(found.data(data).count(), found.data_sections());
    let bytes: usize = found.data(data).map(<[u8]>::len).sum();
    assert!(bytes <= body.whole.len());
}
