//! Warns of secrets on the command line, where everybody on the machine can read them, and names
//! alternatives. Refuses an argument that is given both as a value and as a file, and a store that is
//! missing.
//!
//! It does not refuse a secret: by then the secret has been visible, and scripts that work keep working.

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{ArgMatches, Error};
use ephor_wire::connection_string::DEVELOPMENT_KEY;

/// An argument that may contain a secret, and its alternatives.
struct Argument {
    id: &'static str,
    /// The id of the option that names a file in its place.
    file: &'static str,
    option: &'static str,
    file_option: &'static str,
    variable: &'static str,
}

const ARGUMENTS: [Argument; 4] = [
    Argument {
        id: "store",
        file: "store_file",
        option: "--store",
        file_option: "--store-file FILE",
        variable: "EPHOR_STORE",
    },
    Argument {
        id: "connection",
        file: "connection_file",
        option: "--connection",
        file_option: "--connection-file FILE",
        variable: "EPHOR_CONNECTION",
    },
    Argument {
        id: "hub",
        file: "hub_file",
        option: "--hub",
        file_option: "--hub-file FILE",
        variable: "EPHOR_DEMO_HUB",
    },
    Argument {
        id: "results",
        file: "results_file",
        option: "--results",
        file_option: "--results-file FILE",
        variable: "EPHOR_DEMO_RESULTS",
    },
];

/// The names of secrets in connection strings and URLs. A blank may stand before the `=`.
const NAMES: [&str; 5] = ["sharedaccesskey", "sharedaccesssignature", "accountkey", "sig", "password"];

/// The warnings about a command's arguments; an error if one of them is given twice, as a value and as a
/// file, or if a store is needed and not named.
pub(crate) fn check(matches: &ArgMatches) -> Result<Vec<String>, Error> {
    let mut command = matches;
    while let Some((_, inner)) = command.subcommand() {
        command = inner;
    }
    let mut warnings = Vec::new();
    for argument in ARGUMENTS.iter().filter(|argument| has(command, argument.file)) {
        let from_line = |id| command.value_source(id) == Some(ValueSource::CommandLine);
        let Argument { id, file, option, file_option, variable } = argument;
        if from_line(id) && from_line(file) {
            let text = format!("{option} and {file_option} cannot be used together: leave one out\n");
            return Err(Error::raw(ErrorKind::ArgumentConflict, text));
        }
        let given = command.try_get_one::<String>(id).ok().flatten();
        if *id == "store" && given.is_none() && command.value_source(file).is_none() {
            let text = format!("no store is named: add {option} URL or {file_option}, or set {variable}\n");
            return Err(Error::raw(ErrorKind::MissingRequiredArgument, text));
        }
        if from_line(id) && given.is_some_and(|given| holds_secret(given)) {
            warnings.push(format!(
                "{option} contains a secret, and everybody on this machine can read the arguments of a \
                 process; set {variable} instead, or put it into a file and use {file_option}"
            ));
        }
    }
    Ok(warnings)
}

/// True if the command has this argument.
fn has(command: &ArgMatches, id: &str) -> bool {
    command.try_contains_id(id).is_ok()
}

/// True if a connection string or a URL contains a secret. The development key is none.
fn holds_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let named = NAMES.iter().any(|name| {
        lower.match_indices(name).any(|(at, _)| {
            let rest = text[at + name.len()..].split([';', '&', '#']).next().unwrap_or_default();
            let value = rest.trim_start().strip_prefix('=').unwrap_or_default().trim();
            !value.is_empty() && value != DEVELOPMENT_KEY
        })
    });
    named || has_password(text)
}

/// True for `scheme://user:password@host`.
fn has_password(url: &str) -> bool {
    let Some((_, rest)) = url.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // A password may contain characters that end an authority elsewhere; then the @ comes later.
    let user = authority.rsplit_once('@').or_else(|| rest.rsplit_once('@')).map(|(user, _)| user);
    user.is_some_and(|user| user.split_once(':').is_some_and(|(_, password)| !password.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_must_not_know_is_found_in_every_form_and_nothing_else_is() {
        for secret in [
            "Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=abc",
            "endpoint=sb://h;SHAREDACCESSKEY=abc",
            "endpoint=sb://h;sharedaccesskey = abc",
            "Endpoint=sb://h;SharedAccessSignature=SharedAccessSignature sr=x&sig=abc",
            "postgres://ada:secret@db.example/fleet",
            "postgres://ada:se/cret@db.example/fleet",
            "postgres://db.example/fleet?user=ada&password=secret",
            "AccountName=a;AccountKey=abc==;Container=c",
            "azblob://account/container?sv=2024&sig=abc",
        ] {
            assert!(holds_secret(secret), "{secret}");
        }
        for open in [
            "Endpoint=sb://localhost;SharedAccessKeyName=n;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true",
            "Endpoint=sb://localhost;SharedAccessKey=",
            "Endpoint=sb://localhost;SharedAccessKeyName=n",
            "sqlite:a:b@c.db",
            "postgres://ada@db.example:5432/fleet",
            "postgres://db.example:5432/fleet",
            "azblob://account/container",
            "UseDevelopmentStorage=true",
            "homes",
        ] {
            assert!(!holds_secret(open), "{open}");
        }
    }
}
