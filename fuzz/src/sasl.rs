//! Fuzzes AMQP frames of the SASL layer.

use ephor_amqp::performative::{Sasl, SaslMechanisms};

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(frame) = Sasl::read(data) else { return };
    if let Sasl::Mechanisms(SaslMechanisms { names }) = &frame {
        assert!(names.len() <= data.len(), "more mechanisms than bytes");
        if names.iter().any(|name| name.len() > u8::MAX.into()) {
            // Only servers write mechanisms, and ours are short.
            return;
        }
    }
    let mut written = Vec::new();
    frame.write(&mut written);
    assert_eq!(Sasl::read(&written).as_ref(), Ok(&frame));
    if let Sasl::Init(init) = &frame
        && let Some(secret) = &init.initial_response
        && let Ok(secret) = std::str::from_utf8(secret.expose())
        && secret.len() > 8
        && !init.mechanism.contains(secret)
        && !init.hostname.as_ref().is_some_and(|host| host.contains(secret))
    {
        assert!(!format!("{frame:?}").contains(secret), "a password is shown");
    }
}
