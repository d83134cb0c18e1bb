//! Parses the actions that a browser requests, as JSON: `{"action":"kill_host","host":"host-3"}`.

use serde::Deserialize;

use super::Action;

/// The most by which a batch can be slowed down, in milliseconds.
const MAX_SLOWDOWN: u32 = 10_000;

/// The maximum length of a host's name.
const MAX_NAME: usize = 100;

#[derive(Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
enum Command {
    AddHost {},
    StopHost { host: String },
    KillHost { host: String },
    PauseHost { host: String },
    ResumeHost { host: String },
    SlowHost { host: String, milliseconds: u32 },
    RestartHub {},
    CarbonMonoxide { on: bool },
}

/// Reads an action, or returns what is wrong with it.
pub(super) fn read(body: &[u8]) -> Result<Action, String> {
    let command = serde_json::from_slice(body).map_err(|error| format!("This is not an action: {error}."))?;
    Ok(match command {
        Command::AddHost {} => Action::AddHost,
        Command::StopHost { host } => Action::StopHost(name(host)?),
        Command::KillHost { host } => Action::KillHost(name(host)?),
        Command::PauseHost { host } => Action::PauseHost(name(host)?),
        Command::ResumeHost { host } => Action::ResumeHost(name(host)?),
        Command::SlowHost { milliseconds, .. } if milliseconds > MAX_SLOWDOWN => {
            return Err(format!("A batch can be slowed down by at most {MAX_SLOWDOWN} milliseconds."));
        }
        Command::SlowHost { host, milliseconds } => Action::SlowHost(name(host)?, milliseconds),
        Command::RestartHub {} => Action::RestartHub,
        Command::CarbonMonoxide { on } => Action::CarbonMonoxide(on),
    })
}

fn name(host: String) -> Result<String, String> {
    let fits = (1..=MAX_NAME).contains(&host.len()) && !host.chars().any(char::is_control);
    if fits { Ok(host) } else { Err("This is not a valid name of a host.".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_can_be_asked_for() {
        let host = || "host-3".to_owned();
        let commands = [
            (r#"{"action":"add_host"}"#, Action::AddHost),
            (r#"{"action":"stop_host","host":"host-3"}"#, Action::StopHost(host())),
            (r#"{"action":"kill_host","host":"host-3"}"#, Action::KillHost(host())),
            (r#"{"action":"pause_host","host":"host-3"}"#, Action::PauseHost(host())),
            (r#"{"action":"resume_host","host":"host-3"}"#, Action::ResumeHost(host())),
            (r#"{"action":"slow_host","host":"host-3","milliseconds":250}"#, Action::SlowHost(host(), 250)),
            (r#"{"action":"restart_hub"}"#, Action::RestartHub),
            (r#"{"action":"carbon_monoxide","on":true}"#, Action::CarbonMonoxide(true)),
        ];
        for (text, action) in commands {
            assert_eq!(read(text.as_bytes()), Ok(action), "{text}");
        }
    }

    #[test]
    fn what_is_no_order_is_refused_with_a_reason() {
        let long = format!(r#"{{"action":"kill_host","host":"{}"}}"#, "x".repeat(101));
        let wrong = [
            "",
            "[]",
            "{}",
            r#"{"action":"format_disk"}"#,
            r#"{"action":"kill_host"}"#,
            &long,
            r#"{"action":"kill_host","host":""}"#,
            r#"{"action":"kill_host","host":"a\nb"}"#,
            r#"{"action":"add_host","count":9}"#,
            r#"{"action":"carbon_monoxide","on":"yes"}"#,
            r#"{"action":"slow_host","host":"host-3","milliseconds":10001}"#,
            r#"{"action":"slow_host","host":"host-3","milliseconds":-1}"#,
        ];
        for wrong in wrong {
            let why = read(wrong.as_bytes()).expect_err(wrong);
            assert!(why.ends_with('.'), "{wrong}: {why}");
        }
    }
}
