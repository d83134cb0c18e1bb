//! Tests that errors of configuration and permissions say what to do, and show no password.

use std::time::Duration;

use ephor_core::store::{Store, StoreError};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

use crate::fixture::{database, database_on, group, open, open_with, record, sql, wait};
use crate::server::{PASSWORD, TLS_ONLY, shared};

async fn refused(url: &str, words: &str) {
    let error = open(url).check().await.expect_err(words);
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    tells(&error, words);
}

fn tells(error: &StoreError, words: &str) {
    let text = format!("{error} {error:?}");
    assert!(text.contains(words), "{text}");
    assert!(!text.contains("canary"), "{text}");
}

#[test]
fn who_is_not_let_in_is_told_why() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        refused(&server.url_of("admin", "canary-wrong", &name), "password is wrong").await;
        refused(&server.url_of("nobody_known", PASSWORD, &name), "password is wrong").await;
        refused(&server.url_of("admin", PASSWORD, "nowhere"), "no such database").await;
    });
}

#[test]
fn where_tls_is_needed_it_is_said_and_used() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        let admin = server.url("postgres");
        sql(&admin, &format!("CREATE ROLE {TLS_ONLY} LOGIN SUPERUSER PASSWORD '{PASSWORD}'")).await;
        let plain = server.url_of(TLS_ONLY, PASSWORD, &name);
        refused(&plain, "sslmode=verify-full").await;
        open(&plain.replace("sslmode=disable", "sslmode=require")).check().await.unwrap();
        // Its certificate is of its own making: whoever wants to know it must bring it.
        refused(&plain.replace("sslmode=disable", "sslmode=verify-full"), "sslrootcert").await;
    });
}

#[test]
fn read_only_credentials_are_refused_before_and_after_the_tables_are_there() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        let admin = server.url(&name);
        sql(&admin, &format!("CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}'")).await;
        let reader = server.url_of("reader", PASSWORD, &name);
        refused(&reader, "lacks a right").await;
        open(&admin).check().await.unwrap();
        sql(
            &admin,
            "GRANT USAGE ON SCHEMA ephor TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA ephor TO reader",
        )
        .await;
        let store = open_with(&reader, PostgresOptions { listen: false, ..PostgresOptions::default() });
        assert!(store.view(&group()).await.unwrap().hosts.is_empty());
        let error = store.heartbeat(&group(), &record("a")).await.expect_err("it may only read");
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        tells(&error, "lacks a right");
        // A standby and a session that is set to read only say the same.
        sql(&admin, "ALTER ROLE reader SET default_transaction_read_only = on").await;
        sql(&admin, "GRANT ALL ON ALL TABLES IN SCHEMA ephor TO reader").await;
        let error = open(&reader).heartbeat(&group(), &record("a")).await.expect_err("it is read-only");
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        tells(&error, "name the primary");
    });
}

#[test]
fn a_server_that_is_not_there_is_unavailable() {
    wait(async {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let store = open(&format!("postgres://ada:canary@127.0.0.1:{port}/fleet"));
        let error = store.check().await.expect_err("no server listens there");
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        tells(&error, "is it up");
        assert!(format!("{store:?}").contains("ada@127.0.0.1") && !format!("{store:?}").contains("canary"));
    });
}

#[test]
fn a_server_that_does_not_answer_is_given_up_on() {
    wait(async {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = silent.local_addr().unwrap().port();
        let options =
            PostgresOptions { call_limit: Duration::from_millis(300), ..PostgresOptions::default() };
        let store = open_with(&format!("postgres://ada:canary@127.0.0.1:{port}/fleet"), options);
        let error = store.view(&group()).await.expect_err("no server answers");
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        tells(&error, "no answer within 300ms");
    });
}

#[test]
fn too_many_connections_are_throttling() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        let admin = server.url(&name);
        open(&admin).check().await.unwrap();
        sql(&admin, &format!("CREATE ROLE crowded LOGIN SUPERUSER PASSWORD '{PASSWORD}' CONNECTION LIMIT 1"))
            .await;
        // A superuser has no limit.
        sql(
            &admin,
            "ALTER ROLE crowded NOSUPERUSER; GRANT ALL ON SCHEMA ephor TO crowded; \
                     GRANT ALL ON ALL TABLES IN SCHEMA ephor TO crowded",
        )
        .await;
        let url = server.url_of("crowded", PASSWORD, &name);
        let quiet = PostgresOptions { listen: false, ..PostgresOptions::default() };
        let first = open_with(&url, quiet.clone());
        first.check().await.unwrap();
        let error = open_with(&url, quiet).check().await.expect_err("there is one already");
        assert!(matches!(error, StoreError::Throttled(_)), "{error}");
        tells(&error, "max_connections");
        first.check().await.unwrap();
    });
}

#[test]
fn a_text_that_cannot_be_stored_is_refused() {
    wait(async {
        let store = open(&database().await);
        let mut odd = record("a");
        odd.software = "nul\0".into();
        // Within JSON it is written otherwise, and is fine.
        store.heartbeat(&group(), &odd).await.unwrap();
        let request = ephor_core::store::SeekRequest {
            partition: crate::fixture::P,
            position: crate::fixture::finished(1),
            log: None,
            by: "ada\0'; DROP SCHEMA ephor CASCADE; --".into(),
            force: false,
        };
        let error = store.seek(&group(), &request).await.expect_err("no text");
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        assert_eq!(store.view(&group()).await.unwrap().hosts[0].record.software, "nul\0");
    });
}

#[test]
fn a_wrong_url_is_refused_at_once() {
    let error = PostgresStore::new("mysql://ada:canary@db/fleet", PostgresOptions::default());
    assert!(!error.expect_err("another database").to_string().contains("canary"));
}
