//! The command `ephor-sim`.
//!
//! | to read about | open |
//! |---|---|
//! | the command line | `arguments.rs` |
//! | playing seeds on all cores | `play.rs` |
//! | the seeds that are done | `seeds.rs` |
//! | the sum of all runs | `total.rs` |
//! | resuming a run that was stopped | `progress.rs` |
//! | the display of progress | `screen.rs` |
//! | Ctrl-C | `stop.rs` |
//! | failing seeds, reduced and told | `failures.rs` |

mod arguments;
mod failures;
mod play;
mod progress;
mod screen;
mod seeds;
mod stop;
mod total;

use std::process::ExitCode;

use arguments::Asked;

/// The exit code of success.
const WELL: u8 = 0;
/// The exit code after a broken promise.
const BROKEN: u8 = 1;
/// The exit code after wrong arguments.
const MISUSED: u8 = 2;
/// The exit code after Ctrl-C or a kill, as a shell reports it.
const STOPPED: u8 = 130;

/// Runs the command with these arguments.
pub(crate) fn run(given: impl Iterator<Item = String>) -> ExitCode {
    let code = match arguments::read(given) {
        Ok(Asked::Play(asked)) => play::run(&asked),
        Ok(Asked::Moves { from, count }) => {
            println!("{}", ephor_sim::moves::measure(from, count));
            WELL
        }
        Ok(Asked::Scale(given)) => match ephor_sim::scale::run(&given, &mut |what| println!("{what}")) {
            Ok(scale) => {
                println!("{scale}");
                WELL
            }
            Err(wrong) => {
                println!("ephor-sim scale: {wrong}");
                MISUSED
            }
        },
        Ok(Asked::Help) => {
            println!("{}", arguments::usage());
            WELL
        }
        Err(wrong) => {
            println!("ephor-sim: {wrong}\n\n{}", arguments::usage());
            MISUSED
        }
    };
    ExitCode::from(code)
}
