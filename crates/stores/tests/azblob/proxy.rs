//! Test helper: a proxy between store and service that counts requests, and delays, drops or answers them
//! by a rule.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What happens to a request.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// It comes through, and so does the answer.
    Through,
    /// The same, this much later.
    Late(Duration),
    /// It is lost on the way there.
    Lost,
    /// It is carried out, and its answer is lost.
    Unanswered,
    /// It is never answered, and the connection stays.
    Hangs,
    /// It is carried out at once, and its answer comes this much later.
    AnsweredLate(Duration),
    /// It is answered here, with this status and code.
    Answered(u16, &'static str),
    /// The service is busy, and asks to be left alone for so many seconds.
    Busy(u64),
    /// A gateway on the way answers with this status: a page for people, and nothing of the service.
    Page(u16),
    /// These texts are put in the place of others in the answer.
    Rewritten(&'static str, String),
}

/// The first line of a request: `PUT /devstoreaccount1/…`, decoded as far as tests need it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) place: usize,
}

impl Asked {
    /// Whether it is about the container itself. A signature for a container may not ask that.
    pub(crate) fn is_of_container(&self) -> bool {
        self.line.contains("restype=container") && !self.line.contains("comp=")
    }
}

/// What a gateway shows where the service should be.
const PAGE: &str = "<html><body><h1>nginx</h1></body></html>";

type Rule = Box<dyn FnMut(&Asked) -> Fate + Send>;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    rule: Arc<Mutex<Rule>>,
    asked: Arc<Mutex<Vec<String>>>,
    in_flight: Arc<InFlight>,
}

/// How many requests are under way, now and at most.
#[derive(Default)]
struct InFlight {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Proxy {
    pub(crate) async fn start(upstream: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let rule: Arc<Mutex<Rule>> = Arc::new(Mutex::new(Box::new(|_| Fate::Through)));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let in_flight = Arc::new(InFlight::default());
        let (rules, list, counts) = (rule.clone(), asked.clone(), in_flight.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (serving, counts) =
                    (serve(client, upstream, rules.clone(), list.clone()), counts.clone());
                tokio::spawn(async move {
                    counts.most.fetch_max(counts.now.fetch_add(1, SeqCst) + 1, SeqCst);
                    serving.await;
                    counts.now.fetch_sub(1, SeqCst);
                });
            }
        });
        Self { port, rule, asked, in_flight }
    }

    /// From now on this rule counts; requests are counted from zero.
    pub(crate) fn rule(&self, rule: impl FnMut(&Asked) -> Fate + Send + 'static) {
        self.asked.lock().unwrap().clear();
        self.in_flight.most.store(0, SeqCst);
        *self.rule.lock().unwrap() = Box::new(rule);
    }

    /// What was asked since then.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// How many requests were under way at once since then, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.in_flight.most.load(SeqCst)
    }

    /// The same place, by way of the proxy.
    pub(crate) fn place(&self, place: &str, upstream: u16) -> String {
        place.replace(&format!("127.0.0.1:{upstream}"), &format!("127.0.0.1:{}", self.port))
    }
}

/// One request for each connection: simple, and nothing is held up by what came before.
async fn serve(mut client: TcpStream, upstream: u16, rule: Arc<Mutex<Rule>>, list: Arc<Mutex<Vec<String>>>) {
    let Some(request) = read_request(&mut client).await else { return };
    let head = String::from_utf8_lossy(&request).into_owned();
    let line = head.lines().next().unwrap_or_default().replace("%2F", "/").replace("%24", "$");
    let fate = {
        let mut list = list.lock().unwrap();
        list.push(line.clone());
        let asked = Asked { line, place: list.len() - 1 };
        (rule.lock().unwrap())(&asked)
    };
    let answer = match fate {
        Fate::Lost => return,
        Fate::Through => forward(&request, upstream).await,
        Fate::Late(time) => {
            tokio::time::sleep(time).await;
            forward(&request, upstream).await
        }
        Fate::Unanswered => {
            forward(&request, upstream).await;
            return;
        }
        Fate::Hangs => {
            // Until whoever asked gives up.
            let _ = client.read(&mut [0; 1]).await;
            return;
        }
        Fate::AnsweredLate(time) => {
            let answer = forward(&request, upstream).await;
            tokio::time::sleep(time).await;
            answer
        }
        Fate::Busy(seconds) => format!(
            "HTTP/1.1 503 Server Busy\r\nx-ms-error-code: ServerBusy\r\nretry-after: {seconds}\r\n\
             content-length: 0\r\nconnection: close\r\ndate: Sun, 15 Nov 2026 00:00:00 GMT\r\n\r\n"
        )
        .into_bytes(),
        Fate::Page(status) => format!(
            "HTTP/1.1 {status} X\r\ncontent-type: text/html\r\ncontent-length: {}\r\nconnection: close\r\n\
             date: Sun, 15 Nov 2026 00:00:00 GMT\r\n\r\n{PAGE}",
            PAGE.len()
        )
        .into_bytes(),
        Fate::Answered(status, code) => format!(
            "HTTP/1.1 {status} X\r\nx-ms-error-code: {code}\r\ncontent-length: 0\r\nconnection: close\r\n\
             date: Sun, 15 Nov 2026 00:00:00 GMT\r\n\r\n"
        )
        .into_bytes(),
        Fate::Rewritten(old, new) => {
            let answer = String::from_utf8_lossy(&forward(&request, upstream).await).into_owned();
            measured(&answer.replace(old, &new)).into_bytes()
        }
    };
    let _ = client.write_all(&answer).await;
    let _ = client.shutdown().await;
}

/// The answer with the length that it has.
fn measured(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let lines = head.lines().filter(|line| !line.to_lowercase().starts_with("content-length:"));
    let head: String = lines.map(|line| format!("{line}\r\n")).collect();
    format!("{head}content-length: {}\r\n\r\n{body}", body.len())
}

async fn read_request(client: &mut TcpStream) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let read = client.read(&mut chunk).await.ok().filter(|read| *read > 0)?;
        request.extend_from_slice(&chunk[..read]);
        let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
        if request.len() >= end + 4 + length.unwrap_or(0) {
            return Some(request);
        }
    }
}

async fn forward(request: &[u8], upstream: u16) -> Vec<u8> {
    let Ok(mut server) = TcpStream::connect(("127.0.0.1", upstream)).await else { return Vec::new() };
    // The service closes when it has answered, and so the end of the answer is the end of the stream.
    let text = String::from_utf8_lossy(request);
    let (line, rest) = text.split_once("\r\n").unwrap();
    // And an answer to the old protocol comes in one piece.
    let line = line.replace("HTTP/1.1", "HTTP/1.0");
    let request = format!("{line}\r\nconnection: close\r\n{rest}");
    let mut answer = Vec::new();
    if server.write_all(request.as_bytes()).await.is_ok() {
        let _ = server.read_to_end(&mut answer).await;
    }
    answer
}
