//! Runs one store call: takes a connection and runs one or two statements within the time limit.

use std::sync::atomic::{AtomicBool, Ordering};

use ephor_core::store::{RefusalCause, StoreError};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::sync::Mutex;

use super::connections::{Connections, PooledConnection, Purpose};
use super::error_mapping::{self, Failure};
use super::options::PostgresOptions;
use super::rows::number;
use super::schema::{self, version_sql};

/// The number of times a call is run again after lost races before it fails.
pub(super) const MAX_ATTEMPTS: usize = 20;

/// How to treat tables that are missing or of an earlier release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TablePolicy {
    /// Create or migrate them.
    CreateOrMigrate,
    /// Refuse calls.
    RequireCurrent,
}

pub(super) struct Session {
    pub(super) options: PostgresOptions,
    tables: TablePolicy,
    /// The URL without its password.
    pub(super) place: String,
    connections: Connections,
    prepared: AtomicBool,
    preparing: Mutex<()>,
}

/// Runs statements, several of them in one transaction, and returns the rows of all.
pub(super) async fn execute(connection: &mut PgConnection, sql: &str) -> Result<Vec<PgRow>, Failure> {
    if sql.contains('\0') {
        // The protocol would end the statement there, and the rest could have another meaning.
        let message = "PostgreSQL cannot store a text that contains a NUL character";
        return Err(StoreError::refused(RefusalCause::Other, message).into());
    }
    // literal.rs has encoded every value, and the schema's name was checked.
    Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?)
}

impl Session {
    pub(super) fn new(
        connect: PgConnectOptions,
        options: PostgresOptions,
        tables: TablePolicy,
        place: String,
    ) -> Self {
        let connections = Connections::new(connect, options.connections);
        let (prepared, preparing) = (AtomicBool::new(false), Mutex::default());
        Self { options, tables, place, connections, prepared, preparing }
    }

    pub(super) fn schema(&self) -> &str {
        &self.options.schema
    }

    /// Limits how long the next statement of the same transaction waits for a row.
    pub(super) fn lock_limit(&self) -> String {
        format!("SET LOCAL lock_timeout = {};", self.options.lock_wait.as_millis())
    }

    /// Runs a call within its time limit.
    #[expect(clippy::disallowed_methods, reason = "a database answers in real time")]
    pub(super) async fn call<T>(
        &self,
        act: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.options.call_limit, act).await {
            Ok(outcome) => outcome.map_err(|failure| self.store_error(failure)),
            Err(_) => Err(error_mapping::too_late(&self.place, self.options.call_limit)),
        }
    }

    fn store_error(&self, failure: Failure) -> StoreError {
        if let Failure::Sqlx(error) = &failure
            && error_mapping::is_missing(error)
        {
            // The tables were dropped: the next call checks them.
            self.prepared.store(false, Ordering::Relaxed);
        }
        error_mapping::of(failure, &self.place)
    }

    /// Runs the first statement of a call, which must be repeatable. It runs again if the server has
    /// closed the idle connection. Fails if a later release has migrated the tables; a statement that writes
    /// must have the condition [`tables_are_known`](Self::tables_are_known), too.
    pub(super) async fn run_first_for(
        &self,
        purpose: Purpose,
        sql: &str,
    ) -> Result<(PooledConnection<'_>, Vec<PgRow>), Failure> {
        let sql = format!("{}; {sql}", version_sql(self.schema()));
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut pooled = self.connection(purpose).await?;
            match execute(&mut pooled.connection, &sql).await {
                Ok(rows) => match self.check_version(&rows) {
                    // After the version come the rows of the caller's statement.
                    Ok(()) => return Ok((pooled, rows.into_iter().skip(1).collect())),
                    Err(newer) => {
                        pooled.return_to_pool();
                        return Err(newer);
                    }
                },
                Err(Failure::Sqlx(error))
                    if attempts < MAX_ATTEMPTS && error_mapping::is_conflict(&error) =>
                {
                    pooled.return_to_pool();
                }
                Err(Failure::Sqlx(error)) if pooled.reused && error_mapping::is_broken(&error) => {
                    self.connections.forget_idle();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Runs a call of one statement.
    pub(super) async fn run_only(&self, sql: &str) -> Result<Vec<PgRow>, Failure> {
        self.run_only_for(Purpose::Usual, sql).await
    }

    pub(super) async fn run_only_for(&self, purpose: Purpose, sql: &str) -> Result<Vec<PgRow>, Failure> {
        let (pooled, rows) = self.run_first_for(purpose, sql).await?;
        pooled.return_to_pool();
        Ok(rows)
    }

    /// Whether the tables exist. It creates none.
    pub(super) async fn has_tables(&self) -> Result<bool, Failure> {
        let mut pooled = self.connections.take(Purpose::Usual).await?;
        let version = schema::version(&mut pooled.connection, self.schema()).await?;
        pooled.return_to_pool();
        Ok(version.is_some())
    }

    /// A connection to a database whose tables have been checked.
    async fn connection(&self, purpose: Purpose) -> Result<PooledConnection<'_>, Failure> {
        if !self.prepared.load(Ordering::Relaxed) {
            let _one_at_a_time = self.preparing.lock().await;
            if !self.prepared.load(Ordering::Relaxed) {
                self.connections.forget_idle();
                let mut pooled = self.connections.take(purpose).await?;
                let (connection, migrations) = (&mut pooled.connection, schema::MIGRATIONS);
                match self.tables {
                    TablePolicy::CreateOrMigrate => {
                        schema::prepare(connection, self.schema(), migrations).await?
                    }
                    TablePolicy::RequireCurrent => {
                        schema::check(connection, self.schema(), migrations).await?
                    }
                }
                self.prepared.store(true, Ordering::Relaxed);
                pooled.return_to_pool();
            }
        }
        Ok(self.connections.take(purpose).await?)
    }

    /// An SQL condition for statements that write: no later release has migrated the tables.
    pub(super) fn tables_are_known(&self) -> String {
        format!("({}) <= {}", version_sql(self.schema()), schema::MIGRATIONS.len())
    }

    /// Refuses tables that a later release has migrated, by the column `version` of the first and the last
    /// row, which may be of different statements.
    pub(super) fn check_version(&self, rows: &[PgRow]) -> Result<(), Failure> {
        let rows = [rows.first(), rows.last()].into_iter().flatten();
        let found = rows.filter_map(|row| number::<i64>(row, "version").ok()).max();
        match found.and_then(|found| usize::try_from(found).ok()) {
            Some(found) if found > schema::MIGRATIONS.len() => {
                Err(schema::newer(self.schema(), found, schema::MIGRATIONS.len()).into())
            }
            _ => Ok(()),
        }
    }
}
