//! The command `ephor-sim`: runs many seeds, or measures rebalances and scale.
//!
//! | to read about | open |
//! |---|---|
//! | the command line | `arguments.rs` |
//! | playing seeds on all cores | `play_seeds.rs` |
//! | the seeds that are done | `seeds.rs` |
//! | the sum of all runs | `totals.rs` |
//! | resuming a run that was stopped | `progress_file.rs` |
//! | the display of progress | `progress_display.rs` |
//! | Ctrl-C | `stop.rs` |
//! | failing seeds, shrunk and told | `failures.rs` |

mod arguments;
mod failures;
mod play_seeds;
mod progress_display;
mod progress_file;
mod seeds;
mod stop;
mod totals;

use std::process::ExitCode;

use arguments::Subcommand;

/// The exit code of success.
const EXIT_OK: u8 = 0;
/// The exit code after a broken promise, or after too many exemptions from checks.
const EXIT_VIOLATION: u8 = 1;
/// The exit code after wrong arguments.
const EXIT_USAGE: u8 = 2;
/// The exit code after Ctrl-C or a kill, as a shell reports it.
const EXIT_STOPPED: u8 = 130;

/// Runs the command with these arguments.
pub(crate) fn run(given: impl Iterator<Item = String>) -> ExitCode {
    let code = match arguments::read(given) {
        Ok(Subcommand::Play(arguments)) => play_seeds::run(&arguments),
        Ok(Subcommand::Moves { from, count }) => {
            println!("{}", ephor_sim::rebalance_cost::measure(from, count));
            EXIT_OK
        }
        Ok(Subcommand::Scale(given)) => match ephor_sim::scale::run(&given, &mut |what| println!("{what}")) {
            Ok(scale) => {
                println!("{scale}");
                EXIT_OK
            }
            Err(wrong) => {
                println!("ephor-sim scale: {wrong}");
                EXIT_USAGE
            }
        },
        Ok(Subcommand::Help) => {
            println!("{}", arguments::usage());
            EXIT_OK
        }
        Err(wrong) => {
            println!("ephor-sim: {wrong}\n\n{}", arguments::usage());
            EXIT_USAGE
        }
    };
    ExitCode::from(code)
}
