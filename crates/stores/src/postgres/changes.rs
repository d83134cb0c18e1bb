//! Changes of ownership: read, decide, and write lease, seal, history and wake in one statement, if the lease
//! is still in the state that was read.
//!
//! The statement takes the checkpoint's row first and the lease's row only then. The checkpoint's row may be
//! held by a transaction of the user's ([`save_in`](super::PostgresStore::save_in)); whoever waits for it must
//! not hold the lease meanwhile, which its owner wants to renew.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::ids::{GroupId, LogId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::record::{self, Change, CheckpointRecord, LeaseRecord};
use ephor_core::rules::Rules;
use ephor_core::store::{Claim, GiveAway, HISTORY_PER_PARTITION, Seek, SeekRequest, StoreError};
use sqlx::postgres::PgRow;

use super::bells::{self, Wake};
use super::failure::{self, Failure};
use super::rows::{CHECKPOINT_COLUMNS, text};
use super::session::{MOST_ATTEMPTS, Session, execute};
use super::standing::{Standing, checkpoint_in};
use super::{clock, literal};
use crate::text::{write_position, write_reason};

/// What is to be done about a partition.
enum Verdict<T> {
    /// Nothing: this is the answer.
    Answer(T),
    /// Write this, and then the answer is this.
    Write(Box<Planned>, T),
}

struct Planned {
    change: Change,
    /// A new position, for a seek.
    position: Option<Checkpoint>,
    wake: Option<Wake>,
}

impl Session {
    pub(super) async fn claim(&self, group: &GroupId, request: &ClaimRequest) -> Result<Claim, Failure> {
        let partition = request.partition;
        let decide = |standing: &Standing| {
            let now = standing.reading.now;
            // A position that cannot be read fails the claim: nobody shall own what it cannot begin.
            standing.checkpoint()?;
            let old = standing.lease.as_ref();
            let Some(change) = record::claim(old, standing.seal, request, now, &Rules::default())? else {
                return Ok(Verdict::Answer(Claim::Lost { holder: standing.seen_lease() }));
            };
            let lease = change.lease.seen_at(now);
            let token = LeaseToken { partition, owner: request.host.clone(), epoch: lease.epoch };
            let planned = Planned { change, position: None, wake: None };
            Ok(Verdict::Write(Box::new(planned), Claim::Won { token, lease, checkpoint: None }))
        };
        let (claim, stored) = self.change(group, partition, decide).await?;
        Ok(match claim {
            // As it is once the fence is up: the position that was read before is of no use.
            Claim::Won { token, lease, .. } => Claim::Won { token, lease, checkpoint: stored.checkpoint },
            lost => lost,
        })
    }

    pub(super) async fn transfer(
        &self,
        group: &GroupId,
        request: &TransferRequest,
    ) -> Result<GiveAway, Failure> {
        let decide = |standing: &Standing| {
            let old = standing.lease.as_ref();
            let change = record::transfer(old, standing.seal, request, standing.reading.now)?;
            Ok(give_away(change, bells::host(group, &request.to)))
        };
        Ok(self.change(group, request.token.partition, decide).await?.0)
    }

    pub(super) async fn release(
        &self,
        group: &GroupId,
        request: &ReleaseRequest,
    ) -> Result<GiveAway, Failure> {
        let wake = request.heir.as_ref().map_or_else(|| bells::all(group), |heir| bells::host(group, heir));
        let decide = |standing: &Standing| {
            let old = standing.lease.as_ref();
            let change = record::release(old, standing.seal, request, standing.reading.now);
            Ok(give_away(change, wake))
        };
        Ok(self.change(group, request.token.partition, decide).await?.0)
    }

    /// Every owner here is a host of Ephor and notices, so that no seek needs `force`. The old position is not
    /// read: a seek is also how a damaged one is mended.
    pub(super) async fn seek(&self, group: &GroupId, request: &SeekRequest) -> Result<Seek, Failure> {
        let decide = |standing: &Standing| {
            let (old, now) = (standing.lease.as_ref(), standing.reading.now);
            let change =
                record::seek(old, standing.seal, request.partition, &request.by, now, &Rules::default())?;
            let epoch = change.lease.epoch;
            let (position, log) = (request.position.clone(), request.log.clone());
            let position = Some(Checkpoint { position, log, epoch, saved_at: now });
            let wake = change.history.from.as_ref().map(|owner| bells::host(group, owner));
            Ok(Verdict::Write(Box::new(Planned { change, position, wake }), Seek::Done { epoch }))
        };
        Ok(self.change(group, request.partition, decide).await?.0)
    }

    /// Reads, decides and writes until nothing came between. Also gives the checkpoint as it is afterwards.
    async fn change<T>(
        &self,
        group: &GroupId,
        partition: PartitionId,
        decide: impl Fn(&Standing) -> Result<Verdict<T>, Failure>,
    ) -> Result<(T, CheckpointRecord), Failure> {
        for _ in 0..MOST_ATTEMPTS {
            let (mut lent, standing) = self.standing(group, partition).await?;
            let (planned, answer) = match decide(&standing)? {
                Verdict::Write(planned, answer) => (planned, answer),
                Verdict::Answer(answer) => {
                    lent.give_back();
                    return Ok((answer, CheckpointRecord::default()));
                }
            };
            let sql = self.write(group, &standing, &planned)?;
            let written = execute(&mut lent.connection, &sql).await;
            match written {
                Err(Failure::Sqlx(error)) if failure::is_conflict(&error) => lent.give_back(),
                Err(error) => return Err(error),
                Ok(rows) => {
                    lent.give_back();
                    if let Some(row) = rows.first() {
                        return Ok((answer, checkpoint_in(row, group, partition)?));
                    }
                }
            }
        }
        Err(changing_without_end(partition).into())
    }

    /// The whole change as one statement. It gives a row if it was carried out.
    fn write(&self, group: &GroupId, standing: &Standing, planned: &Planned) -> Result<String, Failure> {
        let (s, key) = (self.schema(), literal::group(group));
        let Planned { change, position, wake } = planned;
        let (lease, history) = (&change.lease, &change.history);
        let p = lease.partition.0;
        let lease_sql = lease_sql(s, &key, standing, lease)?;
        let seal = literal::epoch(change.seal)?;
        let (columns, values, updates) = match position {
            None => (String::new(), String::new(), String::new()),
            Some(checkpoint) => position_sql(checkpoint)?,
        };
        let notify = wake.as_ref().map_or_else(String::new, |wake| {
            format!(", pg_notify('{}', '{}')::text AS woken", bells::channel(s), wake.payload())
        });
        Ok(format!(
            "{limit} WITH fence AS (SELECT 1 FROM {s}.checkpoints \
             WHERE group_key = {key} AND partition = {p} FOR UPDATE), \
             lease AS ({lease_sql}), \
             seal AS (INSERT INTO {s}.checkpoints AS c (group_key, partition, seal, revision{columns}) \
             SELECT {key}, {p}, {seal}, 1{values} FROM lease \
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
            // The new line is not seen here.
            kept = HISTORY_PER_PARTITION - 1,
        ))
    }

    pub(super) async fn history(
        &self,
        group: &GroupId,
        partition: Option<PartitionId>,
        most: usize,
    ) -> Result<Vec<PgRow>, Failure> {
        let (s, key) = (self.schema(), literal::group(group));
        let which =
            partition.map_or_else(String::new, |partition| format!("AND partition = {}", partition.0));
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let sql = format!(
            "SELECT partition, at, epoch, from_host, to_host, reason FROM {s}.history \
             WHERE group_key = {key} {which} ORDER BY number DESC LIMIT {most}"
        );
        self.only(&sql).await
    }
}

fn give_away(change: Option<Change>, wake: Wake) -> Verdict<GiveAway> {
    match change {
        None => Verdict::Answer(GiveAway::NotOurs),
        Some(change) => {
            let planned = Planned { change, position: None, wake: Some(wake) };
            Verdict::Write(Box::new(planned), GiveAway::Done)
        }
    }
}

/// Writes the lease if it is as it was read, and if the reading is still good.
fn lease_sql(s: &str, key: &str, standing: &Standing, lease: &LeaseRecord) -> Result<String, StoreError> {
    let names = "owner, epoch, duration_ms, acquired_at, renewed_at, server, revision, previous, \
                 previous_until, heir";
    let values = [
        literal::host(lease.owner.as_ref()),
        literal::epoch(lease.epoch)?.to_string(),
        literal::optional_number(lease.duration.map(literal::milliseconds)),
        lease.acquired_at.0.to_string(),
        lease.renewed_at.0.to_string(),
        standing.reading.server.to_string(),
        literal::stored(lease.revision)?.to_string(),
        literal::host(lease.previous.as_ref()),
        lease.previous_until.0.to_string(),
        literal::host(lease.heir.as_ref()),
    ]
    .join(", ");
    let (p, fresh) = (lease.partition.0, standing.reading.is_fresh());
    // Counting the fence makes it come first.
    let fenced = "(SELECT count(*) FROM fence) >= 0";
    Ok(match &standing.lease {
        Some(old) => format!(
            "UPDATE {s}.leases SET ({names}) = ROW({values}) WHERE group_key = {key} AND partition = {p} \
             AND {fenced} AND revision = {} AND {fresh} RETURNING 1",
            literal::stored(old.revision)?
        ),
        None => format!(
            "INSERT INTO {s}.leases (group_key, partition, {names}) SELECT {key}, {p}, {values} \
             WHERE {fenced} AND {fresh} ON CONFLICT DO NOTHING RETURNING 1"
        ),
    })
}

/// Names, values and updates of a new position.
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

pub(super) fn changing_without_end(partition: PartitionId) -> StoreError {
    let message = format!(
        "partition {partition} was changed by others {MOST_ATTEMPTS} times in a row, or the answers take \
         longer than {} s",
        clock::FRESH_MS / 1_000
    );
    StoreError::Unavailable(message.into())
}

/// The names of a group, from its key.
pub(super) fn group_of(row: &PgRow) -> Result<GroupId, crate::text::Unreadable> {
    let key = text(row, "group_key")?;
    let refuse = |error: ephor_core::ids::InvalidName| error.to_string();
    let mut names = key.split(' ');
    let mut next = || names.next().ok_or_else(|| format!("{key:?} is no group"));
    Ok(GroupId {
        namespace: next()?.parse().map_err(refuse)?,
        hub: next()?.parse().map_err(refuse)?,
        group: next()?.parse().map_err(refuse)?,
    })
}
