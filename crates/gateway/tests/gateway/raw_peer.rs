//! Test helper: a peer that writes its frames by hand, over a real socket, and shows the frames that it
//! receives.

use std::net::SocketAddr;

use ephor_amqp::frame::{FrameHeader, Protocol};
use ephor_amqp::performative::{Attach, Begin, Flow, Open, Performative};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::server::within;

/// The channel of its session.
pub(crate) const CHANNEL: u16 = 1;

pub(crate) struct Raw {
    pub(crate) stream: TcpStream,
    received: Vec<u8>,
}

pub(crate) fn frame(kind: u8, channel: u16, body: &[u8]) -> Vec<u8> {
    let mut bytes = (body.len() as u32 + 8).to_be_bytes().to_vec();
    bytes.extend([2, kind]);
    bytes.extend(channel.to_be_bytes());
    bytes.extend(body);
    bytes
}

pub(crate) fn amqp(channel: u16, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    write(&mut body);
    frame(0, channel, &body)
}

pub(crate) fn open() -> Vec<u8> {
    amqp(0, |into| Open { container_id: "raw".into(), ..Open::default() }.write(into))
}

pub(crate) fn begin(channel: u16) -> Vec<u8> {
    let begin = Begin { next_outgoing_id: 0, incoming_window: 100, outgoing_window: 100, ..Begin::default() };
    amqp(channel, |into| begin.write(into))
}

pub(crate) fn attach(channel: u16, handle: u32, attach: Attach) -> Vec<u8> {
    amqp(channel, |into| Attach { handle, ..attach }.write(into))
}

/// A transfer with all fields.
pub(crate) fn transfer(channel: u16, handle: u8, id: u8, more: bool, payload: &[u8]) -> Vec<u8> {
    let more = if more { 0x41 } else { 0x42 };
    let fields = [0x52, handle, 0x52, id, 0xa0, 1, id, 0x43, 0x42, more, 0x40, 0x40, 0x40, 0x40, 0x42];
    let mut body = vec![0x00, 0x53, 0x14, 0xc0, fields.len() as u8 + 1, 11];
    body.extend(fields);
    body.extend(payload);
    frame(0, channel, &body)
}

impl Raw {
    /// Connected only.
    pub(crate) async fn connected(address: SocketAddr) -> Self {
        Self { stream: TcpStream::connect(address).await.unwrap(), received: Vec::new() }
    }

    /// Connected and open, without SASL, with a session on [`CHANNEL`].
    pub(crate) async fn opened(address: SocketAddr) -> Self {
        let mut raw = Self::connected(address).await;
        raw.write(&[&Protocol::Amqp.header()[..], &open(), &begin(CHANNEL)].concat()).await;
        raw.read_until("Begin").await;
        raw
    }

    /// Writes bytes. Errors are ignored, because the server may have closed already.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        let _ = within(self.stream.write_all(bytes)).await;
    }

    pub(crate) async fn attach(&mut self, handle: u32, asked: Attach) {
        self.write(&attach(CHANNEL, handle, asked)).await;
        self.read_until("Attach").await;
    }

    /// Sends the beginning of a delivery.
    pub(crate) async fn unfinished(&mut self, handle: u8, payload: &[u8]) {
        self.write(&transfer(CHANNEL, handle, handle, true, payload)).await;
    }

    /// A flow that asks for a flow in return.
    pub(crate) fn echo() -> Vec<u8> {
        let flow = Flow { next_incoming_id: Some(1), incoming_window: 100, echo: true, ..Flow::default() };
        amqp(CHANNEL, |into| flow.write(into))
    }

    /// The next frame of the server, in the form of `Debug`; `None` at the end.
    pub(crate) async fn read(&mut self) -> Option<String> {
        loop {
            if self.received.starts_with(b"AMQP") && self.received.len() >= 8 {
                return Some(format!("Header {:?}", self.received.drain(..8).collect::<Vec<_>>()));
            }
            if let Some(header) = FrameHeader::read(&self.received, 1 << 20).ok().flatten()
                && self.received.len() >= header.size
            {
                let frame: Vec<u8> = self.received.drain(..header.size).collect();
                match header.kind {
                    0 if header.size == header.body => continue,
                    0 => {
                        let said = Performative::read(&frame[header.body..]).expect("a performative").0;
                        return Some(format!("{said:?}"));
                    }
                    kind => return Some(format!("Frame of type {kind}")),
                }
            }
            if !within(self.stream.read_buf(&mut self.received)).await.is_ok_and(|count| count > 0) {
                return None;
            }
        }
    }

    /// Skips frames until one begins with `wanted`.
    pub(crate) async fn read_until(&mut self, wanted: &str) -> String {
        let mut before = Vec::new();
        while let Some(said) = self.read().await {
            if said.starts_with(wanted) {
                return said;
            }
            before.push(said);
        }
        panic!("no {wanted}, but the end, after {before:#?}");
    }
}
