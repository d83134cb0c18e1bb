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
use ephor_wire::connection_string::{ConnectionString, DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME, PLAIN_PORT};
use ephor_wire::sas::Key;

pub(super) struct Banner<'a> {
    pub(super) amqp: SocketAddr,
    pub(super) amqps: Option<SocketAddr>,
    pub(super) certificate: Option<&'a Path>,
    pub(super) http: SocketAddr,
    pub(super) data: &'a Path,
    pub(super) key_file: Option<&'a Path>,
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
        if let Some(pem) = self.certificate {
            line("trust", format!("{}, the certificate (PEM) for clients over TLS", pem.display()))?;
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
        for note in self.notes {
            line("note", note.clone())?;
        }
        Ok(())
    }

    /// What to paste.
    fn strings(&self, text: &mut String) -> Result<(), BoxError> {
        let host = paste_host(self.amqp.ip()).parse()?;
        let plain = ConnectionString::development(&host, self.amqp.port(), None);
        writeln!(text, "\n  connect any Azure Event Hubs SDK with\n  {}", self.shown(&plain))?;
        if let Some(address) = self.amqps {
            let endpoint = format!("Endpoint=sb://{}:{}", paste_host(address.ip()), address.port());
            let key = Key::new(DEVELOPMENT_KEY);
            let secure = ConnectionString::parse(&endpoint)?.with_key(DEVELOPMENT_KEY_NAME, key);
            writeln!(text, "  or, over TLS,\n  {}", self.shown(&secure))?;
        }
        if let Some(file) = self.key_file {
            writeln!(text, "  with the key in {} in place of the word hidden", file.display())?;
        }
        Ok(())
    }

    /// Our own commands look at the usual port, with the key for development, unless they are told otherwise.
    fn first_of_all(&self, text: &mut String) -> Result<(), BoxError> {
        if self.key_file.is_none() && self.amqp.port() == PLAIN_PORT && self.amqp.ip().is_ipv4() {
            return Ok(());
        }
        let host = paste_host(self.amqp.ip()).parse()?;
        let mut string = self.shown(&ConnectionString::development(&host, self.amqp.port(), None));
        if let Some(file) = self.key_file {
            string = string.replace("=hidden", &format!("=$(cat '{}')", file.display()));
        }
        Ok(writeln!(text, "             after export EPHOR_CONNECTION=\"{string}\"")?)
    }

    fn shown(&self, string: &ConnectionString) -> String {
        match self.key_file {
            None => string.reveal(),
            Some(_) => string.to_string(),
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
