//! The embedded event hub: durable partition logs, consumer groups, epoch rules.
