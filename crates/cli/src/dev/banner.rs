//! The banner that `ephor dev` prints when it is ready: addresses, durability, and connection strings to
//! paste.
//!
//! The development key is printed in the connection string, because everybody knows it. A user's own key is
//! not: printed text ends up in logs.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use ephor_core::BoxError;
use ephor_core::ids::HubName;
use ephor_hub::{Durability, LocalNamespace};
use ephor_wire::connection_string::{ConnectionString, PLAIN_PORT};
use ephor_wire::sas::{Claims, SharedKey};

use super::certificate;
use super::keys::{self, Keys};
use crate::table::counted;

pub(super) struct Banner<'a> {
    pub(super) amqp: SocketAddr,
    pub(super) amqps: Option<SocketAddr>,
    pub(super) certificate: Option<&'a certificate::Source>,
    /// The names by which clients reach this machine.
    pub(super) names: &'a [String],
    pub(super) http: SocketAddr,
    pub(super) data: &'a Path,
    pub(super) keys: &'a Keys,
    pub(super) notes: Vec<String>,
}

impl Banner<'_> {
    pub(super) fn text(&self, namespace: &LocalNamespace, took: Duration) -> Result<String, BoxError> {
        let mut text = format!("ephor {}\n\n", env!("CARGO_PKG_VERSION"));
        self.places(&mut text, namespace)?;
        self.strings(&mut text)?;
        let hubs = namespace.hubs_open();
        let tried = hubs.iter().find_map(|hub| Some((hub.name(), self.key_for(hub.name())?)));
        if let Some((hub, key)) = tried {
            let more = if self.is_elsewhere() { " --allow-insecure" } else { "" };
            let send = format!("ephor send {hub} 'hello'{more}");
            let tail = format!("ephor tail {hub}{more}");
            let commands = [(Claims::SEND, send), (Claims::LISTEN, tail)].into_iter();
            let permitted = commands.filter(|(claim, _)| key.claims.contains(*claim));
            let commands: Vec<String> = permitted.map(|(_, command)| command).collect();
            writeln!(text, "\n  try        {}", commands.join("   ·   "))?;
            self.first_of_all(&mut text, key)?;
        }
        write!(text, "\nready in {} ms. Ctrl-C to stop.", took.as_millis())?;
        Ok(text)
    }

    /// Writes the addresses, the hubs, the keys and the notes.
    fn places(&self, text: &mut String, namespace: &LocalNamespace) -> Result<(), BoxError> {
        let mut line = |name: &str, value: String| writeln!(text, "  {name:<10} {value}");
        line("amqp", format!("{}", self.amqp))?;
        if let Some(address) = self.amqps {
            line("amqps", format!("{address}"))?;
        }
        match self.certificate {
            Some(certificate::Source::Made(pem)) => {
                line(
                    "trust",
                    format!("{}, the certificate (PEM) that TLS clients must trust", pem.display()),
                )?;
            }
            Some(certificate::Source::Own(pem)) => {
                line("cert", format!("{}, reloaded when it changes", pem.display()))?;
            }
            None => {}
        }
        line("health", format!("http://{}/health", self.http))?;
        line("data", self.persistence(namespace.config().durability))?;
        for hub in &namespace.hubs_open() {
            let hub = hub.describe();
            let groups: Vec<&str> = hub.groups.iter().map(|group| group.as_str()).collect();
            let partitions = counted(hub.partitions as usize, "partition");
            line("hub", format!("{}, {partitions}, groups {}", hub.name, groups.join(", ")))?;
        }
        for (hub, reason) in namespace.broken() {
            line("BROKEN", format!("{hub}: {reason}"))?;
        }
        if let keys::Source::List(_) = self.keys.from {
            for SharedKey { name, claims, hub, .. } in &self.keys.keys {
                let place = hub.as_ref().map_or("all hubs".to_owned(), ToString::to_string);
                line("key", format!("{name}: {claims}, for {place}"))?;
            }
        }
        for note in &self.notes {
            line("note", note.clone())?;
        }
        Ok(())
    }

    /// Writes the connection strings to paste.
    fn strings(&self, text: &mut String) -> Result<(), BoxError> {
        let host = paste_host(self.amqp.ip()).parse()?;
        let plain = self.with_key(ConnectionString::development(&host, self.amqp.port(), None));
        writeln!(text, "\n  connect any Azure Event Hubs SDK with\n  {}", self.shown(&plain))?;
        if let Some(address) = self.amqps {
            let host = match self.names.first() {
                Some(name) if name.contains(':') => format!("[{name}]"),
                Some(name) => name.clone(),
                None => paste_host(address.ip()),
            };
            let endpoint = format!("Endpoint=sb://{host}:{}", address.port());
            let secure = self.with_key(ConnectionString::parse(&endpoint)?);
            writeln!(text, "  or, over TLS,\n  {}", self.shown(&secure))?;
        }
        match &self.keys.from {
            keys::Source::Development => {}
            keys::Source::KeyFile(file) => {
                writeln!(text, "  replace the word hidden with the key in {}", file.display())?;
            }
            keys::Source::List(file) => {
                writeln!(text, "  replace name and key with those of a line in {}", file.display())?;
            }
        }
        Ok(())
    }

    /// The connection string with the first of the keys.
    fn with_key(&self, string: ConnectionString) -> ConnectionString {
        match self.keys.keys.first() {
            Some(first) => string.with_key(&first.name, first.key.clone()),
            None => string,
        }
    }

    /// A key for this hub: one that may send and listen, if there is any.
    fn key_for(&self, hub: &HubName) -> Option<&SharedKey> {
        let fits = |key: &&SharedKey| {
            let here = key.hub.as_ref().is_none_or(|its| its.as_str().eq_ignore_ascii_case(hub.as_str()));
            here && key.claims.may_describe()
        };
        let both =
            |key: &&SharedKey| key.claims.contains(Claims::SEND) && key.claims.contains(Claims::LISTEN);
        let fitting = || self.keys.keys.iter().filter(fits);
        fitting().find(both).or_else(|| fitting().next())
    }

    /// True if our own commands treat the address as one of another machine.
    fn is_elsewhere(&self) -> bool {
        !self.amqp.ip().is_loopback() && !self.amqp.ip().is_unspecified()
    }

    /// Writes the `export` that our own commands need if the port, the key or the address is not the default
    /// one.
    fn first_of_all(&self, text: &mut String, key: &SharedKey) -> Result<(), BoxError> {
        if self.keys.from == keys::Source::Development
            && self.amqp.port() == PLAIN_PORT
            && self.amqp.ip().is_ipv4()
        {
            return Ok(());
        }
        let host = paste_host(self.amqp.ip()).parse()?;
        let string = ConnectionString::development(&host, self.amqp.port(), None);
        let mut string = self.shown(&string.with_key(&key.name, key.key.clone()));
        match &self.keys.from {
            keys::Source::Development => {}
            keys::Source::KeyFile(file) => {
                string = string.replace("=hidden", &format!("=$(cat {})", quoted(file)));
            }
            keys::Source::List(file) => {
                let name = key.name.replace('\\', "\\\\").replace('"', "\\\"");
                let third = format!("=$(awk '$1 == \"{name}\" {{ print $3; exit }}' {})", quoted(file));
                string = string.replace("=hidden", &third);
            }
        }
        Ok(writeln!(text, "             after export EPHOR_CONNECTION=\"{string}\"")?)
    }

    fn shown(&self, string: &ConnectionString) -> String {
        match self.keys.from {
            keys::Source::Development => string.reveal(),
            keys::Source::KeyFile(_) | keys::Source::List(_) => string.to_string(),
        }
    }

    fn persistence(&self, durability: Durability) -> String {
        let data = self.data.display();
        match durability {
            Durability::Disk => format!("{data}, survives restarts and power failures"),
            Durability::PageCache => {
                format!("{data}, survives restarts; a power failure may lose the newest events")
            }
            Durability::Memory => "in memory, lost when the hub stops".to_owned(),
            other => format!("{data}, with durability {other}"),
        }
    }
}

/// An absolute path, quoted for a shell.
fn quoted(file: &Path) -> String {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    format!("'{}'", file.display().to_string().replace('\'', r"'\''"))
}

/// A host name by which this machine reaches the address, in a form that every SDK accepts.
fn paste_host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) if !ip.is_unspecified() => ip.to_string(),
        _ => "localhost".to_owned(),
    }
}
