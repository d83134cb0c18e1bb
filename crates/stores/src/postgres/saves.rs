//! Saves checkpoints, in a statement of its own or in a transaction of the user.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::ids::GroupId;
use ephor_core::position::SequenceNumber;
use ephor_core::record::{self, CheckpointRecord, SaveVerdict};
use ephor_core::rules::Rules;
use ephor_core::store::{SaveOutcome, SaveRequest};
use sqlx::PgConnection;

use super::connections::Purpose;
use super::error_mapping::{self, Failure};
use super::ownership_changes::{position_values, too_many_conflicts};
use super::partition_state::{checkpoint_in, clock_row, kind, time_of};
use super::rows::{CHECKPOINT_COLUMNS, number};
use super::schema::version_sql;
use super::session::{MAX_ATTEMPTS, Session, execute};
use super::{error_mapping::damaged, literal};

impl Session {
    pub(super) async fn save(&self, group: &GroupId, request: &SaveRequest) -> Result<SaveOutcome, Failure> {
        let partition = request.token.partition;
        for _ in 0..MAX_ATTEMPTS {
            let (mut pooled, state) = self.read_state(Purpose::Usual, group, partition).await?;
            let now = state.reading.now;
            let verdict = record::save(state.checkpoint()?, request, now, &Rules::default());
            let (SaveVerdict::Write(checkpoint), Some(revision)) = (&verdict, state.revision) else {
                pooled.return_to_pool();
                return Ok(answer(verdict));
            };
            let condition = format!("revision = {revision} AND {}", state.reading.is_fresh());
            let sql = self.save_sql(group, request, checkpoint, &condition)?;
            match execute(&mut pooled.connection, &format!("{} {sql}", self.lock_limit())).await {
                Err(Failure::Sqlx(error)) if error_mapping::is_conflict(&error) => pooled.return_to_pool(),
                Err(error) => return Err(error),
                Ok(rows) => {
                    pooled.return_to_pool();
                    if !rows.is_empty() {
                        return Ok(answer(verdict));
                    }
                }
            }
        }
        Err(too_many_conflicts(partition).into())
    }

    fn save_sql(
        &self,
        group: &GroupId,
        request: &SaveRequest,
        checkpoint: &Checkpoint,
        condition: &str,
    ) -> Result<String, Failure> {
        let (s, key) = (self.schema(), literal::group(group));
        Ok(format!(
            "UPDATE {s}.checkpoints SET (position, log, epoch, saved_at) = ROW({}), revision = revision + 1 \
             WHERE group_key = {key} AND partition = {} AND {condition} AND {} RETURNING 1",
            position_values(checkpoint)?,
            request.token.partition.0,
            self.tables_are_known(),
        ))
    }

    /// See [`PostgresStore::save_in`](super::PostgresStore::save_in).
    pub(super) async fn save_in(
        &self,
        connection: &mut PgConnection,
        group: &GroupId,
        request: &SaveRequest,
        first: SequenceNumber,
    ) -> Result<SaveOutcome, Failure> {
        let (s, key, partition) = (self.schema(), literal::group(group), request.token.partition);
        let sql = format!(
            "SET LOCAL idle_in_transaction_session_timeout = {idle}; {version}; {clock} \
             SELECT 'checkpoint' AS kind, {CHECKPOINT_COLUMNS} FROM {s}.checkpoints \
             WHERE group_key = {key} AND partition = {p} FOR UPDATE",
            idle = self.options.transaction_idle.as_millis(),
            version = version_sql(s),
            clock = clock_row(),
            p = partition.0,
        );
        let rows = execute(connection, &sql).await?;
        self.check_version(&rows)?;
        let now = time_of(&rows)?.now;
        let row = rows.iter().find(|row| kind(row) == "checkpoint");
        let record = match row {
            None => CheckpointRecord::default(),
            Some(row) => checkpoint_in(row, group, partition)?,
        };
        let verdict = match record::save(&record, request, now, &Rules::default()) {
            SaveVerdict::Write(checkpoint) => already_done(&record, &checkpoint, first)
                .map_or(SaveVerdict::Write(checkpoint), |stored| SaveVerdict::Behind(stored.clone())),
            verdict => verdict,
        };
        if let (SaveVerdict::Write(checkpoint), Some(row)) = (&verdict, row) {
            let revision: i64 = number(row, "revision").map_err(damaged)?;
            let sql = self.save_sql(group, request, checkpoint, &format!("revision = {revision}"))?;
            if execute(connection, &sql).await?.is_empty() {
                // The row is locked, so this happens only on a connection outside a transaction.
                return Err(too_many_conflicts(partition).into());
            }
        }
        Ok(answer(verdict))
    }
}

/// The stored checkpoint, if it covers the effects of `first`.
fn already_done<'a>(
    record: &'a CheckpointRecord,
    next: &Checkpoint,
    first: SequenceNumber,
) -> Option<&'a Checkpoint> {
    let same_log = |stored: &&Checkpoint| stored.log == next.log || stored.log.is_none();
    let covers = |stored: &&Checkpoint| stored.position.finished().is_some_and(|last| last >= first);
    record.checkpoint.as_ref().filter(same_log).filter(covers)
}

fn answer(verdict: SaveVerdict) -> SaveOutcome {
    match verdict {
        SaveVerdict::Write(checkpoint) => SaveOutcome::Saved(checkpoint),
        SaveVerdict::Behind(stored) => SaveOutcome::Behind { stored },
        SaveVerdict::Fenced { epoch } => SaveOutcome::Fenced { epoch },
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ephor_core::checkpoint::Position;
    use ephor_core::epoch::Epoch;
    use ephor_core::ids::PartitionId;
    use ephor_core::lease::{ClaimCause, ClaimRequest};
    use ephor_core::store::{ClaimOutcome, Store};
    use ephor_testkit::postgres_server::Server;
    use sqlx::{Connection, Executor};

    use super::super::{PostgresOptions, PostgresStore};
    use super::*;

    /// Updates of `user` wait for the one that holds this lock, before they look at a row.
    const GATE: &str = "CREATE FUNCTION gate() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
        IF current_setting('application_name') = 'user' THEN PERFORM pg_advisory_xact_lock(1); END IF; \
        RETURN NULL; END $$; \
        CREATE TRIGGER gate BEFORE UPDATE ON ephor.checkpoints EXECUTE FUNCTION gate()";

    fn group() -> GroupId {
        GroupId {
            namespace: "ns".parse().unwrap(),
            hub: "homes".parse().unwrap(),
            group: "alarms".parse().unwrap(),
        }
    }

    fn request(host: &str, seen: Option<ephor_core::lease::LeaseVersion>) -> ClaimRequest {
        ClaimRequest {
            partition: PartitionId(0),
            host: format!("{host}#0000000000000001").parse().unwrap(),
            duration: Duration::from_secs(60),
            seen,
            above: Epoch::NONE,
            cause: ClaimCause::Unresponsive,
        }
    }

    /// No host may raise the epoch between the read and the write of `save_in`.
    #[tokio::test(flavor = "multi_thread")]
    async fn nobody_claims_between_the_two_statements_of_a_save() {
        let server = Server::start();
        let url = server.url("postgres");
        let options = PostgresOptions { lock_wait: Duration::from_millis(200), ..PostgresOptions::default() };
        let store = PostgresStore::new(&url, options).unwrap();
        let Ok(ClaimOutcome::Won { token, lease, .. }) = store.claim(&group(), &request("a", None)).await
        else {
            panic!("it had no owner");
        };
        let mut gate = PgConnection::connect(&url).await.unwrap();
        gate.execute(GATE).await.unwrap();
        gate.execute("SELECT pg_advisory_lock(1)").await.unwrap();
        let position = Position::Finished { sequence: SequenceNumber(7), offset: None, enqueued_at: None };
        let save = SaveRequest::new(&token, &position, None);
        let user = async {
            let mut user = PgConnection::connect(&url).await.unwrap();
            user.execute("SET application_name = 'user'").await.unwrap();
            let mut transaction = user.begin().await.unwrap();
            let saved = store.save_in(&mut transaction, &group(), &save, SequenceNumber(7)).await.unwrap();
            transaction.commit().await.unwrap();
            saved
        };
        let other = async {
            let waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
            while sqlx::raw_sql(waits).fetch_all(&mut gate).await.unwrap().is_empty() {}
            let early = store.claim(&group(), &request("b", Some(lease.version.clone()))).await;
            gate.execute("SELECT pg_advisory_unlock(1)").await.unwrap();
            early
        };
        let (saved, early) = tokio::join!(user, other);
        assert!(matches!(saved, SaveOutcome::Saved(_)), "{saved:?}");
        let refusal = early.expect_err("the save holds the row").to_string();
        assert!(refusal.contains("holds the checkpoint"), "{refusal}");
        let Ok(ClaimOutcome::Won { checkpoint, .. }) =
            store.claim(&group(), &request("b", Some(lease.version))).await
        else {
            panic!("the row is free again");
        };
        assert_eq!(checkpoint.unwrap().position, position);
    }
}
