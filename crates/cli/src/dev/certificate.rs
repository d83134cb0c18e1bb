//! The certificate of `--amqps`: the user's own, or one generated at the first start and kept in the data
//! folder.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ephor_core::BoxError;
use ephor_gateway::Tls;

use crate::arguments::Dev;
use crate::{say, secret_file};

/// The folder for development certificates, inside the data folder.
const FOLDER: &str = "certificates";
/// The names in every development certificate.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];
/// The interval at which the files are checked. It is short, so that a new certificate is used soon; a check
/// is cheap.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A certificate and its origin.
pub(super) struct Certificate {
    pub(super) tls: Tls,
    pub(super) from: Source,
    /// The file with the key of a user's own certificate.
    key: Option<PathBuf>,
    /// Without a data folder the certificate is deleted with the process.
    _until_the_end: Option<tempfile::TempDir>,
}

/// The origin of a certificate.
pub(super) enum Source {
    /// Generated for development: clients have to trust it.
    Made(PathBuf),
    /// The user's own.
    Own(PathBuf),
}

/// The user's own certificate, if the options name one; an error if no client could verify the one that would
/// be generated. It changes nothing on disk, so it is called before anything that does.
pub(super) fn own(options: &Dev) -> Result<Option<Certificate>, BoxError> {
    let Some(address) = options.amqps else { return Ok(None) };
    if let (Some(cert), Some(key)) = (&options.cert, &options.cert_key) {
        secret_file::check(key).map_err(|error| format!("--cert-key {error}"))?;
        let tls = Tls::from_files(cert, key).map_err(|error| format!("--cert, --cert-key: {error}"))?;
        let (from, key) = (Source::Own(cert.clone()), Some(key.clone()));
        return Ok(Some(Certificate { tls, from, key, _until_the_end: None }));
    }
    if address.ip().is_unspecified() && options.names.iter().all(|name| is_loopback(name)) {
        return Err(format!(
            "--amqps {address} serves other machines, but the development certificate would be for localhost \
             only, and clients could not verify it; add --name HOST with the name or address by which \
             clients reach this machine, or use your own certificate with --cert FILE --cert-key FILE"
        )
        .into());
    }
    Ok(None)
}

/// True for a name that other machines cannot use for this one.
fn is_loopback(name: &str) -> bool {
    let address = name.parse::<IpAddr>();
    name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Loads or generates the development certificate.
pub(super) fn for_development(options: &Dev, address: SocketAddr) -> Result<Certificate, BoxError> {
    let (folder, until_the_end) = match options.memory {
        true => {
            let made = tempfile::Builder::new().prefix("ephor-").tempdir();
            let folder =
                made.map_err(|error| format!("cannot create a folder for the certificate: {error}"))?;
            (folder.path().to_owned(), Some(folder))
        }
        false => (options.data.join(FOLDER), None),
    };
    let (folder, names) = place(&folder, address.ip(), &options.names);
    std::fs::create_dir_all(&folder).map_err(|error| {
        format!("cannot create the folder {} for certificates: {error}", folder.display())
    })?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (tls, pem) = Tls::for_development(&folder, &names)?;
    let pem = std::path::absolute(&pem).unwrap_or(pem);
    Ok(Certificate { tls, from: Source::Made(pem), key: None, _until_the_end: until_the_end })
}

/// The folder of a certificate, and its names. A certificate with more names than [`NAMES`] has a folder of
/// its own, so that clients that trust another one continue to do so.
fn place(folder: &Path, ip: IpAddr, given: &[String]) -> (PathBuf, Vec<String>) {
    let mut names: Vec<String> = NAMES.map(str::to_owned).to_vec();
    let own = (!ip.is_unspecified()).then(|| ip.to_string());
    for name in own.into_iter().chain(given.iter().cloned()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.get(NAMES.len()) {
        Some(first) => (folder.join(first.replace(':', "-")), names),
        None => (folder.to_owned(), names),
    }
}

/// Reloads a certificate when its files are replaced, until it is dropped. A repeated error is reported once.
pub(super) async fn keep_fresh<T>(certificate: &Certificate) -> T {
    let mut said = None;
    loop {
        pause().await;
        let (tls, key) = (certificate.tls.clone(), certificate.key.clone());
        let looked = tokio::task::spawn_blocking(move || {
            // As at the start: a key that others can read is refused.
            key.as_deref().map_or(Ok(()), secret_file::check)?;
            tls.reload_if_changed().map_err(|error| error.to_string())
        });
        let problem = match looked.await {
            Ok(Ok(false)) => None,
            Ok(Ok(true)) => {
                say("the certificate was replaced: new connections get the new one");
                None
            }
            Ok(Err(error)) => Some(error),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem.as_ref().filter(|problem| said.as_ref() != Some(*problem)) {
            say(&format!("cannot reload the certificate, so the old one stays in use: {problem}"));
        }
        said = problem;
    }
}

#[expect(clippy::disallowed_methods, reason = "the outermost shell: files change in real time")]
async fn pause() {
    tokio::time::sleep(LOOK_EVERY).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_other_machines_cannot_use() {
        for name in ["localhost", "LOCALHOST", "127.0.0.1", "127.8.8.8", "::1"] {
            assert!(is_loopback(name), "{name}");
        }
        for name in ["hub.example", "10.0.0.7", "localhost.example", "fe80::1"] {
            assert!(!is_loopback(name), "{name}");
        }
    }

    #[test]
    fn one_certificate_for_this_machine_and_one_for_each_other_name() {
        let of = |ip: &str, names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            place(Path::new("c"), ip.parse().unwrap(), &names)
        };
        for usual in ["127.0.0.1", "::1", "0.0.0.0", "::"] {
            assert_eq!(of(usual, &["localhost"]), (PathBuf::from("c"), NAMES.map(str::to_owned).to_vec()));
        }
        let (folder, names) = of("127.0.0.5", &[]);
        assert_eq!((folder, names.last().unwrap().as_str()), (PathBuf::from("c/127.0.0.5"), "127.0.0.5"));
        assert_eq!(of("fe80::1", &[]).0, PathBuf::from("c/fe80--1"));
        let (folder, names) = of("0.0.0.0", &["hub.example", "localhost", "10.0.0.7"]);
        assert_eq!(folder, PathBuf::from("c/hub.example"));
        assert_eq!(names[NAMES.len()..], ["hub.example", "10.0.0.7"]);
    }
}
