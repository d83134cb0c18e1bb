//! Encodes the reason of a change of owner as text, and decodes it: `claimed:expired`, `handed-over`,
//! `released:shutdown`, `sought:ada`.

use ephor_core::history::ChangeReason;
use ephor_core::lease::{ClaimCause, ReleaseCause};

use super::Unreadable;

const CLAIMS: [(&str, ClaimCause); 4] = [
    ("claimed:unowned", ClaimCause::Unowned),
    ("claimed:expired", ClaimCause::Expired),
    ("claimed:silent", ClaimCause::Unresponsive),
    ("claimed:foreign", ClaimCause::AboveForeignReader),
];
const RELEASES: [(&str, ReleaseCause); 4] = [
    ("released:shutdown", ReleaseCause::Shutdown),
    ("released:processor-failed", ReleaseCause::ProcessorFailed),
    ("released:source-failed", ReleaseCause::SourceFailed),
    ("released:unserved", ReleaseCause::Unserved),
];
const HANDED_OVER: &str = "handed-over";
const SOUGHT: &str = "sought:";

pub(crate) fn write_reason(reason: &ChangeReason) -> String {
    let named = match reason {
        ChangeReason::Claimed(cause) => CLAIMS.iter().find(|(_, each)| each == cause).map(|(name, _)| *name),
        ChangeReason::Released(cause) => {
            RELEASES.iter().find(|(_, each)| each == cause).map(|(name, _)| *name)
        }
        ChangeReason::HandedOver => Some(HANDED_OVER),
        ChangeReason::Seek { by } => return format!("{SOUGHT}{by}"),
    };
    named.unwrap_or_default().to_owned()
}

pub(crate) fn read_reason(text: &str) -> Result<ChangeReason, Unreadable> {
    if let Some(by) = text.strip_prefix(SOUGHT) {
        return Ok(ChangeReason::Seek { by: by.to_owned() });
    }
    let claim = CLAIMS.iter().find(|(name, _)| *name == text).map(|(_, cause)| ChangeReason::Claimed(*cause));
    let release =
        RELEASES.iter().find(|(name, _)| *name == text).map(|(_, cause)| ChangeReason::Released(*cause));
    let handed = (text == HANDED_OVER).then_some(ChangeReason::HandedOver);
    claim.or(release).or(handed).ok_or_else(|| format!("unknown reason of a change: {text:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_reads_back_and_has_a_name_of_its_own() {
        let claims = CLAIMS.map(|(_, cause)| ChangeReason::Claimed(cause));
        let releases = RELEASES.map(|(_, cause)| ChangeReason::Released(cause));
        let sought = ["", "ada: the 3rd"].map(|by| ChangeReason::Seek { by: by.into() });
        let reasons: Vec<_> =
            claims.into_iter().chain(releases).chain(sought).chain([ChangeReason::HandedOver]).collect();
        let texts: std::collections::BTreeSet<String> = reasons.iter().map(write_reason).collect();
        assert_eq!(texts.len(), reasons.len());
        for reason in reasons {
            assert_eq!(read_reason(&write_reason(&reason)), Ok(reason));
        }
        assert!(read_reason("borrowed").is_err());
        assert!(read_reason("").is_err());
    }
}
