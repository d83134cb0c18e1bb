//! Finds the Entra ID credential of this process: an application secret, a workload identity, a managed
//! identity, or the signed-in user.

use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_identity::{
    ClientSecretCredential, DeveloperToolsCredential, ManagedIdentityCredential, WorkloadIdentityCredential,
};

use crate::azblob::options::InvalidSettings;

/// The credential that the environment names: an application with a secret, a Kubernetes workload identity, a
/// managed identity of Azure, or else the user who signed in by `az login` or `azd auth login`.
pub(in crate::azblob) fn credential(account: &str) -> Result<Arc<dyn TokenCredential>, InvalidSettings> {
    // Its HTTP client uses the installed TLS provider.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    let refuse = |error: azure_core::Error| InvalidSettings::NoCredential {
        account: account.to_owned(),
        problem: error.to_string(),
    };
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
    if let (Some(tenant), Some(client), Some(secret)) =
        (variable("AZURE_TENANT_ID"), variable("AZURE_CLIENT_ID"), variable("AZURE_CLIENT_SECRET"))
    {
        let made = ClientSecretCredential::new(&tenant, client, secret.into(), None).map_err(refuse)?;
        return Ok(made);
    }
    if variable("AZURE_FEDERATED_TOKEN_FILE").is_some() {
        return Ok(WorkloadIdentityCredential::new(None).map_err(refuse)?);
    }
    if variable("IDENTITY_ENDPOINT").is_some() || variable("AZURE_CLIENT_ID").is_some() {
        return Ok(ManagedIdentityCredential::new(None).map_err(refuse)?);
    }
    Ok(DeveloperToolsCredential::new(None).map_err(refuse)?)
}
