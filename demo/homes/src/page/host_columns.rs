//! Renders the hosts on the operator's page: a column for each host, with its partitions in each group, and
//! its actions.

use maud::{Markup, html};

use super::format::{bytes, count, counted, span};
use super::page_content::{Row, Shown};
use crate::view::model::{FleetNow, GroupNow, HostNow, HostProcess, PartitionNow};

/// The actions on a host: name, label, and effect.
pub(super) const HOST_ACTIONS: [(&str, &str, &str); 5] = [
    (
        "stop_host",
        "Stop",
        "It finishes its current batches, saves, and hands over its partitions. Nothing is repeated.",
    ),
    (
        "kill_host",
        "Kill",
        "Its process is killed. When its leases expire, the other hosts take over and repeat what was not \
         saved; the results count it once.",
    ),
    ("pause_host", "Pause", "Its process is frozen. Its leases expire, and the other hosts take over."),
    (
        "resume_host",
        "Resume",
        "It continues as if it still owned its partitions. Its writes are refused: it is fenced.",
    ),
    (
        "slow_host",
        "Slow",
        "Each of its batches takes 250 ms longer, so its lag grows. Press the button again to remove the \
         delay.",
    ),
];

/// The column of what nobody owns.
const NOBODY: &str = "nobody";

/// By how much `Slow` slows down, in milliseconds a batch.
const SLOW: &str = "250";

/// The columns: every host that runs or owns something, who else owns something, and nobody.
pub(super) fn columns(fleet: &FleetNow) -> Vec<Row> {
    let owners = || {
        fleet.groups.iter().flat_map(|group| &group.partitions).map(|partition| partition.owner.as_deref())
    };
    let owns = |name: &str| owners().any(|owner| owner == Some(name));
    let ended = |host: &HostNow| matches!(host.state, HostProcess::Stopped | HostProcess::Dead);
    let mut rows: Vec<Row> = fleet
        .hosts
        .iter()
        .filter(|host| !ended(host) || owns(&host.name))
        .map(|host| host_row(host).with_rows(shares(&fleet.groups, Some(&host.name), Some(host.state))))
        .collect();
    let mut strangers: Vec<&str> =
        owners().flatten().filter(|owner| fleet.hosts.iter().all(|host| host.name != *owner)).collect();
    strangers.sort_unstable();
    strangers.dedup();
    for stranger in strangers {
        let row = bare(stranger, "?", "unknown", "not started by this demo");
        rows.push(row.with_rows(shares(&fleet.groups, Some(stranger), None)));
    }
    if owners().any(|owner| owner.is_none()) {
        rows.push(bare(NOBODY, "○", NOBODY, "waiting for an owner").with_rows(shares(
            &fleet.groups,
            None,
            None,
        )));
    }
    rows
}

/// A column without a process of ours.
fn bare(name: &str, glyph: &str, state: &'static str, says: &str) -> Row {
    Row::new(format!("{state}/{name}"))
        .mark("data-state", state)
        .say("glyph", glyph)
        .say("name", name)
        .say("state", says)
        .mark_part("buttons", "hidden", Some(String::new()))
}

fn host_row(host: &HostNow) -> Row {
    let (glyph, word) = state_of(host.state);
    let slowed = host.slow > 0 && host.state == HostProcess::Running;
    let says = if slowed { format!("slowed {} ms", host.slow) } else { word.to_owned() };
    let mut row = Row::new(&host.name)
        .mark("data-state", word)
        .mark("data-host", &host.name)
        .say("glyph", glyph)
        .say("name", &host.name)
        .say("state", says)
        .say("uses", format!("{:.2} cores, {}", host.cores, bytes(host.memory)))
        .say("slow_host", if host.slow > 0 { "Fast" } else { "Slow" })
        .mark_part("slow_host", "data-milliseconds", Some(if host.slow > 0 { "0" } else { SLOW }.to_owned()))
        .mark_part("buttons", "hidden", None);
    let paused = host.state == HostProcess::Paused;
    row = row.mark_part("pause_host", "hidden", paused.then(String::new));
    row = row.mark_part("resume_host", "hidden", (!paused).then(String::new));
    for (action, ..) in HOST_ACTIONS {
        row = row.mark_part(action, "disabled", (!possible(action, host.state)).then(String::new));
    }
    row
}

fn state_of(state: HostProcess) -> (&'static str, &'static str) {
    match state {
        HostProcess::Running => ("●", "running"),
        HostProcess::Paused => ("Ⅱ", "paused"),
        HostProcess::Stopping => ("◑", "stopping"),
        HostProcess::Stopped => ("○", "stopped"),
        HostProcess::Dead => ("✕", "dead"),
    }
}

fn possible(action: &str, state: HostProcess) -> bool {
    match state {
        HostProcess::Running => action != "resume_host",
        HostProcess::Paused => matches!(action, "resume_host" | "kill_host"),
        HostProcess::Stopping => action == "kill_host",
        HostProcess::Stopped | HostProcess::Dead => false,
    }
}

/// The partitions of an owner in each group.
fn shares(groups: &[GroupNow], owner: Option<&str>, process: Option<HostProcess>) -> Vec<Row> {
    let share = |group: &GroupNow| {
        let mine = group.partitions.iter().filter(|partition| partition.owner.as_deref() == owner);
        let tiles: Vec<Row> = mine.map(|partition| tile(&group.name, partition, process)).collect();
        Row::new(format!("{}/{}", owner.unwrap_or_default(), group.name))
            .say("group", &group.name)
            .say("count", tiles.len().to_string())
            .with_rows(tiles)
    };
    groups.iter().map(share).collect()
}

fn tile(group: &str, partition: &PartitionNow, process: Option<HostProcess>) -> Row {
    let (glyph, state) = match (&partition.owner, partition.expired, process) {
        (None, ..) => ("○", "unowned"),
        (_, true, _) => ("◌", "expired"),
        (_, _, Some(HostProcess::Paused)) => ("Ⅱ", "paused"),
        (_, _, Some(HostProcess::Stopping)) => ("◑", "draining"),
        (_, _, Some(HostProcess::Dead | HostProcess::Stopped)) => ("✕", "orphaned"),
        _ => ("●", "running"),
    };
    let owner = partition.owner.as_deref();
    let title = format!(
        "{group}, partition {}: {state}, {} for {}, epoch {}, {} after the checkpoint",
        partition.id,
        owner.map_or_else(|| "no owner".to_owned(), |owner| format!("owned by {owner}")),
        span(partition.since),
        partition.epoch,
        counted(partition.lag, "event", "events"),
    );
    Row::new(format!("tile/{group}/{}", partition.id))
        .mark("data-state", state)
        .mark("title", title)
        .say("glyph", glyph)
        .say("id", partition.id.to_string())
        .say("owner", owner.map_or_else(|| "–".to_owned(), initials))
        .say("epoch", format!("e{}", partition.epoch))
        .say("lag", format!("+{}", count(partition.lag)))
        .say("since", span(partition.since))
}

/// `host-3` is `h3`.
fn initials(host: &str) -> String {
    let first = host.chars().find(|letter| letter.is_alphabetic());
    let number = host.rsplit(|letter: char| !letter.is_ascii_digit()).next().unwrap_or_default();
    first.into_iter().chain(number.chars().take(4)).collect()
}

/// The board with its templates.
pub(super) fn board(shown: &Shown) -> Markup {
    html! {
        ul.board #board data-template="column-template" data-moves="yes" {
            @for row in shown.rows("board") { (column(row)) }
        }
        template #column-template { (column(&Row::default())) }
        template #share-template { (share(&Row::default())) }
        template #tile-template { (partition(&Row::default())) }
    }
}

fn column(row: &Row) -> Markup {
    let hidden = |part: &str| row.part(part, "hidden").is_some();
    html! {
        li.column data-key=(row.key()) data-state=[row.attribute("data-state")]
            data-host=[row.attribute("data-host")] {
            p.who {
                span.glyph aria-hidden="true" data-part="glyph" { (row.text("glyph")) }
                b data-part="name" { (row.text("name")) }
                span.muted data-part="state" { (row.text("state")) }
            }
            p.muted data-part="uses" { (row.text("uses")) }
            p.buttons data-part="buttons" hidden[hidden("buttons")] {
                @for (action, label, what) in HOST_ACTIONS {
                    button type="button" data-action=(action) data-part=(action) title=(what)
                        hidden[hidden(action)] disabled[row.part(action, "disabled").is_some()]
                        data-milliseconds=[row.part(action, "data-milliseconds")] {
                        @if row.text(action).is_empty() { (label) } @else { (row.text(action)) }
                    }
                }
            }
            ul data-rows="yes" data-template="share-template" { @for row in row.rows() { (share(row)) } }
        }
    }
}

fn share(row: &Row) -> Markup {
    html! {
        li.share data-key=(row.key()) {
            p.muted { span data-part="group" { (row.text("group")) } " " span data-part="count" { (row.text("count")) } }
            ul.tiles data-rows="yes" data-template="tile-template" { @for row in row.rows() { (partition(row)) } }
        }
    }
}

fn partition(row: &Row) -> Markup {
    let part = |name: &str| html! { span class=(name) data-part=(name) { (row.text(name)) } };
    html! {
        li.tile data-key=(row.key()) data-state=[row.attribute("data-state")] title=[row.attribute("title")] {
            (part("glyph")) (part("id")) (part("owner")) (part("epoch")) (part("since")) (part("lag"))
        }
    }
}

/// The legend of the board.
pub(super) fn legend() -> Markup {
    let states = [
        ("●", "running"),
        ("◑", "draining"),
        ("Ⅱ", "owner paused"),
        ("✕", "owner ended"),
        ("◌", "lease expired"),
        ("○", "no owner"),
    ];
    html! {
        p.legend {
            @for (glyph, name) in states { span.key { span.glyph { (glyph) } (name) } }
            span.key { "h3 owner, e12 epoch, 5 s time owned, +77 events after the checkpoint" }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partition(id: u32, owner: Option<&str>) -> PartitionNow {
        let owner = owner.map(str::to_owned);
        PartitionNow { id, owner, epoch: 1, since: 1_000, expired: false, lag: 2 }
    }

    fn host(name: &str, state: HostProcess) -> HostNow {
        HostNow { name: name.to_owned(), state, cores: 0.1, memory: 1, slow: 0 }
    }

    #[test]
    fn every_partition_stands_in_one_column() {
        let mut partitions =
            vec![partition(0, Some("host-1")), partition(1, Some("gone")), partition(2, None)];
        partitions.push(PartitionNow { expired: true, ..partition(3, Some("host-2")) });
        let groups = vec![GroupNow { name: "alarms".to_owned(), partitions }];
        let hosts = vec![
            host("host-1", HostProcess::Running),
            host("host-2", HostProcess::Dead),
            host("host-3", HostProcess::Dead),
        ];
        let rows = columns(&FleetNow { hosts, groups, ..FleetNow::default() });
        let names: Vec<&str> = rows.iter().map(|row| row.text("name")).collect();
        assert_eq!(names, ["host-1", "host-2", "gone", "nobody"]);
        let tiles = rows.iter().flat_map(Row::rows).flat_map(Row::rows);
        let states: Vec<_> =
            tiles.map(|tile| (tile.text("id"), tile.attribute("data-state").unwrap())).collect();
        assert_eq!(states, [("0", "running"), ("3", "expired"), ("1", "running"), ("2", "unowned")]);
    }

    #[test]
    fn initials_are_short_and_telling() {
        assert_eq!(["host-3", "host-12", "9", "", "näher"].map(initials), ["h3", "h12", "9", "", "n"]);
    }

    #[test]
    fn what_is_over_cannot_be_acted_on() {
        let row = host_row(&host("host-1", HostProcess::Dead));
        assert!(HOST_ACTIONS.iter().all(|(action, ..)| row.part(action, "disabled").is_some()));
        let row = host_row(&host("host-1", HostProcess::Running));
        assert!(row.part("kill_host", "disabled").is_none() && row.part("resume_host", "disabled").is_some());
    }
}
