//! The summary that is printed at the end of a demo: audit, duration, latency, CPU time and memory.

use std::fmt;
use std::time::Duration;

use crate::view::model::Audit;

/// The audit, the duration, and the cost of a demo.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The audit.
    pub audit: Audit,
    /// How long sensors sent.
    pub lasted: Duration,
    /// CPU time of all processes, in cores, on average.
    pub cores: f64,
    /// The most resident memory of all processes together, in bytes.
    pub memory: u64,
    /// From a sensor's push to the page's data: median and 99 of 100, in milliseconds, over the last minute.
    pub latency: Option<(u64, u64)>,
}

impl Summary {
    /// Whether the results are what was sent, to the reading and to the home.
    pub fn is_right(&self) -> bool {
        self.audit.homes_behind == 0 && self.audit.invented == 0 && self.audit.sent == self.audit.processed
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Audit { sent, processed, sensor_repeats, replayed, homes_behind, invented, .. } = self.audit;
        let lost = sent.saturating_sub(processed);
        writeln!(
            f,
            "sent {sent}, processed {processed}, lost {lost}, unexpected {invented}, homes that differ \
             {homes_behind}"
        )?;
        writeln!(
            f,
            "repeated by sensors {sensor_repeats} and delivered again {replayed}: each counted once"
        )?;
        if let Some((p50, p99)) = self.latency {
            writeln!(f, "from a sensor's push to the page's data: p50 {p50} ms, p99 {p99} ms")?;
        }
        let seconds = self.lasted.as_secs_f64().max(0.001);
        write!(
            f,
            "{:.0} s, {:.0} readings a second, {:.2} cores and at most {} MiB for all processes",
            seconds,
            sent as f64 / seconds,
            self.cores,
            self.memory >> 20
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_must_be_there_to_the_home() {
        let audit = Audit { sent: 5, processed: 5, ..Audit::default() };
        let of = |audit| Summary { audit, ..Summary::default() };
        assert!(of(audit).is_right());
        for wrong in [
            Audit { processed: 4, ..audit },
            Audit { homes_behind: 1, ..audit },
            Audit { invented: 1, ..audit },
            Audit { sent: 4, ..audit },
        ] {
            assert!(!of(wrong).is_right(), "{wrong:?}");
        }
        let text = of(Audit { sent: 7, processed: 5, replayed: 3, ..audit }).to_string();
        assert!(text.starts_with("sent 7, processed 5, lost 2, unexpected 0"), "{text}");
        assert!(text.contains("delivered again 3: each counted once"), "{text}");
    }
}
