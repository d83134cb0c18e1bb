//! Creates the client of a container: credential, transport and service version. Refuses to send credentials
//! over a network without TLS, unless the address allows it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use azure_core::http::{ClientOptions, RetryOptions, Transport};
use azure_storage_blob::{
    BlobContainerClient, BlobContainerClientOptions, BlobServiceClient, BlobServiceClientOptions,
};
use ephor_core::loopback::is_loopback;

use super::Container;
use crate::azblob::address::BlobAddress;
use crate::azblob::options::{BlobOptions, InvalidSettings};
use crate::azblob::service::credential::BlobCredential;
use crate::azblob::service::sas_expiry::SasExpiry;
use crate::azblob::service::signing::Signer;

const NO_TOKEN_WITHOUT_TLS: &str = "there are no credentials for this http endpoint: set AZURE_STORAGE_KEY or \
                                    AZURE_STORAGE_SAS_TOKEN, or give a connection string with AccountKey or \
                                    SharedAccessSignature. Entra ID, which is used without them, needs an https \
                                    endpoint";

/// Refuses to send credentials over a network without TLS, unless the address allows it. A token of Entra ID is
/// never sent without TLS.
fn check_plaintext(address: &BlobAddress, credential: &BlobCredential) -> Result<(), InvalidSettings> {
    let refuse = |problem: String| Err(InvalidSettings::Address { problem });
    let host = address.endpoint.host_str().unwrap_or_default();
    if address.endpoint.scheme() == "https" {
        return Ok(());
    }
    let secret = match credential {
        BlobCredential::Entra(_) => return refuse(NO_TOKEN_WITHOUT_TLS.into()),
        BlobCredential::AccountKey(key) if key.is_public() => return Ok(()),
        _ if is_loopback(host) || address.allow_insecure => return Ok(()),
        BlobCredential::AccountKey(_) => "requests that are signed with the account's key",
        BlobCredential::Sas(_) => "the shared access signature",
    };
    refuse(format!(
        "the endpoint http://{host} is not on this machine, and other machines on the network could read {secret}: write https, or \
         AllowInsecure=true in the connection string (allow-insecure=true in a URL) if you trust everybody on this network"
    ))
}

impl Container {
    pub(in crate::azblob) fn new(
        address: &BlobAddress,
        credential: BlobCredential,
        options: &BlobOptions,
    ) -> Result<Self, InvalidSettings> {
        let refuse = |problem: String| InvalidSettings::Address { problem };
        let mut client_options = ClientOptions {
            retry: RetryOptions::none(),
            transport: Some(transport(options.call_limit).map_err(refuse)?),
            ..ClientOptions::default()
        };
        check_plaintext(address, &credential)?;
        let mut token = None;
        let mut expiry = None;
        match credential {
            BlobCredential::AccountKey(key) => {
                let account = address.account.clone();
                client_options.per_try_policies.push(Arc::new(Signer::Key { account, key }));
            }
            BlobCredential::Sas(sas) => {
                expiry = SasExpiry::of(&sas);
                client_options.per_try_policies.push(Arc::new(Signer::Sas(sas)));
            }
            BlobCredential::Entra(credential) => token = Some(credential),
        }
        let options_of_client =
            BlobContainerClientOptions { client_options, version: options.service_version.clone() };
        let options_of_service = BlobServiceClientOptions {
            client_options: options_of_client.client_options.clone(),
            version: options_of_client.version.clone(),
        };
        let service =
            BlobServiceClient::new(address.endpoint.clone(), token.clone(), Some(options_of_service))
                .map_err(|error| refuse(error.to_string()))?;
        let client = BlobContainerClient::new(address.container_url(), token, Some(options_of_client))
            .map_err(|error| refuse(error.to_string()))?;
        let (place, limit) = (address.to_string(), options.call_limit);
        Ok(Self { client, place, limit, service, versions: AtomicBool::new(false), expiry })
    }
}

/// The HTTP client: TLS by ring, no redirects, no decompression.
fn transport(limit: Duration) -> Result<Transport, String> {
    // Fails if a provider is installed already: that one is used.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let builder =
        reqwest::Client::builder().connect_timeout(limit).redirect(reqwest::redirect::Policy::none());
    let client = builder.build().map_err(|error| format!("cannot create the HTTP client: {error}"))?;
    Ok(Transport::new(Arc::new(client)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connect(text: &str) -> Result<(), String> {
        let address = BlobAddress::parse(text).unwrap();
        let credential = address.credential.clone().unwrap();
        let connected = Container::new(&address, credential, &BlobOptions::default());
        connected.map(drop).map_err(|error| error.to_string())
    }

    #[test]
    fn no_secret_leaves_this_machine_in_the_clear_unless_that_is_said() {
        let sas = "SharedAccessSignature=sv=2021-12-02&sig=canary";
        let key = "AccountName=contoso;AccountKey=Y2FuYXJ5";
        for (text, refused) in [
            (format!("BlobEndpoint=http://contoso.blob.example/;{sas}"), Some("shared access signature")),
            (format!("BlobEndpoint=http://10.0.0.7:10000/contoso;{sas}"), Some("http://10.0.0.7 ")),
            (format!("DefaultEndpointsProtocol=http;{key}"), Some("signed with the account's key")),
            (format!("BlobEndpoint=http://azurite:10000/contoso;{key}"), Some("AllowInsecure=true")),
            (format!("BlobEndpoint=http://azurite:10000/contoso;{key};AllowInsecure=false"), Some("https")),
            (format!("BlobEndpoint=http://azurite:10000/contoso;{key};AllowInsecure=true"), None),
            (format!("BlobEndpoint=http://azurite:10000/contoso;{sas};allowinsecure=True"), None),
            (format!("BlobEndpoint=http://127.0.0.1:10000/contoso;{sas}"), None),
            (format!("BlobEndpoint=http://[::1]:10000/contoso;{key}"), None),
            (format!("BlobEndpoint=http://localhost:10000/contoso;{key}"), None),
            (format!("BlobEndpoint=https://contoso.blob.example/;{sas}"), None),
            // The key of the emulators is no secret.
            ("UseDevelopmentStorage=true;BlobEndpoint=http://azurite:10000/devstoreaccount1".into(), None),
        ] {
            match (connect(&text), refused) {
                (Ok(()), None) => {}
                (Err(error), Some(words)) => {
                    assert!(error.contains(words) && !error.contains("canary"), "{text}: {error}");
                }
                (other, _) => panic!("{text}: {other:?}"),
            }
        }
    }
}
