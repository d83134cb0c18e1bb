//! Tests of the rules for claims, renewals, transfers, releases and seeks, one step at a time.

mod saves;
mod switched_off_rules;

use super::*;
use crate::checkpoint::Position;
use crate::ids::Incarnation;
use crate::ids::LogId;
use crate::lease::ReleaseCause;
use crate::position::{SequenceNumber, StartPosition};

const LEASE: Duration = Duration::from_secs(30);
const P: PartitionId = PartitionId(3);

fn host(name: &str) -> HostId {
    HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
}

fn at(seconds: i64) -> Timestamp {
    Timestamp(seconds * 1_000)
}

fn request(name: &str, seen: Option<&LeaseRecord>, cause: ClaimCause) -> ClaimRequest {
    ClaimRequest {
        partition: P,
        host: host(name),
        duration: LEASE,
        seen: seen.map(|record| LeaseVersion::revision(record.revision)),
        above: Epoch::NONE,
        cause,
    }
}

fn token(record: &LeaseRecord) -> LeaseToken {
    LeaseToken { partition: P, owner: record.owner.clone().unwrap(), epoch: record.epoch }
}

/// Claims where epochs are left.
fn claim(
    lease: Option<&LeaseRecord>,
    fence: Epoch,
    request: &ClaimRequest,
    now: Timestamp,
    rules: &Rules,
) -> Option<Change> {
    super::claim(lease, fence, request, now, rules).unwrap()
}

fn transfer(
    lease: Option<&LeaseRecord>,
    fence: Epoch,
    request: &TransferRequest,
    now: Timestamp,
) -> Option<Change> {
    super::transfer(lease, fence, request, now).unwrap()
}

fn seek(
    lease: Option<&LeaseRecord>,
    fence: Epoch,
    partition: PartitionId,
    by: &str,
    now: Timestamp,
    rules: &Rules,
) -> Change {
    super::seek(lease, fence, partition, by, now, rules).unwrap()
}

fn owned(name: &str, now: Timestamp) -> LeaseRecord {
    claim(None, Epoch::NONE, &request(name, None, ClaimCause::Unowned), now, &Rules::default()).unwrap().lease
}

fn finished(sequence: u64) -> Position {
    Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None }
}

#[test]
fn a_first_claim_takes_the_first_epoch_and_fences_the_checkpoint() {
    let change =
        claim(None, Epoch::NONE, &request("a", None, ClaimCause::Unowned), at(5), &Rules::default()).unwrap();
    assert_eq!(change.lease.epoch.get(), 1);
    assert_eq!(change.fence, change.lease.epoch);
    assert_eq!(change.lease.owner, Some(host("a")));
    assert_eq!(change.lease.revision, 1);
    assert_eq!((change.lease.acquired_at, change.lease.renewed_at), (at(5), at(5)));
    assert_eq!(change.history.from, None);
    assert_eq!(change.history.to, Some(host("a")));
    assert_eq!(change.history.reason, ChangeReason::Claimed(ClaimCause::Unowned));
}

#[test]
fn a_claim_fails_if_the_record_changed_since_it_was_seen() {
    let first = owned("a", at(0));
    let renewed = renew(Some(&first), &token(&first), LEASE, at(10)).unwrap();
    let rules = Rules::default();
    let stale = request("b", Some(&first), ClaimCause::Expired);
    assert_eq!(claim(Some(&renewed), first.epoch, &stale, at(20), &rules), None);
    let none_seen = request("b", None, ClaimCause::Unowned);
    assert_eq!(claim(Some(&renewed), first.epoch, &none_seen, at(20), &rules), None);
    let gone = request("b", Some(&first), ClaimCause::Expired);
    assert_eq!(claim(None, Epoch::NONE, &gone, at(20), &rules), None);
}

#[test]
fn a_claim_rises_above_every_epoch_it_knows_of() {
    let first = owned("a", at(0));
    let rules = Rules::default();
    let mut request = request("b", Some(&first), ClaimCause::Expired);
    let plain = claim(Some(&first), first.epoch, &request, at(40), &rules).unwrap();
    assert_eq!(plain.lease.epoch.get(), 2);
    let rewritten = claim(Some(&first), Epoch::from_stored(8), &request, at(40), &rules).unwrap();
    assert_eq!(rewritten.lease.epoch.get(), 9);
    request.above = Epoch::from_stored(20);
    let above = claim(Some(&first), Epoch::from_stored(8), &request, at(40), &rules).unwrap();
    assert_eq!((above.lease.epoch.get(), above.fence.get()), (21, 21));
}

#[test]
fn where_no_epoch_is_left_nothing_changes_hands_and_the_owner_stays() {
    let rules = Rules::default();
    let first = owned("a", at(0));
    for highest in [Epoch::MAX, Epoch::from_stored(u64::MAX)] {
        let none_left = NoEpochLeft { partition: P, highest };
        let told =
            ClaimRequest { above: highest, ..request("b", Some(&first), ClaimCause::AboveForeignReader) };
        assert_eq!(super::claim(Some(&first), first.epoch, &told, at(1), &rules), Err(none_left));
        let last = LeaseRecord { epoch: highest, ..first.clone() };
        let expired = request("b", Some(&last), ClaimCause::Expired);
        assert_eq!(super::claim(Some(&last), highest, &expired, at(1), &rules), Err(none_left));
        let give =
            TransferRequest { token: token(&last), to: host("b"), duration: LEASE, checkpoint_saved: true };
        assert_eq!(super::transfer(Some(&last), highest, &give, at(1)), Err(none_left));
        assert_eq!(super::seek(Some(&last), highest, P, "ada", at(1), &rules), Err(none_left));
        assert!(renew(Some(&last), &token(&last), LEASE, at(1)).is_some());
    }
    let before_last = ClaimRequest {
        above: Epoch::from_stored(Epoch::MAX.get() - 1),
        ..request("b", Some(&first), ClaimCause::AboveForeignReader)
    };
    assert_eq!(
        claim(Some(&first), first.epoch, &before_last, at(1), &rules).unwrap().lease.epoch,
        Epoch::MAX
    );
}

#[test]
fn only_the_holder_renews_and_nothing_but_the_age_changes() {
    let first = owned("a", at(0));
    let renewed = renew(Some(&first), &token(&first), LEASE * 2, at(10)).unwrap();
    assert_eq!(renewed.renewed_at, at(10));
    assert_eq!(renewed.acquired_at, at(0));
    assert_eq!(renewed.duration, Some(LEASE * 2));
    assert_eq!(renewed.revision, first.revision + 1);
    assert_eq!((renewed.epoch, renewed.owner.clone()), (first.epoch, first.owner.clone()));
    let wrong_epoch = LeaseToken { epoch: first.epoch.next().unwrap(), ..token(&first) };
    let wrong_host = LeaseToken { owner: host("b"), ..token(&first) };
    assert_eq!(renew(Some(&first), &wrong_epoch, LEASE, at(10)), None);
    assert_eq!(renew(Some(&first), &wrong_host, LEASE, at(10)), None);
    assert_eq!(renew(None, &token(&first), LEASE, at(10)), None);
}

#[test]
fn a_transfer_raises_the_epoch_and_leaves_nobody_unaware() {
    let first = owned("a", at(0));
    let request =
        TransferRequest { token: token(&first), to: host("b"), duration: LEASE * 2, checkpoint_saved: true };
    let first = LeaseRecord { successor: Some(host("c")), ..first };
    let change = transfer(Some(&first), first.epoch, &request, at(7)).unwrap();
    assert_eq!(change.lease.owner, Some(host("b")));
    assert_eq!((change.lease.epoch.get(), change.fence.get()), (2, 2));
    assert_eq!(change.lease.seen_at(at(7)).takeover_delay, Duration::ZERO);
    assert_eq!((change.lease.previous_owner.clone(), change.lease.successor.clone()), (None, None));
    assert_eq!((change.lease.acquired_at, change.lease.renewed_at), (at(7), at(7)));
    assert_eq!(change.lease.duration, Some(LEASE * 2));
    assert_eq!(change.lease.revision, first.revision + 1);
    assert_eq!(change.history.from, Some(host("a")));
    assert_eq!(change.history.reason, ChangeReason::HandedOver);
    assert_eq!(transfer(Some(&change.lease), change.fence, &request, at(8)), None);
    let sealed_higher = transfer(Some(&first), Epoch::from_stored(5), &request, at(7)).unwrap();
    assert_eq!(sealed_higher.lease.epoch.get(), 6);
}

#[test]
fn a_release_keeps_the_epoch_and_the_next_claim_raises_it() {
    let first = owned("a", at(0));
    let successor = Some(host("b"));
    let cause = ReleaseCause::Shutdown;
    let request =
        ReleaseRequest { token: token(&first), cause, successor: successor.clone(), checkpoint_saved: true };
    let change = release(Some(&first), first.epoch, &request, at(7)).unwrap();
    assert_eq!(change.lease.owner, None);
    assert_eq!(change.lease.epoch, first.epoch);
    assert_eq!(change.fence, first.epoch);
    assert_eq!(change.lease.revision, first.revision + 1);
    assert_eq!(change.lease.seen_at(at(9)).age, Duration::from_secs(2));
    assert_eq!(change.lease.seen_at(at(9)).successor, successor);
    assert_eq!((change.lease.duration, change.lease.acquired_at), (None, at(7)));
    assert_eq!(change.history.to, None);
    assert_eq!(change.history.from, Some(host("a")));
    assert_eq!(release(Some(&change.lease), change.fence, &request, at(8)), None);
    let again = claim(
        Some(&change.lease),
        change.fence,
        &self::request("b", Some(&change.lease), ClaimCause::Unowned),
        at(8),
        &Rules::default(),
    )
    .unwrap();
    assert_eq!(again.lease.epoch.get(), 2);
    assert_eq!(again.lease.successor, None);
    assert_eq!(again.lease.seen_at(at(8)).takeover_delay, Duration::ZERO);
    let sought = seek(Some(&change.lease), change.fence, P, "ada", at(9), &Rules::default());
    assert_eq!(sought.lease.successor, None);
}

#[test]
fn a_taker_waits_until_the_previous_owner_has_noticed() {
    let first = owned("a", at(0));
    let stolen = claim(
        Some(&first),
        first.epoch,
        &request("b", Some(&first), ClaimCause::Unresponsive),
        at(10),
        &Rules::default(),
    )
    .unwrap();
    assert_eq!(stolen.lease.previous_owner, Some(host("a")));
    assert_eq!(stolen.lease.seen_at(at(10)).takeover_delay, Duration::from_secs(20));
    assert_eq!(stolen.lease.seen_at(at(31)).takeover_delay, Duration::ZERO);
    let expired = claim(
        Some(&first),
        first.epoch,
        &request("b", Some(&first), ClaimCause::Expired),
        at(10),
        &Rules::default(),
    )
    .unwrap();
    assert_eq!(expired.lease.seen_at(at(10)).takeover_delay, Duration::ZERO);
    assert_eq!(expired.lease.previous_owner, None);
}

#[test]
fn who_is_unaware_stays_so_when_the_lease_moves_on() {
    let rules = Rules::default();
    let first = owned("a", at(0));
    let request_b = request("b", Some(&first), ClaimCause::Unresponsive);
    let stolen = claim(Some(&first), first.epoch, &request_b, at(10), &rules).unwrap();
    let to_c = TransferRequest {
        token: token(&stolen.lease),
        to: host("c"),
        duration: LEASE,
        checkpoint_saved: true,
    };
    let given = transfer(Some(&stolen.lease), stolen.fence, &to_c, at(11)).unwrap();
    assert_eq!(given.lease.seen_at(at(12)).takeover_delay, Duration::from_secs(18));
    let request_d = request("d", Some(&given.lease), ClaimCause::Unresponsive);
    let again = claim(Some(&given.lease), given.fence, &request_d, at(12), &rules).unwrap();
    assert_eq!(again.lease.previous_owner, Some(host("c")));
    assert_eq!(again.lease.seen_at(at(12)).takeover_delay, Duration::from_secs(29));
    let expired = request("d", Some(&given.lease), ClaimCause::Expired);
    let late = claim(Some(&given.lease), given.fence, &expired, at(12), &rules).unwrap();
    assert_eq!(late.lease.seen_at(at(12)).takeover_delay, Duration::from_secs(18));
}

#[test]
fn nobody_vouches_for_an_owner_before_it() {
    // Host b takes the lease of a at 10, and a may be at work until 30; b's own lease is shorter.
    let first = owned("a", at(0));
    let mut steal = request("b", Some(&first), ClaimCause::Unresponsive);
    steal.duration = Duration::from_secs(5);
    let stolen = claim(Some(&first), first.epoch, &steal, at(10), &Rules::default()).unwrap();
    let sought = seek(Some(&stolen.lease), stolen.fence, P, "ada", at(11), &Rules::default());
    assert_eq!(sought.lease.previous_owner, None);
    assert_eq!(sought.lease.seen_at(at(11)).takeover_delay, Duration::from_secs(19));
}

#[test]
fn a_clock_set_back_makes_nobody_wait_longer_than_a_lease() {
    let first = owned("a", at(1_000));
    let stolen = claim(
        Some(&first),
        first.epoch,
        &request("b", Some(&first), ClaimCause::Unresponsive),
        at(10),
        &Rules::default(),
    )
    .unwrap();
    assert_eq!(stolen.lease.seen_at(at(10)).takeover_delay, LEASE);
}

#[test]
fn a_clock_set_back_afterwards_does_not_either_whatever_becomes_of_the_lease() {
    let rules = Rules::default();
    let first = owned("a", at(1_000));
    let steal = request("b", Some(&first), ClaimCause::Unresponsive);
    let stolen = claim(Some(&first), first.epoch, &steal, at(1_010), &rules).unwrap().lease;
    let twenty = Duration::from_secs(20);
    assert_eq!(stolen.seen_at(at(500)).takeover_delay, twenty);
    let to_c =
        TransferRequest { token: token(&stolen), to: host("c"), duration: LEASE, checkpoint_saved: true };
    let given = transfer(Some(&stolen), stolen.epoch, &to_c, at(500)).unwrap().lease;
    assert_eq!(given.seen_at(at(500)).takeover_delay, twenty);
    let back = ReleaseRequest {
        token: token(&given),
        cause: ReleaseCause::Shutdown,
        successor: None,
        checkpoint_saved: true,
    };
    let free = release(Some(&given), given.epoch, &back, at(100)).unwrap().lease;
    assert_eq!(free.seen_at(at(100)).takeover_delay, twenty);
    let taken = request("d", Some(&free), ClaimCause::Unowned);
    let taken = claim(Some(&free), free.epoch, &taken, at(50), &rules).unwrap().lease;
    assert_eq!(
        (taken.seen_at(at(50)).takeover_delay, taken.seen_at(at(69)).takeover_delay),
        (twenty, Duration::from_secs(1))
    );
    let sought = seek(Some(&free), free.epoch, P, "ada", at(50), &rules).lease;
    assert_eq!(sought.seen_at(at(40)).takeover_delay, twenty);
}

#[test]
fn a_seek_takes_the_lease_away_and_remembers_whose_it_was() {
    let first = owned("a", at(0));
    let sought = seek(Some(&first), first.epoch, P, "ada", at(10), &Rules::default());
    assert_eq!(sought.lease.owner, None);
    assert_eq!((sought.lease.epoch.get(), sought.fence.get()), (2, 2));
    assert_eq!(sought.lease.revision, first.revision + 1);
    let seen = sought.lease.seen_at(at(12));
    assert_eq!((seen.previous_owner, seen.takeover_delay), (Some(host("a")), Duration::from_secs(18)));
    let again = seek(Some(&sought.lease), sought.fence, P, "ada", at(11), &Rules::default());
    assert_eq!(again.lease.seen_at(at(12)).takeover_delay, Duration::from_secs(18));
    assert_eq!(again.lease.epoch.get(), 3);
    let claimed = claim(
        Some(&sought.lease),
        sought.fence,
        &request("b", Some(&sought.lease), ClaimCause::Unowned),
        at(12),
        &Rules::default(),
    )
    .unwrap();
    assert_eq!(claimed.lease.seen_at(at(12)).takeover_delay, Duration::from_secs(18));
    let fresh = seek(None, Epoch::from_stored(4), P, "ada", at(1), &Rules::default());
    assert_eq!((fresh.lease.epoch.get(), fresh.lease.partition), (5, P));
    assert_eq!(fresh.history.reason, ChangeReason::Seek { by: "ada".into() });
}
