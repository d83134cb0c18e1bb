//! Test helper: a peer that encodes its frames by hand, and decodes the frames of the connection under
//! test.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Event, ServerSasl};
use ephor_amqp::frame::{FrameHeader, Protocol};
use ephor_amqp::performative::{Attach, Begin, End, Flow, Open, Performative};

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

pub(crate) fn header(protocol: Protocol) -> Vec<u8> {
    protocol.header().to_vec()
}

pub(crate) fn open() -> Vec<u8> {
    amqp(0, |into| Open { container_id: "raw".into(), ..Open::default() }.write(into))
}

pub(crate) fn begin(channel: u16) -> Vec<u8> {
    let begin = Begin { next_outgoing_id: 0, incoming_window: 100, outgoing_window: 100, ..Begin::default() };
    amqp(channel, |into| begin.write(into))
}

pub(crate) fn end(channel: u16) -> Vec<u8> {
    amqp(channel, |into| End { error: None }.write(into))
}

pub(crate) fn attach(channel: u16, handle: u32, attach: Attach) -> Vec<u8> {
    amqp(channel, |into| Attach { handle, ..attach }.write(into))
}

pub(crate) fn link_flow(channel: u16, handle: u32, credit: u32) -> Vec<u8> {
    let flow = Flow {
        next_incoming_id: Some(1),
        incoming_window: 100,
        handle: Some(handle),
        delivery_count: Some(0),
        link_credit: Some(credit),
        ..Flow::default()
    };
    amqp(channel, |into| flow.write(into))
}

/// A flow that asks for a flow in return.
pub(crate) fn echo(channel: u16) -> Vec<u8> {
    let flow = Flow { next_incoming_id: Some(1), incoming_window: 100, echo: true, ..Flow::default() };
    amqp(channel, |into| flow.write(into))
}

/// A transfer as Azure's Python SDK writes it: number, tag and format in every frame.
pub(crate) fn transfer(channel: u16, handle: u8, id: u8, more: bool, payload: &[u8]) -> Vec<u8> {
    let more = if more { 0x41 } else { 0x42 };
    let fields = [0x52, handle, 0x52, id, 0xa0, 1, id, 0x43, 0x42, more, 0x40, 0x40, 0x40, 0x40, 0x42];
    let mut body = vec![0x00, 0x53, 0x14, 0xc0, fields.len() as u8 + 1, 11];
    body.extend(fields);
    body.extend(payload);
    frame(0, channel, &body)
}

/// A server that has received these bytes, and its events.
pub(crate) fn server(config: Config, bytes: &[&[u8]]) -> (Connection, Vec<Event>) {
    let mut server = Connection::server(config, ServerSasl::default(), Duration::ZERO);
    let events = feed(&mut server, bytes);
    (server, events)
}

/// A server with an open connection and a session on channel 1.
pub(crate) fn begun(config: Config) -> Connection {
    server(config, &[&header(Protocol::Amqp), &open(), &begin(1)]).0
}

/// A client that has received these bytes, and its events.
pub(crate) fn client(config: Config, bytes: &[&[u8]]) -> (Connection, Vec<Event>) {
    let mut client = Connection::client(config, ClientSasl::Skip, Duration::ZERO);
    let events = feed(&mut client, bytes);
    (client, events)
}

pub(crate) fn feed(connection: &mut Connection, bytes: &[&[u8]]) -> Vec<Event> {
    connection.input().extend_from_slice(&bytes.concat());
    std::iter::from_fn(|| connection.next_event()).collect()
}

/// Takes the output and splits it into frames: channel and body.
pub(crate) fn frames(connection: &mut Connection) -> Vec<(u16, Vec<u8>)> {
    let output = connection.output().to_vec();
    connection.wrote(output.len());
    let mut rest = &output[..];
    while rest.starts_with(b"AMQP") {
        rest = &rest[8..];
    }
    let mut frames = Vec::new();
    while let Some(header) = FrameHeader::read(rest, u32::MAX).expect("well-formed frames") {
        frames.push((header.channel, rest[header.body..header.size].to_vec()));
        rest = &rest[header.size..];
    }
    assert!(rest.is_empty(), "whole frames");
    frames
}

/// The performative of a body, in the form of `Debug`.
pub(crate) fn describe(body: &[u8]) -> String {
    format!("{:?}", Performative::read(body).expect("a performative").0)
}

/// The performatives of all output, in the form of `Debug`.
pub(crate) fn all_sent(connection: &mut Connection) -> Vec<String> {
    frames(connection).iter().filter(|(_, body)| !body.is_empty()).map(|(_, body)| describe(body)).collect()
}
