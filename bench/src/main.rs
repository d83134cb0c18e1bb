//! The benchmark program `ephor-bench`. Most results are compared with a peer or a physical limit that is
//! measured in the same run, some with a fixed target.
//!
//! | command | measures |
//! |---|---|
//! | `ephor-bench host` | the cost of the host for each event (`host/`) |
//! | `ephor-bench hub` | the cost of the embedded hub (`hub/`) |
//! | `ephor-bench gateway` | the cost of AMQP, and of `ephor dev` (`gateway/`) |
//! | `ephor-bench stores` | planned moves on three stores, and a large fleet on PostgreSQL (`stores/`) |
//! | `ephor-bench homes` | the latency of the page of `ephor demo`, and its highest speed (`homes/`) |
//! | `ephor-bench` | the first two, the hub in small |

#![allow(clippy::print_stdout, reason = "a command that prints")]

mod counting_allocator;
mod figures;
mod gateway;
mod homes;
mod host;
mod hub;
mod machine;
mod options;
mod stores;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &words[..] {
        [] => {
            // The hub comes first, because it measures memory that nothing else has used yet.
            let outcome = hub::command(&[]);
            println!();
            host::command(&[]);
            outcome
        }
        ["host", rest @ ..] if host::command(rest) => ExitCode::SUCCESS,
        ["hub", rest @ ..] => hub::command(rest),
        ["gateway", rest @ ..] => gateway::command(rest),
        ["stores", rest @ ..] => stores::command(rest),
        ["homes", rest @ ..] => homes::command(rest),
        _ => {
            let others = [hub::USAGE, gateway::USAGE, stores::USAGE, homes::USAGE].join(" | ");
            println!("usage: ephor-bench [host | {others}]");
            ExitCode::from(2)
        }
    }
}
