//! A minimal HTTP client, without a library, for the page of a running demo.

use std::net::SocketAddr;
use std::time::Duration;

use ephor_core::BoxError;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The time limit for an answer: a busy demo still answers within it.
const PATIENCE: Duration = Duration::from_secs(90);
/// The maximum length of an answer.
const MAX_ANSWER_LENGTH: u64 = 4 << 20;

pub(super) async fn get(page: SocketAddr, path: &str) -> Result<Value, BoxError> {
    let request = format!("GET {path} HTTP/1.1\r\nhost: {page}\r\nconnection: close\r\n\r\n");
    ask(page, &request).await
}

pub(super) async fn post(page: SocketAddr, path: &str, body: &Value) -> Result<Value, BoxError> {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {page}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{body}",
        body.len()
    );
    ask(page, &request).await
}

#[expect(clippy::disallowed_methods, reason = "a real peer takes real time")]
async fn ask(page: SocketAddr, request: &str) -> Result<Value, BoxError> {
    let answer = tokio::time::timeout(PATIENCE, exchange(page, request)).await;
    answer.map_err(|_| format!("the demo at {page} did not answer within {PATIENCE:?}"))?
}

async fn exchange(page: SocketAddr, request: &str) -> Result<Value, BoxError> {
    let away = |error| {
        format!(
            "no demo answers at {page}: {error}; start one with ephor demo, or name the address of its page \
             with --page ADDR"
        )
    };
    let mut stream = TcpStream::connect(page).await.map_err(away)?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_LENGTH).read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) =
        answer.split_once("\r\n\r\n").ok_or("the answer is not HTTP: is --page the address of a demo?")?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunked(body)? } else { body.to_owned() };
    let value: Value = serde_json::from_str(&body).unwrap_or_else(|_| Value::from(body.trim()));
    let status = head.split(' ').nth(1).unwrap_or_default();
    if status.starts_with('2') {
        return Ok(value);
    }
    let text = value.get("error").and_then(Value::as_str).or(value.as_str());
    Err(text.unwrap_or("the demo refused the request").to_owned().into())
}

fn unchunked(mut body: &str) -> Result<String, BoxError> {
    let mut whole = String::new();
    loop {
        let (length, rest) =
            body.split_once("\r\n").ok_or("the answer of the demo is incomplete; try again")?;
        let length = usize::from_str_radix(length.trim(), 16)?;
        if length == 0 {
            return Ok(whole);
        }
        whole.push_str(rest.get(..length).ok_or("the answer of the demo is incomplete; try again")?);
        body = rest.get(length + 2..).ok_or("the answer of the demo is incomplete; try again")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_in_pieces_is_put_together() {
        assert_eq!(unchunked("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").unwrap(), "abcde");
        assert!(unchunked("5\r\nabc").is_err());
    }
}
