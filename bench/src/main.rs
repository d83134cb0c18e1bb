//! Benchmarks, each beside a peer or a physical limit that is measured in the same run.
//!
//! | command | asks |
//! |---|---|
//! | `ephor-bench host` | what the host costs for each event (`host/`) |
//! | `ephor-bench hub` | what the embedded hub costs (`hub/`) |
//! | `ephor-bench gateway` | what AMQP costs, and `ephor dev` (`gateway/`) |
//! | `ephor-bench stores` | how long a planned move takes on each store (`stores/`) |
//! | `ephor-bench homes` | how fresh the page of `ephor demo` is, and how much faster it may go (`homes/`) |
//! | `ephor-bench` | the first two |

#![allow(clippy::print_stdout, reason = "a command that prints")]

mod counting;
mod gateway;
mod homes;
mod host;
mod hub;
mod machine;
mod options;
mod report;
mod stores;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match &words[..] {
        [] => {
            // First the hub, which weighs memory that nothing has used yet.
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
