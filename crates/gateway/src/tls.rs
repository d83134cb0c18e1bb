//! Certificates: from files, or made for development. TLS 1.2 and 1.3 by rustls, with ring.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};

/// The file in which a certificate made for development is left for clients to trust.
const DEVELOPMENT_CERTIFICATE: &str = "development-certificate.pem";
/// Its key, so that clients need not be told anew after every start.
const DEVELOPMENT_KEY: &str = "development-certificate.key";

/// How a gateway proves who it is.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTls {
    /// A file that cannot be read, or is no PEM.
    #[error("cannot read {what} from {path}: {error}", path = path.display())]
    File {
        /// What should be in it.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        error: String,
    },
    /// A certificate and a key that do not go together.
    #[error("the certificate cannot be used: {0}")]
    Certificate(#[from] rustls::Error),
    /// A certificate that could not be made.
    #[error("could not make a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// A certificate that could not be written.
    #[error("could not write the certificate: {0}")]
    Writing(#[from] io::Error),
}

impl Tls {
    /// A chain of certificates, the gateway's own first, and its key, both PEM.
    pub fn from_files(certificates: &Path, key: &Path) -> Result<Self, InvalidTls> {
        let file = |what, path: &Path, error: &dyn fmt::Display| InvalidTls::File {
            what,
            path: path.to_owned(),
            error: error.to_string(),
        };
        let what = "certificates";
        let chain = CertificateDer::pem_file_iter(certificates)
            .and_then(|chain| chain.collect::<Result<Vec<_>, _>>())
            .map_err(|error| file(what, certificates, &error))?;
        if chain.is_empty() {
            return Err(file(what, certificates, &"there is none in it"));
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(|error| file("a private key", key, &error))?;
        Self::new(chain, key)
    }

    /// A certificate for these names and addresses that signed itself, for development. It is kept in
    /// `folder`, and made anew if it is not there; the path is that of the PEM file for clients to trust.
    pub fn for_development(folder: &Path, names: &[&str]) -> Result<(Self, PathBuf), InvalidTls> {
        let (certificate, key) = (folder.join(DEVELOPMENT_CERTIFICATE), folder.join(DEVELOPMENT_KEY));
        if !(certificate.exists() && key.exists()) {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            let made = rcgen::generate_simple_self_signed(names)?;
            write_private(&key, &made.signing_key.serialize_pem())?;
            std::fs::write(&certificate, made.cert.pem())?;
        }
        Ok((Self::from_files(&certificate, &key)?, certificate))
    }

    fn new(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, InvalidTls> {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls")
    }
}

/// Writes a file that nobody else may read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}
