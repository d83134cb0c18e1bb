//! The command: what is asked for, done.
//!
//! | to read about | open |
//! |---|---|
//! | what may be asked for | `arguments.rs` |
//! | playing seeds on all cores | `play.rs` |
//! | which seeds are done | `seeds.rs` |
//! | what they add up to | `total.rs` |
//! | going on where a run was stopped | `progress.rs` |
//! | what is shown meanwhile | `screen.rs` |
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

/// All went well.
const WELL: u8 = 0;
/// A promise was broken.
const BROKEN: u8 = 1;
/// Asked for something that does not exist.
const MISUSED: u8 = 2;
/// Stopped by Ctrl-C or a kill, as a shell would put it.
const STOPPED: u8 = 130;

/// Does what the arguments ask for.
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
