//! Seeds for the fuzz corpus: actions of idempotent producers, a byte each, as `ephor_fuzz::producers`
//! reads them.

use crate::Seeds;

const SEND: u8 = 0;
const LOSE: u8 = 3;
const STALL: u8 = 4;
const ANSWER: u8 = 5;
const FAIL: u8 = 6;
const HEAR: u8 = 7;

/// Sends a batch again: 1 is the last one, 2 the one before it.
const fn again(back: u8) -> u8 {
    2 | (back - 1) << 3
}

/// Sends `count` + 1 events.
const fn more(count: u8) -> u8 {
    SEND | count << 3
}

pub(crate) fn lives() -> Seeds {
    [
        ("in-order", vec![SEND, more(2), SEND, HEAR, SEND]),
        ("again-on-one-connection", vec![SEND, SEND, again(1), again(2), HEAR, again(2), SEND]),
        (
            "lost-while-the-disk-is-slow",
            vec![STALL, SEND, LOSE, again(1), LOSE, again(1), ANSWER, HEAR, SEND],
        ),
        (
            "lost-while-there-is-no-room",
            [vec![STALL], vec![more(2); 8], vec![LOSE, again(3), SEND, HEAR]].concat(),
        ),
        (
            "failed-after-it-was-lost",
            vec![STALL, SEND, SEND, FAIL, LOSE, ANSWER, again(2), again(1), HEAR, SEND],
        ),
        (
            "failed-while-it-is-repeated",
            vec![STALL, SEND, SEND, FAIL, again(2), again(1), HEAR, SEND, SEND, HEAR],
        ),
        ("numbers-left-out", vec![SEND, 0xfb, SEND, HEAR, again(1), SEND]),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}
