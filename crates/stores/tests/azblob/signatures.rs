//! Test helper: creates shared access signatures of an account and of a container.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ephor_testkit::azurite_server::{ACCOUNT, KEY};
use hmac::{Hmac, Mac};
use sha2::Sha256;

pub(crate) const FAR: &str = "2099-01-01T00:00:00Z";

/// A connection string with a signature for everything of the account that `permissions` allow.
pub(crate) fn signed(place: &str, permissions: &str, expires: &str) -> String {
    let version = "2018-11-09";
    let text = format!("{ACCOUNT}\n{permissions}\nb\nsco\n\n{expires}\n\n\n{version}\n");
    with(place, &format!("sv={version}&ss=b&srt=sco&sp={permissions}"), expires, &text)
}

/// A connection string with a signature for its container alone (`sr=c`).
pub(crate) fn signed_container(place: &str, permissions: &str, expires: &str) -> String {
    let version = "2018-11-09";
    let (_, container) = place.rsplit_once("Container=").unwrap();
    // Start, then identifier, address and protocol; behind the kind a snapshot and five headers of answers.
    let text =
        format!("{permissions}\n\n{expires}\n/blob/{ACCOUNT}/{container}\n\n\n\n{version}\nc\n\n\n\n\n\n");
    with(place, &format!("sv={version}&sr=c&sp={permissions}"), expires, &text)
}

fn with(place: &str, fields: &str, expires: &str, text: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(KEY).unwrap()).unwrap();
    mac.update(text.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    let escaped = signature.replace('+', "%2B").replace('/', "%2F").replace('=', "%3D");
    let sas = format!("{fields}&se={}&sig={escaped}", expires.replace(':', "%3A"));
    place.replace(&format!("AccountKey={KEY}"), &format!("SharedAccessSignature={sas}"))
}
