//! Decodes frames: splits the bytes of one direction, and reads the performative and payload of each frame.

use ephor_amqp::frame::FrameHeader;
use ephor_amqp::performative::{Attach, Begin, Detach, Disposition, Error, Flow, Performative};

/// One frame on a channel.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    pub(crate) channel: u16,
    /// The bytes of the whole frame.
    pub(crate) size: usize,
    pub(crate) body: Body,
}

/// The performative of a frame, with the payload of a transfer.
#[derive(Clone, Debug)]
pub(crate) enum Body {
    Heartbeat,
    Begin(Box<Begin>),
    Attach(Box<Attach>),
    Flow(Flow),
    Transfer(Part),
    Disposition(Disposition),
    Detach(Detach),
    End(Option<Error>),
    Close(Option<Error>),
}

/// One transfer: a delivery, or a part of it.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) handle: u32,
    pub(crate) delivery_id: Option<u32>,
    pub(crate) format: Option<u32>,
    pub(crate) settled: bool,
    pub(crate) more: bool,
    pub(crate) aborted: bool,
    pub(crate) payload: Vec<u8>,
}

/// The kinds of frames that coverage tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Begin,
    Attach,
    SessionFlow,
    LinkFlow,
    Transfer,
    Part,
    Aborted,
    Disposition,
    Detach,
    End,
    Close,
    Heartbeat,
}

impl Body {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Heartbeat => Kind::Heartbeat,
            Self::Begin(_) => Kind::Begin,
            Self::Attach(_) => Kind::Attach,
            Self::Flow(flow) if flow.handle.is_some() => Kind::LinkFlow,
            Self::Flow(_) => Kind::SessionFlow,
            Self::Transfer(part) if part.aborted => Kind::Aborted,
            Self::Transfer(part) if part.more => Kind::Part,
            Self::Transfer(_) => Kind::Transfer,
            Self::Disposition(_) => Kind::Disposition,
            Self::Detach(_) => Kind::Detach,
            Self::End(_) => Kind::End,
            Self::Close(_) => Kind::Close,
        }
    }
}

/// Decodes all frames of these bytes, which are whole frames.
pub(crate) fn read_all(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let header =
            FrameHeader::read(bytes, u32::MAX).expect("a valid frame header").expect("a whole header");
        assert!(bytes.len() >= header.size, "a frame is not complete");
        let body = &bytes[header.body..header.size];
        frames.push(Frame { channel: header.channel, size: header.size, body: read(body) });
        bytes = &bytes[header.size..];
    }
    frames
}

fn read(body: &[u8]) -> Body {
    if body.is_empty() {
        return Body::Heartbeat;
    }
    let (performative, end) = Performative::read(body).expect("a performative");
    assert!(
        end == body.len() || matches!(performative, Performative::Transfer(_)),
        "a payload after {}",
        performative.name()
    );
    match performative {
        Performative::Open(_) => panic!("a second open"),
        Performative::Begin(begin) => Body::Begin(begin),
        Performative::Attach(attach) => Body::Attach(attach),
        Performative::Flow(flow) => Body::Flow(flow),
        Performative::Transfer(transfer) => Body::Transfer(Part {
            handle: transfer.handle,
            delivery_id: transfer.delivery_id,
            format: transfer.message_format,
            settled: transfer.settled == Some(true),
            more: transfer.more,
            aborted: transfer.aborted,
            payload: body[end..].to_vec(),
        }),
        Performative::Disposition(disposition) => Body::Disposition(disposition),
        Performative::Detach(detach) => Body::Detach(detach),
        Performative::End(end) => Body::End(end.error),
        Performative::Close(close) => Body::Close(close.error),
    }
}
