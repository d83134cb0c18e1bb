//! The credentials for a storage account. Their `Debug` output shows no secret.

use std::fmt;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::storage_account::EMULATOR_KEY;

/// A credential for a storage account.
#[derive(Clone)]
#[non_exhaustive]
pub enum BlobCredential {
    /// The key of the account, which signs every request.
    AccountKey(AccountKey),
    /// A shared access signature: the query string that the portal gives out, with or without its question mark.
    Sas(Sas),
    /// Entra ID: a credential that issues tokens for `https://storage.azure.com`.
    Entra(Arc<dyn TokenCredential>),
}

/// The key of an account.
#[derive(Clone, PartialEq, Eq)]
pub struct AccountKey(Arc<[u8]>);

/// A shared access signature.
#[derive(Clone, PartialEq, Eq)]
pub struct Sas(Arc<str>);

impl AccountKey {
    /// Reads a key as the portal shows it, in base64; none if it is not base64.
    pub fn from_base64(text: &str) -> Option<Self> {
        let bytes = STANDARD.decode(text.trim()).ok().filter(|bytes| !bytes.is_empty())?;
        Some(Self(bytes.into()))
    }

    pub(in crate::azblob) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether it is the public key of the emulators.
    pub(in crate::azblob) fn is_public(&self) -> bool {
        Self::from_base64(EMULATOR_KEY).as_ref() == Some(self)
    }
}

impl Sas {
    /// Reads a signature as the portal shows it; none if it contains no `sig`.
    pub fn new(text: &str) -> Option<Self> {
        let text = text.trim().trim_start_matches('?');
        let signed = text.split('&').any(|pair| pair.len() > 4 && pair.starts_with("sig="));
        signed.then(|| Self(text.into()))
    }

    pub(in crate::azblob) fn query(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for BlobCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AccountKey(_) => "an account key",
            Self::Sas(_) => "a shared access signature",
            Self::Entra(_) => "Entra ID",
        })
    }
}

impl fmt::Debug for AccountKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an account key")
    }
}

impl fmt::Debug for Sas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a shared access signature")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_secret_is_refused_and_what_is_one_is_not_shown() {
        assert_eq!(AccountKey::from_base64("no base64!"), None);
        assert_eq!(AccountKey::from_base64(""), None);
        let key = AccountKey::from_base64("Y2FuYXJ5").unwrap();
        assert_eq!(key.bytes(), b"canary");
        assert_eq!(Sas::new("sv=1"), None);
        assert_eq!(Sas::new("sig="), None);
        let sas = Sas::new("?sv=2021-12-02&se=2030-01-01T00%3A00%3A00Z&sig=canary%3D").unwrap();
        assert_eq!(sas.query(), "sv=2021-12-02&se=2030-01-01T00%3A00%3A00Z&sig=canary%3D");
        let shown = format!("{key:?} {sas:?} {:?}", BlobCredential::Sas(sas.clone()));
        assert!(!shown.contains("canary") && !shown.contains("Y2Fu"), "{shown}");
    }
}
