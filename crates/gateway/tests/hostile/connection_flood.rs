//! Tests of thousands of connections from a second process that never authenticate, and of refused links
//! with long names: memory stays bounded, and other clients are served.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use ephor_amqp::frame::Protocol;
use ephor_amqp::performative::{Attach, Detach, Outcome};
use ephor_core::event::NewEvent;
use ephor_gateway::config::DEFAULT_UNAUTHENTICATED;
use ephor_wire::annotations::Delivered;
use ephor_wire::selector::Start;

use crate::client::{Client, encoded};
use crate::process_resources::{MIB, alone, memory, open_files, run, second};
use crate::raw_peer;
use crate::server::{HUB, Server, within};

const CONNECTIONS: usize = 3_000;
const ADDRESS: &str = "EPHOR_TEST_FLOOD";

/// The most that the flood may cost. All unauthenticated peers together may use 24 MiB.
const MAX_MEMORY: usize = 48 * MIB;
/// The flood's sockets, one more that is being accepted, and those of the regular clients here, both ends of
/// each.
const MAX_FILES: usize = DEFAULT_UNAUTHENTICATED + 1 + 16;

/// The messages of unauthenticated peers, each kind as far as it goes without a token.
fn kinds() -> Vec<Vec<u8>> {
    let opened =
        [&Protocol::Amqp.header()[..], &raw_peer::open(), &raw_peer::begin(raw_peer::CHANNEL)].concat();
    let sasl = [&Protocol::Sasl.header()[..], &raw_peer::frame(1, 0, &[0x00, 0x53, 0x41])].concat();
    let links =
        (0..64).map(|handle| raw_peer::attach(raw_peer::CHANNEL, handle, Attach::sender("requests", "$cbs")));
    let cbs = raw_peer::attach(raw_peer::CHANNEL, 0, Attach::sender("requests", "$cbs"));
    let unfinished = raw_peer::transfer(raw_peer::CHANNEL, 0, 0, true, &[0; 60_000]);
    vec![
        Vec::new(),
        b"AMQP\x00".to_vec(),
        sasl[..sasl.len() - 1].to_vec(),
        opened.clone(),
        [opened.clone(), links.collect::<Vec<_>>().concat()].concat(),
        [opened.clone(), cbs, unfinished].concat(),
        // A large frame whose end never comes.
        [opened.clone(), vec![0, 1, 0, 0, 2, 0, 0, 1], vec![0; 60_000]].concat(),
        [opened.clone(), raw_peer::Raw::echo().repeat(1_000)].concat(),
        // As many sessions as there are channels.
        [opened.clone(), (2..5_000).map(raw_peer::begin).collect::<Vec<_>>().concat()].concat(),
        // Sessions with the highest handle, which is free again at once.
        [opened, (2..500).map(session_with_high_handle).collect::<Vec<_>>().concat()].concat(),
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
    ]
}

/// A session in which a link with the highest handle is attached and detached.
fn session_with_high_handle(channel: u16) -> Vec<u8> {
    let detach = Detach { handle: 255, closed: true, error: None };
    let detach = raw_peer::amqp(channel, |into| detach.write(into));
    let attach = raw_peer::attach(channel, 255, Attach::sender("requests", "$cbs"));
    [raw_peer::begin(channel), attach, detach].concat()
}

/// The second process. Does nothing in the first.
#[test]
fn the_flood_itself() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let address: SocketAddr = address.parse().unwrap();
    let kinds = kinds();
    let mut connections = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        // It may have been closed already, and does not read.
        let _ = stream.write(&kinds[number % kinds.len()]);
        connections.push(stream);
    }
    writeln!(std::io::stdout(), "\nconnected {}", connections.len()).unwrap();
    // Keeps them all open until its input ends.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// The number of connections that the second process has made, when it has made all. Its output stays open.
fn connected(output: &mut impl BufRead) -> usize {
    let made = output.lines().map_while(Result::ok).find_map(|line| {
        let count = line.strip_prefix("connected ")?;
        count.parse().ok()
    });
    made.expect("the flood has come to its end")
}

/// The highest usage at any time.
#[derive(Clone, Copy, Debug, Default)]
struct Peak {
    memory: usize,
    files: usize,
}

impl Peak {
    fn measure(&mut self) {
        self.memory = self.memory.max(memory());
        self.files = self.files.max(open_files());
    }
}

/// Sends an event and receives it.
async fn exchange(client: &mut Client, sender: ephor_amqp::connection::LinkId, number: u64) {
    let body = number.to_string();
    assert_eq!(client.send(sender, 0, &encoded(&NewEvent::new(body.clone()))).await, Outcome::Accepted);
    let (_, payload) = client.delivery().await;
    let event = Delivered::read(&payload).unwrap();
    assert_eq!((event.sequence.0, &payload[event.sections.body.content.clone()]), (number, body.as_bytes()));
}

/// A client that connects during the flood. It may have to retry, as SDKs do.
async fn newcomer(address: SocketAddr) -> bool {
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(async move {
        let mut client = Client::unauthenticated(address).await;
        assert_eq!(client.put_development_token().await.0, 202);
        client.sender(HUB).await;
    });
    within(tasks.join_next()).await.unwrap().is_ok()
}

#[test]
fn links_with_long_names_that_were_refused_leave_nothing_behind() {
    let _alone = alone();
    run(async {
        let server = Server::start().await;
        let mut peers = Vec::new();
        for _ in 0..8 {
            peers.push(raw_peer::Raw::opened(server.address).await);
        }
        let before = memory();
        for peer in &mut peers {
            // They are never detached by the peer, so the links stay.
            for handle in 0..30 {
                peer.attach(handle, Attach::sender("n".repeat(60_000), "$cbs")).await;
            }
        }
        let after = memory();
        // All names together are 14 MiB.
        assert!(after.saturating_sub(before) < 7 * MIB, "{before} before, {after} after");
    });
}

#[test]
fn thousands_of_unauthenticated_connections_cost_little_and_disturb_nobody() {
    let _alone = alone();
    run(async {
        let server = Server::start().await;
        let mut honest = Client::of(&server).await;
        let sender = honest.sender(&format!("{HUB}/Partitions/0")).await;
        let receiver = honest.receiver(0, Start::Earliest).await;
        honest.connection().grant(receiver, 1_000_000);
        for number in 0..100 {
            exchange(&mut honest, sender, number).await;
        }
        let mut before = Peak::default();
        before.measure();
        let mut flood = second("connection_flood::the_flood_itself", ADDRESS, &server.address.to_string());
        let mut output = BufReader::new(flood.stdout.take().unwrap());
        let (mut peak, mut number) = (before, 100);
        let over = AtomicBool::new(false);
        let made = tokio::task::block_in_place(|| {
            std::thread::scope(|threads| {
                let made = threads.spawn(|| {
                    let made = connected(&mut output);
                    over.store(true, Ordering::SeqCst);
                    made
                });
                let (mut came, mut tried) = (0, 0);
                tokio::runtime::Handle::current().block_on(within(async {
                    while !over.load(Ordering::SeqCst) || came == 0 {
                        exchange(&mut honest, sender, number).await;
                        number += 1;
                        if number % 20 == 0 {
                            tried += 1;
                            came += usize::from(newcomer(server.address).await);
                        }
                        peak.measure();
                    }
                    // The flood is connected now, and a regular client is admitted.
                    came += usize::from(newcomer(server.address).await);
                    tried += 1;
                    exchange(&mut honest, sender, number).await;
                    peak.measure();
                }));
                eprintln!(
                    "{number} exchanges, {came} of {tried} newcomers, before {before:?}, peak {peak:?}"
                );
                assert!(came * 2 > tried, "{came} of {tried} newcomers came in");
                made.join().unwrap()
            })
        });
        assert_eq!(made, CONNECTIONS);
        assert!(peak.memory - before.memory < MAX_MEMORY, "{before:?} {peak:?}");
        assert!(peak.files - before.files <= MAX_FILES, "{before:?} {peak:?}");
        drop(flood.stdin.take());
        assert!(flood.wait().unwrap().success());
        drop(honest);
        server.stopped().await;
    });
}
