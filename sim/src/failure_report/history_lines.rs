//! Parses the lines of a history, and rewrites them as sentences for people.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::ids::PartitionId;
use ephor_core::time::duration_text;

use crate::scenario::Injection;

/// Rewrites lines in plain words. It has read all lines, because the number of a host's process follows from
/// all of them.
pub(super) struct Words {
    /// The incarnations of each name, in the order in which they appeared.
    processes: BTreeMap<String, Vec<String>>,
}

/// The length of the incarnation in a name such as `host-1#30daac1974a1b3ba`.
const INCARNATION: usize = 16;

impl Words {
    pub(super) fn new(lines: &[(Duration, String)]) -> Self {
        let mut processes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, text) in lines {
            for (name, incarnation, _) in incarnations(text) {
                let processes = processes.entry(name.to_owned()).or_default();
                if !processes.iter().any(|process| process == incarnation) {
                    processes.push(incarnation.to_owned());
                }
            }
        }
        Self { processes }
    }

    /// A line without details that only a program needs.
    pub(super) fn plain(&self, text: &str) -> String {
        let text = self.without_incarnations(text);
        let text = between(&text, "Finished { sequence: ", ',', " }");
        let text = between(&text, "Some(", ')', ")");
        let text = one_event(&text).unwrap_or(text);
        let text = text.split(' ').map(rounded).collect::<Vec<_>>().join(" ");
        faulty_call(&text).map(|call| call.to_string()).or_else(|| end_of_fault(&text)).unwrap_or(text)
    }

    /// The description of a fault: its kind, its target, and its duration.
    pub(super) fn injection(&self, injection: &Injection, line: Option<&str>) -> String {
        let name = format!("{:?}", injection.fault);
        let what = injection.fault.what().trim_end_matches('.');
        match line {
            None => format!("{what}, but there is no target for it"),
            Some(line) if line.contains(&name) => {
                let whom = hosts(line).first().map(|host| format!("{host}: ")).unwrap_or_default();
                let lasting = if line.contains(" for ") {
                    format!(" ({})", duration_text(injection.lasting))
                } else {
                    String::new()
                };
                if whom.is_empty() {
                    format!("{what}{lasting}")
                } else {
                    format!("{whom}{}{lasting}", uncapitalized(what))
                }
            }
            // The line is a sentence of its own, with more details.
            Some(line) => self.plain(line),
        }
    }

    /// Shortens `host-1#30daac1974a1b3ba` to `host-1`, and its second process to `host-1 (process 2)`.
    fn without_incarnations(&self, text: &str) -> String {
        let (mut plain, mut rest) = (String::new(), text);
        while let Some((name, incarnation, end)) = incarnations(rest).next() {
            plain += &rest[..end - INCARNATION - 1];
            let process = self
                .processes
                .get(name)
                .and_then(|processes| processes.iter().position(|process| process == incarnation));
            if let Some(process) = process.filter(|process| *process > 0) {
                plain += &format!(" (process {})", process + 1);
            }
            rest = &rest[end..];
        }
        plain + rest
    }
}

/// Every name with an incarnation: the name, the incarnation, and the position at which it ends.
fn incarnations(text: &str) -> impl Iterator<Item = (&str, &str, usize)> {
    text.match_indices('#').filter_map(|(at, _)| {
        let incarnation = text.get(at + 1..at + 1 + INCARNATION)?;
        let hex = incarnation.bytes().all(|byte| byte.is_ascii_hexdigit());
        let name = text[..at].rsplit([' ', '(']).next().filter(|name| !name.is_empty())?;
        hex.then_some((name, incarnation, at + 1 + INCARNATION))
    })
}

fn tokens(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '-'))
        .filter(|word| !word.is_empty())
}

/// The hosts that a line names, without their incarnation.
pub(super) fn hosts(text: &str) -> Vec<String> {
    let is_host = |word: &&str| word.strip_prefix("host-").is_some_and(is_number);
    tokens(text).filter(is_host).map(str::to_owned).collect()
}

/// The partitions that a line names.
pub(super) fn partitions(text: &str) -> Vec<PartitionId> {
    let number = |word: &str| word.strip_prefix('p').filter(|rest| is_number(rest))?.parse().ok();
    tokens(text).filter_map(number).map(PartitionId).collect()
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Shortens `#4 to #4` to one event.
fn one_event(text: &str) -> Option<String> {
    let (before, after) = text.split_once(" to #")?;
    let (first, last) = (before.rsplit('#').next()?, after.split(' ').next()?);
    (first == last).then(|| format!("{before}{}", &after[last.len()..]))
}

/// The first event that a line names.
pub(super) fn event(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once(" #")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let start = text.len() - rest.len() - 1;
    (digits > 0).then(|| &text[start..start + 1 + digits])
}

/// Shortens `7.523844731s,` to `7.524s,`.
fn rounded(word: &str) -> String {
    let number = word.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    match (word[..number].split_once('.'), word[..number].parse::<f64>()) {
        (Some((_, decimals)), Ok(value)) if decimals.len() > 3 => format!("{value:.3}{}", &word[number..]),
        _ => word.to_owned(),
    }
}

/// The kind of usual work that a line tells of, if it does.
pub(super) fn work(text: &str) -> Option<&'static str> {
    let kinds = [
        (" is called with ", "call"),
        (" finishes ", "finished"),
        (" saves ", "save"),
        (" renews ", "renewal"),
    ];
    let begins = |word: &str| text.split_once(word).is_some_and(|(host, _)| !host.contains(' '));
    kinds.into_iter().find(|(word, _)| begins(word)).map(|(_, kind)| kind)
}

/// Replaces `open … stop … close` by the text between `open` and `stop`.
fn between(text: &str, open: &str, stop: char, close: &str) -> String {
    let Some((before, rest)) = text.split_once(open) else { return text.to_owned() };
    let Some(kept) = rest.find(stop) else { return text.to_owned() };
    let Some(end) = rest[kept..].find(close) else { return text.to_owned() };
    let after = between(&rest[kept + end + close.len()..], open, stop, close);
    format!("{before}{}{after}", &rest[..kept])
}

/// A call that a network fault hit.
pub(super) struct FaultyCall<'a> {
    pub(super) host: &'a str,
    pub(super) place: &'a str,
    pub(super) call: String,
    what: &'static str,
}

impl std::fmt::Display for FaultyCall<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, place, call, what } = self;
        write!(f, "{host} to the {place}: {call} {what}")
    }
}

/// Reads `store: Slow hits Save of host-2 p7`.
pub(super) fn faulty_call(text: &str) -> Option<FaultyCall<'_>> {
    let (place, rest) = text.split_once(": ").filter(|(place, _)| ["store", "hub"].contains(place))?;
    let (kind, rest) = rest.split_once(" hits ")?;
    let (call, rest) = rest.split_once(" of ")?;
    let (host, partition) = rest.split_once(' ')?;
    let what = match kind {
        "Slow" => "arrives late",
        "SlowAnswer" => "is carried out, but its answer is late",
        "LostRequest" => "is lost, and there is no answer",
        "LostResponse" => "is carried out, but its answer is lost",
        "ErrorBefore" => "fails, and is not carried out",
        "ErrorAfter" => "fails, but is carried out",
        "Conflict" => "is refused as if another host had been faster",
        "LostNotification" => "brings no notification",
        "BrokenLink" => "ends, because the link broke",
        "Throttled" => "is refused: too many calls",
        _ => "fails",
    };
    let partition = partition.trim_start_matches("Some(").trim_end_matches(')');
    let of = if partition == "None" { String::new() } else { format!(" of {partition}") };
    Some(FaultyCall { host, place, call: format!("{}{of}", call.to_lowercase()), what })
}

fn uncapitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

/// Rewrites `host-1: Store(1) again`: a fault is over.
fn end_of_fault(text: &str) -> Option<String> {
    let (host, what) = text.strip_suffix(" again")?.split_once(": ")?;
    let over = match what.split('(').next()? {
        "Start" => "starts again",
        "Resume" => "continues as if no time had passed",
        "Drift" => "has a clock that runs normally again",
        "Store" => "has a good connection to the store again",
        "StoreCutOff" => "cannot reach the store at all",
        "Source" => "has a good connection to the hub again",
        "Processor" => "runs code without faults again",
        _ => return None,
    };
    Some(format!("{host} {over}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Fault;

    fn words(lines: &[&str]) -> Words {
        Words::new(&lines.iter().map(|line| (Duration::ZERO, (*line).to_owned())).collect::<Vec<_>>())
    }

    #[test]
    fn a_line_is_shown_without_details_for_programs() {
        for (line, said) in [
            (
                "host-2 saves p7 at Finished { sequence: #98, offset: Some(@35), enqueued_at: Some(2018) } in e2",
                "host-2 saves p7 at #98 in e2",
            ),
            ("from Some(#112) to Some(#3), 7.523844731s ago", "from #112 to #3, 7.524s ago"),
            ("host-1 is called with p1 #4 to #4 in e1", "host-1 is called with p1 #4 in e1"),
            ("host-1 is called with p1 #4 to #14 in e1", "host-1 is called with p1 #4 to #14 in e1"),
            ("host-1: StoreCutOff(1) again", "host-1 cannot reach the store at all"),
            ("host-1: Whatever(1) again", "host-1: Whatever(1) again"),
            (
                "store: LostRequest hits Save of host-2 Some(p7)",
                "host-2 to the store: save of p7 is lost, and there is no answer",
            ),
            ("hub: Unheard hits Receive of host-2 None", "host-2 to the hub: receive fails"),
            ("it is 0.5s and 1.25s and p1", "it is 0.5s and 1.25s and p1"),
        ] {
            assert_eq!(words(&[]).plain(line), said);
        }
    }

    #[test]
    fn the_processes_of_a_host_are_numbered_in_order() {
        let lines = [
            "p0 goes from nobody to host-0#aaaaaaaaaaaaaaaa in e1: nobody owned it",
            "p0 goes from host-0#aaaaaaaaaaaaaaaa to host-0#bbbbbbbbbbbbbbbb in e2: its owner stopped renewing",
        ];
        let words = words(&lines);
        assert_eq!(words.plain(lines[0]), "p0 goes from nobody to host-0 in e1: nobody owned it");
        assert_eq!(
            words.plain(lines[1]),
            "p0 goes from host-0 to host-0 (process 2) in e2: its owner stopped renewing"
        );
    }

    #[test]
    fn hosts_and_partitions_are_whole_words() {
        assert_eq!(hosts("host-1#30daac1974a1b3ba to host-12, host-x"), ["host-1", "host-12"]);
        assert_eq!(partitions("p1, Some(p12) and p or pump3 of host-1"), [PartitionId(1), PartitionId(12)]);
    }

    #[test]
    fn an_injection_is_shown_with_its_target_and_its_duration() {
        let lasting = Duration::from_secs(40);
        let injection = |fault| Injection { at: Duration::ZERO, fault, target: 0, lasting };
        let shown = words(&[]).injection(&injection(Fault::Crash), Some("host-3: Crash for 40s"));
        assert_eq!(shown, "host-3: the process is gone, and comes back later under the same name (40 s)");
        let shown = words(&[]).injection(&injection(Fault::Seek), Some("an operator seeks p1 to #3"));
        assert_eq!(shown, "an operator seeks p1 to #3");
        assert!(words(&[]).injection(&injection(Fault::Leave), None).ends_with("no target for it"));
    }
}
