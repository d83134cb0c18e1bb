//! Tests of the page over HTTP, as a browser and as an attacker, with a fake city.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use ephor_homes::page::{self, Action, Source};
use ephor_homes::view::model::{CityNow, FleetNow, HomeNow};
use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::fake_source::{Fake, HOMES};

/// Long enough for a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Site {
    pub(crate) port: u16,
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) served: JoinHandle<std::io::Result<()>>,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Site {
    pub(crate) async fn of(source: impl Source) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(page::serve(listener, Arc::new(source), stopped));
        Self { port, stop, served }
    }

    pub(crate) async fn fake() -> Self {
        Self::of(Fake::new()).await
    }

    /// Sends lines as they are; `PORT` is our port.
    async fn raw(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        let request = request.replace("PORT", &self.port.to_string());
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        // A server that refuses a body may reset the connection after its answer.
        let _ = timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("an answer in time");
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").expect("a whole head");
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.raw(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nConnection: close\r\n\r\n")).await
    }

    pub(crate) async fn post(&self, headers: &str, body: &str) -> Answer {
        let length = body.len();
        let head = format!("POST /api/act HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Length: {length}\r\n");
        self.raw(&format!("{head}Connection: close\r\n{headers}\r\n{body}")).await
    }

    async fn json(&self, path: &str) -> Value {
        let answer = self.get(path).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    pub(crate) async fn live(&self, path: &str) -> Live {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: [::1]:{}\r\n\r\n", self.port);
        stream.write_all(request.as_bytes()).await.unwrap();
        Live { stream, text: String::new() }
    }
}

pub(crate) struct Live {
    pub(crate) stream: TcpStream,
    pub(crate) text: String,
}

impl Live {
    /// Reads on until it has seen something so many times.
    pub(crate) async fn until(&mut self, what: &str, times: usize) {
        let reading = async {
            let mut bytes = vec![0; 64 * 1024];
            while self.text.matches(what).count() < times {
                let read = self.stream.read(&mut bytes).await.unwrap();
                assert!(read > 0, "ended before {what:?}: {}", self.text);
                self.text.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
        };
        timeout(PATIENCE, reading).await.expect(what);
    }
}

pub(crate) const JSON: &str = "Content-Type: application/json\r\n";
const PAGES: [&str; 3] = ["/", "/home/41234", "/operator"];

#[tokio::test]
async fn the_first_paint_is_never_empty() {
    let site = Site::fake().await;
    let city = site.get("/").await;
    assert_eq!(city.status, 200);
    assert!(city.head.contains("content-type: text/html; charset=utf-8"), "{}", city.head);
    assert_eq!(city.body.matches("<polygon").count(), 100);
    for text in ["Every reading sent is accounted for; ", "carbon monoxide 71 ppm", "of 100,000 homes"]
        .into_iter()
        .chain(["href=\"/home/77003\"", "action=\"/home\"", "data-live=\"/live/city\""])
    {
        let body = city.body.replace("<span id=\"city-homes\">", "").replace("</span>", "");
        assert!(city.body.contains(text) || body.contains(text), "{text}");
    }
    let home = site.get("/home/41234").await.body;
    for text in
        ["Home 41234", "glass break, since", "living room", "battery 82 %", "its clock is wrong", "⊘ silent"]
    {
        assert!(home.contains(text), "{text}");
    }
    let operator = site.get("/operator").await.body;
    assert!(operator.contains("16 of 16 partitions owned (4-3-3-3-3)"));
    // A tile and a template.
    assert_eq!(operator.matches("class=\"tile\"").count(), 32 + 1);
    assert!(operator.contains("data-action=\"kill_host\"") && operator.contains("Its process is killed."));
}

#[tokio::test]
async fn every_answer_carries_the_headers_and_no_page_has_anything_inline() {
    let site = Site::fake().await;
    let more =
        ["/assets/page.css", "/assets/shared.js", "/api/city", "/nowhere", "/home/999999", "/assets/none"];
    for path in PAGES.into_iter().chain(more) {
        let answer = site.get(path).await;
        for header in
            ["default-src 'self'", "frame-ancestors 'none'", "nosniff", "cross-origin-resource-policy"]
        {
            assert!(answer.head.contains(header), "{path}: {header}");
        }
        assert!(answer.head.contains("cache-control: no-"), "{path}");
    }
    for path in PAGES.into_iter().chain(["/nowhere"]) {
        let body = site.get(path).await.body.to_lowercase();
        for inline in [" style=", "<style", " onclick=", " onload=", "javascript:", "http://", "https://"] {
            assert!(!body.contains(inline), "{path}: {inline}");
        }
        let scripts = body.matches("<script").count();
        assert_eq!(scripts, body.matches("<script type=\"module\" src=\"/assets/").count(), "{path}");
    }
}

#[tokio::test]
async fn scripts_put_text_and_nothing_else() {
    let site = Site::fake().await;
    let mut lines = 0;
    for name in ["shared", "city", "home", "operator"] {
        let script = site.get(&format!("/assets/{name}.js")).await;
        assert!(script.head.contains("content-type: text/javascript"), "{}", script.head);
        for never in
            ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "://"]
        {
            assert!(!script.body.contains(never), "{name}: {never}");
        }
        lines += script.body.lines().count();
    }
    assert!(lines < 500, "{lines} lines: keep it small");
}

#[tokio::test]
async fn the_same_numbers_are_there_as_json() {
    let site = Site::fake().await;
    let city = site.json("/api/city").await;
    assert_eq!(city["neighbourhoods"].as_array().unwrap().len(), 100);
    assert!(city["audit"]["sent"].as_u64().unwrap() >= 41_000_000);
    let home = site.json("/api/home/41234").await;
    assert_eq!((home["home"].as_u64(), home["today"].as_array().unwrap().len()), (Some(41_234), 1_440));
    let fleet = site.json("/api/fleet").await;
    assert_eq!(fleet["hosts"][0]["state"], "running");
    assert_eq!(fleet["groups"][1]["name"], "alarms");
}

#[tokio::test]
async fn what_is_not_there_is_said_kindly() {
    let site = Site::fake().await;
    let last = HOMES - 1;
    for path in [
        "/home/100000",
        "/home/-1",
        "/home/x",
        "/home/99999999999",
        "/home?number=x",
        "/home",
        "/home?number=",
    ] {
        let answer = site.get(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert!(answer.body.contains("No such home") && answer.body.contains(&last.to_string()), "{path}");
    }
    let nowhere = site.get("/nowhere").await;
    assert!(nowhere.status == 404 && nowhere.body.contains("Nothing here"));
    for path in ["/api/none", "/api/home/100000", "/live/home/100000", "/live/none"] {
        let answer = site.get(path).await;
        assert!(answer.status == 404 && answer.body.starts_with("{\"error\":"), "{path}: {}", answer.body);
    }
    for number in ["41234", "41%2C234", "+41.234", "%2341234"] {
        let found = site.get(&format!("/home?number={number}")).await;
        assert_eq!(found.status, 303, "{number}");
        assert!(found.head.contains("location: /home/41234"), "{}", found.head);
    }
    let wrong = site.raw("DELETE / HTTP/1.1\r\nHost: localhost:PORT\r\nConnection: close\r\n\r\n").await;
    assert_eq!(wrong.status, 405);
    assert_eq!(site.get("/api/act").await.status, 405);
}

#[tokio::test]
async fn other_names_and_other_pages_are_refused() {
    let site = Site::fake().await;
    let close = "Connection: close\r\n\r\n";
    for host in
        ["evil.example:PORT", "evil.example", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:PORT", ""]
    {
        for path in ["/", "/api/fleet", "/live/city", "/assets/page.css"] {
            let answer = site.raw(&format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{close}")).await;
            assert_eq!(answer.status, 421, "{host} {path}");
            assert!(!answer.body.contains("host-1"), "{host} {path}");
        }
    }
    let two = format!("GET / HTTP/1.1\r\nHost: localhost:PORT\r\nHost: evil.example\r\n{close}");
    assert!(matches!(site.raw(&two).await.status, 400 | 421));
    let absolute = format!("GET http://evil.example/ HTTP/1.1\r\nHost: localhost:PORT\r\n{close}");
    assert_eq!(site.raw(&absolute).await.status, 421);
    for origin in
        ["http://evil.example", "null", "https://localhost:PORT", "http://localhost:1", "http://localhost"]
    {
        let origin = format!("Origin: {origin}\r\n");
        let answer =
            site.raw(&format!("GET /live/city HTTP/1.1\r\nHost: localhost:PORT\r\n{origin}{close}")).await;
        assert_eq!(answer.status, 403, "{origin}");
        let answer = site.post(&format!("{JSON}{origin}"), r#"{"action":"add_host"}"#).await;
        assert_eq!(answer.status, 403, "{origin}");
    }
    assert_eq!(site.json("/api/fleet").await["hosts"].as_array().unwrap().len(), 5, "nothing was done");
}

#[tokio::test]
async fn actions_are_done_and_nothing_else_is() {
    let site = Site::fake().await;
    let kill = r#"{"action":"kill_host","host":"host-3"}"#;
    for kind in ["", "Content-Type: text/plain\r\n", "Content-Type: application/x-www-form-urlencoded\r\n"] {
        assert_eq!(site.post(kind, kill).await.status, 415, "{kind}");
    }
    let long = format!("{{\"action\":\"add_host\"}}{}", " ".repeat(4 * 1024));
    assert_eq!(site.post(JSON, &long).await.status, 413);
    for wrong in ["", "{", r#"{"action":"nothing"}"#, r#"{"action":"kill_host"}"#] {
        let answer = site.post(JSON, wrong).await;
        assert!(
            answer.status == 400 && answer.body.contains("This is not an action"),
            "{wrong}: {}",
            answer.body
        );
    }
    let nobody = site.post(JSON, r#"{"action":"kill_host","host":"host-99"}"#).await;
    assert_eq!((nobody.status, nobody.body.as_str()), (409, r#"{"error":"There is no host host-99."}"#));
    let fleet = site.json("/api/fleet").await;
    assert!(fleet["hosts"].as_array().unwrap().iter().all(|host| host["state"] == "running"));

    let own = "Content-Type: application/json; charset=utf-8\r\nOrigin: http://localhost:PORT\r\n";
    let done = site.post(own, kill).await;
    assert_eq!((done.status, done.body.as_str()), (200, r#"{"done":"host-3 was killed."}"#));
    assert_eq!(site.json("/api/fleet").await["hosts"][2]["state"], "dead");
    assert_eq!(site.post(JSON, r#"{"action":"carbon_monoxide","on":true}"#).await.status, 200);
    assert!(site.get("/operator").await.body.contains("Switch the detectors off"));
}

/// A city whose texts are hostile.
struct Hostile(Fake);

const SCRIPT: &str = "\"><script>alert('x')</script><b x='";

impl Source for Hostile {
    fn city(&self) -> CityNow {
        let mut city = self.0.city();
        city.alarms.iter_mut().for_each(|alarm| alarm.what = SCRIPT.to_owned());
        city
    }

    fn home(&self, home: u32) -> Option<HomeNow> {
        let mut home = self.0.home(home)?;
        home.sensors.iter_mut().for_each(|sensor| sensor.says = SCRIPT.to_owned());
        home.alarms.iter_mut().for_each(|alarm| alarm.what = SCRIPT.to_owned());
        Some(home)
    }

    fn homes(&self) -> u32 {
        self.0.homes()
    }

    fn fleet(&self) -> FleetNow {
        let mut fleet = self.0.fleet();
        fleet.hosts[0].name = SCRIPT.to_owned();
        fleet.groups[0].partitions[3].owner = Some(SCRIPT.to_owned());
        fleet.groups[1].name = SCRIPT.to_owned();
        fleet.changes.insert(0, SCRIPT.to_owned());
        fleet
    }

    fn act(&self, action: Action) -> BoxFuture<'_, Result<String, String>> {
        self.0.act(action)
    }
}

#[tokio::test]
async fn hostile_text_stays_text() {
    let site = Site::of(Hostile(Fake::new())).await;
    for path in
        PAGES.into_iter().chain(["/home/%3Cscript%3Ealert(1)", "/%3Cscript%3E", "/home?number=%3Cscript%3E"])
    {
        let body = site.get(path).await.body;
        assert!(!body.contains("<script>") && !body.contains("<b x="), "{path}");
        assert!(body.contains("script&gt;") || body.contains("%3Cscript%3E"), "{path} shows it");
    }
}
