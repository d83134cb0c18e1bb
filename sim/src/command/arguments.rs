//! Parses the command line.

use std::path::PathBuf;

use ephor_core::rules::Rules;
use ephor_sim::plants::{self, Plant};

/// The subcommand, with its arguments.
#[derive(Debug)]
pub(crate) enum Asked {
    Play(Play),
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
pub(crate) struct Play {
    pub(crate) from: u64,
    pub(crate) count: u64,
    pub(crate) plant: Option<&'static Plant>,
    /// True to print every line of every run.
    pub(crate) story: bool,
    /// True to reduce failing seeds.
    pub(crate) reduce: bool,
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

impl Play {
    /// The rules in force.
    pub(crate) fn rules(&self) -> Rules {
        self.plant.map_or_else(Rules::default, |plant| plant.rules)
    }
}

impl Default for Play {
    fn default() -> Self {
        Self {
            from: 0,
            count: 100,
            plant: None,
            story: false,
            reduce: true,
            resume: Resume::SameCommand,
            folder: None,
            jobs: None,
        }
    }
}

/// The usage text.
pub(crate) fn usage() -> String {
    let mut usage = String::from(
        "usage: ephor-sim [--from N] [--count M] [--plant BUG] [--story] [--no-reduce] [--jobs N]
                 [--resume [FILE] | --anew] [--progress FOLDER]
       ephor-sim --moves [--from N] [--count M]
       ephor-sim scale [--largest] [--write FOLDER]

  --from N           the first seed (default 0)
  --count M          how many seeds (default 100)
  --story            print every line of every run, also when all went well
  --no-reduce        list what fails, and do not cut it down
  --jobs N           seeds at a time (default: one for each core)
  --resume [FILE]    go on where the last run, or the one of this file, was stopped;
                     the same command goes on where it was stopped without being told
  --anew             begin at the first seed all the same
  --progress FOLDER  where a run that is stopped leaves its progress (default target/sim)
  --moves            without trouble: the moves that a join, a stop and a crash take,
                     beside the fewest possible, and how long nobody reads
  scale              how soon fleets rest after a change, and what that costs, by their size
  --plant BUG        take a rule away, and see that the judge notices:",
    );
    for plant in &plants::ALL {
        usage += &format!("\n      {:<11} {}", plant.name, plant.what);
    }
    usage
}

/// Parses the arguments, or returns what is wrong with them.
pub(crate) fn read(given: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut given = given.peekable();
    if given.next_if(|first| first == "scale").is_some() {
        return Ok(Asked::Scale(given.collect()));
    }
    let (mut play, mut moves) = (Play::default(), false);
    while let Some(name) = given.next() {
        match name.as_str() {
            "--help" | "-h" => return Ok(Asked::Help),
            "--story" => play.story = true,
            "--no-reduce" => play.reduce = false,
            "--moves" => moves = true,
            "--anew" => play.resume = Resume::No,
            "--resume" => {
                let file = given.next_if(|next| !next.starts_with("--"));
                play.resume = file.map_or(Resume::Last, |file| Resume::File(file.into()));
            }
            "--from" | "--count" | "--jobs" | "--plant" | "--progress" => {
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
    if moves { Ok(Asked::Moves { from: play.from, count: play.count }) } else { Ok(Asked::Play(play)) }
}

fn with_value(play: &mut Play, name: &str, value: &str) -> Result<(), String> {
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
            play.plant =
                Some(plants::find(value).ok_or_else(|| format!("there is no bug {value:?} to plant"))?)
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_line(line: &str) -> Result<Asked, String> {
        read(line.split_whitespace().map(str::to_owned))
    }

    fn play(line: &str) -> Play {
        match read_line(line) {
            Ok(Asked::Play(play)) => play,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn everything_has_a_default_and_the_last_word_counts() {
        let asked = play("");
        assert_eq!((asked.from, asked.count, asked.story, asked.reduce), (0, 100, false, true));
        assert_eq!(asked.resume, Resume::SameCommand);
        assert_eq!(asked.rules(), Rules::default());
        // The script `./check` puts its own count first.
        assert_eq!(play("--count 20000 --count 7").count, 7);
    }

    #[test]
    fn each_argument_is_taken_at_its_word() {
        let asked =
            play("--from 9 --count 3 --story --no-reduce --jobs 2 --anew --progress here --plant order");
        assert_eq!((asked.from, asked.count, asked.story, asked.reduce), (9, 3, true, false));
        assert_eq!((asked.jobs, asked.folder), (Some(2), Some("here".into())));
        assert_eq!(asked.resume, Resume::No);
        assert_eq!(asked.plant.map(|plant| plant.name), Some("order"));
        let Ok(Asked::Moves { from: 5, count: 6 }) = read_line("--moves --from 5 --count 6") else {
            panic!("moves are asked for");
        };
        assert!(matches!(read_line("--help"), Ok(Asked::Help)));
        let Ok(Asked::Scale(given)) = read_line("scale --write docs") else { panic!("scale is asked for") };
        assert_eq!(given, ["--write", "docs"]);
    }

    #[test]
    fn resume_may_name_a_file() {
        assert_eq!(play("--resume").resume, Resume::Last);
        assert_eq!(play("--resume --count 5").resume, Resume::Last);
        assert_eq!(play("--resume old.json --count 5").resume, Resume::File("old.json".into()));
    }

    #[test]
    fn whoever_asks_for_what_does_not_exist_is_told_what_is_wrong() {
        for (line, wrong) in [
            ("--form 3", "there is no argument \"--form\""),
            ("--from", "--from needs a value"),
            ("--from --count 3", "--from needs a value"),
            ("--count many", "--count needs a number, not \"many\""),
            ("--count -1", "--count needs a number, not \"-1\""),
            ("--count 0", "--count 0 plays nothing"),
            ("--plant nothing", "there is no bug \"nothing\" to plant"),
            ("--from 18446744073709551615 --count 1", "there are no 1 seeds from 18446744073709551615 on"),
        ] {
            assert_eq!(read_line(line).expect_err(line), wrong);
        }
    }

    #[test]
    fn every_plant_is_in_the_usage() {
        assert!(plants::ALL.iter().all(|plant| usage().contains(plant.what)));
    }
}
