//! Parses the address of a container: `azblob://ACCOUNT/CONTAINER[/PREFIX]`, or a connection string.
//!
//! A connection string is that of the portal. Ephor adds fields, which other programs ignore: `Container`
//! (`NAME[/PREFIX]`, by default `ephor`), `SharedWith`, `Case`, `ServiceVersion` and `AllowInsecure`, and
//! for the container of an old Event Processor Host `Layout`, `Namespace` and `Hub`. A URL has the same
//! as parameters: `?endpoint=…&shared-with=other-sdks&case=as-given&version=2017-11-09&allow-insecure=true`,
//! `?layout=eph&namespace=…&hub=…`.

use std::fmt;

use azure_core::http::Url;
use ephor_core::ids::{HubName, Namespace};

use crate::azblob::address_values::{case, layout, refuse, shared_with, yes_or_no};
use crate::azblob::layout::blob_names::{Case, is_prefix};
use crate::azblob::options::{InvalidSettings, SharedWith};
use crate::azblob::service::credential::{AccountKey, BlobCredential, Sas};
use crate::storage_account::{DEFAULT_SUFFIX, StorageAccess, StorageAccount, field};
use crate::url::DEFAULT_CONTAINER;

/// The address of a container, and the credential if the text has one. It shows no secret.
#[derive(Clone)]
pub struct BlobAddress {
    /// The account.
    pub account: String,
    /// The URL of its blob service.
    pub endpoint: Url,
    /// The container.
    pub container: String,
    /// The prefix of all blobs, without a slash at its end; may be empty. For [`Layout::Eph`] it keeps a slash
    /// that was written, because there it is a part of the names.
    pub prefix: String,
    /// The credential, if the text has one.
    pub credential: Option<BlobCredential>,
    /// The other owners of partitions, if the text says so.
    pub shared_with: Option<SharedWith>,
    /// The case of the names of blobs, if the text says so.
    pub case: Option<Case>,
    /// The version of the service's interface, if the text says so.
    pub service_version: Option<String>,
    /// Whether secrets may go over the network without TLS.
    pub allow_insecure: bool,
    /// The layout of the blobs.
    pub layout: Layout,
}

/// The layout of the blobs in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Layout {
    /// That of Ephor and of the present SDKs.
    #[default]
    Sdk,
    /// That of the old Event Processor Host. Its blobs do not name their hub.
    Eph {
        /// The namespace of the hub.
        namespace: Namespace,
        /// The hub.
        hub: HubName,
    },
}

const FORMS: &str = "write azblob://ACCOUNT/CONTAINER, or a connection string of a storage account with \
                     ;Container=NAME at its end";

impl BlobAddress {
    /// Reads a URL or a connection string.
    pub fn parse(text: &str) -> Result<Self, InvalidSettings> {
        let text = text.trim();
        match text.get(..9) {
            Some(scheme) if scheme.eq_ignore_ascii_case("azblob://") => Self::of_url(&text[9..]),
            _ if StorageAccount::is_connection_string(text) => Self::of_connection_string(text),
            _ => refuse(format!("it is neither a URL nor a connection string: {FORMS}")),
        }
    }

    /// `ACCOUNT/CONTAINER[/PREFIX][?endpoint=…&shared-with=other-sdks&case=as-given&version=…&allow-insecure=true]`.
    fn of_url(rest: &str) -> Result<Self, InvalidSettings> {
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        if place.contains(['@', '#']) || query.contains('#') {
            return refuse("a URL of a storage account cannot contain a key: give it in a connection string");
        }
        let Some((account, path)) = place.split_once('/') else {
            return refuse(format!("there is no container after the account: {FORMS}"));
        };
        let mut address = Self::at(account, None, path)?;
        let (mut old, mut namespace, mut hub) = (None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
            match name.to_ascii_lowercase().as_str() {
                "endpoint" => address.endpoint = endpoint(&value)?,
                "shared-with" => address.shared_with = Some(shared_with(&value)?),
                "neighbours" => {
                    return refuse(
                        "neighbours is called shared-with: write shared-with=ephor or shared-with=other-sdks",
                    );
                }
                "case" => address.case = Some(case(&value)?),
                "version" => address.service_version = Some(value.into_owned()),
                "allow-insecure" => address.allow_insecure = yes_or_no(&value)?,
                "layout" => old = Some(value.into_owned()),
                "namespace" => namespace = Some(value.into_owned()),
                "hub" => hub = Some(value.into_owned()),
                // It may be a misplaced signature: the message does not repeat it.
                _ => {
                    return refuse(
                        "the URL has an unknown parameter; the known ones are endpoint, shared-with, case, version, \
                         allow-insecure, layout, namespace and hub (a shared access signature goes in AZURE_STORAGE_SAS_TOKEN)",
                    );
                }
            }
        }
        address.layout = layout(old.as_deref(), namespace.as_deref(), hub.as_deref())?;
        address.keep_slash(path);
        Ok(address)
    }

    fn of_connection_string(text: &str) -> Result<Self, InvalidSettings> {
        let get = |wanted: &str| field(text, wanted);
        let place = get("Container").unwrap_or(DEFAULT_CONTAINER);
        let account = match StorageAccount::parse(text) {
            Ok(account) => account,
            Err(problem) => return refuse(format!("the connection string {problem}")),
        };
        let mut address = Self::at(&account.name, Some(endpoint(&account.endpoint)?), place)?;
        address.credential = account.access.map(credential).transpose()?;
        if get("Neighbours").is_some() {
            return refuse(
                "Neighbours is called SharedWith: write SharedWith=ephor or SharedWith=other-sdks",
            );
        }
        address.shared_with = get("SharedWith").map(shared_with).transpose()?;
        address.case = get("Case").map(case).transpose()?;
        address.service_version = get("ServiceVersion").map(str::to_owned);
        address.allow_insecure = get("AllowInsecure").map_or(Ok(false), yes_or_no)?;
        address.layout = layout(get("Layout"), get("Namespace"), get("Hub"))?;
        address.keep_slash(place);
        Ok(address)
    }

    /// Keeps a slash at the end of the prefix: old hosts put nothing between prefix and group.
    fn keep_slash(&mut self, place: &str) {
        if self.layout != Layout::Sdk && !self.prefix.is_empty() && place.ends_with('/') {
            self.prefix.push('/');
        }
    }

    fn at(account: &str, given: Option<Url>, place: &str) -> Result<Self, InvalidSettings> {
        let known = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if account.is_empty() || !account.chars().all(known) {
            return refuse("the name of the account is invalid: use lower-case letters and digits");
        }
        let place = place.trim_end_matches('/');
        let (container, prefix) = place.split_once('/').unwrap_or((place, ""));
        let known = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let whole = (3..=63).contains(&container.len()) && container.chars().all(known);
        if !whole || container.starts_with('-') || container.ends_with('-') || container.contains("--") {
            return refuse(format!(
                "{:?} cannot be the name of a container: use 3 to 63 lower-case letters, digits and single hyphens",
                container.chars().take(80).collect::<String>()
            ));
        }
        if !prefix.is_empty() && !is_prefix(prefix) {
            return refuse(
                "the prefix after the container has an empty part, a part that is a dot, or is too long",
            );
        }
        let endpoint = match given {
            Some(endpoint) => endpoint,
            None => endpoint(&format!("https://{account}.blob.{DEFAULT_SUFFIX}"))?,
        };
        Ok(Self {
            account: account.to_owned(),
            endpoint,
            container: container.to_owned(),
            prefix: prefix.to_owned(),
            credential: None,
            shared_with: None,
            case: None,
            service_version: None,
            allow_insecure: false,
            layout: Layout::Sdk,
        })
    }

    /// The URL of the container.
    pub(super) fn container_url(&self) -> Url {
        let mut url = self.endpoint.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop_if_empty().push(&self.container);
        }
        url
    }
}

fn endpoint(text: &str) -> Result<Url, InvalidSettings> {
    let url = Url::parse(text.trim_end_matches('/')).ok();
    let fine = |url: &Url| {
        matches!(url.scheme(), "http" | "https")
            && url.has_host()
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none()
    };
    match url.filter(fine) {
        Some(url) => Ok(url),
        // It may contain a signature: the message does not repeat it.
        None => refuse(
            "the endpoint is not the plain URL of a blob service, such as https://ACCOUNT.blob.core.windows.net",
        ),
    }
}

fn credential(access: StorageAccess) -> Result<BlobCredential, InvalidSettings> {
    match access {
        StorageAccess::Key(key) => match AccountKey::from_base64(&key) {
            Some(key) => Ok(BlobCredential::AccountKey(key)),
            None => refuse("AccountKey is not valid base64: copy it again, including the = at its end"),
        },
        StorageAccess::Signature(signature) => match Sas::new(&signature) {
            Some(sas) => Ok(BlobCredential::Sas(sas)),
            None => refuse("SharedAccessSignature contains no sig=: copy it again, to its end"),
        },
    }
}

impl fmt::Display for BlobAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "azblob://{}/{}", self.account, self.container)?;
        if !self.prefix.is_empty() {
            write!(f, "/{}", self.prefix)?;
        }
        Ok(())
    }
}

impl fmt::Debug for BlobAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} at {} by {:?}", self.endpoint, self.credential)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BlobAddress, String> {
        BlobAddress::parse(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_url_names_a_place() {
        let address = parse("azblob://contoso/leases/blue/green").unwrap();
        assert_eq!(address.to_string(), "azblob://contoso/leases/blue/green");
        assert_eq!((address.container.as_str(), address.prefix.as_str()), ("leases", "blue/green"));
        assert_eq!(address.container_url().as_str(), "https://contoso.blob.core.windows.net/leases");
        let own = parse(
            "AZBLOB://contoso/leases/?endpoint=http%3A%2F%2F127.0.0.1:1%2Fcontoso&shared-with=OTHER-SDKS&version=2017-11-09",
        );
        let own = own.unwrap();
        assert_eq!(own.container_url().as_str(), "http://127.0.0.1:1/contoso/leases");
        assert_eq!(
            (own.shared_with, own.service_version.as_deref()),
            (Some(SharedWith::OtherSdks), Some("2017-11-09"))
        );
        assert_eq!(own.prefix, "");
    }

    #[test]
    fn a_connection_string_names_a_place_and_opens_it() {
        let text = "DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=Y2FuYXJ5;EndpointSuffix=core.windows.net";
        let address = parse(text).unwrap();
        assert_eq!(address.container_url().as_str(), "https://contoso.blob.core.windows.net/ephor");
        assert!(
            matches!(&address.credential, Some(BlobCredential::AccountKey(key)) if key.bytes() == b"canary")
        );
        let address = parse(&format!("{text};Container=homes/blue;SharedWith=other-sdks")).unwrap();
        assert_eq!(address.to_string(), "azblob://contoso/homes/blue");
        assert_eq!(address.shared_with, Some(SharedWith::OtherSdks));
        let dev = parse("UseDevelopmentStorage=true;Container=homes").unwrap();
        assert_eq!(dev.container_url().as_str(), "http://127.0.0.1:10000/devstoreaccount1/homes");
        let sas = parse(
            "BlobEndpoint=https://contoso.blob.core.chinacloudapi.cn/;SharedAccessSignature=sv=2021-12-02&sig=canary%3D",
        )
        .unwrap();
        assert_eq!(sas.account, "contoso");
        assert!(matches!(sas.credential, Some(BlobCredential::Sas(_))));
        let own = parse("BlobEndpoint=http://127.0.0.1:7/dev;AccountName=dev;Container=homes").unwrap();
        assert_eq!(own.container_url().as_str(), "http://127.0.0.1:7/dev/homes");
        assert!(own.credential.is_none());
    }

    #[test]
    fn a_slash_behind_the_prefix_is_kept_for_an_old_fleet_alone() {
        let old = "layout=eph&namespace=ns.example.net&hub=homes";
        for (place, sdk, eph) in [
            ("leases", "", ""),
            ("leases/", "", ""),
            ("leases/blue", "blue", "blue"),
            ("leases/blue/green/", "blue/green", "blue/green/"),
        ] {
            let url = format!("azblob://contoso/{place}");
            assert_eq!(parse(&url).unwrap().prefix, sdk, "{place}");
            assert_eq!(parse(&format!("{url}?{old}")).unwrap().prefix, eph, "{place}");
            let string = format!("AccountName=contoso;Container={place}");
            assert_eq!(parse(&string).unwrap().prefix, sdk, "{place}");
            let string = format!("{string};{}", old.replace('&', ";"));
            assert_eq!(parse(&string).unwrap().prefix, eph, "{place}");
        }
    }

    #[test]
    fn the_case_of_names_is_as_the_text_says() {
        for (text, expected) in [
            ("azblob://contoso/leases", None),
            ("azblob://contoso/leases?case=as-given", Some(Case::AsGiven)),
            ("azblob://contoso/leases?Case=LOWER", Some(Case::Lower)),
            ("AccountName=contoso;Case=as-given", Some(Case::AsGiven)),
        ] {
            assert_eq!(parse(text).unwrap().case, expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_place_is_refused_without_its_secret() {
        for (text, part) in [
            ("canary", "azblob://ACCOUNT/CONTAINER"),
            ("azblob://contoso", "no container"),
            ("azblob://contoso/UPPER", "lower-case letters"),
            ("azblob://contoso/ab", "3 to 63"),
            ("azblob://contoso/a--b", "single hyphens"),
            ("azblob://contoso/leases//x", "empty part"),
            ("azblob://ada:canary@contoso/leases", "cannot contain a key"),
            ("azblob://contoso/leases?sig=canary", "AZURE_STORAGE_SAS_TOKEN"),
            ("azblob://contoso/leases?endpoint=canary", "plain URL"),
            ("azblob://contoso/leases?endpoint=https://x/?sig=canary", "plain URL"),
            ("azblob://contoso/leases?shared-with=canary", "ephor"),
            ("azblob://contoso/leases?neighbours=canary", "write shared-with="),
            ("AccountName=contoso;Neighbours=canary", "write SharedWith="),
            ("azblob://contoso/leases?case=canary", "as-given"),
            ("azblob://contoso/leases?case=small", "case must be lower"),
            ("azblob://contoso/leases?allow-insecure=canary", "true or false"),
            ("AccountName=contoso;AllowInsecure=canary", "true or false"),
            ("azblob://contoso/leases?layout=eph&hub=homes", "add namespace and hub"),
            ("azblob://contoso/leases?layout=canary", "layout must be sdk"),
            ("AccountName=contoso;AccountKey=canary!", "base64"),
            ("AccountName=contoso;SharedAccessSignature=canary", "no sig="),
            ("BlobEndpoint=https://canary@contoso/", "plain URL"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part) && !error.contains("canary"), "{text}: {error}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        for secret in ["AccountKey=Y2FuYXJ5", "SharedAccessSignature=sig=Y2FuYXJ5"] {
            let address = parse(&format!("AccountName=contoso;{secret}")).unwrap();
            let shown = format!("{address} {address:?}");
            assert!(shown.contains("azblob://contoso/ephor") && !shown.contains("Y2Fu"), "{shown}");
        }
    }
}
