//! Tests that a connection to another machine sends no password before the server has proved its identity.
//! Also tests that a server that acknowledges commits before they are on disk is refused.

use std::sync::{Arc, Mutex};

use ephor_core::store::StoreError;
use ephor_testkit::postgres_server::ELSEWHERE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::{database_on, open, sql, wait};
use crate::server::{PASSWORD, Server, shared};

/// The same server, as a host on another machine would name it, and with what its URL says of TLS.
fn from_elsewhere(server: &Server, database: &str, parameters: &str) -> String {
    format!("postgres://admin:{PASSWORD}@{ELSEWHERE}:{}/{database}{parameters}", server.port)
}

async fn refused(url: &str, words: &[&str]) {
    let error = open(url).check().await.expect_err(url);
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    let text = format!("{error} {error:?}");
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
}

/// Somebody between host and server: there is no TLS, says he, and asks for the password as it is.
async fn listen_in(mut stream: TcpStream, heard: Arc<Mutex<Vec<u8>>>) -> std::io::Result<()> {
    const CLEARTEXT_PASSWORD: [u8; 9] = [b'R', 0, 0, 0, 8, 0, 0, 0, 3];
    let mut buffer = [0; 1024];
    for answer in [&b"N"[..], &CLEARTEXT_PASSWORD, &[]] {
        let read = stream.read(&mut buffer).await?;
        heard.lock().unwrap().extend_from_slice(&buffer[..read]);
        stream.write_all(answer).await?;
    }
    Ok(())
}

#[test]
fn whoever_stands_between_host_and_server_does_not_get_the_password() {
    wait(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = heard.clone();
        let intruder = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let _ = listen_in(stream, hears).await;
        });
        let url = format!("postgres://ada:canary@{ELSEWHERE}:{port}/fleet");
        let error = open(&url).check().await.expect_err("it is not the server");
        intruder.await.unwrap();
        let heard = String::from_utf8_lossy(&heard.lock().unwrap()).into_owned();
        assert!(!heard.contains("canary"), "{heard:?}");
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("offers no TLS"), "{error}");
    });
}

#[test]
fn a_certificate_that_nobody_here_knows_is_refused_until_it_is_named() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        refused(&from_elsewhere(server, &name, ""), &["certificate", "sslrootcert=FILE", "sslmode=require"])
            .await;
        let known = format!("?sslrootcert={}", server.certificate().display());
        open(&from_elsewhere(server, &name, &known)).check().await.unwrap();
        // What is said explicitly holds.
        open(&from_elsewhere(server, &name, "?sslmode=require")).check().await.unwrap();
        open(&from_elsewhere(server, &name, "?sslmode=disable")).check().await.unwrap();
        // A certificate for another name is another server's.
        let local = from_elsewhere(server, &name, &known).replace(ELSEWHERE, "127.0.0.1");
        let url = format!("{local}&sslmode=verify-full");
        refused(&url, &["for another name", "name the host as the certificate does"]).await;
        let error = open(&url).check().await.unwrap_err().to_string();
        assert!(!error.contains("sslrootcert"), "it is known who signed it: {error}");
    });
}

#[test]
fn a_server_without_tls_is_refused_from_elsewhere_unless_the_url_says_so() {
    wait(async {
        let server = Server::start_with("ssl = off");
        refused(&from_elsewhere(&server, "postgres", ""), &["offers no TLS", "sslmode=disable"]).await;
        open(&from_elsewhere(&server, "postgres", "?sslmode=disable")).check().await.unwrap();
        // On this machine there is nobody in between.
        open(&from_elsewhere(&server, "postgres", "").replace(ELSEWHERE, "127.0.0.1")).check().await.unwrap();
    });
}

#[test]
fn a_server_that_acknowledges_before_it_stores_is_refused() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        let admin = server.url(&name);
        sql(&admin, &format!("CREATE ROLE hasty LOGIN SUPERUSER PASSWORD '{PASSWORD}'")).await;
        let url = server.url_of("hasty", PASSWORD, &name);
        open(&url).check().await.unwrap();
        sql(&admin, "ALTER ROLE hasty SET synchronous_commit = off").await;
        refused(&url, &["synchronous_commit is off", "ALTER ROLE"]).await;
        for safe in ["local", "remote_write", "on"] {
            sql(&admin, &format!("ALTER ROLE hasty SET synchronous_commit = {safe}")).await;
            open(&url).check().await.unwrap();
        }
    });
}
