//! Warns before a shared access signature expires, and reports an expired one.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use azure_core::time::OffsetDateTime;
use ephor_core::store::{RefusalCause, StoreError};
use ephor_core::time::Timestamp;

use crate::azblob::layout::metadata::unescape;
use crate::azblob::service::credential::Sas;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// The remaining times at which to warn.
const WARNED_AT: [Duration; 2] = [DAY.saturating_mul(7), DAY];

/// The expiry of the signature. A process cannot replace its signature while it runs.
pub(in crate::azblob) struct SasExpiry {
    at: Timestamp,
    /// The time as the signature writes it.
    text: String,
    /// The number of warnings that were logged.
    warned: AtomicU8,
}

impl SasExpiry {
    /// Reads the expiry; none if the signature has none, such as one with a stored access policy.
    pub(in crate::azblob) fn of(sas: &Sas) -> Option<Self> {
        let text = sas.query().split('&').find_map(|pair| pair.strip_prefix("se="))?;
        let text = unescape(text);
        // The service accepts a date, minutes, seconds, or fractions of them.
        let whole = match text.len() {
            10 => format!("{text}T00:00:00Z"),
            17 => format!("{}:00Z", text.trim_end_matches('Z')),
            _ => text.clone(),
        };
        Some(Self { at: whole.parse().ok()?, text, warned: AtomicU8::new(0) })
    }

    /// Logs a warning if the expiry is near at this time of the service, once for each stage.
    pub(in crate::azblob) fn warn_at(&self, now: Timestamp, place: &str) {
        let left = self.at.since(now);
        let due = WARNED_AT.iter().filter(|limit| left < **limit).count();
        let due = u8::try_from(due).unwrap_or(u8::MAX);
        if self.warned.fetch_max(due, Ordering::Relaxed) < due {
            tracing::warn!(
                store = place,
                expires = self.text,
                hours_left = left.as_secs() / 3_600,
                "the shared access signature expires soon: create a new one, and restart the hosts with it before that"
            );
        }
    }

    /// The number of warnings that were logged.
    #[cfg(test)]
    pub(in crate::azblob) fn warnings(&self) -> u8 {
        self.warned.load(Ordering::Relaxed)
    }

    /// The error of a refused request, if the signature has expired at this time.
    pub(in crate::azblob) fn refusal(
        &self,
        at: Option<Timestamp>,
        place: &str,
        what: &str,
    ) -> Option<StoreError> {
        let now = at.unwrap_or_else(|| SystemTime::from(OffsetDateTime::now_utc()).into());
        let message = format!(
            "{place}: the shared access signature has expired ({}): create a new one, and restart with it ({what})",
            self.text
        );
        (now >= self.at).then(|| StoreError::refused(RefusalCause::InvalidCredentials, message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expiry(se: &str) -> Option<SasExpiry> {
        SasExpiry::of(&Sas::new(&format!("sv=2021-12-02&se={se}&sig=canary")).unwrap())
    }

    #[test]
    fn every_form_of_an_end_is_read() {
        let end = Timestamp(1_893_456_000_000);
        for text in ["2030-01-01T00%3A00%3A00Z", "2030-01-01T00:00:00Z", "2030-01-01", "2030-01-01T00:00Z"] {
            assert_eq!(expiry(text).map(|expiry| expiry.at), Some(end), "{text}");
        }
        for text in ["", "soon", "2030-13-01"] {
            assert!(expiry(text).is_none(), "{text}");
        }
        assert!(SasExpiry::of(&Sas::new("si=policy&sig=canary").unwrap()).is_none());
    }

    #[test]
    fn each_warning_is_given_once_and_the_end_is_told() {
        let expiry = expiry("2030-01-01").unwrap();
        let at = |days: i64| Timestamp(expiry.at.0 - days * 86_400_000);
        let warned = |days| {
            expiry.warn_at(at(days), "azblob://contoso/homes");
            expiry.warnings()
        };
        assert_eq!([30, 7, 6, 5, 30, 1, 0, -1, 30].map(warned), [0, 0, 1, 1, 1, 1, 2, 2, 2]);
        assert!(expiry.refusal(Some(at(1)), "p", "w").is_none());
        let error = expiry.refusal(Some(at(0)), "azblob://contoso/homes", "listing").unwrap().to_string();
        assert!(error.contains("has expired (2030-01-01)") && error.contains("create a new one"), "{error}");
        assert!(!error.contains("canary"), "{error}");
    }
}
