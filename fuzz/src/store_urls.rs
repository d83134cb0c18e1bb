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
            return assert_eq!(again, Ok(url.clone()), "a displayed URL can be parsed");
        }
        StoreUrl::Blob(_) if keys(text).next().is_some() => keys(text).collect(),
        // Fields of a connection string in a URL: nothing is shown.
        StoreUrl::Blob(_) if is_azblob(text) && before_parameters(text).contains([';', '=']) => {
            return assert_eq!(url.to_string(), "azblob://…", "{text:?}");
        }
        // In a connection string, a URL is where a name is expected.
        StoreUrl::Blob(_) if !is_azblob(text) => return,
        StoreUrl::Postgres(_) | StoreUrl::Blob(_) => password(text).into_iter().collect(),
        // Outside of its crate the enum needs this arm: the seed of a new store leads here.
        _ => panic!("{url}: say here which parts of the URL of this store are secret"),
    };
    // With another secret of the same length the output is the same, so it shows nothing of the secret.
    for secret in secrets {
        let other = with_another(text, secret);
        let other: StoreUrl = other
            .parse()
            .unwrap_or_else(|error| panic!("{other:?} has another secret than {text:?}: {error}"));
        assert_eq!(format!("{url} {url:?}"), format!("{other} {other:?}"), "{text:?}");
    }
}

/// The text with another secret in the place of this one, which is a part of it.
fn with_another(text: &str, secret: &str) -> String {
    let begins = secret.as_ptr().addr() - text.as_ptr().addr();
    [&text[..begins], &"k".repeat(secret.len()), &text[begins + secret.len()..]].concat()
}

fn is_azblob(text: &str) -> bool {
    text.trim().to_ascii_lowercase().starts_with("azblob:")
}

fn before_parameters(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
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
