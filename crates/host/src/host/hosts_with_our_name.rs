//! Detects other living hosts that use this host's name.
//!
//! Two hosts with one name are two hosts, and operators should know. A record alone may be left
//! over from a run that crashed: only a second heartbeat proves that a host is alive. A host whose
//! record is removed is forgotten, so that a host that outlives thousands of runs with its name
//! remembers no more of them than the store does.

use std::collections::BTreeMap;

use ephor_core::ids::HostId;
use ephor_core::store::View;

/// The first heartbeat number that was seen of each; `None` once it was reported.
#[derive(Debug, Default)]
pub(super) struct HostsWithOurName(BTreeMap<HostId, Option<u64>>);

impl HostsWithOurName {
    /// The hosts that turned out to be alive since the last view.
    pub(super) fn notice(&mut self, me: &HostId, view: &View) -> Vec<HostId> {
        let mut alive = vec![];
        let records = view.hosts.iter().map(|entry| &entry.record);
        for record in records.filter(|record| record.id.name == me.name && record.id != *me) {
            let first = self.0.entry(record.id.clone()).or_insert(Some(record.beat));
            if first.is_some_and(|first| record.beat > first) {
                *first = None;
                alive.push(record.id.clone());
            }
        }
        self.0.retain(|id, _| view.host(id).is_some());
        alive
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_values::{host, record, view_of};
    use super::*;

    /// A view of hosts with the name "a", each with its heartbeat number.
    fn view(hosts: &[(u64, u64)]) -> View {
        view_of(hosts.iter().map(|(incarnation, beat)| record(host("a", *incarnation), *beat)))
    }

    #[test]
    fn a_host_with_our_name_is_reported_once_and_only_if_it_is_alive() {
        let (mut same_name, me) = (HostsWithOurName::default(), host("a", 1));
        assert!(same_name.notice(&me, &view(&[(1, 1), (2, 7)])).is_empty(), "it may be left over");
        assert!(same_name.notice(&me, &view(&[(1, 2), (2, 7)])).is_empty());
        assert_eq!(same_name.notice(&me, &view(&[(1, 3), (2, 8)])), [host("a", 2)]);
        assert!(same_name.notice(&me, &view(&[(1, 4), (2, 9)])).is_empty(), "it was told");
        assert!(same_name.notice(&host("b", 1), &view(&[(1, 5), (2, 10)])).is_empty(), "another name");
    }

    #[test]
    fn a_host_remembers_no_more_hosts_of_its_name_than_the_store() {
        let (mut same_name, me) = (HostsWithOurName::default(), host("a", 1));
        for run in 2..10_000 {
            same_name.notice(&me, &view(&[(1, run), (run, 1), (run + 1, 1)]));
            assert_eq!(same_name.0.len(), 2);
        }
        same_name.notice(&me, &view(&[(1, 1)]));
        assert!(same_name.0.is_empty());
    }
}
