//! Tests the driver of a connection on a transport that splits and delays bytes, and breaks.
#![allow(clippy::disallowed_methods, reason = "time is the runtime's, which is virtual here")]

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Closed, Config, Event, Sent, ServerSasl};
use ephor_amqp::driver::Driver;
use ephor_amqp::frame::HEARTBEAT;
use ephor_amqp::performative::{Attach, Outcome};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream, ReadBuf};
use tokio::time::Instant;

use crate::client_and_server::config;

fn server(stream: DuplexStream, config: Config) -> Driver<DuplexStream> {
    Driver::new(stream, Connection::server(config, ServerSasl::default(), Duration::ZERO))
}

fn client(stream: DuplexStream) -> Driver<DuplexStream> {
    Driver::new(stream, Connection::client(config("c"), ClientSasl::Anonymous, Duration::ZERO))
}

/// Receives everything, and returns the number of messages.
async fn take_all(mut driver: Driver<DuplexStream>) -> usize {
    let mut count = 0;
    while let Some(event) = driver.next().await {
        let connection = driver.connection();
        match event {
            Event::AttachRequested { link, attach, .. } => {
                connection.accept(link, attach.answer());
                connection.grant(link, 50);
            }
            Event::Delivery(delivery) => {
                connection.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
                count += 1;
                if connection.credit(delivery.link) < 25 {
                    connection.grant(delivery.link, 50);
                }
            }
            _ => {}
        }
    }
    count
}

/// Sends this many messages, and closes when all are settled.
async fn send_all(mut driver: Driver<DuplexStream>, messages: u32) {
    let mut settled = 0;
    let mut sender = None;
    let mut sent = 0;
    while let Some(event) = driver.next().await {
        let connection = driver.connection();
        match event {
            Event::Opened(_) => {
                let session = connection.begin().expect("a session");
                sender = connection.attach(session, Attach::sender("l", "there"));
            }
            Event::Settled { first, last, .. } => settled += last - first + 1,
            _ => {}
        }
        let message = vec![1; 3_000];
        while let Some(link) = sender.filter(|_| sent < messages) {
            let Sent::Sent(_) = connection.send(link, 0, false, &[&message]) else { break };
            sent += 1;
        }
        if settled == messages {
            connection.close(None);
        }
    }
    assert_eq!(settled, messages);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_messages_go_through_a_narrow_pipe() {
    for width in [1, 100, 10_000, 1_000_000] {
        let messages = if width == 1 { 20 } else { 1_000 };
        let (ours, theirs) = tokio::io::duplex(width);
        let ((), count) =
            tokio::join!(send_all(client(ours), messages), take_all(server(theirs, config("s"))));
        assert_eq!(count, messages as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn asking_for_an_event_may_be_given_up_at_any_time() {
    let (ours, theirs) = tokio::io::duplex(50);
    let mut driver = server(theirs, config("s"));
    let serve = async {
        let mut count = 0;
        loop {
            let event = tokio::select! {
                biased;
                () = tokio::task::yield_now() => continue,
                event = driver.next() => event,
            };
            let Some(event) = event else { return count };
            match event {
                Event::AttachRequested { link, attach, .. } => {
                    driver.connection().accept(link, attach.answer());
                    driver.connection().grant(link, 1_000);
                }
                Event::Delivery(delivery) => {
                    driver.connection().settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
                    count += 1;
                }
                _ => {}
            }
        }
    };
    let ((), count) = tokio::join!(send_all(client(ours), 100), serve);
    assert_eq!(count, 100);
}

#[tokio::test(start_paused = true)]
async fn idle_peers_keep_each_other_alive_for_days() {
    let (ours, theirs) = tokio::io::duplex(1_000);
    let (mut ours, mut theirs) = (client(ours), server(theirs, config("s")));
    let days = Duration::from_secs(3 * 86_400);
    let live = async {
        assert!(matches!(ours.next().await, Some(Event::Opened(_))));
        let deadline = tokio::time::sleep_until(tokio::time::Instant::now() + days);
        tokio::select! {
            event = ours.next() => panic!("{event:?}"),
            () = deadline => {}
        }
        ours.finish().await;
    };
    let serve = async {
        let mut events = Vec::new();
        while let Some(event) = theirs.next().await {
            events.push(event);
        }
        events
    };
    let ((), events) = tokio::join!(live, serve);
    assert!(matches!(events[..], [Event::Opened(_), Event::Closed(Closed::ByPeer(None))]), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_falls_silent_is_noticed() {
    let (mut ours, theirs) = tokio::io::duplex(100_000);
    let mut driver = server(theirs, Config { idle_time_out: Some(Duration::from_secs(10)), ..config("s") });
    ours.write_all(&[&b"AMQP\x00\x01\x00\x00"[..], &crate::raw_peer::open()].concat()).await.unwrap();
    assert!(matches!(driver.next().await, Some(Event::Opened(_))));
    let start = tokio::time::Instant::now();
    assert!(matches!(driver.next().await, Some(Event::Closed(Closed::Failed(_)))));
    assert_eq!(start.elapsed().as_secs(), 20);
    assert!(driver.next().await.is_none());
    let mut rest = Vec::new();
    drop(driver);
    ours.read_to_end(&mut rest).await.unwrap();
    assert!(String::from_utf8_lossy(&rest).contains("inactive"), "it was told why");
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_ends_is_an_event() {
    let (ours, theirs) = tokio::io::duplex(1_000);
    let mut driver = server(theirs, config("s"));
    drop(ours);
    assert!(matches!(driver.next().await, Some(Event::Closed(Closed::Lost(_)))));
    assert!(driver.next().await.is_none());
    assert!(driver.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_never_reads_is_given_up_and_costs_little() {
    let (ours, theirs) = tokio::io::duplex(1_000);
    let mut driver = server(theirs, config("s"));
    let asked = [
        b"AMQP\x00\x01\x00\x00".to_vec(),
        crate::raw_peer::open(),
        crate::raw_peer::begin(0),
        crate::raw_peer::attach(0, 0, Attach::receiver("l", "x")),
        crate::raw_peer::link_flow(0, 0, u32::MAX),
    ];
    let (_reader, mut writer) = tokio::io::split(ours);
    writer.write_all(&asked.concat()).await.unwrap();
    let mut largest = 0;
    let mut link = None;
    let start = tokio::time::Instant::now();
    while let Some(event) = driver.next().await {
        let connection = driver.connection();
        if let Event::AttachRequested { link: wanted, attach, .. } = event {
            connection.accept(wanted, attach.answer());
            link = Some(wanted);
        }
        while let Some(link) = link
            && let Sent::Sent(_) = connection.send(link, 0, true, &[&[0; 1_000]])
        {}
        largest = largest.max(connection.output_length());
    }
    assert!(largest < 300_000, "{largest}");
    assert!(start.elapsed() >= Duration::from_secs(60) && start.elapsed() < Duration::from_secs(70));
}

/// A transport that takes every byte and then does not flush it: the end is noticed at a flush, or never.
struct Stuck {
    /// The number of flushes that are pending before one fails.
    flushes: usize,
}

impl AsyncRead for Stuck {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Stuck {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(left) = self.flushes.checked_sub(1) else {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        };
        self.flushes = left;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_flush_that_fails_is_found_at_once() {
    for flushes in 0..4 {
        let connection = Connection::client(config("c"), ClientSasl::Anonymous, Duration::ZERO);
        let mut driver = Driver::new(Stuck { flushes }, connection);
        let began = Instant::now();
        let event = driver.next().await;
        assert!(matches!(event, Some(Event::Closed(Closed::Lost(_)))), "{event:?}");
        assert_eq!(began.elapsed(), Duration::ZERO, "after {flushes} flushes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_transport_that_cannot_be_shut_down_is_left_in_time() {
    let connection = Connection::client(config("c"), ClientSasl::Anonymous, Duration::ZERO);
    let mut driver = Driver::new(Stuck { flushes: usize::MAX }, connection);
    let finish = tokio::time::timeout(Duration::from_secs(3_600), driver.finish());
    let began = Instant::now();
    assert!(finish.await.is_ok(), "it is still waited for after an hour");
    assert!(began.elapsed() <= Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_blocks_for_minutes_costs_no_living_peer_its_connection() {
    let (mut ours, theirs) = tokio::io::duplex(100_000);
    let mut driver = server(theirs, config("s"));
    ours.write_all(&[&b"AMQP\x00\x01\x00\x00"[..], &crate::raw_peer::open()].concat()).await.unwrap();
    assert!(matches!(driver.next().await, Some(Event::Opened(_))));
    assert!(tokio::time::timeout(Duration::from_secs(1), driver.next()).await.is_err());
    for _ in 0..3 {
        // Meanwhile the peer goes on, and the driver is not polled.
        ours.write_all(&HEARTBEAT).await.unwrap();
        tokio::time::advance(Duration::from_secs(600)).await;
        let event = tokio::time::timeout(Duration::from_secs(1), driver.next()).await;
        assert!(event.is_err(), "{event:?}");
    }
}
