//! What `ephor dev` says when it is ready: where everything is, what survives, what to paste.
//!
//! The key for development is printed in the string to paste, as everybody knows it. One's own key is not:
//! what is printed ends up in logs.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use ephor_core::BoxError;
use ephor_hub::{Durability, LocalNamespace};
use ephor_wire::connection_string::{ConnectionString, PLAIN_PORT};
use ephor_wire::sas::SharedKey;

use super::certificate;
use super::keys::{self, Keys};

pub(super) struct Banner<'a> {
    pub(super) amqp: SocketAddr,
    pub(super) amqps: Option<SocketAddr>,
    pub(super) certificate: Option<&'a certificate::Source>,
    /// By which clients reach this machine.
    pub(super) names: &'a [String],
    pub(super) http: SocketAddr,
    pub(super) data: &'a Path,
    pub(super) keys: &'a Keys,
    pub(super) notes: &'a [String],
}

impl Banner<'_> {
    pub(super) fn text(&self, namespace: &LocalNamespace, took: Duration) -> Result<String, BoxError> {
        let mut text = format!("ephor {}\n\n", env!("CARGO_PKG_VERSION"));
        self.places(&mut text, namespace)?;
        self.strings(&mut text)?;
        if let Some(hub) = namespace.hubs_open().first() {
            writeln!(text, "\n  try        ephor send {0} 'hello'   ·   ephor tail {0}", hub.name())?;
            self.first_of_all(&mut text)?;
        }
        write!(text, "\nready in {} ms. Ctrl-C to stop.", took.as_millis())?;
        Ok(text)
    }

    /// Where everything is.
    fn places(&self, text: &mut String, namespace: &LocalNamespace) -> Result<(), BoxError> {
        let mut line = |name: &str, value: String| writeln!(text, "  {name:<10} {value}");
        line("amqp", format!("{}", self.amqp))?;
        if let Some(address) = self.amqps {
            line("amqps", format!("{address}"))?;
        }
        match self.certificate {
            Some(certificate::Source::Made(pem)) => {
                line("trust", format!("{}, the certificate (PEM) for clients over TLS", pem.display()))?;
            }
            Some(certificate::Source::Own(pem)) => {
                line("cert", format!("{}, read again when it changes", pem.display()))?;
            }
            None => {}
        }
        line("health", format!("http://{}/health", self.http))?;
        line("data", self.persistence(namespace.config().durability))?;
        for hub in &namespace.hubs_open() {
            let hub = hub.describe();
            let groups: Vec<&str> = hub.groups.iter().map(|group| group.as_str()).collect();
            line(
                "hub",
                format!("{}, {} partitions, groups {}", hub.name, hub.partitions, groups.join(", ")),
            )?;
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
        for note in self.notes {
            line("note", note.clone())?;
        }
        Ok(())
    }

    /// What to paste.
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
                writeln!(text, "  with the key in {} in place of the word hidden", file.display())?;
            }
            keys::Source::List(file) => {
                writeln!(text, "  with a name and its key from {} in place of these", file.display())?;
            }
        }
        Ok(())
    }

    /// With the first of the keys.
    fn with_key(&self, string: ConnectionString) -> ConnectionString {
        match self.keys.keys.first() {
            Some(first) => string.with_key(&first.name, first.key.clone()),
            None => string,
        }
    }

    /// Our own commands look at the usual port, with the key for development, unless they are told otherwise.
    fn first_of_all(&self, text: &mut String) -> Result<(), BoxError> {
        if self.keys.from == keys::Source::Development
            && self.amqp.port() == PLAIN_PORT
            && self.amqp.ip().is_ipv4()
        {
            return Ok(());
        }
        let host = paste_host(self.amqp.ip()).parse()?;
        let string = self.with_key(ConnectionString::development(&host, self.amqp.port(), None));
        let mut string = self.shown(&string);
        match &self.keys.from {
            keys::Source::Development => {}
            keys::Source::KeyFile(file) => {
                string = string.replace("=hidden", &format!("=$(cat '{}')", file.display()));
            }
            keys::Source::List(_) => string = string.replace("=hidden", "=KEY"),
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
            Durability::Memory => "in memory, forgotten at the end".to_owned(),
        }
    }
}

/// A name by which this machine reaches the address, in a form that every SDK reads.
fn paste_host(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) if !ip.is_unspecified() => ip.to_string(),
        _ => "localhost".to_owned(),
    }
}
