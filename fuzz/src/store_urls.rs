//! Where a store is: URLs and connection strings, which hold passwords.

use ephor_stores::StoreUrl;

/// Shorter ones may stand in any text by chance.
const LONG_ENOUGH: usize = 8;

/// Plays one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let url = match text.parse::<StoreUrl>() {
        Ok(url) => url,
        // It may be a password that went astray, so nothing of it is repeated.
        Err(refused) => return assert!(refused.to_string().len() < 512, "{refused}"),
    };
    let shown = format!("{url} {url:?}");
    let secrets: Vec<&str> = match &url {
        // A path has none, whatever it looks like.
        StoreUrl::Sqlite(path) => {
            let again = format!("sqlite:{}", path.display()).parse();
            return assert_eq!(again, Ok(url.clone()), "what is shown can be read");
        }
        StoreUrl::Postgres(_) => password(text).into_iter().collect(),
        StoreUrl::Blob(_) => password(text).into_iter().chain(keys(text)).collect(),
    };
    for secret in secrets {
        let told_apart = secret.len() >= LONG_ENOUGH && text.matches(secret).count() == 1;
        assert!(!told_apart || !shown.contains(secret), "{text:?} shows a secret: {shown}");
    }
}

/// What stands between the user and the host.
fn password(text: &str) -> Option<&str> {
    let (_, rest) = text.trim().split_once("://")?;
    let authority = rest.split(['?', '#']).next()?;
    let (user, _) = authority.rsplit_once('@')?;
    user.split_once(':').map(|(_, password)| password)
}

/// What opens a storage account.
fn keys(text: &str) -> impl Iterator<Item = &str> {
    text.split(';').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        let names = ["AccountKey", "SharedAccessSignature"];
        names.iter().any(|key| name.trim().eq_ignore_ascii_case(key)).then(|| value.trim())
    })
}
