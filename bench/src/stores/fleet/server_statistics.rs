//! Reads statistics of the PostgreSQL server: its own figures, and the CPU time of its processes.

use std::fs;
use std::time::Duration;

use ephor::BoxError;
use ephor_stores::postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection, Row};

use crate::machine::cpu_time;

/// Sets an application name of our own: the hosts' is `ephor`.
pub(super) fn as_observer(url: &str) -> String {
    let separator = if url.contains('?') { '&' } else { '?' };
    format!("{url}{separator}application_name=ephor-bench")
}

/// Figures of the server at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Figures {
    /// The number of committed transactions, ever.
    pub(super) commits: i64,
    /// The number of connections of the fleet.
    pub(super) connections: i64,
    /// The CPU time of the server, if it was started here.
    pub(super) processor: Duration,
}

pub(super) async fn look(url: &str, is_ours: bool) -> Result<Figures, BoxError> {
    let mut connection = PgConnection::connect(url).await?;
    let text = "SELECT pg_backend_pid() AS pid, \
        (SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()) AS commits, \
        (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
            AND application_name = 'ephor') AS connections";
    let row = sqlx::raw_sql(AssertSqlSafe(text)).fetch_one(&mut connection).await?;
    let processor =
        if is_ours { with_siblings(row.try_get::<i32, _>("pid")?.cast_unsigned()) } else { Duration::ZERO };
    let figures =
        Figures { commits: row.try_get("commits")?, connections: row.try_get("connections")?, processor };
    connection.close().await?;
    Ok(figures)
}

/// The CPU time of all living processes that have the same parent.
fn with_siblings(process: u32) -> Duration {
    let parent = parent(process);
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| self::parent(*id) == parent).map(cpu_time).sum()
}

fn parent(process: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim().parse().ok()
}
