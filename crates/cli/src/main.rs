//! The `ephor` command: parses the arguments, sets up the log, runs one command, and reports its error with
//! advice. Data goes to stdout, everything else to stderr.
#![allow(clippy::print_stdout, reason = "a command prints")]

mod arguments;
mod demo;
mod dev;
mod open_client;
mod os;
mod secret_arguments;
mod secret_file;
mod send;
mod store_commands;
mod table;
mod tail;
mod verify;

use std::error::Error;
use std::io::Write;
use std::iter;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use ephor::StartError;
use ephor::admin::AdminError;
use ephor_core::BoxError;
use ephor_core::source::{OpenError, ReceiveError, SourceError};
use ephor_eventhubs::{DialError, DialErrorCause};
use tracing_subscriber::EnvFilter;

use crate::arguments::{Arguments, Command};

/// The default log filter: warnings, and rejected clients with the reason.
const LOGGED: &str = "warn,ephor_gateway=info";

/// The default for commands that report the state of their connection themselves.
const LOGGED_BESIDE: &str = "warn,ephor_eventhubs=error";

// Debug builds of the whole workspace share their features with the simulation, which can switch rules off.
#[cfg(not(debug_assertions))]
const _: () = assert!(
    ephor_core::rules::ALWAYS_KEPT,
    "a release must not have the feature `mutations`: build it alone, with cargo build --release -p ephor-cli"
);

#[tokio::main]
async fn main() -> ExitCode {
    let command = match parsed() {
        Ok(command) => command,
        Err(error) => error.exit(),
    };
    let logged = match command {
        Command::Send(_) | Command::Tail(_) => LOGGED_BESIDE,
        Command::Dev(_)
        | Command::Demo(_)
        | Command::DemoHost(_)
        | Command::Verify(_)
        | Command::Group(_)
        | Command::Host(_)
        | Command::Checkpoint(_)
        | Command::Lease(_) => LOGGED,
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| logged.into());
    // A log line that cannot be written, because the disk is full, is dropped. Reporting that on stderr would
    // end the program.
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        .init();
    let place = match command {
        Command::Demo(_) => {
            "; set --hub or EPHOR_DEMO_HUB to the connection string of another hub, or leave both out to let \
             the demo start one"
        }
        Command::Dev(_)
        | Command::DemoHost(_)
        | Command::Send(_)
        | Command::Tail(_)
        | Command::Verify(_)
        | Command::Group(_)
        | Command::Host(_)
        | Command::Checkpoint(_)
        | Command::Lease(_) => {
            "; is ephor dev running there? Set --connection or EPHOR_CONNECTION to use another hub"
        }
    };
    match run(command).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("ephor: {error}{}", advice(&*error, place));
            ExitCode::FAILURE
        }
    }
}

/// Parses the arguments, and prints warnings about unwise ones.
fn parsed() -> Result<Command, clap::Error> {
    let matches = Arguments::command().try_get_matches()?;
    for warning in secret_arguments::check(&matches)? {
        say(&warning);
    }
    Ok(Arguments::from_arg_matches(&matches)?.command)
}

/// Writes to stderr, and ignores a closed one.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "ephor: {text}"));
}

/// Advice for the errors that new users meet first; `place` explains how to name another hub.
fn advice(error: &(dyn Error + 'static), place: &'static str) -> &'static str {
    let mut causes = iter::successors(Some(error), |&error| error.source());
    match causes.find_map(dial_error).map(|failure| failure.cause) {
        Some(DialErrorCause::NoAnswer) => place,
        Some(DialErrorCause::UntrustedCertificate) => {
            "; add --trust FILE with the certificate of the hub; ephor dev --amqps prints its path in the line \
             trust"
        }
        _ => "",
    }
}

/// The failure to connect that an error is, or that the hub's error in it holds.
fn dial_error<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a DialError> {
    let of_hub = if let Some(OpenError::Source(error)) = error.downcast_ref() {
        Some(error)
    } else if let Some(ReceiveError::Source(error)) = error.downcast_ref() {
        Some(error)
    } else if let Some(AdminError::Source(error)) = error.downcast_ref() {
        Some(error)
    } else if let Some(StartError::Hub { error, .. }) = error.downcast_ref() {
        Some(error)
    } else {
        error.downcast_ref()
    };
    match of_hub {
        Some(SourceError::Unavailable(cause)) => cause.downcast_ref(),
        _ => error.downcast_ref(),
    }
}

async fn run(command: Command) -> Result<ExitCode, BoxError> {
    match command {
        Command::Dev(options) => dev::run(options).await?,
        Command::Demo(options) => Box::pin(demo::run(options)).await?,
        Command::DemoHost(options) => Box::pin(demo::run_host(options)).await?,
        Command::Send(options) => send::run(options).await?,
        Command::Tail(options) => tail::run(options).await?,
        Command::Verify(options) => return verify::run(&options),
        Command::Group(command) => store_commands::group(command).await?,
        Command::Host(command) => store_commands::host(command).await?,
        Command::Checkpoint(command) => store_commands::checkpoint(command).await?,
        Command::Lease(command) => store_commands::lease(command).await?,
    }
    Ok(ExitCode::SUCCESS)
}
