//! The operator's page: owners of partitions, changes of ownership, and actions.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::format::{bytes, counted};
use super::host_columns::{self, HOST_ACTIONS};
use super::layout::{Page, document};
use super::page_content::{Row, Shown};
use crate::fleet::{ALARMS, CONSOLIDATE};
use crate::view::model::{FleetNow, GroupNow, HostProcess};

/// The groups, and what each is for.
const GROUPS: [(&str, &str); 2] =
    [(CONSOLIDATE, "updates the state of each home"), (ALARMS, "reports each alarm once")];

/// All that changes on the operator's page.
pub(super) fn shown(fleet: &FleetNow) -> Shown {
    let mut shown = Shown::default();
    let running = fleet.hosts.iter().filter(|host| host.state == HostProcess::Running).count();
    shown.say("running", format!("{running}"));
    shown.say("hosts-of", format!("of {} started", counted(fleet.hosts.len() as u64, "host", "hosts")));
    shown.say("cores", format!("{:.2}", fleet.cores));
    shown.say("memory", bytes(fleet.memory));
    shown.say("hub", if fleet.hub_up { "● up" } else { "✕ down" });
    shown.mark("hub", "data-state", Some(if fleet.hub_up { "up" } else { "down" }.to_owned()));
    let on = fleet.carbon_monoxide;
    shown.say("detectors", if on { "● on" } else { "○ off" });
    shown.say("detectors-button", if on { "Switch the detectors off" } else { "Switch the detectors on" });
    shown.mark("detectors-button", "data-on", Some((!on).to_string()));
    let nothing = GroupNow { name: String::new(), partitions: Vec::new() };
    for (name, _) in GROUPS {
        let group = fleet.groups.iter().find(|group| group.name == name).unwrap_or(&nothing);
        shown.say(format!("says-{name}"), sentence(group));
    }
    shown.list("board", host_columns::columns(fleet));
    shown.say(
        "board-none",
        if fleet.hosts.is_empty() { "No host is running. Press “Add a host”." } else { "" },
    );
    shown.say("ended", ended(fleet));
    shown.list("changes", change_rows(&fleet.changes));
    shown.say("changes-none", if fleet.changes.is_empty() { "No changes yet." } else { "" });
    shown
}

/// `16 of 16 partitions owned (4-3-3-3-3), 1,204 events after the checkpoints`.
fn sentence(group: &GroupNow) -> String {
    let mut shares: BTreeMap<&str, usize> = BTreeMap::new();
    for partition in &group.partitions {
        if let Some(owner) = partition.owner.as_deref().filter(|_| !partition.expired) {
            *shares.entry(owner).or_default() += 1;
        }
    }
    let owned: usize = shares.values().sum();
    let mut shares: Vec<usize> = shares.into_values().collect();
    shares.sort_unstable_by(|one, other| other.cmp(one));
    let shares: Vec<String> = shares.iter().map(usize::to_string).collect();
    let lag = group.partitions.iter().map(|partition| partition.lag).sum();
    let shares = if shares.is_empty() { String::new() } else { format!(" ({})", shares.join("-")) };
    format!(
        "{owned} of {} owned{shares}, {} after the checkpoints",
        counted(group.partitions.len() as u64, "partition", "partitions"),
        counted(lag, "event", "events")
    )
}

/// The hosts that are over.
fn ended(fleet: &FleetNow) -> String {
    let names = |state: HostProcess| {
        let names: Vec<&str> =
            fleet.hosts.iter().filter(|host| host.state == state).map(|host| host.name.as_str()).collect();
        names.join(", ")
    };
    let ended = [("○ stopped", HostProcess::Stopped), ("✕ dead", HostProcess::Dead)]
        .map(|(word, state)| (word, names(state)))
        .into_iter()
        .filter(|(_, names)| !names.is_empty())
        .map(|(word, names)| format!("{word}: {names}"));
    ended.collect::<Vec<String>>().join(" · ")
}

/// The same words may come twice: the key counts them, oldest first, so that a row keeps its key.
fn change_rows(changes: &[String]) -> Vec<Row> {
    let mut seen: BTreeMap<&str, u32> = BTreeMap::new();
    let mut rows: Vec<Row> = changes
        .iter()
        .rev()
        .map(|change| {
            let times = seen.entry(change).and_modify(|times| *times += 1).or_insert(1);
            Row::new(format!("{times}/{change}")).say("change", change)
        })
        .collect();
    rows.reverse();
    rows
}

/// The page.
pub(super) fn page(shown: &Shown) -> Markup {
    let content = html! {
        h1.hidden { "The operator’s view" }
        (numbers(shown))
        (commands(shown))
        section.panel.fleet aria-labelledby="board-title" {
            header {
                h2 #board-title { "Who owns what" }
                @for (name, purpose) in GROUPS {
                    @let id = format!("says-{name}");
                    p.muted { b title=(purpose) { (name) } " " span id=(id) { (shown.text(&id)) } }
                }
            }
            (host_columns::board(shown))
            p.none #board-none { (shown.text("board-none")) }
            (host_columns::legend())
            p.none.ended #ended { (shown.text("ended")) }
        }
        div.twin {
            section.panel aria-labelledby="changes-title" {
                header { h2 #changes-title { "Changes of ownership" } p.muted { "newest first" } }
                ol.changes #changes data-template="change-template" data-news="yes" {
                    @for row in shown.rows("changes") { (change(row)) }
                }
                template #change-template { (change(&Row::default())) }
                p.none #changes-none { (shown.text("changes-none")) }
            }
            section.panel.help aria-labelledby="help-title" {
                header { h2 #help-title { "What the buttons do" } }
                dl { @for (_, label, what) in HOST_ACTIONS { dt { (label) } dd { (what) } } }
            }
        }
        p.toast #toast role="status" aria-live="polite" hidden {}
    };
    let page = Page {
        title: "The operator’s view",
        here: "/operator",
        live: Some("/live/fleet"),
        script: Some("operator.js"),
    };
    document(&page, &content)
}

fn numbers(shown: &Shown) -> Markup {
    let number = |name: &str, id: &str, below: Markup| {
        html! {
            div.number {
                h2 { (name) }
                p.big id=(id) data-state=[shown.attribute(id, "data-state")] { (shown.text(id)) }
                p.muted { (below) }
            }
        }
    };
    html! {
        section.numbers.four aria-label="Numbers" {
            (number("Running", "running", html! { span #hosts-of { (shown.text("hosts-of")) } }))
            (number("Cores in use", "cores", html! { "all processes together" }))
            (number("Memory", "memory", html! { "resident, all processes" }))
            (number("Hub", "hub", html! { "16 partitions, over AMQP" }))
        }
    }
}

fn commands(shown: &Shown) -> Markup {
    html! {
        section.panel.commands aria-label="Actions" {
            button.main type="button" data-action="add_host"
                title="Starts another host, which takes its fair share of the partitions." {
                "Add a host"
            }
            button type="button" data-action="restart_hub"
                title="Kills the hub and starts it again. Sensors and hosts wait for it; nothing is lost." {
                "Restart the hub"
            }
            button #detectors-button type="button" data-action="carbon_monoxide"
                data-on=[shown.attribute("detectors-button", "data-on")]
                title="Adds a carbon-monoxide detector to every home: a third more readings." {
                (shown.text("detectors-button"))
            }
            p.muted { "carbon-monoxide detectors " span #detectors { (shown.text("detectors")) } }
        }
    }
}

fn change(row: &Row) -> Markup {
    html! { li data-key=(row.key()) { span data-part="change" { (row.text("change")) } } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::model::{HostNow, PartitionNow};

    #[test]
    fn a_group_is_told_in_a_sentence() {
        let partition = |id, owner: Option<&str>, expired| {
            let owner = owner.map(str::to_owned);
            PartitionNow { id, owner, epoch: 1, since: 0, expired, lag: 2 }
        };
        let partitions = vec![
            partition(0, Some("a"), false),
            partition(1, Some("b"), false),
            partition(2, Some("b"), false),
            partition(3, Some("c"), true),
            partition(4, None, false),
        ];
        let group = GroupNow { name: "alarms".to_owned(), partitions };
        assert_eq!(sentence(&group), "3 of 5 partitions owned (2-1), 10 events after the checkpoints");
    }

    #[test]
    fn hosts_that_are_over_are_named() {
        let host =
            |name: &str, state| HostNow { name: name.to_owned(), state, cores: 0.0, memory: 0, slow: 0 };
        let hosts = vec![
            host("host-1", HostProcess::Dead),
            host("host-2", HostProcess::Running),
            host("host-3", HostProcess::Dead),
        ];
        assert_eq!(ended(&FleetNow { hosts, ..FleetNow::default() }), "✕ dead: host-1, host-3");
    }

    #[test]
    fn a_change_keeps_its_key_when_newer_ones_come() {
        let changes =
            |changes: &[&str]| change_rows(&changes.iter().map(|&c| c.to_owned()).collect::<Vec<_>>());
        let before = changes(&["b", "a", "b"]);
        let after = changes(&["b", "b", "a", "b"]);
        assert_eq!(before[..], after[1..]);
    }
}
