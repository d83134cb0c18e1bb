//! Calls: a connection, one or two statements, and a time limit over all of it.

use std::sync::atomic::{AtomicBool, Ordering};

use ephor_core::store::StoreError;
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::sync::Mutex;

use super::connections::{Connections, Lent, Purpose};
use super::failure::{self, Failure};
use super::options::PostgresOptions;
use super::rows::number;
use super::schema;

/// A lost race is run again this often before the store counts as unwell.
pub(super) const MOST_ATTEMPTS: usize = 20;

/// What becomes of tables that are not there, or of an earlier release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tables {
    /// They are made, or brought up to date.
    Prepared,
    /// Nothing: calls are refused.
    AsTheyAre,
}

pub(super) struct Session {
    pub(super) options: PostgresOptions,
    tables: Tables,
    /// The URL without its password.
    pub(super) place: String,
    connections: Connections,
    prepared: AtomicBool,
    preparing: Mutex<()>,
}

/// Runs statements, in one transaction if there are several, and gives the rows of all.
pub(super) async fn execute(connection: &mut PgConnection, sql: &str) -> Result<Vec<PgRow>, Failure> {
    if sql.contains('\0') {
        // The protocol ends a statement there, and what is left of it could mean something else.
        let message = "a text with a NUL character in it cannot be stored in PostgreSQL".to_owned();
        return Err(StoreError::Refused { message }.into());
    }
    // Every value in it went through literal.rs, and the schema's name was checked.
    Ok(sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?)
}

impl Session {
    pub(super) fn new(
        connect: PgConnectOptions,
        options: PostgresOptions,
        tables: Tables,
        place: String,
    ) -> Self {
        let connections = Connections::new(connect, options.connections);
        let (prepared, preparing) = (AtomicBool::new(false), Mutex::default());
        Self { options, tables, place, connections, prepared, preparing }
    }

    pub(super) fn schema(&self) -> &str {
        &self.options.schema
    }

    /// Before a statement that may have to wait for a row: it waits this long and no longer. It holds for the
    /// transaction that the two make together.
    pub(super) fn lock_limit(&self) -> String {
        format!("SET LOCAL lock_timeout = {};", self.options.lock_wait.as_millis())
    }

    /// One call, within its time.
    #[expect(clippy::disallowed_methods, reason = "a database answers in real time")]
    pub(super) async fn call<T>(
        &self,
        act: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.options.call_limit, act).await {
            Ok(outcome) => outcome.map_err(|failure| self.told(failure)),
            Err(_) => Err(failure::too_late(&self.place, self.options.call_limit)),
        }
    }

    fn told(&self, failure: Failure) -> StoreError {
        if let Failure::Sqlx(error) = &failure
            && failure::is_missing(error)
        {
            // Somebody dropped the tables: the next call looks.
            self.prepared.store(false, Ordering::Relaxed);
        }
        failure::of(failure, &self.place)
    }

    /// The first statement of a call, one that may be run twice. A connection that the server closed while
    /// nobody used it is found out here.
    pub(super) async fn first(&self, sql: &str) -> Result<(Lent<'_>, Vec<PgRow>), Failure> {
        self.first_for(Purpose::Usual, sql).await
    }

    /// The same, where it matters what it is for.
    pub(super) async fn first_for(
        &self,
        purpose: Purpose,
        sql: &str,
    ) -> Result<(Lent<'_>, Vec<PgRow>), Failure> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            let mut lent = self.connection(purpose).await?;
            match execute(&mut lent.connection, sql).await {
                Ok(rows) => return Ok((lent, rows)),
                Err(Failure::Sqlx(error)) if attempts < MOST_ATTEMPTS && failure::is_conflict(&error) => {
                    lent.give_back();
                }
                Err(Failure::Sqlx(error)) if lent.reused && failure::is_broken(&error) => {
                    self.connections.forget_idle();
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// A call of one statement.
    pub(super) async fn only(&self, sql: &str) -> Result<Vec<PgRow>, Failure> {
        self.only_for(Purpose::Usual, sql).await
    }

    pub(super) async fn only_for(&self, purpose: Purpose, sql: &str) -> Result<Vec<PgRow>, Failure> {
        let (lent, rows) = self.first_for(purpose, sql).await?;
        lent.give_back();
        Ok(rows)
    }

    /// Whether there are tables. It makes none.
    pub(super) async fn has_tables(&self) -> Result<bool, Failure> {
        let mut lent = self.connections.take(Purpose::Usual).await?;
        let version = schema::version(&mut lent.connection, self.schema()).await?;
        lent.give_back();
        Ok(version.is_some())
    }

    /// A connection to a database that has our tables.
    async fn connection(&self, purpose: Purpose) -> Result<Lent<'_>, Failure> {
        if !self.prepared.load(Ordering::Relaxed) {
            let _one_at_a_time = self.preparing.lock().await;
            if !self.prepared.load(Ordering::Relaxed) {
                self.connections.forget_idle();
                let mut lent = self.connections.take(purpose).await?;
                let (connection, migrations) = (&mut lent.connection, schema::MIGRATIONS);
                match self.tables {
                    Tables::Prepared => schema::prepare(connection, self.schema(), migrations).await?,
                    Tables::AsTheyAre => schema::check(connection, self.schema(), migrations).await?,
                }
                self.prepared.store(true, Ordering::Relaxed);
                lent.give_back();
            }
        }
        Ok(self.connections.take(purpose).await?)
    }

    /// An SQL condition: the tables are none that a later release has brought up to date since.
    pub(super) fn tables_are_known(&self) -> String {
        format!("({}) <= {}", schema::version_sql(self.schema()), schema::MIGRATIONS.len())
    }

    /// Refuses to go on with tables that a later release has brought up to date, by the column `version` of any row.
    pub(super) fn check_version(&self, rows: &[PgRow]) -> Result<(), Failure> {
        let found = rows.iter().find_map(|row| number::<i64>(row, "version").ok());
        match found.and_then(|found| usize::try_from(found).ok()) {
            Some(found) if found > schema::MIGRATIONS.len() => {
                Err(schema::newer(self.schema(), found, schema::MIGRATIONS.len()).into())
            }
            _ => Ok(()),
        }
    }
}
