//! Writes host records and the desired states of hosts, and deletes those of hosts that are long dead. A
//! heartbeat returns the desired state of its host; host records are read in `views.rs`.

use ephor_core::host_record::{HandoverRequest, HostRecord};
use ephor_core::ids::{GroupId, HostId};
use ephor_core::store::{DesiredState, FORGET_DRAINED_HOSTS_AFTER, FORGET_HOSTS_AFTER};

use super::clock::{NOW, SERVER};
use super::connections::Purpose;
use super::error_mapping::Failure;
use super::literal;
use super::rows::{number, optional_text};
use super::schema::version_sql;
use super::session::{Session, execute};
use super::waiting_hosts;
use crate::record_text::{read_host, write_host};

impl Session {
    pub(super) async fn heartbeat(
        &self,
        group: &GroupId,
        record: &HostRecord,
    ) -> Result<DesiredState, Failure> {
        let (s, key, host) = (self.schema(), literal::group(group), literal::host(Some(&record.id)));
        let sql = format!(
            "{limit} WITH before AS (SELECT record FROM {s}.hosts WHERE group_key = {key} AND host = {host}), \
             beat AS (INSERT INTO {s}.hosts (group_key, host, written_at, server, record) \
             SELECT {key}, {host}, {NOW}, {SERVER}, {text} WHERE {known} ON CONFLICT (group_key, host) DO UPDATE \
             SET written_at = excluded.written_at, server = excluded.server, record = excluded.record) \
             SELECT ({version}) AS version, (SELECT record FROM before) AS before, (SELECT drain::int::bigint FROM {s}.orders \
             WHERE group_key = {key} AND host = {host}) AS drain; {forget}",
            limit = self.lock_limit(),
            known = self.tables_are_known(),
            version = version_sql(s),
            text = literal::text(&write_host(record)),
            forget = forget(s, &key, &self.tables_are_known()),
        );
        let (mut pooled, rows) = self.run_first_for(Purpose::Urgent, &sql).await?;
        let row = rows.first();
        let before = row.and_then(|row| optional_text(row, "before").ok().flatten());
        // If the stored record is unreadable, all requests count as new.
        let before = before.and_then(|text| read_host(record.id.clone(), text).ok());
        let asked_before = before.map(|record| record.wants).unwrap_or_default();
        let new: Vec<&HandoverRequest> =
            record.wants.iter().filter(|want| !asked_before.contains(want)).collect();
        if !new.is_empty() {
            let wake = |want: &&HandoverRequest| {
                let payload = waiting_hosts::host(group, &want.owner).payload();
                format!("SELECT pg_notify('{}', '{payload}')::text", waiting_hosts::channel(s))
            };
            let sql = new.iter().map(wake).collect::<Vec<_>>().join(";");
            execute(&mut pooled.connection, &sql).await?;
        }
        pooled.return_to_pool();
        Ok(DesiredState { drain: row.is_some_and(|row| number::<i64>(row, "drain") == Ok(1)) })
    }

    pub(super) async fn retire(&self, group: &GroupId, host: &HostId) -> Result<(), Failure> {
        let (s, key, host) = (self.schema(), literal::group(group), literal::host(Some(host)));
        let sql = format!(
            "{limit} DELETE FROM {s}.hosts WHERE group_key = {key} AND host = {host} AND {known}; \
             DELETE FROM {s}.orders WHERE group_key = {key} AND host = {host} AND {known}",
            limit = self.lock_limit(),
            known = self.tables_are_known(),
        );
        self.run_only(&sql).await.map(|_| ())
    }

    pub(super) async fn set_desired_state(
        &self,
        group: &GroupId,
        host: &HostId,
        desired: DesiredState,
    ) -> Result<bool, Failure> {
        let (s, key, name) = (self.schema(), literal::group(group), literal::host(Some(host)));
        let sql = format!(
            "{limit} WITH known AS (SELECT 1 FROM {s}.hosts WHERE group_key = {key} AND host = {name} \
             AND {tables_are_known}), \
             written AS (INSERT INTO {s}.orders (group_key, host, drain) \
             SELECT {key}, {name}, {drain} FROM known \
             ON CONFLICT (group_key, host) DO UPDATE SET drain = excluded.drain) \
             SELECT pg_notify('{channel}', '{payload}')::text FROM known",
            limit = self.lock_limit(),
            tables_are_known = self.tables_are_known(),
            drain = desired.drain,
            channel = waiting_hosts::channel(s),
            payload = waiting_hosts::host(group, host).payload(),
        );
        Ok(!self.run_only(&sql).await?.is_empty())
    }
}

/// SQL that deletes hosts that are long dead, and the orders for hosts without a record, if the tables are
/// `known`.
///
/// The age of a record of another run of the server is unknown: its hour starts when this run first finds
/// it. The statement marks it with this run as a negative number, so that its age stays unknown. It skips
/// a record that its host writes at the same time.
fn forget(s: &str, key: &str, known: &str) -> String {
    let (long, longer) = (FORGET_HOSTS_AFTER.as_millis(), FORGET_DRAINED_HOSTS_AFTER.as_millis());
    format!(
        "UPDATE {s}.hosts SET written_at = {NOW}, server = -{SERVER} WHERE group_key = {key} AND {known} \
         AND host IN (SELECT host FROM {s}.hosts WHERE group_key = {key} AND abs(server) <> {SERVER} \
         FOR UPDATE SKIP LOCKED); \
         DELETE FROM {s}.hosts h WHERE group_key = {key} AND {known} AND abs(server) = {SERVER} \
         AND written_at <= {NOW} - {long} \
         AND (written_at <= {NOW} - {longer} OR NOT EXISTS \
         (SELECT 1 FROM {s}.orders o WHERE o.group_key = {key} AND o.host = h.host AND o.drain)); \
         DELETE FROM {s}.orders o WHERE group_key = {key} AND {known} AND NOT EXISTS \
         (SELECT 1 FROM {s}.hosts h WHERE h.group_key = {key} AND h.host = o.host)"
    )
}
