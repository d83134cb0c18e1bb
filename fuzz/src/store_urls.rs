//! Fuzzes store URLs and connection strings, which contain passwords.

use ephor_stores::StoreUrl;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let url = match text.parse::<StoreUrl>() {
        Ok(url) => url,
        // It may be a misplaced password, so an error repeats nothing of it.
        Err(refused) => return assert!(refused.to_string().len() < 512, "{refused}"),
    };
    let secrets: Vec<&str> = match &url {
        // A path contains no secret, whatever it looks like.
        StoreUrl::Sqlite(_) => {
            let again = url.to_string().parse();
            return assert_eq!(again, Ok(url.clone()), "what is shown can be read");
        }
        StoreUrl::Blob(_) if keys(text).next().is_some() => keys(text).collect(),
        // In a connection string, a URL is where a name is expected.
        StoreUrl::Blob(_) if !text.trim().to_ascii_lowercase().starts_with("azblob:") => return,
        StoreUrl::Postgres(_) | StoreUrl::Blob(_) => password(text).into_iter().collect(),
    };
    // With another secret of the same length the output is the same, so it shows nothing of the secret.
    for secret in secrets.into_iter().filter(|secret| text.matches(secret).count() == 1) {
        let other = text.replacen(secret, &"k".repeat(secret.len()), 1);
        let other: StoreUrl = other.parse().expect("what holds another secret can be read as well");
        assert_eq!(format!("{url} {url:?}"), format!("{other} {other:?}"), "{text:?}");
    }
}

/// The password between the user and the host.
fn password(text: &str) -> Option<&str> {
    let (_, rest) = text.trim().split_once("://")?;
    let authority = rest.split(['?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

/// The keys and signatures of a storage account.
fn keys(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let names = ["AccountKey", "SharedAccessSignature"];
        names.iter().any(|key| name.trim().eq_ignore_ascii_case(key)).then(|| value.trim())
    })
}
