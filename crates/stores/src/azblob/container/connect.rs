//! How a container is reached: what signs, what carries, and which version of the service is spoken.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use azure_core::http::{ClientOptions, RetryOptions, Transport};
use azure_storage_blob::{
    BlobContainerClient, BlobContainerClientOptions, BlobServiceClient, BlobServiceClientOptions,
};

use super::Container;
use crate::azblob::address::BlobAddress;
use crate::azblob::credential::BlobCredential;
use crate::azblob::options::{BlobOptions, ConnectError};
use crate::azblob::signing::Signer;

const NO_TOKEN_WITHOUT_TLS: &str = "nothing opens the account at this http endpoint: set AZURE_STORAGE_KEY or \
                                    AZURE_STORAGE_SAS_TOKEN, or give a connection string with AccountKey or \
                                    SharedAccessSignature. Without them Entra ID is asked, and that needs an https \
                                    endpoint";

impl Container {
    pub(in crate::azblob) fn new(
        address: &BlobAddress,
        credential: BlobCredential,
        options: &BlobOptions,
    ) -> Result<Self, ConnectError> {
        let refuse = |problem: String| ConnectError::Address { problem };
        let mut client_options = ClientOptions {
            retry: RetryOptions::none(),
            transport: Some(transport(options.call_limit).map_err(refuse)?),
            ..ClientOptions::default()
        };
        let mut token = None;
        match credential {
            BlobCredential::AccountKey(key) => {
                let account = address.account.clone();
                client_options.per_try_policies.push(Arc::new(Signer::Key { account, key }));
            }
            BlobCredential::Sas(sas) => client_options.per_try_policies.push(Arc::new(Signer::Sas(sas))),
            BlobCredential::Entra(credential) => {
                if address.endpoint.scheme() != "https" {
                    return Err(refuse(NO_TOKEN_WITHOUT_TLS.into()));
                }
                token = Some(credential);
            }
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
        Ok(Self { client, place, limit, service, versions: AtomicBool::new(false) })
    }
}

/// Requests go over TLS by ring, as everywhere here. No answer is decompressed.
fn transport(limit: Duration) -> Result<Transport, String> {
    // Fails if there is one already: that one is used then.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let builder =
        reqwest::Client::builder().connect_timeout(limit).redirect(reqwest::redirect::Policy::none());
    let client = builder.build().map_err(|error| format!("no HTTP client can be made: {error}"))?;
    Ok(Transport::new(Arc::new(client)))
}
