//! The certificate of `--amqps`: made at the first start, and kept in the data folder.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use ephor_core::BoxError;
use ephor_gateway::Tls;

use crate::arguments::Dev;

/// The folder for certificates made for development, inside the data folder.
const FOLDER: &str = "certificates";
/// What every such certificate is good for.
const NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// A certificate, and where clients find it.
pub(super) struct Certificate {
    pub(super) tls: Tls,
    pub(super) pem: PathBuf,
    /// Without a data folder it goes with the process.
    _until_the_end: Option<tempfile::TempDir>,
}

pub(super) fn for_development(options: &Dev, address: SocketAddr) -> Result<Certificate, BoxError> {
    let (folder, until_the_end) = match options.memory {
        true => {
            let made = tempfile::Builder::new().prefix("ephor-").tempdir();
            let folder = made.map_err(|error| format!("cannot make a folder for a certificate: {error}"))?;
            (folder.path().to_owned(), Some(folder))
        }
        false => (options.data.join(FOLDER), None),
    };
    let (folder, names) = of_address(&folder, address.ip());
    std::fs::create_dir_all(&folder)
        .map_err(|error| format!("cannot make {} for certificates: {error}", folder.display()))?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (tls, pem) = Tls::for_development(&folder, &names)?;
    let pem = std::path::absolute(&pem).unwrap_or(pem);
    Ok(Certificate { tls, pem, _until_the_end: until_the_end })
}

/// An address that is not in every certificate has one of its own.
fn of_address(folder: &Path, ip: IpAddr) -> (PathBuf, Vec<String>) {
    let mut names: Vec<String> = NAMES.map(str::to_owned).to_vec();
    let own = ip.to_string();
    if ip.is_unspecified() || names.contains(&own) {
        return (folder.to_owned(), names);
    }
    let folder = folder.join(own.replace(':', "-"));
    names.push(own);
    (folder, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_certificate_for_this_machine_and_one_for_each_other_address() {
        let of = |ip: &str| of_address(Path::new("c"), ip.parse().unwrap());
        for usual in ["127.0.0.1", "::1", "0.0.0.0", "::"] {
            assert_eq!(of(usual), (PathBuf::from("c"), NAMES.map(str::to_owned).to_vec()), "{usual}");
        }
        let (folder, names) = of("127.0.0.5");
        assert_eq!((folder, names.last().unwrap().as_str()), (PathBuf::from("c/127.0.0.5"), "127.0.0.5"));
        assert_eq!(of("fe80::1").0, PathBuf::from("c/fe80--1"));
    }
}
