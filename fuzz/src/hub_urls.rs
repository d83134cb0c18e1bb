//! Fuzzes the URLs of hubs, some of which are connection strings with keys.

use ephor::hubs::HubUrl;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let url = match text.parse::<HubUrl>() {
        Ok(url) => url,
        // It may be a misplaced key, so an error repeats nothing of it.
        Err(refused) => return assert!(refused.to_string().len() < 512, "{refused}"),
    };
    let HubUrl::EventHubs(_) = &url else {
        let again = url.to_string().parse();
        return assert_eq!(again, Ok(url.clone()), "a displayed URL can be parsed");
    };
    // With another secret of the same length the output is the same, so it shows nothing of the secret.
    for secret in secrets(text).filter(|secret| text.matches(*secret).count() == 1) {
        let other = text.replacen(secret, &"k".repeat(secret.len()), 1);
        let other: HubUrl = other.parse().expect("a URL with another secret can be parsed");
        assert_eq!(format!("{url} {url:?}"), format!("{other} {other:?}"), "{text:?}");
    }
}

/// The keys and tokens of a connection string.
fn secrets(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let names = ["SharedAccessKey", "SharedAccessSignature"];
        names.iter().any(|key| name.trim().eq_ignore_ascii_case(key)).then(|| value.trim())
    })
}
