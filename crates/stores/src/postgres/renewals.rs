//! Renews all leases of a host in one statement.

use std::time::Duration;

use ephor_core::ids::GroupId;
use ephor_core::lease::LeaseToken;
use ephor_core::store::RenewalOutcome;
use sqlx::postgres::PgRow;

use super::clock::{NOW, SERVER};
use super::connections::Purpose;
use super::error_mapping::{Failure, damaged};
use super::partition_state::{clock_row, kind, time_of};
use super::rows::{LEASE_COLUMNS, number, optional_number, seen_lease};
use super::schema::version_sql;
use super::session::Session;
use super::{clock, literal};

impl Session {
    pub(super) async fn renew(
        &self,
        group: &GroupId,
        duration: Duration,
        tokens: &[LeaseToken],
    ) -> Result<Vec<RenewalOutcome>, Failure> {
        if tokens.is_empty() {
            return Ok(vec![]);
        }
        let rows = self.run_only_for(Purpose::Urgent, &self.renew_sql(group, duration, tokens)).await?;
        let mut answers = answers(&rows, tokens)?;
        // A lease that was taken while the statement waited still shows its old owner: read again.
        let looks_ours = |(answer, token): (&RenewalOutcome, &LeaseToken)| matches!(answer, RenewalOutcome::Lost { holder: Some(lease) } if lease.token().as_ref() == Some(token));
        if answers.iter().zip(tokens).any(looks_ours) {
            self.look_again(group, tokens, &mut answers).await?;
        }
        Ok(answers)
    }

    fn renew_sql(&self, group: &GroupId, duration: Duration, tokens: &[LeaseToken]) -> String {
        let (s, key) = (self.schema(), literal::group(group));
        let epochs = tokens.iter().map(|token| literal::epoch_to_match(token.epoch));
        // The rows are locked in order, so that two statements never wait for each other. The main SELECT
        // sees the leases before the update; it needs nothing of the renewed ones.
        format!(
            "{limit} {clock} WITH asked AS (SELECT * FROM unnest({partitions}, {owners}, {epochs}) \
             WITH ORDINALITY AS a (partition, owner, epoch, place)), \
             clock AS MATERIALIZED (SELECT {NOW} AS now, {SERVER} AS server_now), \
             mine AS (SELECT l.partition FROM {s}.leases l WHERE l.group_key = {key} AND {known} AND EXISTS \
             (SELECT 1 FROM asked a WHERE a.partition = l.partition AND a.owner = l.owner AND a.epoch = l.epoch) \
             ORDER BY l.partition FOR UPDATE OF l), \
             renewed AS (UPDATE {s}.leases l SET duration_ms = {duration}, renewed_at = clock.now, \
             previous_until = CASE WHEN l.server = clock.server_now THEN l.previous_until \
             ELSE l.previous_until + (clock.now - l.renewed_at) END, \
             acquired_at = CASE WHEN l.server = clock.server_now THEN l.acquired_at \
             ELSE l.acquired_at + (clock.now - l.renewed_at) END, \
             server = clock.server_now, revision = l.revision + 1 FROM mine, clock \
             WHERE l.group_key = {key} AND l.partition = mine.partition \
             RETURNING l.partition, l.owner, l.epoch) \
             SELECT 'answer' AS kind, a.place, ({version}) AS version, (SELECT count(*) FROM renewed r WHERE r.partition = a.partition \
             AND r.owner = a.owner AND r.epoch = a.epoch) AS renewed, l.* FROM asked a \
             LEFT JOIN (SELECT {LEASE_COLUMNS} FROM {s}.leases WHERE group_key = {key}) l \
             ON l.partition = a.partition ORDER BY a.place",
            limit = self.lock_limit(),
            known = self.tables_are_known(),
            version = version_sql(s),
            clock = clock_row(),
            partitions = literal::array(tokens.iter().map(|token| token.partition.0.to_string()), "bigint"),
            owners = literal::array(tokens.iter().map(|t| literal::text(&t.owner.to_string())), "text"),
            epochs = literal::array(epochs.map(|epoch| epoch.to_string()), "bigint"),
            duration = literal::milliseconds(duration),
        )
    }

    async fn look_again(
        &self,
        group: &GroupId,
        tokens: &[LeaseToken],
        answers: &mut [RenewalOutcome],
    ) -> Result<(), Failure> {
        let view = self.view(Purpose::Urgent, group).await?;
        for (answer, token) in answers.iter_mut().zip(tokens) {
            if let RenewalOutcome::Lost { holder } = answer {
                *holder = view.lease(token.partition).cloned();
            }
        }
        Ok(())
    }
}

fn answers(rows: &[PgRow], tokens: &[LeaseToken]) -> Result<Vec<RenewalOutcome>, Failure> {
    let reading = time_of(rows)?;
    let answers: Vec<RenewalOutcome> =
        rows.iter().filter(|row| kind(row) == "answer").map(|row| answer(row, reading)).collect();
    if answers.len() == tokens.len() {
        return Ok(answers);
    }
    Err(damaged(format!("{} answers for {} renewals", answers.len(), tokens.len())))
}

fn answer(row: &PgRow, reading: clock::Reading) -> RenewalOutcome {
    let read = || {
        if number::<i64>(row, "renewed")? > 0 {
            return Ok(RenewalOutcome::Renewed);
        }
        let there = optional_number::<i64>(row, "revision")?.is_some();
        let holder = there.then(|| seen_lease(row, reading)).transpose()?;
        Ok(RenewalOutcome::Lost { holder })
    };
    read().unwrap_or_else(|what: String| RenewalOutcome::Unknown { what, retry_after: None })
}
