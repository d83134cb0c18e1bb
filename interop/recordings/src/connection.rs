//! One connection to the gateway: writes the given frames, and keeps every answer until it is requested.

use std::collections::BTreeMap;

use ephor_amqp::frame::{FrameHeader, Protocol};
use ephor_amqp::{Reader, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::{Instant, timeout_at};

use crate::fields::{self, Fields};
use crate::message::{self, Marks};
use crate::schema::{self, Performative};

/// The largest frame that is read.
const MAX_FRAME: u32 = 1 << 20;
/// The bytes that are read at once.
const READ_BYTES: usize = 64 << 10;

/// An answer of the gateway: a frame, a whole delivery, or the settlement of one delivery.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    /// Its performative.
    pub(crate) performative: &'static Performative,
    /// The name of its link; empty if it belongs to none.
    pub(crate) link: String,
    /// Its fields, with those of its message.
    pub(crate) fields: Fields,
    /// The positions and times in its message.
    pub(crate) marks: Marks,
    /// The number of the delivery, and whether the client receives it.
    pub(crate) delivery: Option<(u32, bool)>,
    /// The time at which it was read.
    pub(crate) at: Instant,
}

/// A connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: DuplexStream,
    unread: Vec<u8>,
    expects_header: bool,
    /// Answers that nobody has asked for yet, in their order.
    pub(crate) inbox: Vec<Answer>,
    /// The gateway has ended the connection.
    pub(crate) ended: bool,
    /// Names of links by the gateway's handles.
    links: BTreeMap<u32, String>,
    /// Deliveries of which a part is missing, by handle: the first list of fields, and the payload.
    incomplete: BTreeMap<u32, (Vec<u8>, Vec<u8>)>,
    /// The id of the next transfer of the gateway.
    pub(crate) next_incoming: u32,
    /// Deliveries that have come, by the name of the link.
    pub(crate) received: BTreeMap<String, u32>,
}

impl Connection {
    /// A connection on this stream, which has sent nothing yet.
    pub(crate) fn new(stream: DuplexStream) -> Self {
        Self {
            stream,
            unread: Vec::new(),
            expects_header: true,
            inbox: Vec::new(),
            ended: false,
            links: BTreeMap::new(),
            incomplete: BTreeMap::new(),
            next_incoming: 0,
            received: BTreeMap::new(),
        }
    }

    /// Writes bytes. A connection that the gateway has ended takes nothing more, which its reader notices.
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        if self.stream.write_all(bytes).await.is_err() {
            self.ended = true;
        }
    }

    /// Takes in what has come already.
    pub(crate) async fn drain(&mut self) {
        while self.read_until(Instant::now()).await {}
    }

    /// Waits for the first answer that fits, and takes it out of the inbox. `None` if none has come at this time, or
    /// the connection has ended.
    pub(crate) async fn wait(&mut self, until: Instant, fits: impl Fn(&Answer) -> bool) -> Option<Answer> {
        loop {
            if let Some(index) = self.inbox.iter().position(&fits) {
                return Some(self.inbox.remove(index));
            }
            if !self.read_until(until).await {
                return None;
            }
        }
    }

    /// Reads some bytes; false if none came in time, or none will come.
    async fn read_until(&mut self, until: Instant) -> bool {
        if self.ended {
            return false;
        }
        self.unread.reserve(READ_BYTES);
        match timeout_at(until, self.stream.read_buf(&mut self.unread)).await {
            Err(_) => return false,
            Ok(Err(_) | Ok(0)) => self.ended = true,
            Ok(Ok(_)) => self.ended = self.parse().is_none(),
        }
        !self.ended
    }

    /// Takes whole frames out of what was read; `None` if the bytes are no AMQP.
    fn parse(&mut self) -> Option<()> {
        loop {
            if self.expects_header {
                let Some(header) = self.unread.first_chunk::<8>() else { return Some(()) };
                Protocol::of(*header)?;
                self.unread.drain(..8);
                self.expects_header = false;
            }
            let Some(header) = FrameHeader::read(&self.unread, MAX_FRAME).ok()? else { return Some(()) };
            if self.unread.len() < header.size {
                return Some(());
            }
            let frame: Vec<u8> = self.unread.drain(..header.size).collect();
            if header.body < frame.len() {
                self.take(&frame[header.body..])?;
            }
        }
    }

    fn take(&mut self, body: &[u8]) -> Option<()> {
        let mut reader = Reader::new(body);
        let whole = reader.skip().ok()?;
        let (performative, list) = match Value::Encoded(&body[whole.clone()]).described()? {
            (Value::Ulong(code), Value::Encoded(list)) => (schema::described(code)?, list),
            _ => return None,
        };
        let mut fields = Reader::new(list).list().ok()?;
        let mut field = || fields.next().ok().flatten().unwrap_or(Value::Null);
        let mut answer = Answer {
            performative,
            link: String::new(),
            fields: Fields::new(),
            marks: Marks::default(),
            delivery: None,
            at: Instant::now(),
        };
        match performative.name {
            "sasl-outcome" => self.expects_header = true,
            "begin" => {
                field();
                self.next_incoming = uint(field())?;
            }
            "attach" => {
                field().text()?.clone_into(&mut answer.link);
                self.links.insert(uint(field())?, answer.link.clone());
            }
            "flow" => {
                for _ in 0..4 {
                    field();
                }
                answer.link =
                    uint(field()).and_then(|handle| self.links.get(&handle).cloned()).unwrap_or_default();
            }
            "detach" => answer.link = self.links.remove(&uint(field())?).unwrap_or_default(),
            "transfer" => return self.take_transfer(answer, list, &body[whole.end..]),
            "disposition" => {
                let client_sent = field() == Value::Bool(true);
                let first = uint(field())?;
                let last = uint(field()).unwrap_or(first);
                answer.fields = fields::of_wire(performative, list).ok()?;
                for id in first..=last {
                    self.inbox.push(Answer { delivery: Some((id, !client_sent)), ..answer.clone() });
                }
                return Some(());
            }
            _ => {}
        }
        answer.fields = fields::of_wire(performative, list).ok()?;
        self.inbox.push(answer);
        Some(())
    }

    fn take_transfer(&mut self, mut answer: Answer, list: &[u8], payload: &[u8]) -> Option<()> {
        self.next_incoming = self.next_incoming.wrapping_add(1);
        let mut fields = Reader::new(list).list().ok()?;
        let mut values = Vec::new();
        while let Some(value) = fields.next().ok()? {
            values.push(value);
        }
        let handle = uint(*values.first()?)?;
        let more = values.get(5) == Some(&Value::Bool(true));
        let entry = self.incomplete.entry(handle).or_insert_with(|| (list.to_vec(), Vec::new()));
        entry.1.extend_from_slice(payload);
        if more {
            return Some(());
        }
        let (list, message) = self.incomplete.remove(&handle)?;
        answer.link = self.links.get(&handle).cloned().unwrap_or_default();
        *self.received.entry(answer.link.clone()).or_default() += 1;
        let mut fields = Reader::new(&list).list().ok()?;
        fields.next().ok()?;
        answer.delivery = fields.next().ok()?.and_then(uint).map(|id| (id, true));
        answer.fields = fields::of_wire(answer.performative, &list).ok()?;
        let (content, marks) = message::flatten(&message).ok()?;
        answer.fields.extend(content);
        answer.marks = marks;
        self.inbox.push(answer);
        Some(())
    }
}

fn uint(value: Value<'_>) -> Option<u32> {
    value.integer().and_then(|number| u32::try_from(number).ok())
}
