//! The script of a scripted hub: its reactions to the client, and a record of the connections, tokens,
//! messages and credit that it has seen.

use std::time::Duration;

use ephor_amqp::performative::{Attach, Error, Outcome};
use ephor_wire::cbs::TokenKind;
use ephor_wire::condition::Refusal;
use ephor_wire::selector::Start;

/// The hub's actions on a receiver link, in order.
#[derive(Clone)]
pub(crate) enum Act {
    /// Sends an event with this number, when there is credit.
    Send(u64),
    /// Sends an event with this number and this many bytes.
    SendLarge(u64, usize),
    /// Sends something that is not an event.
    SendJunk,
    /// Detaches the link.
    Detach(Option<Error>),
    /// Closes the connection.
    Close,
}

/// The hub's answer to an attach.
pub(crate) enum Answer {
    Accept(Vec<Act>),
    Refuse(Error),
    Silence,
}

/// The hub's answer to a message.
pub(crate) enum Fate {
    Settle(Outcome),
    /// The same, after this time. Earlier answers are sent by then.
    SettleLate(Duration, Outcome),
    /// The same, when this many further messages have come.
    SettleAfter(usize, Outcome),
    /// Stores it, and cuts the connection before the answer.
    StoreAndCut,
    /// Closes the connection with this error, and stores nothing.
    Close(Error),
    Silence,
}

/// Decides the answer to the attach with this number.
type OnReceiver = Box<dyn FnMut(usize, &Attach) -> Answer + Send>;

/// The script of a hub; numbers count from 0.
pub(crate) struct Script {
    pub(crate) receiver: OnReceiver,
    pub(crate) message: Box<dyn FnMut(usize) -> Fate + Send>,
    /// Decides the answer to the token with this number; `None` is no answer.
    pub(crate) token: Box<dyn FnMut(usize) -> Option<Result<(), Refusal>> + Send>,
}

impl Default for Script {
    fn default() -> Self {
        Self {
            receiver: Box::new(|_, _| Answer::Accept(vec![])),
            message: Box::new(|_| Fate::Settle(Outcome::Accepted)),
            token: Box::new(|_| Some(Ok(()))),
        }
    }
}

/// A token that the hub received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Put {
    pub(crate) audience: String,
    pub(crate) kind: TokenKind,
    pub(crate) text: String,
}

/// Everything that the hub observed.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) connections: usize,
    /// The start positions of receivers.
    pub(crate) starts: Vec<Start>,
    /// The epochs of receivers.
    pub(crate) epochs: Vec<Option<i64>>,
    /// The tokens that were put, without those for `$management`, which are accepted.
    pub(crate) tokens: Vec<Put>,
    /// The bodies of all messages that were not refused, in order of arrival.
    pub(crate) stored: Vec<String>,
    /// The number of messages that arrived.
    pub(crate) messages: usize,
    /// The number of events that were sent.
    pub(crate) sent: usize,
    /// The first credit of each receiver link.
    pub(crate) credits: Vec<u32>,
    pub(crate) detached: usize,
}
