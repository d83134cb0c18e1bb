//! Client options and the client builder.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::failure_policy::Backoff;
use ephor_core::ids::{HubName, InvalidName};
use ephor_core::source::EventSource;
use ephor_wire::connection_string::{ConnectionString, InvalidConnectionString, is_loopback};
use ephor_wire::sas::InvalidToken;

use crate::client::EventHub;
use crate::connect_error::ConnectError;
use crate::credential::{self, Credential, DEFAULT_TOKEN_LIFE, WithoutTls};
use crate::endpoint::Endpoint;
use crate::tls;

/// The default number of TCP connections of a client.
pub const DEFAULT_CONNECTIONS: usize = 1;
/// The maximum number of connections. No client needs more, and the service limits them.
pub const MAX_CONNECTIONS: usize = 64;
/// The default number of attempts before a failure is returned.
pub const DEFAULT_ATTEMPTS: u32 = 5;
/// The default wait between two attempts.
pub const DEFAULT_BACKOFF: Backoff =
    Backoff { first: Duration::from_millis(200), max: Duration::from_secs(10) };
/// The default time limit from dialling to the hub's `open`.
pub const DEFAULT_CONNECT_TIME: Duration = Duration::from_secs(30);
/// The default time limit for an answer of a connected hub.
pub const DEFAULT_ANSWER_TIME: Duration = Duration::from_secs(60);
/// The default time after which a connection without any frame from the hub is considered dead.
pub const DEFAULT_IDLE_TIME: Duration = Duration::from_secs(60);

/// Options of a client. Each has a default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventHubOptions {
    /// The number of TCP connections over which partitions are spread: [`DEFAULT_CONNECTIONS`]. More
    /// connections use more cores.
    pub connections: usize,
    /// The number of attempts before a failure is returned, at least one: [`DEFAULT_ATTEMPTS`]. A receiver
    /// continues to retry when it is called again.
    pub attempts: u32,
    /// The wait between two attempts: [`DEFAULT_BACKOFF`]. A lost connection has one series of attempts,
    /// which all its users share; in the first minute they are at most two seconds apart.
    pub backoff: Backoff,
    /// The time limit from dialling to the hub's `open`: [`DEFAULT_CONNECT_TIME`].
    pub connect_time: Duration,
    /// The time limit for an answer of a connected hub, after which the connection is abandoned:
    /// [`DEFAULT_ANSWER_TIME`]. On a slow connection it is extended, up to ten times as long, while the hub
    /// answers anything on the connection or bytes move in either direction.
    pub answer_time: Duration,
    /// The time without any frame from a connected hub, even if nothing was asked, after which the connection
    /// is abandoned: [`DEFAULT_IDLE_TIME`]. The client requests a frame (AMQP `idle-time-out`) within half of
    /// it.
    pub idle_time: Duration,
    /// The life of a token that is signed with a key: [`DEFAULT_TOKEN_LIFE`]. It is renewed when a quarter of
    /// that is left.
    pub token_life: Duration,
}

impl Default for EventHubOptions {
    fn default() -> Self {
        Self {
            connections: DEFAULT_CONNECTIONS,
            attempts: DEFAULT_ATTEMPTS,
            backoff: DEFAULT_BACKOFF,
            connect_time: DEFAULT_CONNECT_TIME,
            answer_time: DEFAULT_ANSWER_TIME,
            idle_time: DEFAULT_IDLE_TIME,
            token_life: DEFAULT_TOKEN_LIFE,
        }
    }
}

impl EventHubOptions {
    /// Checks the options. An error names the problem and a valid value.
    pub fn validate(&self) -> Result<(), InvalidOptions> {
        let wrong = |option, text: String| Err(InvalidOptions::new(option, text));
        if !(1..=MAX_CONNECTIONS).contains(&self.connections) {
            let text = format!(
                "connections ({}) must be between 1 and {MAX_CONNECTIONS}; try {DEFAULT_CONNECTIONS}",
                self.connections
            );
            return wrong("connections", text);
        }
        if self.attempts == 0 {
            let text =
                format!("attempts (0) must be at least 1, or nothing is tried; try {DEFAULT_ATTEMPTS}");
            return wrong("attempts", text);
        }
        if self.backoff.first.is_zero() || self.backoff.first > self.backoff.max {
            let text = format!(
                "backoff ({:?} to {:?}) must begin above zero and grow; try {:?} to {:?}",
                self.backoff.first, self.backoff.max, DEFAULT_BACKOFF.first, DEFAULT_BACKOFF.max
            );
            return wrong("backoff", text);
        }
        for (name, time, least) in [
            ("connect_time", self.connect_time, Duration::from_millis(10)),
            ("answer_time", self.answer_time, Duration::from_millis(10)),
            ("idle_time", self.idle_time, Duration::from_millis(200)),
            ("token_life", self.token_life, Duration::from_secs(1)),
        ] {
            if time < least {
                return wrong(name, format!("{name} ({time:?}) must be at least {least:?}"));
            }
        }
        Ok(())
    }
}

/// The reason why a client cannot be built. It never repeats a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidOptions {
    option: &'static str,
    message: String,
}

impl InvalidOptions {
    pub(crate) fn new(option: &'static str, message: impl Into<String>) -> Self {
        Self { option, message: message.into() }
    }

    /// The name of the setting: a field of [`EventHubOptions`], a method of [`EventHubBuilder`], or
    /// `connection_string`.
    pub fn option(&self) -> &'static str {
        self.option
    }

    /// The error for a plaintext connection to another machine.
    fn exposed(host: &str) -> Self {
        let message = format!(
            "{host} is not this machine, and the connection string asks for a connection without TLS \
             (UseDevelopmentEmulator=true, amqp://, http:// or ws://), in which everybody on the way can read the tokens \
             and the events; leave that out to connect with TLS, or, if nobody else is in that network, such as that of \
             the containers of one machine, allow it: --allow-insecure on the command line, allow_insecure() in a program"
        );
        Self::new("allow_insecure", message)
    }
}

impl From<InvalidConnectionString> for InvalidOptions {
    fn from(invalid: InvalidConnectionString) -> Self {
        Self::new("connection_string", invalid.to_string())
    }
}

impl From<InvalidToken> for InvalidOptions {
    fn from(_: InvalidToken) -> Self {
        let message = "the connection string has a SharedAccessSignature that is not a token";
        Self::new("connection_string", message)
    }
}

impl From<InvalidName> for InvalidOptions {
    fn from(invalid: InvalidName) -> Self {
        Self::new("hub", invalid.to_string())
    }
}

/// Builds a client.
///
/// ```
/// use ephor::eventhubs::EventHub;
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let hub = EventHub::builder(
///     "Endpoint=sb://localhost:5672;SharedAccessKeyName=RootManageSharedAccessKey;\
///      SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;",
/// )
/// .hub("homes")
/// .build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?; Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct EventHubBuilder {
    connection_string: Result<ConnectionString, InvalidConnectionString>,
    hub: Option<String>,
    options: EventHubOptions,
    credential: Option<Arc<dyn Credential>>,
    roots: Vec<Vec<u8>>,
    address: Option<(String, u16)>,
    client_name: Option<String>,
    allow_insecure: bool,
}

impl EventHubBuilder {
    pub(crate) fn new(connection_string: Result<ConnectionString, InvalidConnectionString>) -> Self {
        Self {
            connection_string,
            hub: None,
            options: EventHubOptions::default(),
            credential: None,
            roots: Vec::new(),
            address: None,
            client_name: None,
            allow_insecure: false,
        }
    }

    /// Sets the hub, if the connection string has no `EntityPath`.
    pub fn hub(self, name: impl Into<String>) -> Self {
        Self { hub: Some(name.into()), ..self }
    }

    /// Sets the options.
    pub fn options(self, options: EventHubOptions) -> Self {
        Self { options, ..self }
    }

    /// Sets the credential, instead of the one in the connection string.
    pub fn credential(self, credential: impl Credential) -> Self {
        Self { credential: Some(Arc::new(credential)), ..self }
    }

    /// Trusts additional root certificates, one or more in PEM: for hubs with private certificates.
    pub fn extra_root(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots.push(pem.into());
        self
    }

    /// Dials this address instead of the namespace's, whose name is still used for TLS and AMQP: for private
    /// endpoints and proxies.
    pub fn address(self, host: impl Into<String>, port: u16) -> Self {
        Self { address: Some((host.into(), port)), ..self }
    }

    /// Sets the name by which the hub knows this client in its logs; random by default.
    pub fn client_name(self, name: impl Into<String>) -> Self {
        Self { client_name: Some(name.into()), ..self }
    }

    /// Permits plaintext to another machine, which is refused otherwise: everybody on the network path can
    /// read the tokens, use them until they expire, and read and change the events. Use it only in networks
    /// without other users, such as that of the containers of one machine. Tokens of Entra ID are never sent
    /// without TLS, whatever is set here.
    pub fn allow_insecure(self) -> Self {
        Self { allow_insecure: true, ..self }
    }

    /// Builds the client and asks the hub for its properties, so that what is wrong is reported at once: an address
    /// that does not answer (after [`EventHubOptions::attempts`]), a key that does not permit it, an unknown hub.
    pub async fn connect(self) -> Result<EventHub, ConnectError> {
        let client = self.build()?;
        match client.hub_properties().await {
            Ok(_) => Ok(client),
            Err(error) => Err(ConnectError::Hub { endpoint: client.endpoint(), error }),
        }
    }

    /// Builds the client. It connects on first use.
    pub fn build(self) -> Result<EventHub, InvalidOptions> {
        self.options.validate()?;
        let string = self.connection_string?;
        let named = self.hub.map(|name| name.parse::<HubName>()).transpose()?;
        let hub = match (named, string.hub.clone()) {
            (Some(named), Some(path)) if named != path => {
                let text = format!(
                    "the hub is named twice, as {named:?} and in the connection string as {path:?}: leave one of them out"
                );
                return Err(InvalidOptions::new("hub", text));
            }
            (Some(hub), _) | (None, Some(hub)) => hub,
            (None, None) => {
                let text = "no hub is named: add EntityPath to the connection string, or call hub()";
                return Err(InvalidOptions::new("hub", text));
            }
        };
        let credential = match (self.credential, string.credential.clone()) {
            (Some(credential), _) => Some(credential),
            (None, Some(found)) => Some(credential::of(found, self.options.token_life)?),
            // A development hub may accept unauthenticated clients.
            (None, None) if string.is_development() => None,
            (None, None) => {
                let text = "the connection string has neither SharedAccessKey nor SharedAccessSignature; \
                            add one, or call credential()";
                return Err(InvalidOptions::new("credential", text));
            }
        };
        for note in &string.notes {
            tracing::warn!(note, "a part of the connection string has no effect");
        }
        let tls = string.tls().then(|| tls::connector(&self.roots)).transpose()?;
        let namespace = string.host().clone();
        let address = self.address.unwrap_or_else(|| (namespace.to_string(), string.port()));
        if tls.is_none() && !self.allow_insecure && !is_loopback(&address.0) {
            return Err(InvalidOptions::exposed(&address.0));
        }
        let credential = match tls {
            Some(_) => credential,
            None => credential.map(|credential| Arc::new(WithoutTls(credential)) as Arc<dyn Credential>),
        };
        let container = self.client_name.unwrap_or_else(|| format!("ephor-{:016x}", fastrand::u64(..)));
        let endpoint = Endpoint {
            namespace,
            hub,
            address,
            tls,
            credential,
            container,
            connect_time: self.options.connect_time,
            idle_time: self.options.idle_time,
            answer_time: self.options.answer_time,
        };
        Ok(EventHub::new(endpoint, self.options))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRING: &str = "Endpoint=sb://localhost;SharedAccessKeyName=root;SharedAccessKey=canary-key";

    fn refused(builder: EventHubBuilder) -> String {
        builder.build().map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_program_can_tell_which_setting_is_wrong() {
        let wrong = |builder: EventHubBuilder| builder.build().map(|_| ()).unwrap_err().option();
        let named = EventHub::builder(STRING).hub("a");
        for (builder, option) in [
            (EventHub::builder("canary").hub("a"), "connection_string"),
            (EventHub::builder(STRING), "hub"),
            (EventHub::builder(STRING).hub("a b"), "hub"),
            (EventHub::builder("Endpoint=sb://localhost").hub("a"), "credential"),
            (named.clone().extra_root(b"canary".to_vec()), "extra_root"),
            (named.options(EventHubOptions { attempts: 0, ..EventHubOptions::default() }), "attempts"),
        ] {
            assert_eq!(wrong(builder), option);
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_said_with_what_to_do() {
        let builder = EventHub::builder(STRING);
        assert!(refused(builder.clone()).contains("EntityPath"));
        assert!(refused(builder.clone().hub("a b")).contains("hub name"));
        assert!(refused(EventHub::builder(&format!("{STRING};EntityPath=a")).hub("b")).contains("twice"));
        assert!(refused(EventHub::builder("Endpoint=sb://localhost").hub("a")).contains("SharedAccessKey"));
        assert!(refused(EventHub::builder("canary").hub("a")).contains("connection string"));
        let builder = builder.hub("a");
        for (wrong, word) in [
            (EventHubOptions { connections: 0, ..EventHubOptions::default() }, "connections"),
            (EventHubOptions { attempts: 0, ..EventHubOptions::default() }, "attempts"),
            (EventHubOptions { answer_time: Duration::ZERO, ..EventHubOptions::default() }, "answer_time"),
            (EventHubOptions { idle_time: Duration::ZERO, ..EventHubOptions::default() }, "idle_time"),
            (EventHubOptions { token_life: Duration::ZERO, ..EventHubOptions::default() }, "token_life"),
            (
                EventHubOptions {
                    backoff: Backoff { first: Duration::ZERO, max: Duration::ZERO },
                    ..EventHubOptions::default()
                },
                "backoff",
            ),
        ] {
            assert!(refused(builder.clone().options(wrong)).contains(word));
        }
    }

    #[tokio::test]
    async fn plaintext_goes_to_this_machine_alone_unless_it_is_allowed() {
        let key = "SharedAccessKeyName=n;SharedAccessKey=canary-key;EntityPath=a";
        let builder = |rest: &str| EventHub::builder(&format!("Endpoint={rest};{key}"));
        for elsewhere in [
            "sb://eventhubs-emulator;UseDevelopmentEmulator=true",
            "amqp://10.0.0.7",
            "http://ns.servicebus.windows.net",
            "ws://[2001:db8::1]:5672",
        ] {
            let error = refused(builder(elsewhere));
            assert!(error.contains("--allow-insecure") && error.contains("allow_insecure()"), "{error}");
            assert!(error.contains("without TLS") && !error.contains("canary"), "{error}");
            builder(elsewhere).allow_insecure().build().unwrap();
        }
        for here in ["amqp://localhost", "sb://127.0.0.5;UseDevelopmentEmulator=true", "ws://[::1]:5672"] {
            builder(here).build().unwrap();
            let elsewhere = refused(builder(here).address("10.0.0.7", 5672));
            assert!(elsewhere.starts_with("10.0.0.7 is not this machine"), "{elsewhere}");
        }
        // A proxy on this machine, whatever it forwards to.
        builder("amqp://ns.servicebus.windows.net").address("127.0.0.1", 5672).build().unwrap();
        builder("sb://ns.servicebus.windows.net").build().unwrap();
    }

    #[test]
    fn no_secret_shows_in_debug_or_in_errors() {
        let builder = EventHub::builder(STRING).hub("a");
        let client = builder.clone().build().unwrap();
        let shown = format!("{builder:?} {client:?} {}", refused(EventHub::builder(&format!("{STRING};x"))));
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn every_form_of_a_connection_string_makes_a_client() {
        for text in [
            format!("{STRING};EntityPath=a"),
            "Endpoint=sb://localhost:1234;UseDevelopmentEmulator=true;EntityPath=a".to_owned(),
            "Endpoint=sb://[::1]:5672;SharedAccessKeyName=n;SharedAccessKey=k;UseDevelopmentEmulator=true;\
             EntityPath=a"
                .to_owned(),
            "Endpoint=sb://ns.servicebus.windows.net/;EntityPath=a;SharedAccessSignature=\
             SharedAccessSignature sr=sb%3A%2F%2Flocalhost&sig=abc%3D&se=1800000000&skn=n"
                .to_owned(),
        ] {
            let client = EventHub::builder(&text).build().unwrap();
            assert_eq!(client.hub().as_str(), "a");
        }
    }
}
