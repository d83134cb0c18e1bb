//! What `ephor dev` says when it is ready: where everything is, what survives, what to paste.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ephor_core::BoxError;
use ephor_hub::{Durability, LocalNamespace};
use ephor_wire::connection_string::ConnectionString;

pub(super) struct Banner<'a> {
    pub(super) amqp: SocketAddr,
    pub(super) amqps: Option<SocketAddr>,
    pub(super) certificate: Option<PathBuf>,
    pub(super) http: SocketAddr,
    pub(super) data: &'a Path,
    pub(super) notes: &'a [String],
    pub(super) took: Duration,
}

impl Banner<'_> {
    pub(super) fn text(&self, namespace: &LocalNamespace) -> Result<String, BoxError> {
        let mut text = format!("ephor {}\n\n", env!("CARGO_PKG_VERSION"));
        let mut line = |name: &str, value: String| writeln!(text, "  {name:<10} {value}");
        line("amqp", format!("{}", self.amqp))?;
        if let Some(address) = self.amqps {
            line("amqps", format!("{address}"))?;
        }
        if let Some(pem) = &self.certificate {
            line("", format!("its certificate, for clients to trust: {}", pem.display()))?;
        }
        line("health", format!("http://{}/health", self.http))?;
        line("data", self.persistence(namespace.config().durability))?;
        let hubs = namespace.hubs_open();
        for hub in &hubs {
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
        let host = self.amqp.ip().to_string().parse()?;
        let string = ConnectionString::development(&host, self.amqp.port(), None);
        writeln!(text, "\n  connect any Azure Event Hubs SDK with\n  {}", string.reveal())?;
        if let Some(hub) = hubs.first() {
            writeln!(text, "\n  try        ephor send {0} 'hello'   ·   ephor tail {0}", hub.name())?;
        }
        write!(text, "\nready in {} ms. Ctrl-C to stop.", self.took.as_millis())?;
        Ok(text)
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
