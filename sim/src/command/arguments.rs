//! Parses the command line of `ephor-sim`.

use std::path::PathBuf;

use ephor_core::rules::Rules;
use ephor_sim::mutations::{self, Mutation};

/// The subcommand, with its arguments.
#[derive(Debug)]
pub(crate) enum Subcommand {
    Play(PlayArguments),
    Moves {
        from: u64,
        count: u64,
    },
    /// With the arguments after `scale`.
    Scale(Vec<String>),
    Help,
}

/// Seeds to play.
#[derive(Clone, Debug)]
pub(crate) struct PlayArguments {
    pub(crate) from: u64,
    pub(crate) count: u64,
    pub(crate) mutation: Option<&'static Mutation>,
    /// True to print every line of every run.
    pub(crate) history: bool,
    /// True to shrink failing seeds.
    pub(crate) shrink: bool,
    pub(crate) resume: Resume,
    /// The folder of the progress file, if not `target/sim`.
    pub(crate) folder: Option<PathBuf>,
    /// The number of seeds that are played at a time; by default the number of cores.
    pub(crate) jobs: Option<usize>,
}

/// The point at which to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Resume {
    /// At the point where the same command was stopped, if it was.
    SameCommand,
    /// At the point where the last stopped command was stopped.
    Last,
    /// At the point in this file.
    File(PathBuf),
    /// At the first seed.
    No,
}

impl PlayArguments {
    /// The rules in force.
    pub(crate) fn rules(&self) -> Rules {
        self.mutation.map_or_else(Rules::default, |mutation| mutation.rules)
    }
}

impl Default for PlayArguments {
    fn default() -> Self {
        Self {
            from: 0,
            count: 100,
            mutation: None,
            history: false,
            shrink: true,
            resume: Resume::SameCommand,
            folder: None,
            jobs: None,
        }
    }
}

/// The usage text.
pub(crate) fn usage() -> String {
    let mut usage = String::from(
        "usage: ephor-sim [--from N] [--count M] [--mutation NAME] [--history] [--no-shrink] [--jobs N]
                 [--resume [FILE] | --anew] [--progress FOLDER]
       ephor-sim --moves [--from N] [--count M]
       ephor-sim scale [--largest] [--write FOLDER]

  --from N           the first seed (default 0)
  --count M          how many seeds (default 100)
  --history          print every line of the history of every run
  --no-shrink        list failing seeds, and do not shrink them
  --jobs N           seeds at a time (default: one for each core)
  --resume [FILE]    resume the run that was stopped last, or the run of this file;
                     the same command resumes its own run without this option
  --anew             start over at the first seed
  --progress FOLDER  the folder for the progress of a stopped run (default target/sim)
  --moves            measure without faults: the moves after a join, a stop and a crash,
                     the fewest possible, and how long nobody reads
  scale              measure how soon fleets of each size rest after a change, and the cost
  --mutation NAME    play with a rule removed, to check that the judge notices:",
    );
    for mutation in &mutations::ALL {
        usage += &format!("\n      {:<11} {}", mutation.name, mutation.what);
    }
    usage
}

/// Parses the arguments, or returns what is wrong with them.
pub(crate) fn read(given: impl Iterator<Item = String>) -> Result<Subcommand, String> {
    let mut given = given.peekable();
    if given.next_if(|first| first == "scale").is_some() {
        return Ok(Subcommand::Scale(given.collect()));
    }
    let (mut play, mut moves) = (PlayArguments::default(), false);
    while let Some(name) = given.next() {
        match name.as_str() {
            "--help" | "-h" => return Ok(Subcommand::Help),
            "--history" => play.history = true,
            "--no-shrink" => play.shrink = false,
            "--moves" => moves = true,
            "--anew" => play.resume = Resume::No,
            "--resume" => {
                let file = given.next_if(|next| !next.starts_with("--"));
                play.resume = file.map_or(Resume::Last, |file| Resume::File(file.into()));
            }
            "--from" | "--count" | "--jobs" | "--mutation" | "--progress" => {
                let value = given.next_if(|next| !next.starts_with("--"));
                let value = value.ok_or_else(|| format!("{name} needs a value"))?;
                with_value(&mut play, &name, &value)?;
            }
            _ => return Err(format!("there is no argument {name:?}")),
        }
    }
    if play.from.checked_add(play.count).is_none() {
        return Err(format!("there are no {} seeds from {} on", play.count, play.from));
    }
    if moves {
        Ok(Subcommand::Moves { from: play.from, count: play.count })
    } else {
        Ok(Subcommand::Play(play))
    }
}

fn with_value(play: &mut PlayArguments, name: &str, value: &str) -> Result<(), String> {
    let number = || value.parse::<u64>().map_err(|_| format!("{name} needs a number, not {value:?}"));
    let positive = || match number()? {
        0 => Err(format!("{name} 0 plays nothing")),
        number => Ok(number),
    };
    match name {
        "--from" => play.from = number()?,
        "--count" => play.count = positive()?,
        "--jobs" => play.jobs = Some(usize::try_from(positive()?).unwrap_or(usize::MAX)),
        "--progress" => play.folder = Some(value.into()),
        _ => {
            play.mutation =
                Some(mutations::find(value).ok_or_else(|| format!("there is no mutation {value:?}"))?)
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Result<Subcommand, String> {
        read(line.split_whitespace().map(str::to_owned))
    }

    fn play(line: &str) -> PlayArguments {
        match read_line(line) {
            Ok(Subcommand::Play(play)) => play,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_argument_has_a_default_and_the_last_one_wins() {
        let arguments = play("");
        assert_eq!(
            (arguments.from, arguments.count, arguments.history, arguments.shrink),
            (0, 100, false, true)
        );
        assert_eq!(arguments.resume, Resume::SameCommand);
        assert_eq!(arguments.rules(), Rules::default());
        // The script `./check` puts its own count first.
        assert_eq!(play("--count 20000 --count 7").count, 7);
    }

    #[test]
    fn each_argument_is_parsed() {
        let arguments =
            play("--from 9 --count 3 --history --no-shrink --jobs 2 --anew --progress here --mutation order");
        assert_eq!(
            (arguments.from, arguments.count, arguments.history, arguments.shrink),
            (9, 3, true, false)
        );
        assert_eq!((arguments.jobs, arguments.folder), (Some(2), Some("here".into())));
        assert_eq!(arguments.resume, Resume::No);
        assert_eq!(arguments.mutation.map(|mutation| mutation.name), Some("order"));
        let Ok(Subcommand::Moves { from: 5, count: 6 }) = read_line("--moves --from 5 --count 6") else {
            panic!("moves are asked for");
        };
        assert!(matches!(read_line("--help"), Ok(Subcommand::Help)));
        let Ok(Subcommand::Scale(given)) = read_line("scale --write docs") else {
            panic!("scale is asked for")
        };
        assert_eq!(given, ["--write", "docs"]);
    }

    #[test]
    fn resume_may_name_a_file() {
        assert_eq!(play("--resume").resume, Resume::Last);
        assert_eq!(play("--resume --count 5").resume, Resume::Last);
        assert_eq!(play("--resume old.json --count 5").resume, Resume::File("old.json".into()));
    }

    #[test]
    fn wrong_arguments_are_refused_with_the_reason() {
        for (line, wrong) in [
            ("--form 3", "there is no argument \"--form\""),
            ("--from", "--from needs a value"),
            ("--from --count 3", "--from needs a value"),
            ("--count many", "--count needs a number, not \"many\""),
            ("--count -1", "--count needs a number, not \"-1\""),
            ("--count 0", "--count 0 plays nothing"),
            ("--mutation nothing", "there is no mutation \"nothing\""),
            ("--from 18446744073709551615 --count 1", "there are no 1 seeds from 18446744073709551615 on"),
        ] {
            assert_eq!(read_line(line).expect_err(line), wrong);
        }
    }

    #[test]
    fn every_mutation_is_in_the_usage() {
        assert!(mutations::ALL.iter().all(|mutation| usage().contains(mutation.what)));
    }
}
