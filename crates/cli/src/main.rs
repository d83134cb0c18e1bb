//! The `ephor` command. Data goes to stdout, everything else to stderr.
#![allow(clippy::print_stdout, reason = "a command prints")]

mod arguments;
mod connection;
mod dev;
mod send;
mod tail;
mod tools;
mod verify;

use std::process::ExitCode;

use clap::Parser;
use ephor_core::BoxError;

use crate::arguments::{Arguments, Command};

#[tokio::main]
async fn main() -> ExitCode {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "warn".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(Arguments::parse().command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ephor: {error}{}", advice(&error.to_string()));
            ExitCode::FAILURE
        }
    }
}

/// What to do about an error that a newcomer meets first.
fn advice(error: &str) -> &'static str {
    match error.contains("cannot connect to") {
        true => "; is ephor dev running there? EPHOR_CONNECTION or --connection say where else to look",
        false => "",
    }
}

async fn run(command: Command) -> Result<ExitCode, BoxError> {
    match command {
        Command::Dev(options) => dev::run(options).await?,
        Command::Send(options) => send::run(options).await?,
        Command::Tail(options) => tail::run(options).await?,
        Command::Verify(options) => return verify::run(&options),
        Command::Group(command) => tools::group(command).await?,
        Command::Host(command) => tools::host(command).await?,
        Command::Checkpoint(command) => tools::checkpoint(command).await?,
        Command::Lease(command) => tools::lease(command).await?,
    }
    Ok(ExitCode::SUCCESS)
}
