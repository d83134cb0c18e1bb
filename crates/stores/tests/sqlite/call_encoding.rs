//! Test helper: encodes store calls and their results as serializable values, so that another process can
//! run them.

use std::time::Duration;

use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::epoch::Epoch;
use ephor_core::history::{ChangeReason, OwnershipChange};
use ephor_core::host_record::{
    HandoverAnswer, HandoverReply, HandoverRequest, HostRecord, HostState, HostStatistics, ReadHub,
};
use ephor_core::ids::{GroupId, HostId, LogId, PartitionId};
use ephor_core::lease::{ClaimCause, Lease, LeaseToken, LeaseVersion, ReleaseCause};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::store::{GroupOrigin, HostEntry, RefusalCause, StoreError, View};
use ephor_core::time::Timestamp;
use serde::{Deserialize, Serialize};

pub(crate) type GroupT = (String, String, String);
pub(crate) type TokenT = (u32, String, u64);
pub(crate) type PositionT = (String, u64, Option<String>, Option<i64>);
pub(crate) type CheckpointT = (PositionT, Option<String>, u64, i64);
pub(crate) type OriginT = (Vec<u32>, Option<String>);
type WhoT = (Option<String>, Option<String>, Option<String>);
pub(crate) type LeaseT = (u32, WhoT, u64, Option<u64>, i64, u64, u64, u64);
type AnswerT = (u32, String, Option<i64>);
type NumbersT = (u64, u64, Option<u32>, u32, u64, u64, u64);
pub(crate) type RecordT =
    (String, usize, NumbersT, Vec<TokenT>, Vec<AnswerT>, String, Option<(String, String)>);
type CheckpointsT = Vec<(u32, CheckpointT)>;
pub(crate) type ViewT = (i64, Vec<(RecordT, u64)>, Vec<LeaseT>, CheckpointsT, Option<OriginT>, Vec<String>);
pub(crate) type ChangeT = (i64, u32, u64, Option<String>, Option<String>, (u8, usize, String));

/// An error: the cause of a refusal, and its words.
pub(crate) type ErrorT = (Option<usize>, String);

const REFUSALS: [RefusalCause; 7] = [
    RefusalCause::InvalidCredentials,
    RefusalCause::AccessDenied,
    RefusalCause::NotFound,
    RefusalCause::NoSecureConnection,
    RefusalCause::Incompatible,
    RefusalCause::NoEpochLeft,
    RefusalCause::Other,
];

pub(crate) fn error_out(error: StoreError) -> ErrorT {
    match error {
        StoreError::Refused { cause, message } => (Some(index(&REFUSALS, &cause)), message),
        other => (None, other.to_string()),
    }
}

pub(crate) fn error_in((refusal, message): ErrorT) -> StoreError {
    match refusal {
        Some(cause) => StoreError::refused(REFUSALS[cause], message),
        None => StoreError::Unavailable(message.into()),
    }
}

#[derive(Serialize, Deserialize)]
pub(crate) enum Call {
    Groups,
    Found(OriginT),
    View,
    Heartbeat(RecordT),
    Retire(String),
    Order(String, bool),
    Claim(u32, String, u64, Option<u64>, u64, usize),
    Renew(u64, Vec<TokenT>),
    Transfer(TokenT, String, u64, bool),
    Release(TokenT, usize, Option<String>, bool),
    Save(TokenT, PositionT, Option<String>, bool),
    Seek(u32, PositionT, Option<String>, String, bool),
    History(Option<u32>, usize),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum ClaimT {
    Won(TokenT, LeaseT, Option<CheckpointT>),
    Lost(Option<LeaseT>),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum RenewalT {
    Renewed,
    Lost(Option<LeaseT>),
    Unknown(String),
}

#[derive(Serialize, Deserialize)]
pub(crate) enum SaveT {
    Saved(CheckpointT),
    Behind(CheckpointT),
    Fenced(u64),
}

pub(crate) const CLAIMS: [ClaimCause; 4] =
    [ClaimCause::Unowned, ClaimCause::Expired, ClaimCause::Unresponsive, ClaimCause::AboveForeignReader];
pub(crate) const RELEASES: [ReleaseCause; 4] = [
    ReleaseCause::Shutdown,
    ReleaseCause::ProcessorFailed,
    ReleaseCause::SourceFailed,
    ReleaseCause::Unserved,
];
const STATES: [HostState; 4] =
    [HostState::Active, HostState::Standby, HostState::Draining, HostState::Unhealthy];

pub(crate) fn index<T: PartialEq>(all: &[T], one: &T) -> usize {
    all.iter().position(|each| each == one).unwrap()
}

pub(crate) fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}

fn id(text: &str) -> HostId {
    text.parse().unwrap()
}

pub(crate) fn text<T: ToString>(value: &Option<T>) -> Option<String> {
    value.as_ref().map(ToString::to_string)
}

pub(crate) fn maybe_id(text: &Option<String>) -> Option<HostId> {
    text.as_deref().map(id)
}

pub(crate) fn log_text(log: &Option<LogId>) -> Option<String> {
    log.as_ref().map(|log| log.as_str().to_owned())
}

pub(crate) fn log(text: &Option<String>) -> Option<LogId> {
    text.as_deref().map(LogId::new)
}

pub(crate) fn group_out(group: &GroupId) -> GroupT {
    (group.namespace.to_string(), group.hub.to_string(), group.group.to_string())
}

pub(crate) fn group_in((namespace, hub, group): &GroupT) -> GroupId {
    let (namespace, hub) = (namespace.parse().unwrap(), hub.parse().unwrap());
    GroupId { namespace, hub, group: group.parse().unwrap() }
}

pub(crate) fn token_out(token: &LeaseToken) -> TokenT {
    (token.partition.0, token.owner.to_string(), token.epoch.get())
}

pub(crate) fn token_in((partition, owner, epoch): &TokenT) -> LeaseToken {
    LeaseToken { partition: PartitionId(*partition), owner: id(owner), epoch: Epoch::from_stored(*epoch) }
}

pub(crate) fn position_out(position: &Position) -> PositionT {
    let (kind, number, text, time) = match position {
        Position::Finished { sequence, offset, enqueued_at } => {
            ("finished", sequence.0, offset.as_ref().map(ToString::to_string), enqueued_at.map(|at| at.0))
        }
        Position::Start(StartPosition::Earliest) => ("earliest", 0, None, None),
        Position::Start(StartPosition::Latest) => ("latest", 0, None, None),
        Position::Start(StartPosition::Sequence { number, inclusive }) => {
            (if *inclusive { "at" } else { "after" }, number.0, None, None)
        }
        Position::Start(StartPosition::Offset { offset, inclusive }) => {
            (if *inclusive { "at-offset" } else { "after-offset" }, 0, Some(offset.to_string()), None)
        }
        Position::Start(StartPosition::EnqueuedTime(time)) => ("time", 0, None, Some(time.0)),
    };
    (kind.to_owned(), number, text, time)
}

pub(crate) fn position_in((kind, number, text, time): &PositionT) -> Position {
    let number = SequenceNumber(*number);
    let offset = text.as_deref().map(Offset::new);
    Position::Start(match kind.as_str() {
        "finished" => {
            return Position::Finished { sequence: number, offset, enqueued_at: time.map(Timestamp) };
        }
        "earliest" => StartPosition::Earliest,
        "latest" => StartPosition::Latest,
        "at" | "after" => StartPosition::Sequence { number, inclusive: kind == "at" },
        "at-offset" | "after-offset" => {
            StartPosition::Offset { offset: offset.unwrap(), inclusive: kind == "at-offset" }
        }
        _ => StartPosition::EnqueuedTime(Timestamp(time.unwrap())),
    })
}

pub(crate) fn checkpoint_out(it: &Checkpoint) -> CheckpointT {
    (position_out(&it.position), log_text(&it.log), it.epoch.get(), it.saved_at.0)
}

pub(crate) fn checkpoint_in((position, named, epoch, at): &CheckpointT) -> Checkpoint {
    let (epoch, saved_at) = (Epoch::from_stored(*epoch), Timestamp(*at));
    Checkpoint { position: position_in(position), log: log(named), epoch, saved_at }
}

pub(crate) fn origin_out(origin: &GroupOrigin) -> OriginT {
    (origin.partitions.iter().map(|partition| partition.0).collect(), log_text(&origin.log))
}

pub(crate) fn origin_in((partitions, named): &OriginT) -> GroupOrigin {
    GroupOrigin { partitions: partitions.iter().copied().map(PartitionId).collect(), log: log(named) }
}

pub(crate) fn lease_out(lease: &Lease) -> LeaseT {
    let who = (text(&lease.owner), text(&lease.previous_owner), text(&lease.successor));
    let version = lease.version.as_revision().unwrap();
    let (age, takeover_delay, duration) = (ms(lease.age), ms(lease.takeover_delay), lease.duration.map(ms));
    (lease.partition.0, who, lease.epoch.get(), duration, lease.acquired_at.0, age, takeover_delay, version)
}

pub(crate) fn lease_in(
    (partition, who, epoch, duration, acquired, age, takeover_delay, version): &LeaseT,
) -> Lease {
    Lease {
        partition: PartitionId(*partition),
        owner: maybe_id(&who.0),
        epoch: Epoch::from_stored(*epoch),
        duration: duration.map(Duration::from_millis),
        acquired_at: Timestamp(*acquired),
        age: Duration::from_millis(*age),
        age_known: true,
        version: LeaseVersion::revision(*version),
        previous_owner: maybe_id(&who.1),
        takeover_delay: Duration::from_millis(*takeover_delay),
        successor: maybe_id(&who.2),
    }
}

pub(crate) fn record_out(it: &HostRecord) -> RecordT {
    let HostStatistics { owned, events, lag_events, failures } = it.statistics;
    let numbers = (it.beat, ms(it.lease_duration), it.max_partitions, owned, events, lag_events, failures);
    let want = |want: &HandoverRequest| (want.partition.0, want.owner.to_string(), want.epoch.get());
    let answer = |answer: &HandoverAnswer| {
        let until = match answer.reply {
            HandoverReply::DrainingUntil(time) => Some(time.0),
            HandoverReply::No => None,
        };
        (answer.partition.0, answer.asker.to_string(), until)
    };
    let (wants, answers) = (it.wants.iter().map(want).collect(), it.answers.iter().map(answer).collect());
    let hub = it.hub.as_ref().map(|hub| (hub.endpoint.clone(), hub.log.to_string()));
    (it.id.to_string(), index(&STATES, &it.state), numbers, wants, answers, it.software.clone(), hub)
}

pub(crate) fn record_in((host, state, numbers, wants, answers, software, hub): &RecordT) -> HostRecord {
    let (beat, lease, max_partitions, owned, events, lag_events, failures) = *numbers;
    let want = |want: &TokenT| {
        let LeaseToken { partition, owner, epoch } = token_in(want);
        HandoverRequest { partition, owner, epoch }
    };
    let answer = |(partition, asker, until): &AnswerT| {
        let reply = until.map_or(HandoverReply::No, |time| HandoverReply::DrainingUntil(Timestamp(time)));
        HandoverAnswer { partition: PartitionId(*partition), asker: id(asker), reply }
    };
    HostRecord {
        id: id(host),
        beat,
        state: STATES[*state],
        lease_duration: Duration::from_millis(lease),
        max_partitions,
        wants: wants.iter().map(want).collect(),
        answers: answers.iter().map(answer).collect(),
        statistics: HostStatistics { owned, events, lag_events, failures },
        software: software.clone(),
        hub: hub.as_ref().map(|(endpoint, log)| ReadHub { endpoint: endpoint.clone(), log: LogId::new(log) }),
    }
}

pub(crate) fn view_out(view: &View) -> ViewT {
    let hosts = view.hosts.iter().map(|entry| (record_out(&entry.record), ms(entry.age))).collect();
    let leases = view.leases.iter().map(lease_out).collect();
    let checkpoints = view.checkpoints.iter().map(|(id, it)| (id.0, checkpoint_out(it))).collect();
    let origin = view.origin.as_ref().map(origin_out);
    (view.at.0, hosts, leases, checkpoints, origin, view.damaged.clone())
}

pub(crate) fn view_in((at, hosts, leases, checkpoints, origin, damaged): &ViewT) -> View {
    let entry = |(record, age): &(RecordT, u64)| HostEntry {
        record: record_in(record),
        age: Duration::from_millis(*age),
        age_known: true,
    };
    View {
        at: Timestamp(*at),
        hosts: hosts.iter().map(entry).collect(),
        leases: leases.iter().map(lease_in).collect(),
        checkpoints: checkpoints.iter().map(|(id, it)| (PartitionId(*id), checkpoint_in(it))).collect(),
        origin: origin.as_ref().map(origin_in),
        damaged: damaged.clone(),
    }
}

pub(crate) fn change_out(change: &OwnershipChange) -> ChangeT {
    let reason = match &change.reason {
        ChangeReason::Claimed(cause) => (0, index(&CLAIMS, cause), String::new()),
        ChangeReason::HandedOver => (1, 0, String::new()),
        ChangeReason::Released(cause) => (2, index(&RELEASES, cause), String::new()),
        ChangeReason::Seek { by } => (3, 0, by.clone()),
    };
    let (from, to) = (text(&change.from), text(&change.to));
    (change.at.0, change.partition.0, change.epoch.get(), from, to, reason)
}

pub(crate) fn change_in((at, partition, epoch, from, to, (kind, cause, by)): &ChangeT) -> OwnershipChange {
    let reason = match kind {
        0 => ChangeReason::Claimed(CLAIMS[*cause]),
        1 => ChangeReason::HandedOver,
        2 => ChangeReason::Released(RELEASES[*cause]),
        _ => ChangeReason::Seek { by: by.clone() },
    };
    OwnershipChange {
        at: Timestamp(*at),
        partition: PartitionId(*partition),
        epoch: Epoch::from_stored(*epoch),
        from: maybe_id(from),
        to: maybe_id(to),
        reason,
    }
}
