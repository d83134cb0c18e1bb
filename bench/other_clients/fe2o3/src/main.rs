//! A sender and a receiver built on the library fe2o3-amqp, to compare with. `serve EVENTS` sends messages
//! of 1 KiB, pre-settled, to each client that attaches a receiver, once for each connection. `receive PORT
//! EVENTS` receives them.
//!
//! The server prints its port. The client prints `EVENTS SECONDS`, counted from the first message on.

use std::error::Error;
use std::time::Instant;

use fe2o3_amqp::acceptor::{ConnectionAcceptor, LinkAcceptor, LinkEndpoint, SessionAcceptor};
use fe2o3_amqp::link::delivery::Sendable;
use fe2o3_amqp::link::receiver::CreditMode;
use fe2o3_amqp::types::messaging::{Body, Data, Message};
use fe2o3_amqp::types::primitives::{Binary, Value};
use fe2o3_amqp::{Connection, Receiver, Session};
use tokio::net::{TcpListener, TcpStream};

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// The size of every message's body.
const BODY: usize = 1 << 10;
/// The credit that the client grants: the same as our client's.
const CREDIT: u32 = 3_000;

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", events] => serve(events.parse()?).await,
        ["receive", port, events] => receive(port.parse()?, events.parse()?).await,
        _ => Err("usage: fe2o3-peer serve EVENTS | receive PORT EVENTS".into()),
    }
}

async fn serve(events: u64) -> Outcome {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?.port());
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            if let Err(error) = send(stream, events).await {
                eprintln!("fe2o3-peer: {error}");
            }
        });
    }
}

async fn send(stream: TcpStream, events: u64) -> Outcome {
    let acceptor = ConnectionAcceptor::builder().container_id("server").max_frame_size(64 * 1024).build();
    let mut connection = acceptor.accept(stream).await?;
    let mut session = SessionAcceptor::default().accept(&mut connection).await?;
    let LinkEndpoint::Sender(mut sender) = LinkAcceptor::new().accept(&mut session).await? else {
        return Err("the peer wants to send".into());
    };
    let body = vec![7; BODY];
    for _ in 0..events {
        let message = Message::builder().data(Data(Binary::from(body.clone()))).build();
        sender.send(Sendable::builder().message(message).settled(true).build()).await?;
    }
    sender.on_detach().await;
    Ok(())
}

async fn receive(port: u16, events: u64) -> Outcome {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let mut connection = Connection::builder()
        .container_id("client")
        .max_frame_size(64 * 1024)
        .open_with_stream(stream)
        .await?;
    let mut session = Session::begin(&mut connection).await?;
    let mut receiver = Receiver::builder()
        .name("receiver")
        .source("events")
        // Automatic credit would count only deliveries that it settles, and these come pre-settled.
        .credit_mode(CreditMode::Manual)
        .attach(&mut session)
        .await?;
    let mut begun = None;
    for seen in 0..events {
        if seen % u64::from(CREDIT / 2) == 0 {
            receiver.set_credit(CREDIT).await?;
        }
        let delivery = receiver.recv::<Body<Value>>().await?;
        begun.get_or_insert_with(Instant::now);
        assert_eq!(length(delivery.body()), BODY, "the body is not the one that was sent");
    }
    println!("{events} {}", begun.ok_or("no events")?.elapsed().as_secs_f64());
    Ok(())
}

fn length(body: &Body<Value>) -> usize {
    match body {
        Body::Data(parts) => parts.iter().map(|part| part.0.len()).sum(),
        _ => 0,
    }
}
