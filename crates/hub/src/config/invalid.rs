//! The error for an invalid configuration, with the path of the value, such as `hubs[2].partitions: 2000 is
//! more than 1024; …`.

use std::fmt;

/// One step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    Field(String),
    Index(usize),
}

/// The path of a value: `hubs[2].retention.age`. Structs and files use the same names.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(Vec<Step>);

impl Place {
    /// The whole configuration.
    pub(super) fn top() -> Self {
        Self::default()
    }

    pub(super) fn field(&self, name: &str) -> Self {
        self.with(Step::Field(name.to_owned()))
    }

    pub(super) fn index(&self, index: usize) -> Self {
        self.with(Step::Index(index))
    }

    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }

    fn with(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.0.iter().enumerate() {
            match step {
                Step::Field(name) if number == 0 => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An invalid value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidConfig {
    /// The path of the value.
    pub place: Place,
    /// The problem, and what to write instead.
    pub problem: String,
}

impl InvalidConfig {
    pub(super) fn new(place: Place, problem: impl Into<String>) -> Self {
        Self { place, problem: problem.into() }
    }
}

impl fmt::Display for InvalidConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.steps().is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for InvalidConfig {}

/// Refuses a value outside of `least..=most`, and names both limits.
pub(super) fn within<T: PartialOrd + Copy>(
    place: Place,
    value: T,
    (least, most): (T, T),
    noun: &str,
    shown: impl Fn(T) -> String,
) -> Result<(), InvalidConfig> {
    let (relation, limit) = match value {
        value if value < least => ("less", least),
        value if value > most => ("more", most),
        _ => return Ok(()),
    };
    let (value, limit, least, most) = (shown(value), shown(limit), shown(least), shown(most));
    Err(InvalidConfig::new(
        place,
        format!("{value} is {relation} than {limit}; write {noun} from {least} to {most}"),
    ))
}
