//! Answers `GET /health` as the Microsoft emulator does, so that scripts written for it work.
//!
//! | hubs | answer |
//! |---|---|
//! | all healthy | 200 `{"status":"healthy","message":"Service is healthy."}` |
//! | any problem | 503 `{"status":"unhealthy","message":"…","reasons":["…"]}` |
//!
//! `reasons` is ours, the rest is the emulator's; other machines get no reasons unless that is asked for.
//! Nothing else is served here, and so little HTTP needs no library.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

const HEALTHY: &str = r#"{"status":"healthy","message":"Service is healthy."}"#;
/// The emulator's message.
const UNHEALTHY: &str = "Service not available. Please try after some time.";
const UNKNOWN: &str = r#"{"status":"not found","message":"There is only GET /health."}"#;

/// The maximum length of a request that is answered.
const MAX_REQUEST_LENGTH: usize = 8 << 10;
/// The time limit for a request and its answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// The maximum number of concurrent connections; one more evicts the oldest.
const MAX_CONNECTIONS: usize = 64;
/// The pause after `accept` failed, for example because too many files are open.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(50);

/// The source of the answer, and its level of detail.
#[derive(Clone)]
pub(super) struct Health {
    /// Returns the current problems; none if everything is healthy.
    pub(super) problems: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// True if the answer contains the problems.
    pub(super) with_reasons: bool,
}

/// Answers requests until `stopped` is ready.
pub(super) async fn serve(listener: TcpListener, health: Health, stopped: impl Future<Output = ()>) {
    serve_with(listener, health, PATIENCE, stopped).await;
}

async fn serve_with(
    listener: TcpListener,
    health: Health,
    patience: Duration,
    stopped: impl Future<Output = ()>,
) {
    let mut stopped = std::pin::pin!(stopped);
    let mut asking = JoinSet::new();
    // The connections, oldest first.
    let mut places = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            () = &mut stopped => return,
            Some(_) = asking.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    make_room(&mut places);
                    places.push_back(asking.spawn(answer_in_time(stream, health.clone(), patience)));
                }
                Err(_) => pause().await,
            }
        }
    }
}

/// Evicts the oldest connections, so that idle ones do not block new ones.
fn make_room(places: &mut VecDeque<AbortHandle>) {
    places.retain(|place| !place.is_finished());
    while places.len() >= MAX_CONNECTIONS {
        if let Some(oldest) = places.pop_front() {
            oldest.abort();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the outermost shell: real trouble takes real time")]
async fn pause() {
    tokio::time::sleep(PAUSE_AFTER_ERROR).await;
}

#[expect(clippy::disallowed_methods, reason = "the outermost shell: a real peer takes real time")]
async fn answer_in_time(stream: TcpStream, health: Health, patience: Duration) {
    drop(tokio::time::timeout(patience, answer(stream, &health)).await);
}

async fn answer(mut stream: TcpStream, health: &Health) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut part = [0; 1024];
        let read = stream.read(&mut part).await?;
        request.extend_from_slice(&part[..read]);
        if read == 0 || request.len() > MAX_REQUEST_LENGTH {
            return Ok(());
        }
    }
    let (status, body) = reply(&request, health);
    let head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if !request.starts_with(b"HEAD ") {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

fn reply(request: &[u8], health: &Health) -> (&'static str, String) {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
    match (method, path) {
        (b"GET" | b"HEAD", b"/health") => match &(health.problems)()[..] {
            [] => ("200 OK", HEALTHY.to_owned()),
            problems => ("503 Service Unavailable", unhealthy(health.with_reasons.then_some(problems))),
        },
        _ => ("404 Not Found", UNKNOWN.to_owned()),
    }
}

fn unhealthy(reasons: Option<&[String]>) -> String {
    let mut body = serde_json::json!({ "status": "unhealthy", "message": UNHEALTHY });
    if let Some(reasons) = reasons {
        body["reasons"] = reasons.into();
    }
    body.to_string()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn well() -> Health {
        Health { problems: Arc::new(Vec::new), with_reasons: true }
    }

    #[test]
    fn what_is_the_matter_is_told_in_the_emulators_form_with_the_reasons() {
        let problems = Arc::new(|| vec!["hub \"homes\" is broken".to_owned()]);
        let health = Health { problems, with_reasons: true };
        let (status, body) = reply(b"GET /health HTTP/1.1\r\n\r\n", &health);
        assert_eq!(status, "503 Service Unavailable");
        let body: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["status"], "unhealthy");
        assert_eq!(body["message"], "Service not available. Please try after some time.");
        assert_eq!(body["reasons"][0], "hub \"homes\" is broken");
        let (status, body) =
            reply(b"GET /health HTTP/1.1\r\n\r\n", &Health { with_reasons: false, ..health });
        assert_eq!(status, "503 Service Unavailable");
        assert!(body.contains("unhealthy") && !body.contains("homes"), "{body}");
    }

    #[test]
    fn only_health_is_answered() {
        let reply = |request: &[u8]| reply(request, &well());
        assert_eq!(reply(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"), ("200 OK", HEALTHY.to_owned()));
        assert_eq!(reply(b"GET /health?x=1 HTTP/1.1\r\n\r\n").0, "200 OK");
        for other in
            ["GET / HTTP/1.1\r\n\r\n", "POST /health HTTP/1.1\r\n\r\n", "GET /healthy x\r\n\r\n", "\r\n\r\n"]
        {
            assert_eq!(reply(other.as_bytes()).0, "404 Not Found", "{other}");
        }
    }

    /// Connects this many times and says nothing, asks for the health as one more, and returns the silent ones.
    async fn silent_and_one_that_asks(address: SocketAddr, count: usize) -> Vec<TcpStream> {
        let mut silent = Vec::new();
        for _ in 0..count {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let mut newcomer = TcpStream::connect(address).await.unwrap();
        newcomer.write_all(b"GET /health HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        newcomer.read_to_string(&mut answer).await.unwrap();
        assert!(answer.ends_with(HEALTHY), "{answer}");
        silent
    }

    /// Serves until the peers are done, with no time limit for their requests.
    async fn while_served<F: Future<Output = ()>>(peers: impl FnOnce(SocketAddr) -> F) {
        const FOREVER: Duration = Duration::from_secs(3_600);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let enough = Duration::from_secs(60);
        #[expect(clippy::disallowed_methods, reason = "a test that hangs shall fail")]
        tokio::time::timeout(enough, serve_with(listener, well(), FOREVER, peers(address))).await.unwrap();
    }

    #[tokio::test]
    async fn whoever_says_nothing_keeps_nobody_out() {
        while_served(|address| async move {
            let mut silent = silent_and_one_that_asks(address, MAX_CONNECTIONS).await;
            assert_eq!(silent[0].read(&mut [0]).await.unwrap(), 0, "the oldest is gone");
            let still_there = silent[1].try_read(&mut [0]).unwrap_err().kind();
            assert_eq!(still_there, std::io::ErrorKind::WouldBlock, "and no other connection");
        })
        .await;
    }

    /// Of the usual 1,024 files of a process one half is for connections to the gateway, and the other for the hubs.
    #[tokio::test]
    async fn whoever_says_nothing_takes_few_of_the_files_that_the_hubs_need() {
        const FEW: usize = 1_024 / 2 / 8;
        while_served(|address| async move {
            let mut silent = silent_and_one_that_asks(address, 300).await;
            silent.truncate(silent.len() - FEW);
            for evicted in &mut silent {
                assert_eq!(evicted.read(&mut [0]).await.unwrap(), 0);
            }
        })
        .await;
    }
}
