//! Changes ownership: claim, transfer, release and seek. Each reads, decides, and writes lease, fence,
//! history and wake-up in one statement, if the lease is still in the state that was read. The history is
//! also read here.
//!
//! The statement locks the checkpoint's row before the lease's row. A transaction of the user may hold
//! the checkpoint's row ([`save_in`](super::PostgresStore::save_in)); a statement that waits for it must
//! not hold the lease's row, which the owner wants to renew.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::ids::{GroupId, LogId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::record::{self, Change, CheckpointRecord, LeaseRecord};
use ephor_core::rules::Rules;
use ephor_core::store::{
    ClaimOutcome, GiveUpOutcome, MAX_HISTORY_PER_PARTITION, SeekOutcome, SeekRequest, StoreError,
};
use sqlx::postgres::PgRow;

use super::connections::Purpose;
use super::error_mapping::{self, Failure};
use super::partition_state::{PartitionState, checkpoint_in};
use super::rows::{CHECKPOINT_COLUMNS, text};
use super::session::{MAX_ATTEMPTS, Session, execute};
use super::waiting_hosts::{self, Wake};
use super::{clock, literal};
use crate::record_text::{write_position, write_reason};

/// The decision about a partition.
enum Decision<T> {
    /// Write nothing, and return this.
    Answer(T),
    /// Write this, then return that.
    Write(Box<PlannedWrite>, T),
}

struct PlannedWrite {
    change: Change,
    /// A new position, for a seek.
    position: Option<Checkpoint>,
    wake: Option<Wake>,
}

impl Session {
    pub(super) async fn claim(
        &self,
        group: &GroupId,
        request: &ClaimRequest,
    ) -> Result<ClaimOutcome, Failure> {
        let partition = request.partition;
        let decide = |state: &PartitionState| {
            let now = state.reading.now;
            // An unreadable position fails the claim: an owner could not start from it.
            state.checkpoint()?;
            let old = state.lease.as_ref();
            let Some(change) = record::claim(old, state.fence, request, now, &Rules::default())? else {
                return Ok(Decision::Answer(ClaimOutcome::Lost { holder: state.seen_lease() }));
            };
            let lease = change.lease.seen_at(now);
            let token = LeaseToken { partition, owner: request.host.clone(), epoch: lease.epoch };
            let planned = PlannedWrite { change, position: None, wake: None };
            Ok(Decision::Write(Box::new(planned), ClaimOutcome::Won { token, lease, checkpoint: None }))
        };
        let (claim, stored) = self.change(group, partition, decide).await?;
        Ok(match claim {
            // The position that was read before the fence was raised may be outdated.
            ClaimOutcome::Won { token, lease, .. } => {
                ClaimOutcome::Won { token, lease, checkpoint: stored.checkpoint }
            }
            lost => lost,
        })
    }

    pub(super) async fn transfer(
        &self,
        group: &GroupId,
        request: &TransferRequest,
    ) -> Result<GiveUpOutcome, Failure> {
        let decide = |state: &PartitionState| {
            let old = state.lease.as_ref();
            let change = record::transfer(old, state.fence, request, state.reading.now)?;
            Ok(give_away(change, waiting_hosts::host(group, &request.to)))
        };
        Ok(self.change(group, request.token.partition, decide).await?.0)
    }

    pub(super) async fn release(
        &self,
        group: &GroupId,
        request: &ReleaseRequest,
    ) -> Result<GiveUpOutcome, Failure> {
        let wake = request
            .successor
            .as_ref()
            .map_or_else(|| waiting_hosts::all(group), |successor| waiting_hosts::host(group, successor));
        let decide = |state: &PartitionState| {
            let old = state.lease.as_ref();
            let change = record::release(old, state.fence, request, state.reading.now);
            Ok(give_away(change, wake))
        };
        Ok(self.change(group, request.token.partition, decide).await?.0)
    }

    /// Moves a position. `force` has no effect: every owner here is a host of Ephor, which notices the
    /// seek. The old position is not read, so that a seek can replace a damaged one.
    pub(super) async fn seek(&self, group: &GroupId, request: &SeekRequest) -> Result<SeekOutcome, Failure> {
        let decide = |state: &PartitionState| {
            let (old, now) = (state.lease.as_ref(), state.reading.now);
            let change =
                record::seek(old, state.fence, request.partition, &request.by, now, &Rules::default())?;
            let epoch = change.lease.epoch;
            let (position, log) = (request.position.clone(), request.log.clone());
            let position = Some(Checkpoint { position, log, epoch, saved_at: now });
            let wake = change.history.from.as_ref().map(|owner| waiting_hosts::host(group, owner));
            Ok(Decision::Write(
                Box::new(PlannedWrite { change, position, wake }),
                SeekOutcome::Done { epoch },
            ))
        };
        Ok(self.change(group, request.partition, decide).await?.0)
    }

    /// Reads, decides and writes until no other change intervenes. Also returns the checkpoint after the write.
    async fn change<T>(
        &self,
        group: &GroupId,
        partition: PartitionId,
        decide: impl Fn(&PartitionState) -> Result<Decision<T>, Failure>,
    ) -> Result<(T, CheckpointRecord), Failure> {
        for _ in 0..MAX_ATTEMPTS {
            let (mut pooled, state) = self.read_state(Purpose::Ownership, group, partition).await?;
            let (planned, answer) = match decide(&state)? {
                Decision::Write(planned, answer) => (planned, answer),
                Decision::Answer(answer) => {
                    pooled.return_to_pool();
                    return Ok((answer, CheckpointRecord::default()));
                }
            };
            let sql = self.write(group, &state, &planned)?;
            let written = execute(&mut pooled.connection, &sql).await;
            match written {
                Err(Failure::Sqlx(error)) if error_mapping::is_conflict(&error) => pooled.return_to_pool(),
                Err(error) => return Err(error),
                Ok(rows) => {
                    pooled.return_to_pool();
                    if let Some(row) = rows.first() {
                        return Ok((answer, checkpoint_in(row, group, partition)?));
                    }
                }
            }
        }
        Err(too_many_conflicts(partition).into())
    }

    /// The whole change as one statement. It returns a row if it was carried out.
    fn write(
        &self,
        group: &GroupId,
        state: &PartitionState,
        planned: &PlannedWrite,
    ) -> Result<String, Failure> {
        let (s, key) = (self.schema(), literal::group(group));
        let PlannedWrite { change, position, wake } = planned;
        let (lease, history) = (&change.lease, &change.history);
        let p = lease.partition.0;
        let condition = format!("{} AND {}", state.reading.is_fresh(), self.tables_are_known());
        let lease_sql = lease_sql(s, &key, state, lease, &condition)?;
        let fence = literal::epoch(change.fence)?;
        let (columns, values, updates) = match position {
            None => (String::new(), String::new(), String::new()),
            Some(checkpoint) => position_sql(checkpoint)?,
        };
        let notify = wake.as_ref().map_or_else(String::new, |wake| {
            format!(", pg_notify('{}', '{}')::text AS woken", waiting_hosts::channel(s), wake.payload())
        });
        Ok(format!(
            "{limit} WITH fence AS (SELECT 1 FROM {s}.checkpoints \
             WHERE group_key = {key} AND partition = {p} FOR UPDATE), \
             lease AS ({lease_sql}), \
             seal AS (INSERT INTO {s}.checkpoints AS c (group_key, partition, seal, revision{columns}) \
             SELECT {key}, {p}, {fence}, 1{values} FROM lease \
             ON CONFLICT (group_key, partition) DO UPDATE SET seal = excluded.seal, \
             revision = c.revision + 1{updates} RETURNING {CHECKPOINT_COLUMNS}), \
             line AS (INSERT INTO {s}.history (group_key, partition, at, epoch, from_host, to_host, reason) \
             SELECT {key}, {p}, {at}, {epoch}, {from}, {to}, {reason} FROM lease), \
             old AS (DELETE FROM {s}.history WHERE group_key = {key} AND partition = {p} \
             AND EXISTS (SELECT 1 FROM lease) AND number <= (SELECT number FROM {s}.history \
             WHERE group_key = {key} AND partition = {p} ORDER BY number DESC LIMIT 1 OFFSET {kept})) \
             SELECT {CHECKPOINT_COLUMNS}{notify} FROM seal",
            limit = self.lock_limit(),
            at = history.at.0,
            epoch = literal::epoch(history.epoch)?,
            from = literal::host(history.from.as_ref()),
            to = literal::host(history.to.as_ref()),
            reason = literal::text(&write_reason(&history.reason)),
            // The statement does not see the new row.
            kept = MAX_HISTORY_PER_PARTITION - 1,
        ))
    }

    pub(super) async fn history(
        &self,
        group: &GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> Result<Vec<PgRow>, Failure> {
        let (s, key) = (self.schema(), literal::group(group));
        let which =
            partition.map_or_else(String::new, |partition| format!("AND partition = {}", partition.0));
        let max = i64::try_from(max).unwrap_or(i64::MAX);
        let sql = format!(
            "SELECT partition, at, epoch, from_host, to_host, reason FROM {s}.history \
             WHERE group_key = {key} {which} ORDER BY number DESC LIMIT {max}"
        );
        self.run_only(&sql).await
    }
}

fn give_away(change: Option<Change>, wake: Wake) -> Decision<GiveUpOutcome> {
    match change {
        None => Decision::Answer(GiveUpOutcome::NotOurs),
        Some(change) => {
            let planned = PlannedWrite { change, position: None, wake: Some(wake) };
            Decision::Write(Box::new(planned), GiveUpOutcome::Done)
        }
    }
}

/// Writes the lease if it is unchanged and the condition holds.
fn lease_sql(
    s: &str,
    key: &str,
    state: &PartitionState,
    lease: &LeaseRecord,
    condition: &str,
) -> Result<String, StoreError> {
    let names = "owner, epoch, duration_ms, acquired_at, renewed_at, server, revision, previous, \
                 previous_until, heir";
    let values = [
        literal::host(lease.owner.as_ref()),
        literal::epoch(lease.epoch)?.to_string(),
        literal::optional_number(lease.duration.map(literal::milliseconds)),
        lease.acquired_at.0.to_string(),
        lease.renewed_at.0.to_string(),
        state.reading.server.to_string(),
        literal::stored(lease.revision)?.to_string(),
        literal::host(lease.previous_owner.as_ref()),
        lease.previous_owner_until.0.to_string(),
        literal::host(lease.successor.as_ref()),
    ]
    .join(", ");
    let p = lease.partition.0;
    // Counting the fence makes PostgreSQL lock it first.
    let fenced = "(SELECT count(*) FROM fence) >= 0";
    Ok(match &state.lease {
        Some(old) => format!(
            "UPDATE {s}.leases SET ({names}) = ROW({values}) WHERE group_key = {key} AND partition = {p} \
             AND {fenced} AND revision = {} AND {condition} RETURNING 1",
            literal::stored(old.revision)?
        ),
        None => format!(
            "INSERT INTO {s}.leases (group_key, partition, {names}) SELECT {key}, {p}, {values} \
             WHERE {fenced} AND {condition} ON CONFLICT DO NOTHING RETURNING 1"
        ),
    })
}

/// The columns, values and updates of a new position.
fn position_sql(checkpoint: &Checkpoint) -> Result<(String, String, String), StoreError> {
    Ok((
        ", position, log, epoch, saved_at".to_owned(),
        format!(", {}", position_values(checkpoint)?),
        ", position = excluded.position, log = excluded.log, epoch = excluded.epoch, \
         saved_at = excluded.saved_at"
            .to_owned(),
    ))
}

pub(super) fn position_values(checkpoint: &Checkpoint) -> Result<String, StoreError> {
    Ok(format!(
        "{}, {}, {}, {}",
        literal::text(&write_position(&checkpoint.position)),
        literal::optional_text(checkpoint.log.as_ref().map(LogId::as_str)),
        literal::epoch(checkpoint.epoch)?,
        checkpoint.saved_at.0
    ))
}

pub(super) fn too_many_conflicts(partition: PartitionId) -> StoreError {
    let message = format!(
        "other hosts changed partition {partition} {MAX_ATTEMPTS} times in a row, or the server answers after \
         more than {} s",
        clock::FRESH_MS / 1_000
    );
    StoreError::Unavailable(message.into())
}

/// The names of a group, from its key.
pub(super) fn group_of(row: &PgRow) -> Result<GroupId, crate::record_text::Unreadable> {
    let key = text(row, "group_key")?;
    let refuse = |error: ephor_core::ids::InvalidName| error.to_string();
    let mut names = key.split(' ');
    let mut next = || names.next().ok_or_else(|| format!("{key:?} is not a group"));
    Ok(GroupId {
        namespace: next()?.parse().map_err(refuse)?,
        hub: next()?.parse().map_err(refuse)?,
        group: next()?.parse().map_err(refuse)?,
    })
}
