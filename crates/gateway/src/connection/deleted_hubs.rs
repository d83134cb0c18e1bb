//! Inbound (peer → hub): detaches senders whose hub was closed or deleted.
//!
//! A deleted hub disconnects its receivers. Its senders notice with their next delivery, or at the next
//! periodic check, and are detached then: every later delivery would be rejected as well.

use ephor_amqp::connection::LinkId;
use ephor_wire::condition::{Condition, Refusal};
use tokio::io::{AsyncRead, AsyncWrite};

use super::ConnectionTask;
use super::link::{Link, SenderLink};
use crate::error_mapping::{entity, hub_refusal};

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// The reason to detach a link after a delivery was refused for this reason, if there is one.
    pub(super) fn detach_reason_after(&self, link: LinkId, refusal: &Refusal) -> Option<Refusal> {
        if refusal.condition != Condition::DetachForced {
            return None;
        }
        let Some(Link::Sender(sender)) = self.links.get(&link) else { return None };
        // There may be a new hub of the same name by now, which this link does not lead to.
        let reattach = || Refusal::new(Condition::DetachForced, "The hub was closed; attach the link again.");
        Some(self.why_hub_is_gone(sender).unwrap_or_else(reattach))
    }

    /// Detaches senders to hubs that do not exist any more.
    pub(super) fn detach_senders_to_deleted_hubs(&mut self) {
        let mut gone = Vec::new();
        for (id, link) in &self.links {
            if let Link::Sender(sender) = link
                && let Some(why) = self.why_hub_is_gone(sender)
            {
                gone.push((*id, why));
            }
        }
        for (link, why) in gone {
            self.detach(link, why);
        }
    }

    fn why_hub_is_gone(&self, sender: &SenderLink) -> Option<Refusal> {
        let namespace = &self.shared.namespace;
        let name = sender.address.hub()?;
        let error = namespace.hub(name.as_str()).err()?;
        Some(hub_refusal(&error, &entity(namespace.name(), &sender.address)))
    }
}
