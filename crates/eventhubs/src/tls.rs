//! TLS settings of the client: the root certificates that it trusts.

use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use crate::options::InvalidOptions;

/// Creates a connector that trusts the public root certificates and those in `extra`, in PEM.
pub(crate) fn connector(extra: &[Vec<u8>]) -> Result<TlsConnector, InvalidOptions> {
    let wrong = |text: String| InvalidOptions::new("extra_root", text);
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    for pem in extra {
        let before = roots.len();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate =
                certificate.map_err(|error| wrong(format!("an extra root is not PEM: {error}")))?;
            roots
                .add(certificate)
                .map_err(|error| wrong(format!("an extra root is not a usable certificate: {error}")))?;
        }
        if roots.len() == before {
            return Err(wrong("an extra root contains no certificate; it has to be PEM".into()));
        }
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| wrong(format!("TLS cannot be set up: {error}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_refused_with_words() {
        assert!(connector(&[]).is_ok());
        for extra in [&b""[..], b"hello", b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n"] {
            let error = connector(&[extra.to_vec()]).map(|_| ()).unwrap_err();
            assert!(error.to_string().contains("extra root"), "{error}");
        }
    }
}
