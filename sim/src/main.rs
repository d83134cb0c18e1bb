//! `ephor-sim`: simulates a fleet for each seed, and checks the guarantees of the host. `ephor-sim --help`
//! lists the options.

#![allow(clippy::print_stdout, reason = "a command that prints")]

mod command;

use std::process::ExitCode;

fn main() -> ExitCode {
    command::run(std::env::args().skip(1))
}
