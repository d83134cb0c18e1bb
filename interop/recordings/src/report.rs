//! Groups differences by kind, marks those that are explained (`explained.txt`), and prints the result.

use std::collections::BTreeMap;
use std::fmt;

/// One difference between an answer of the service and ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The name of the conversation.
    pub conversation: String,
    /// The line of the frame in the recording.
    pub frame: usize,
    /// The kind of link, the performative and the field.
    pub kind: String,
    /// The service's value.
    pub service: String,
    /// Our value.
    pub ours: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { conversation, frame, kind, service, ours } = self;
        write!(f, "{conversation}, frame {frame}, {kind}: service {service}, ours {ours}")
    }
}

/// The result of playing some conversations.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Conversations that were played.
    pub conversations: usize,
    /// The names of empty recordings, of which there is nothing to play.
    pub empty: Vec<String>,
    /// Answers of the service that were compared with ours.
    pub frames: usize,
    /// The differences.
    pub differences: Vec<Difference>,
}

impl Outcome {
    /// Adds the result of other conversations.
    pub fn add(&mut self, other: Self) {
        self.conversations += other.conversations;
        self.empty.extend(other.empty);
        self.frames += other.frames;
        self.differences.extend(other.differences);
    }
}

/// An explanation: a difference that is meant, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Explanation {
    kind: String,
    service: String,
    ours: String,
    reason: String,
}

/// The list of explained differences.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Explanations(Vec<Explanation>);

impl Explanations {
    /// Parses a list: `kind | service | ours | reason` in each line, where `*` stands for any text. Empty lines and
    /// lines that begin with `#` are skipped.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut explanations = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns: Vec<_> = line.split(" | ").map(str::trim).collect();
            let [kind, service, ours, reason] = columns[..] else {
                return Err(format!("line {}: not of the form: kind | service | ours | reason", index + 1));
            };
            explanations.push(Explanation {
                kind: kind.to_owned(),
                service: service.to_owned(),
                ours: ours.to_owned(),
                reason: reason.to_owned(),
            });
        }
        Ok(Self(explanations))
    }

    fn explain(&self, difference: &Difference) -> Option<usize> {
        self.0.iter().position(|explanation| {
            matches(&explanation.kind, &difference.kind)
                && matches(&explanation.service, &difference.service)
                && matches(&explanation.ours, &difference.ours)
        })
    }
}

/// True if a text has the form of a pattern, in which `*` stands for any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, mut rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(start) else { return false };
    while let Some((part, after)) = rest.split_once('*') {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
        rest = after;
    }
    text.ends_with(rest)
}

/// A summary of an outcome.
#[derive(Clone, Debug)]
pub struct Report {
    kinds: BTreeMap<(bool, String), Vec<Difference>>,
    reasons: BTreeMap<String, String>,
    unused: Vec<String>,
    conversations: usize,
    empty: Vec<String>,
    frames: usize,
    explained: usize,
    unexplained: usize,
}

impl Report {
    /// Groups the differences of an outcome.
    pub fn of(outcome: Outcome, explanations: &Explanations) -> Self {
        let mut used = vec![false; explanations.0.len()];
        let mut report = Self {
            kinds: BTreeMap::new(),
            reasons: BTreeMap::new(),
            unused: Vec::new(),
            conversations: outcome.conversations,
            empty: outcome.empty,
            frames: outcome.frames,
            explained: 0,
            unexplained: 0,
        };
        for difference in outcome.differences {
            let explanation = explanations.explain(&difference);
            match explanation {
                Some(index) => {
                    used[index] = true;
                    report.explained += 1;
                    let reason = explanations.0[index].reason.clone();
                    report.reasons.insert(difference.kind.clone(), reason);
                }
                None => report.unexplained += 1,
            }
            let key = (explanation.is_none(), difference.kind.clone());
            report.kinds.entry(key).or_default().push(difference);
        }
        let unused = explanations.0.iter().zip(used).filter(|(_, used)| !used);
        report.unused = unused.map(|(explanation, _)| explanation.kind.clone()).collect();
        report
    }

    /// Differences without an explanation.
    pub fn unexplained(&self) -> usize {
        self.unexplained
    }

    /// Every difference that is not explained.
    pub fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.kinds
            .iter()
            .filter(|((unexplained, _), _)| *unexplained)
            .flat_map(|(_, differences)| differences)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ((unexplained, kind), differences) in &self.kinds {
            let count = differences.len();
            match (unexplained, self.reasons.get(kind), differences.first()) {
                (false, Some(reason), _) => writeln!(f, "{count:6}  {kind}: explained: {reason}")?,
                (_, _, Some(first)) => {
                    writeln!(
                        f,
                        "{count:6}  {kind}: UNEXPLAINED: service {}, ours {}",
                        first.service, first.ours
                    )?;
                    writeln!(f, "        first in {}, frame {}", first.conversation, first.frame)?;
                }
                (_, _, None) => {}
            }
        }
        for kind in &self.unused {
            writeln!(f, "        {kind}: explained, but does not occur: remove the line")?;
        }
        for name in &self.empty {
            writeln!(f, "        {name}: empty, so there is nothing to play")?;
        }
        let Self { conversations, empty, frames, explained, unexplained, .. } = self;
        let (files, empty) = (conversations + empty.len(), empty.len());
        write!(
            f,
            "{files} files: {conversations} conversations played, {empty} empty, {frames} frames compared, \
             {} differences: {explained} explained, {unexplained} unexplained",
            explained + unexplained
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_what_its_stars_leave_open_and_nothing_else() {
        assert!(matches("a * c", "a b c"));
        assert!(matches("*", ""));
        assert!(!matches("a*c", "acb"));
        assert!(!matches("a", "ab"));
    }

    #[test]
    fn a_difference_with_other_values_is_not_explained() {
        let explanations = Explanations::parse("# none\nopen.a | 1 | * | meant").unwrap();
        let difference = |service: &str| Difference {
            conversation: "c".to_owned(),
            frame: 1,
            kind: "open.a".to_owned(),
            service: service.to_owned(),
            ours: "2".to_owned(),
        };
        let differences = vec![difference("1"), difference("3")];
        let outcome = Outcome { conversations: 1, empty: Vec::new(), frames: 2, differences };
        let report = Report::of(outcome, &explanations);
        assert_eq!(report.unexplained(), 1);
        assert!(report.to_string().ends_with("2 frames compared, 2 differences: 1 explained, 1 unexplained"));
        assert!(Explanations::parse("one | two").is_err());
    }
}
