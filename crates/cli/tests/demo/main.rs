//! `ephor demo`, as anybody would run it: started, troubled through its page, ended, and then counted again.
//!
//! | file | asks |
//! |---|---|
//! | `begins.rs` | how it starts, and what it refuses |
//! | `chaos.rs` | whether it is exact, whatever is done to it by chance |
//! | `planned.rs` | whether planned moves repeat nothing, and a kill no more than a checkpoint's worth |
//! | `ends.rs` | whether anything is left when it is gone |
//! | `secured.rs` | the same over TLS with a key, and with results in a storage account |
//!
//! `running.rs` is a demo that runs, `processes.rs` what the system says of its processes, `recount.rs` a count of our
//! own, `moves.rs` who took over from whom, and why.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a test that cannot go on shall fail right there; real processes take real time"
)]

mod begins;
mod chaos;
#[path = "../common/mod.rs"]
mod common;
mod ends;
mod moves;
mod planned;
mod processes;
mod recount;
mod running;
mod secured;
