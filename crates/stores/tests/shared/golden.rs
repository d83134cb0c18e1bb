//! Test helper that pins stored formats: a fixed script that writes every kind of record, and the
//! comparison of a dump with a golden file.
//!
//! The files are in `tests/golden`. `EPHOR_WRITE_GOLDEN=1` writes them, for a change of a format that is meant.

use std::path::PathBuf;
use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{
    HandoverAnswer, HandoverReply, HandoverRequest, HostRecord, HostState, HostStatistics, ReadHub,
};
use ephor_core::ids::{GroupId, HostId, Incarnation, LogId, PartitionId};
use ephor_core::lease::{
    ClaimCause, ClaimRequest, LeaseToken, ReleaseCause, ReleaseRequest, TransferRequest,
};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::store::{
    ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome, SaveRequest,
    SeekOutcome, SeekRequest, Store,
};
use ephor_core::time::Timestamp;

/// Longer than the script takes on any machine, so that no lease expires.
const LEASE: Duration = Duration::from_millis(300_500);

/// A value that is longer than this is shown by its beginning, its length and its hash.
const MAX_SHOWN: usize = 800;

/// A time that no store wrote: it is in requests.
const FIXED: Timestamp = Timestamp(1_500_000_000_123);

fn host(name: &str) -> HostId {
    let incarnation = match name {
        // Beyond what a signed number holds.
        "c" => Incarnation(0xfedc_ba98_7654_3210),
        _ => Incarnation(0x2a),
    };
    HostId { name: name.parse().unwrap(), incarnation }
}

fn other(group: &GroupId, name: &str) -> GroupId {
    GroupId { group: name.parse().unwrap(), ..group.clone() }
}

fn record(name: &str, state: HostState) -> HostRecord {
    HostRecord {
        id: host(name),
        beat: 7,
        state,
        lease_duration: LEASE,
        max_partitions: None,
        wants: Vec::new(),
        answers: Vec::new(),
        statistics: HostStatistics::default(),
        software: "ephor 0.1".into(),
        hub: None,
    }
}

/// A record that uses every field.
fn full_record(name: &str) -> HostRecord {
    let want = |partition, owner, epoch| HandoverRequest {
        partition,
        owner: host(owner),
        epoch: Epoch::from_stored(epoch),
    };
    HostRecord {
        max_partitions: Some(12),
        wants: vec![want(PartitionId(3), "b", 1), want(PartitionId(5), "c", 9)],
        answers: vec![
            HandoverAnswer {
                partition: PartitionId(0),
                asker: host("b"),
                reply: HandoverReply::DrainingUntil(FIXED),
            },
            HandoverAnswer { partition: PartitionId(1), asker: host("c"), reply: HandoverReply::No },
        ],
        statistics: HostStatistics { owned: 3, events: 41, lag_events: 5, failures: 2 },
        hub: Some(ReadHub { endpoint: "ns.example:5671".into(), log: LogId::new("log \"1\"") }),
        ..record(name, HostState::Active)
    }
}

/// One group of one store, and a step of its clock.
struct Script<'a> {
    store: &'a dyn Store,
    group: &'a GroupId,
    pass: &'a dyn Fn(),
}

impl Script<'_> {
    async fn claim_above(&self, partition: u32, name: &str, cause: ClaimCause, above: u64) -> LeaseToken {
        (self.pass)();
        let partition = PartitionId(partition);
        let seen = self.store.view(self.group).await.unwrap();
        let seen = seen.lease(partition).map(|lease| lease.version.clone());
        let above = Epoch::from_stored(above);
        let request = ClaimRequest { partition, host: host(name), duration: LEASE, seen, above, cause };
        match self.store.claim(self.group, &request).await.unwrap() {
            ClaimOutcome::Won { token, .. } => token,
            ClaimOutcome::Lost { holder } => panic!("partition {partition} is lost to {holder:?}"),
        }
    }

    async fn claim(&self, partition: u32, name: &str, cause: ClaimCause) -> LeaseToken {
        self.claim_above(partition, name, cause, 0).await
    }

    async fn renew(&self, tokens: &[&LeaseToken]) {
        (self.pass)();
        let tokens: Vec<LeaseToken> = tokens.iter().map(|token| (*token).clone()).collect();
        let renewals = self.store.renew(self.group, LEASE, &tokens).await.unwrap();
        assert!(renewals.iter().all(|renewal| *renewal == RenewalOutcome::Renewed), "{renewals:?}");
    }

    async fn save(&self, token: &LeaseToken, position: Position, log: Option<&str>, rewind: bool) {
        (self.pass)();
        let log = log.map(LogId::new);
        let request = SaveRequest { rewind, ..SaveRequest::new(token, &position, log.as_ref()) };
        let saved = self.store.save(self.group, &request).await.unwrap();
        assert!(matches!(saved, SaveOutcome::Saved(_)), "{saved:?}");
    }

    async fn release(&self, token: &LeaseToken, cause: ReleaseCause, successor: Option<&str>) {
        (self.pass)();
        let checkpoint_saved = cause != ReleaseCause::ProcessorFailed;
        let request =
            ReleaseRequest { token: token.clone(), cause, successor: successor.map(host), checkpoint_saved };
        assert_eq!(self.store.release(self.group, &request).await.unwrap(), GiveUpOutcome::Done);
    }

    async fn transfer(&self, token: &LeaseToken, to: &str, checkpoint_saved: bool) {
        (self.pass)();
        let request =
            TransferRequest { token: token.clone(), to: host(to), duration: LEASE, checkpoint_saved };
        assert_eq!(self.store.transfer(self.group, &request).await.unwrap(), GiveUpOutcome::Done);
    }

    async fn owner(&self, partition: u32) -> LeaseToken {
        let view = self.store.view(self.group).await.unwrap();
        view.lease(PartitionId(partition)).unwrap().token().unwrap()
    }

    async fn seek(&self, partition: u32, start: StartPosition, log: Option<&str>) {
        (self.pass)();
        let (partition, position) = (PartitionId(partition), Position::Start(start));
        let (log, by) = (log.map(LogId::new), "ada o'neil".to_owned());
        let request = SeekRequest { partition, position, log, by, force: false };
        assert!(matches!(self.store.seek(self.group, &request).await.unwrap(), SeekOutcome::Done { .. }));
    }

    async fn heartbeat(&self, record: &HostRecord) -> DesiredState {
        (self.pass)();
        self.store.heartbeat(self.group, record).await.unwrap()
    }

    async fn init_group(&self, group: &GroupId, partitions: u32, log: Option<&str>) {
        let partitions = (0..partitions).map(PartitionId).collect();
        let origin = GroupOrigin { partitions, log: log.map(LogId::new) };
        assert_eq!(self.store.init_group(group, &origin).await.unwrap(), origin);
    }

    async fn groups_and_hosts(&self) {
        self.init_group(self.group, 7, Some("log \"1\"")).await;
        self.init_group(&other(self.group, "bare"), 0, None).await;
        self.init_group(&other(self.group, "long"), 2_000, None).await;
        self.heartbeat(&full_record("a")).await;
        for (name, state) in [
            ("b", HostState::Standby),
            ("c", HostState::Draining),
            ("d", HostState::Unhealthy),
            ("gone", HostState::Active),
        ] {
            self.heartbeat(&record(name, state)).await;
        }
        let long = HostRecord { software: "x".repeat(7_100), ..record("long", HostState::Active) };
        self.heartbeat(&long).await;
        self.store.retire(self.group, &host("gone")).await.unwrap();
    }

    async fn positions(&self, tokens: [&LeaseToken; 6]) {
        let [p0, p1, p2, p3, p4, p5] = tokens;
        let offset = |text: &str| Some(Offset::new(text));
        let finished = |number, offset, enqueued_at| Position::Finished {
            sequence: SequenceNumber(number),
            offset,
            enqueued_at,
        };
        let log = Some("log \"1\"");
        self.save(p0, finished(41, offset("1312"), Some(FIXED)), log, false).await;
        self.save(p0, finished(40, None, None), log, true).await;
        self.save(p1, finished(7, offset("a b%c"), None), None, false).await;
        let at = StartPosition::Offset { offset: Offset::new("64"), inclusive: false };
        self.save(p2, Position::Start(at), log, false).await;
        self.save(p3, Position::Start(StartPosition::at(SequenceNumber(100))), log, false).await;
        self.save(p4, Position::Start(StartPosition::EnqueuedTime(FIXED)), None, false).await;
        self.save(p5, Position::Start(StartPosition::Earliest), None, false).await;
    }

    async fn all(&self) {
        self.groups_and_hosts().await;
        let p0 = self.claim(0, "a", ClaimCause::Unowned).await;
        let p1 = self.claim(1, "a", ClaimCause::Unowned).await;
        let p2 = self.claim(2, "a", ClaimCause::Unowned).await;
        let p3 = self.claim(3, "b", ClaimCause::Unowned).await;
        let p4 = self.claim(4, "a", ClaimCause::Unowned).await;
        let p5 = self.claim_above(5, "b", ClaimCause::Unowned, 7).await;
        let p6 = self.claim(6, "a", ClaimCause::Unowned).await;
        let p700 = self.claim(700, "a", ClaimCause::Unowned).await;
        self.renew(&[&p0, &p1, &p2, &p4, &p6, &p700]).await;
        self.renew(&[&p3, &p5]).await;
        self.positions([&p0, &p1, &p2, &p3, &p4, &p5]).await;
        self.renew(&[&p0, &p1, &p4]).await;
        // Every way in which a lease changes its owner.
        let taken = self.claim(1, "c", ClaimCause::Unresponsive).await;
        self.renew(&[&taken]).await;
        self.transfer(&p2, "b", false).await;
        self.renew(&[&self.owner(2).await]).await;
        self.release(&p3, ReleaseCause::ProcessorFailed, Some("c")).await;
        self.seek(4, StartPosition::Latest, None).await;
        self.seek(8, StartPosition::after(SequenceNumber(5)), Some("log 2")).await;
        self.claim(5, "a", ClaimCause::Expired).await;
        self.claim_above(5, "c", ClaimCause::AboveForeignReader, 20).await;
        self.release(&p6, ReleaseCause::Shutdown, None).await;
        for cause in [ReleaseCause::SourceFailed, ReleaseCause::Unserved] {
            let token = self.claim(7, "d", ClaimCause::Unowned).await;
            self.release(&token, cause, None).await;
        }
        self.transfer(&self.claim(9, "d", ClaimCause::Unowned).await, "a", true).await;
        // What people want of hosts, and what hosts learn of it.
        for (name, drain) in [("a", true), ("b", true), ("b", false), ("d", true)] {
            assert!(
                self.store.set_desired_state(self.group, &host(name), DesiredState { drain }).await.unwrap()
            );
        }
        assert!(self.heartbeat(&record("d", HostState::Unhealthy)).await.drain);
        assert!(!self.heartbeat(&record("b", HostState::Standby)).await.drain);
    }
}

/// Plays the script; returns the store's time after it.
pub(crate) async fn play(store: &dyn Store, group: &GroupId, pass: &dyn Fn()) -> Timestamp {
    Script { store, group, pass }.all().await;
    let view = store.view(group).await.unwrap();
    assert_eq!((view.damaged.len(), view.hosts.len()), (0, 5), "{view:?}");
    assert_eq!(store.history(group, None, 100).await.unwrap().len(), 22);
    view.at
}

/// A value that fits on a line.
pub(crate) fn shortened(value: &str) -> String {
    if value.len() <= MAX_SHOWN {
        return value.to_owned();
    }
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = value.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let start: String = value.chars().take(80).collect();
    format!("{start}… ({} bytes, FNV-1a {hash:016x})", value.len())
}

/// The text with every time near `now`, in milliseconds or microseconds, replaced.
#[allow(dead_code, reason = "a store whose clock the test sets has nothing to mask")]
pub(crate) fn without_times(text: &str, now: Timestamp) -> String {
    const DAYS: u64 = 2 * 24 * 60 * 60 * 1_000;
    let is_time = |digits: &str| match (digits.len(), digits.parse::<i64>()) {
        (13, Ok(millis)) => millis.abs_diff(now.0) < DAYS,
        (16, Ok(micros)) => (micros / 1_000).abs_diff(now.0) < DAYS,
        _ => false,
    };
    let mut masked = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let (digits, after) = from.split_at(end);
        masked.push_str(before);
        masked.push_str(if is_time(digits) { "<time>" } else { digits });
        rest = after;
    }
    masked + rest
}

/// Fails if the dump is not the one in `tests/golden`.
pub(crate) fn compare(name: &str, dump: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("EPHOR_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, dump).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (number, (found, expected)) in dump.lines().zip(golden.lines()).enumerate() {
        assert_eq!(found, expected, "line {} of {}", number + 1, path.display());
    }
    assert_eq!(dump.lines().count(), golden.lines().count(), "lines of {}", path.display());
}
