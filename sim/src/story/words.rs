//! Parses lines of a history, and rewrites them in plain words.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::ids::PartitionId;

use crate::scenario::Act;

/// Rewrites lines in plain words. It has read all lines, because the number of a host's process follows from
/// all of them.
pub(super) struct Words {
    /// The incarnations of each name, in the order in which they appeared.
    lives: BTreeMap<String, Vec<String>>,
}

/// The length of the incarnation in a name such as `host-1#30daac1974a1b3ba`.
const INCARNATION: usize = 16;

impl Words {
    pub(super) fn new(lines: &[(Duration, String)]) -> Self {
        let mut lives: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (_, text) in lines {
            for (name, incarnation, _) in incarnations(text) {
                let lives = lives.entry(name.to_owned()).or_default();
                if !lives.iter().any(|life| life == incarnation) {
                    lives.push(incarnation.to_owned());
                }
            }
        }
        Self { lives }
    }

    /// A line without details that only a program needs.
    pub(super) fn plain(&self, text: &str) -> String {
        let text = self.without_incarnations(text);
        let text = between(&text, "Finished { sequence: ", ',', " }");
        let text = between(&text, "Some(", ')', ")");
        let text = one_event(&text).unwrap_or(text);
        let text = text.split(' ').map(shorter).collect::<Vec<_>>().join(" ");
        on_the_way(&text).map(|trouble| trouble.to_string()).or_else(|| again(&text)).unwrap_or(text)
    }

    /// The description of a fault: its kind, its target, and its duration.
    pub(super) fn act(&self, act: &Act, line: Option<&str>) -> String {
        let name = format!("{:?}", act.fault);
        let what = act.fault.what().trim_end_matches('.');
        match line {
            None => format!("{what}, but there is nobody to whom it could happen"),
            Some(line) if line.contains(&name) => {
                let whom = hosts(line).first().map(|host| format!("{host}: ")).unwrap_or_default();
                let lasting =
                    if line.contains(" for ") { format!(" ({})", span(act.lasting)) } else { String::new() };
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

    /// Shortens `host-1#30daac1974a1b3ba` to `host-1`, and its second process to `host-1 (life 2)`.
    fn without_incarnations(&self, text: &str) -> String {
        let (mut plain, mut rest) = (String::new(), text);
        while let Some((name, incarnation, end)) = incarnations(rest).next() {
            plain += &rest[..end - INCARNATION - 1];
            let life =
                self.lives.get(name).and_then(|lives| lives.iter().position(|life| life == incarnation));
            if let Some(life) = life.filter(|life| *life > 0) {
                plain += &format!(" (life {})", life + 1);
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
fn shorter(word: &str) -> String {
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

/// A duration in a form for people.
pub(super) fn span(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 1.0 => format!("{} ms", duration.as_millis()),
        seconds if seconds.fract() == 0.0 => format!("{seconds:.0} s"),
        seconds => format!("{seconds:.1} s"),
    }
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
pub(super) struct OnTheWay<'a> {
    pub(super) host: &'a str,
    pub(super) place: &'a str,
    pub(super) call: String,
    what: &'static str,
}

impl std::fmt::Display for OnTheWay<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, place, call, what } = self;
        write!(f, "{host} to the {place}: {call} {what}")
    }
}

/// Reads `store: Slow hits Save of host-2 p7`.
pub(super) fn on_the_way(text: &str) -> Option<OnTheWay<'_>> {
    let (place, rest) = text.split_once(": ").filter(|(place, _)| ["store", "hub"].contains(place))?;
    let (kind, rest) = rest.split_once(" hits ")?;
    let (call, rest) = rest.split_once(" of ")?;
    let (host, partition) = rest.split_once(' ')?;
    let what = match kind {
        "Slow" => "takes long to get there",
        "SlowAnswer" => "is carried out, its answer takes long",
        "LostRequest" => "gets lost, and nobody answers",
        "LostResponse" => "is carried out, its answer gets lost",
        "ErrorBefore" => "fails, and nothing was done",
        "ErrorAfter" => "fails, and yet it was done",
        "Conflict" => "is refused as if somebody else had been faster",
        "LostNotification" => "brings no word of a change",
        "BrokenLink" => "ends, the link is broken",
        "Throttled" => "is refused: too many calls",
        _ => "goes wrong",
    };
    let partition = partition.trim_start_matches("Some(").trim_end_matches(')');
    let of = if partition == "None" { String::new() } else { format!(" of {partition}") };
    Some(OnTheWay { host, place, call: format!("{}{of}", call.to_lowercase()), what })
}

fn uncapitalized(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

/// Rewrites `host-1: Store(1) again`: a fault is over.
fn again(text: &str) -> Option<String> {
    let (host, what) = text.strip_suffix(" again")?.split_once(": ")?;
    let over = match what.split('(').next()? {
        "Start" => "is to start again",
        "Resume" => "goes on, as if no time had passed",
        "Drift" => "has a clock that runs as it should again",
        "Store" => "has a good way to the store again",
        "StoreCutOff" => "can no longer reach the store at all",
        "Source" => "has a good way to the hub again",
        "Processor" => "runs good code again",
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
    fn a_line_is_said_without_what_only_a_program_wants_to_know() {
        for (line, said) in [
            (
                "host-2 saves p7 at Finished { sequence: #98, offset: Some(@35), enqueued_at: Some(2018) } in e2",
                "host-2 saves p7 at #98 in e2",
            ),
            ("from Some(#112) to Some(#3), 7.523844731s ago", "from #112 to #3, 7.524s ago"),
            ("host-1 is called with p1 #4 to #4 in e1", "host-1 is called with p1 #4 in e1"),
            ("host-1 is called with p1 #4 to #14 in e1", "host-1 is called with p1 #4 to #14 in e1"),
            ("host-1: StoreCutOff(1) again", "host-1 can no longer reach the store at all"),
            ("host-1: Whatever(1) again", "host-1: Whatever(1) again"),
            (
                "store: LostRequest hits Save of host-2 Some(p7)",
                "host-2 to the store: save of p7 gets lost, and nobody answers",
            ),
            ("hub: Unheard hits Receive of host-2 None", "host-2 to the hub: receive goes wrong"),
            ("it is 0.5s and 1.25s and p1", "it is 0.5s and 1.25s and p1"),
        ] {
            assert_eq!(words(&[]).plain(line), said);
        }
    }

    #[test]
    fn the_lives_of_a_host_are_counted_in_the_order_in_which_they_appear() {
        let lines = [
            "p0 goes from nobody to host-0#aaaaaaaaaaaaaaaa in e1: nobody owned it",
            "p0 goes from host-0#aaaaaaaaaaaaaaaa to host-0#bbbbbbbbbbbbbbbb in e2: its owner stopped renewing",
        ];
        let words = words(&lines);
        assert_eq!(words.plain(lines[0]), "p0 goes from nobody to host-0 in e1: nobody owned it");
        assert_eq!(
            words.plain(lines[1]),
            "p0 goes from host-0 to host-0 (life 2) in e2: its owner stopped renewing"
        );
    }

    #[test]
    fn hosts_and_partitions_are_whole_words() {
        assert_eq!(hosts("host-1#30daac1974a1b3ba to host-12, host-x"), ["host-1", "host-12"]);
        assert_eq!(partitions("p1, Some(p12) and p or pump3 of host-1"), [PartitionId(1), PartitionId(12)]);
    }

    #[test]
    fn an_act_is_told_with_whom_it_hits_and_for_how_long() {
        let lasting = Duration::from_secs(40);
        let act = |fault| Act { at: Duration::ZERO, fault, target: 0, lasting };
        let told = words(&[]).act(&act(Fault::Crash), Some("host-3: Crash for 40s"));
        assert_eq!(told, "host-3: the process is gone, and comes back later under the same name (40 s)");
        let told = words(&[]).act(&act(Fault::Seek), Some("a person seeks p1 to #3"));
        assert_eq!(told, "a person seeks p1 to #3");
        assert!(words(&[]).act(&act(Fault::Leave), None).ends_with("nobody to whom it could happen"));
    }
}
