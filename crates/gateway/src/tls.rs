//! TLS certificates: from files, or self-signed for development. TLS 1.2 and 1.3 by rustls, with ring.
//!
//! A certificate can be replaced while it is in use: [`Tls::reload_if_changed`] checks the files, and new
//! connections get the new certificate. If the new pair is invalid, the old one stays in use.

use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use ephor_runtime::environment::{Environment, TokioEnvironment};
use ephor_runtime::os::private_file;
use rcgen::{CertificateParams, DistinguishedName, DnType};
use tokio::net::TcpStream;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::client::verify_server_name;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, rustls};

use crate::os;

/// The file that holds the development certificate, for clients to trust.
const DEVELOPMENT_CERTIFICATE: &str = "development-certificate.pem";
/// The file that holds its key. The pair is kept, so that clients need not trust a new one after every start.
const DEVELOPMENT_KEY: &str = "development-certificate.key";

/// The certificate of a gateway and its key. Clones share them, also when they are replaced.
#[derive(Clone)]
pub struct Tls {
    acceptor: TlsAcceptor,
    served: Arc<Served>,
}

/// The reason for which a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidTls {
    /// A file cannot be read, or is not PEM.
    #[error("cannot read {what} from {path}: {error}", path = path.display())]
    File {
        /// The expected content.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        error: String,
    },
    /// The certificate and the key do not match.
    #[error("the certificate cannot be used: {0}")]
    Certificate(#[from] rustls::Error),
    /// A name is neither a host name nor an IP address, so that no client could ask for it.
    #[error("{0:?} is neither a host name nor an IP address")]
    Name(String),
    /// The certificate could not be generated.
    #[error("could not make a certificate: {0}")]
    Making(#[from] rcgen::Error),
    /// The certificate could not be written.
    #[error("could not write the certificate: {0}")]
    Writing(#[from] io::Error),
}

impl Tls {
    /// Reads a chain of certificates, the gateway's own first, and its key, both PEM.
    pub fn from_files(certificates: &Path, key: &Path) -> Result<Self, InvalidTls> {
        let files = PairFiles { certificates: certificates.to_owned(), key: key.to_owned() };
        let read = files.read()?;
        let (version, pair) = (read.version(), read.parse(&files)?);
        let served =
            Arc::new(Served { files, version: Mutex::new(version), pair: RwLock::new(Arc::new(pair)) });
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(served.clone());
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), served })
    }

    /// A self-signed certificate for these names and addresses, for development. It is kept in `folder`, and
    /// made again if it is missing, lacks one of the names, or is damaged: its two files belong to this
    /// function alone. The returned path is that of the PEM file for clients to trust.
    pub fn for_development(folder: &Path, names: &[&str]) -> Result<(Self, PathBuf), InvalidTls> {
        if let Some(name) = names.iter().find(|name| ServerName::try_from(**name).is_err()) {
            return Err(InvalidTls::Name((*name).to_owned()));
        }
        let certificates = folder.join(DEVELOPMENT_CERTIFICATE);
        let files = PairFiles { certificates: certificates.clone(), key: folder.join(DEVELOPMENT_KEY) };
        let found = match files.certificates.exists() && files.key.exists() {
            true => files.read()?.parse(&files).ok(),
            false => None,
        };
        match found {
            Some(pair) if names.iter().all(|name| is_for(&pair, name)) => os::make_private(&files.key)?,
            _ => files.make(folder, names)?,
        }
        Ok((Self::from_files(&certificates, &files.key)?, certificates))
    }

    /// Reads the certificate and its key again if one of the files changed; true if there is a new one. After
    /// an error the old one stays in use, and the next call tries again: while a pair is being replaced, one
    /// file may be new and the other old. This blocks on file I/O.
    pub fn reload_if_changed(&self) -> Result<bool, InvalidTls> {
        let served = &self.served;
        let mut known = served.version.lock().unwrap_or_else(PoisonError::into_inner);
        let read = served.files.read()?;
        let version = read.version();
        if version == *known {
            return Ok(false);
        }
        let pair = read.parse(&served.files)?;
        *served.pair.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(pair);
        *known = version;
        Ok(true)
    }

    pub(crate) async fn accept(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        self.acceptor.accept(stream).await
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Tls")
    }
}

/// The pair that is shown to clients, and its files.
struct Served {
    files: PairFiles,
    version: Mutex<Version>,
    pair: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.pair.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl fmt::Debug for Served {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Served({})", self.files.certificates.display())
    }
}

/// A hash of the contents of both files. Sizes and modification times are not enough: two pairs may be written within one
/// tick of the file system's clock.
type Version = u64;

/// The most characters that X.520 allows in a common name.
const MAX_COMMON_NAME: usize = 64;
/// The attribute `serialNumber` of X.520.
const SERIAL_NUMBER: &[u64] = &[2, 5, 4, 5];

const CERTIFICATES: &str = "certificates";
const PRIVATE_KEY: &str = "a private key";

/// The paths of a certificate and its key.
struct PairFiles {
    certificates: PathBuf,
    key: PathBuf,
}

/// The contents of the two files.
struct PairBytes {
    certificates: Vec<u8>,
    key: Vec<u8>,
}

impl PairFiles {
    fn read(&self) -> Result<PairBytes, InvalidTls> {
        let read = |what, path: &Path| fs::read(path).map_err(|error| unreadable(what, path, &error));
        Ok(PairBytes {
            certificates: read(CERTIFICATES, &self.certificates)?,
            key: read(PRIVATE_KEY, &self.key)?,
        })
    }

    /// Generates a pair and replaces the old one. Each file is replaced atomically; a crash between the two
    /// leaves a pair that does not match, and that is made again at the next start.
    fn make(&self, folder: &Path, names: &[&str]) -> Result<(), InvalidTls> {
        let key = rcgen::KeyPair::generate()?;
        let certificate = development_certificate(names)?.self_signed(&key)?;
        replace(&self.key, &key.serialize_pem(), private_file)?;
        replace(&self.certificates, &certificate.pem(), os::file_for_all_readers)?;
        fs::File::open(folder)?.sync_all()?;
        Ok(())
    }
}

/// The content of a certificate for these names. Its subject has a serial number of its own: .NET finds the
/// issuer by the subject alone, and could not tell two development certificates apart in one file.
fn development_certificate(names: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())?;
    let serial = TokioEnvironment.random();
    let host = names.first().copied().unwrap_or("localhost");
    let mut subject = DistinguishedName::new();
    subject.push(DnType::OrganizationName, "Ephor development certificate");
    subject.push(DnType::CommonName, host.chars().take(MAX_COMMON_NAME).collect::<String>());
    subject.push(DnType::CustomDnType(SERIAL_NUMBER.to_vec()), format!("{serial:016x}"));
    params.distinguished_name = subject;
    // Not negative, and not zero: the first byte is 1.
    params.serial_number = Some([&[1], &serial.to_be_bytes()[..]].concat().into());
    Ok(params)
}

impl PairBytes {
    fn version(&self) -> Version {
        let mut hasher = DefaultHasher::new();
        (&self.certificates, &self.key).hash(&mut hasher);
        hasher.finish()
    }

    fn parse(self, from: &PairFiles) -> Result<CertifiedKey, InvalidTls> {
        let chain = CertificateDer::pem_slice_iter(&self.certificates).collect::<Result<Vec<_>, _>>();
        let chain = chain.map_err(|error| unreadable(CERTIFICATES, &from.certificates, &error))?;
        if chain.is_empty() {
            return Err(unreadable(CERTIFICATES, &from.certificates, &"the file contains none"));
        }
        let key = PrivateKeyDer::from_pem_slice(&self.key);
        let key = key.map_err(|error| unreadable(PRIVATE_KEY, &from.key, &error))?;
        Ok(CertifiedKey::from_der(chain, key, &default_provider())?)
    }
}

fn unreadable(what: &'static str, path: &Path, error: &dyn fmt::Display) -> InvalidTls {
    InvalidTls::File { what, path: path.to_owned(), error: error.to_string() }
}

/// True if a client that asks for this name or address accepts the certificate.
fn is_for(pair: &CertifiedKey, name: &str) -> bool {
    let Some(certificate) = pair.cert.first().and_then(|first| ParsedCertificate::try_from(first).ok())
    else {
        return false;
    };
    ServerName::try_from(name).is_ok_and(|name| verify_server_name(&certificate, &name).is_ok())
}

/// Replaces a file atomically. The function sets its permissions.
fn replace(
    path: &Path,
    text: &str,
    set_permissions: fn(&mut fs::OpenOptions) -> &mut fs::OpenOptions,
) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    let mut file = set_permissions(options.write(true).create_new(true)).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)
}
