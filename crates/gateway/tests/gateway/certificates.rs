//! Tests of certificates: one for development is kept unless it lacks a requested name or is half written
//! after a crash, other users cannot read its key, and a certificate is replaced while the server runs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ephor_gateway::{Gateway, GatewayConfig, Tls};
use ephor_hub::{LocalNamespace, NamespaceConfig};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, SignatureScheme};

const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// Makes or finds the pair in a folder, and returns the paths of its two files.
fn pair(folder: &Path, names: &[&str]) -> (PathBuf, PathBuf) {
    let (_, certificate) = Tls::for_development(folder, names).unwrap();
    let key = certificate.with_extension("key");
    (certificate, key)
}

fn mode(file: &Path) -> u32 {
    fs::metadata(file).unwrap().permissions().mode() & 0o777
}

/// The subject of a certificate: what is between the two occurrences of our organization, issuer and subject.
fn subject(certificate: &Path) -> String {
    let der = CertificateDer::from_pem_file(certificate).unwrap();
    let text = String::from_utf8_lossy(&der).into_owned();
    let mark = "Ephor development certificate";
    let (_, rest) = text.split_once(mark).expect("our organization");
    rest.split_once(mark).expect("our organization again").0.to_owned()
}

#[test]
fn each_certificate_has_a_subject_of_its_own_with_its_host() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let long = format!("{}.example", "name".repeat(15));
    let names = [long.as_str(), "127.0.0.1"];
    let (first, second) = (pair(one.path(), &NAMES).0, pair(other.path(), &names).0);
    assert!(subject(&first).contains("localhost"), "{:?}", subject(&first));
    assert!(subject(&second).contains(&long[..64]), "{:?}", subject(&second));
    let third = tempfile::tempdir().unwrap();
    assert_ne!(subject(&first), subject(&pair(third.path(), &NAMES).0), "the same host twice");
}

#[test]
fn a_pair_of_ours_that_a_crash_left_half_written_is_made_again() {
    let other = tempfile::tempdir().unwrap();
    let (other_certificate, other_key) = pair(other.path(), &NAMES);
    let (other_certificate, other_key) =
        (fs::read_to_string(other_certificate).unwrap(), fs::read_to_string(other_key).unwrap());
    type Harm<'a> = &'a dyn Fn(&Path, &Path);
    let harms: [(&str, Harm<'_>); 6] = [
        ("a new key beside the old certificate", &|_, key| fs::write(key, &other_key).unwrap()),
        ("an old key beside a new certificate", &|file, _| fs::write(file, &other_certificate).unwrap()),
        ("no certificate", &|file, _| fs::remove_file(file).unwrap()),
        ("no key", &|_, key| fs::remove_file(key).unwrap()),
        ("an empty certificate", &|file, _| fs::write(file, "").unwrap()),
        ("half a key", &|_, key| fs::write(key, &other_key[..40]).unwrap()),
    ];
    for (what, harm) in harms {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = pair(folder.path(), &NAMES);
        harm(&certificate, &key);
        let found = Tls::for_development(folder.path(), &NAMES);
        assert!(found.is_ok(), "{what}: {}", found.map(|_| ()).unwrap_err());
        // From then on it is not replaced.
        let before = fs::read_to_string(&certificate).unwrap();
        pair(folder.path(), &NAMES);
        assert_eq!(before, fs::read_to_string(&certificate).unwrap(), "{what}");
        assert_eq!(mode(&key), 0o600, "{what}");
        let files = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(files, 2, "{what}: something is left lying about");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_and_no_reason_to_replace_it() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, _) = pair(folder.path(), &NAMES);
    fs::remove_file(&certificate).unwrap();
    fs::create_dir(&certificate).unwrap();
    let error = Tls::for_development(folder.path(), &NAMES).map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("development-certificate.pem"), "{error}");
}

#[test]
fn a_key_of_ours_that_others_could_read_is_made_private_again() {
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = pair(folder.path(), &NAMES);
    let before = fs::read_to_string(&certificate).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    pair(folder.path(), &NAMES);
    assert_eq!(mode(&key), 0o600);
    assert_eq!(before, fs::read_to_string(&certificate).unwrap());
    // Also when it is overwritten.
    fs::remove_file(&certificate).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o666)).unwrap();
    pair(folder.path(), &NAMES);
    assert_eq!(mode(&key), 0o600);
}

#[test]
fn a_certificate_stays_until_it_lacks_a_name_that_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let read = |names: &[&str]| fs::read_to_string(pair(folder.path(), names).0).unwrap();
    let all = read(&["localhost", "127.0.0.1", "hub.example"]);
    assert_eq!(all, read(&["hub.example"]));
    assert_eq!(all, read(&["127.0.0.1", "HUB.example"]));
    let more = read(&["localhost", "hub.example", "10.0.0.7"]);
    assert_ne!(all, more);
    assert_eq!(more, read(&["10.0.0.7"]));
    // A name that no client can ask for would lead to a new certificate at every start.
    let error = Tls::for_development(folder.path(), &["no name"]).map(|_| ()).unwrap_err().to_string();
    assert_eq!(error, "\"no name\" is neither a host name nor an IP address");
}

/// The certificate that the server presents, valid or not.
async fn shown(address: std::net::SocketAddr) -> CertificateDer<'static> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
}

/// A verifier that accepts every certificate.
#[derive(Debug)]
struct Anybody;

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}

#[tokio::test]
async fn a_certificate_is_replaced_without_a_restart_and_never_by_half_a_pair() {
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (certificate, key) = pair(ours.path(), &NAMES);
    let (next_certificate, next_key) = pair(theirs.path(), &["localhost", "127.0.0.1", "longer.example"]);
    let tls = Tls::from_files(&certificate, &key).unwrap();
    let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).unwrap();
    let gateway = Gateway::new(Arc::new(namespace), GatewayConfig::default()).unwrap();
    let listener = ephor_gateway::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = gateway.serve_tls(listener, &tls, async move { drop(stopped.await) });
    let looking = async {
        let first = shown(address).await;
        assert!(!tls.reload_if_changed().unwrap(), "nothing changed");
        // The new certificate is there already, but its key is not yet.
        fs::rename(next_certificate, &certificate).unwrap();
        let error = tls.reload_if_changed().unwrap_err().to_string();
        assert!(error.starts_with("the certificate cannot be used"), "{error}");
        assert_eq!(shown(address).await, first);
        fs::rename(next_key, &key).unwrap();
        assert!(tls.clone().reload_if_changed().unwrap());
        assert!(!tls.reload_if_changed().unwrap());
        assert_ne!(shown(address).await, first);
        // If the key file is deleted, the last pair stays in use.
        fs::remove_file(&key).unwrap();
        assert!(tls.reload_if_changed().unwrap_err().to_string().contains("a private key"));
        assert_ne!(shown(address).await, first);
        drop(stop);
    };
    let (served, ()) = tokio::join!(serving, looking);
    served.unwrap();
}

#[test]
fn a_new_pair_of_the_same_size_and_time_is_noticed() {
    let ours = tempfile::tempdir().unwrap();
    let (certificate, key) = pair(ours.path(), &NAMES);
    let tls = Tls::from_files(&certificate, &key).unwrap();
    let modified = fs::metadata(&certificate).unwrap().modified().unwrap();
    let size = |path: &Path| fs::metadata(path).unwrap().len();
    // Signatures differ in length by a byte or two.
    let (_theirs, next_certificate, next_key) = (0..1_000)
        .find_map(|_| {
            let theirs = tempfile::tempdir().unwrap();
            let (next, next_key) = pair(theirs.path(), &NAMES);
            (size(&next) == size(&certificate)).then_some((theirs, next, next_key))
        })
        .unwrap();
    fs::rename(next_certificate, &certificate).unwrap();
    fs::rename(next_key, &key).unwrap();
    for file in [&certificate, &key] {
        fs::File::options().append(true).open(file).unwrap().set_modified(modified).unwrap();
    }
    assert!(tls.reload_if_changed().unwrap());
    assert!(!tls.reload_if_changed().unwrap());
}
