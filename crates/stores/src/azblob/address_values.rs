//! Parses the values of an address that are the same in a URL and in a connection string.

use super::address::Layout;
use super::options::{InvalidSettings, SharedWith};
use crate::azblob::layout::blob_names::Case;

pub(super) fn refuse<T>(problem: impl Into<String>) -> Result<T, InvalidSettings> {
    Err(InvalidSettings::Address { problem: problem.into() })
}

pub(super) fn layout(
    name: Option<&str>,
    namespace: Option<&str>,
    hub: Option<&str>,
) -> Result<Layout, InvalidSettings> {
    match name.map(str::to_ascii_lowercase).as_deref() {
        None | Some("sdk") => Ok(Layout::Sdk),
        Some("eph") => {
            match (namespace.and_then(|text| text.parse().ok()), hub.and_then(|text| text.parse().ok())) {
                (Some(namespace), Some(hub)) => Ok(Layout::Eph { namespace, hub }),
                _ => refuse(
                    "the container of an old Event Processor Host does not name its hub: add namespace and hub",
                ),
            }
        }
        Some(_) => refuse("layout must be sdk, or eph for the container of an old Event Processor Host"),
    }
}

pub(super) fn yes_or_no(text: &str) -> Result<bool, InvalidSettings> {
    match text.to_ascii_lowercase().as_str() {
        "true" => Ok(true),
        "false" => Ok(false),
        _ => refuse("AllowInsecure must be true or false"),
    }
}

pub(super) fn shared_with(text: &str) -> Result<SharedWith, InvalidSettings> {
    match text.to_ascii_lowercase().as_str() {
        "ephor" => Ok(SharedWith::EphorOnly),
        "other-sdks" => Ok(SharedWith::OtherSdks),
        _ => refuse(
            "shared-with must be ephor (only hosts of Ephor) or other-sdks (also processors of other SDKs)",
        ),
    }
}

pub(super) fn case(text: &str) -> Result<Case, InvalidSettings> {
    match text.to_ascii_lowercase().as_str() {
        "lower" => Ok(Case::Lower),
        "as-given" => Ok(Case::AsGiven),
        _ => refuse(
            "case must be lower (as .NET, JavaScript and Python write names) or as-given (Java, Go, Rust)",
        ),
    }
}
