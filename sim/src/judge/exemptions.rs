//! The exemptions of the judge: a check is skipped where no host could know better, or where another rule
//! applies. Each exemption is a named value with its reason and its limit, and every use is counted.
//!
//! Saves are never exempt from fencing.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::PoisonError;

use super::Judge;

/// Declares the exemptions: each with its reason and its bound.
macro_rules! exemptions {
    ($($(#[doc = $reason:literal])+ $name:ident: $bound:literal,)+) => {
        /// The reason for which a check is skipped.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum Exemption {
            $($(#[doc = $reason])+ $name,)+
        }

        impl Exemption {
            /// All exemptions.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its reason, one sentence.
            pub fn reason(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($reason),+).trim_ascii(),)+
                }
            }

            /// The time or condition that ends it.
            pub fn bound(self) -> &'static str {
                match self {
                    $(Self::$name => $bound,)+
                }
            }
        }
    };
}

/// Declares the checks that have exemptions: each with the largest share of it that may be exempt, in percent.
/// Some checks are evaluated only where something has happened that is a violation unless an exemption applies:
/// they have no limit, 100.
macro_rules! checks {
    ($($(#[doc = $what:literal])+ $name:ident: $percent:literal,)+) => {
        /// A check that has exemptions.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
        pub enum Check {
            $($(#[doc = $what])+ $name,)+
        }

        impl Check {
            /// All checks that have exemptions.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// Its description, one sentence.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($what),+).trim_ascii(),)+
                }
            }

            /// The largest share that may be exempt, in percent.
            pub fn max_percent(self) -> u64 {
                match self {
                    $(Self::$name => $percent,)+
                }
            }
        }
    };
}

exemptions! {
    /// The store was restored from an old copy, and owners act on what it has forgotten until they read it again.
    StoreRestored: "60 s after the restore, or 60 s after a machine that slept through it woke",
    /// The same, for leases that run out and for calls that a stop cuts short.
    StoreRestoredRecently: "120 s after the restore",
    /// The store was restored, and what it counts may be what it counted before.
    StoreWasRestored: "the end of the run",
    /// A restored store gave the same epoch to another host, or to a seek.
    EpochReissued: "60 s after the restore; for checkpoints and gaps, the end of that epoch",
    /// The machine's clock stood still, so that it cannot see that its lease is over.
    ClockStopped: "its next renewal",
    /// The store's clock was set, and a fault affected the machine or kept it from the store.
    TakeoverUnseen: "60 s after the clock was set",
    /// The store's clock was set, and the ages that it reports are wrong.
    StoreClockSet: "120 s after the clock was set",
    /// Both clocks that a taker could compare jumped since the renewal.
    BothClocksJumped: "the next renewal",
    /// The machine stood still, slept or blocked its thread, or its clock jumped or drifted.
    TimeFault: "the end of that fault",
    /// A fault hit the machine, or the store was bad for it.
    MachineFault: "the end of that fault",
    /// The store was bad for the machine.
    StoreUnreached: "the end of that fault",
    /// A fault hit the machine, the store was bad for it, or the store was restored.
    Unhealthy: "60 s after that, 12 s after a hang of the store at a stop",
    /// An answer of the store may not have arrived.
    AnswerMissed: "the next renewal",
    /// The store hung at a stop, and what had to be written did not get through.
    StoreHung: "the end of the hang",
    /// Another host handed the partition to one that was leaving, which cannot know of it.
    HandedOverLate: "1 s before the end of the stop, or the end of the hang",
    /// The machine is paused.
    MachinePaused: "its resumption",
    /// The call blocks its thread, and belongs to another run of a host.
    ThreadBlocked: "the end of the block",
    /// The process is gone, or has stopped.
    ProcessGone: "none: nobody answers for it any more",
    /// The host has lost the partition, and may not know it yet.
    PartitionLost: "none: the next owner is checked instead",
    /// The host reported the partition as abandoned.
    Abandoned: "the expiry of the lease",
    /// The stop has used up its time.
    StopIsOver: "none: the host has stopped soon",
    /// The call has reached its own limit, or a handover that was agreed before ends sooner.
    OtherDeadline: "none: that deadline counts",
    /// The lease is over, or nearly, by the machine's own clock.
    LeaseOver: "the next renewal",
    /// The event belongs to a log that the hub does not have any more.
    EarlierLog: "the first event of the present log",
    /// The answer or the announcement is so young that the other host may not have seen it.
    AnswerYoung: "12 s after the answer",
    /// The machine woke up, or the processor was opened, too shortly before the lease ended.
    AwakeTooLate: "the next renewal",
    /// The processor failed to close, so that nothing may be saved for it.
    CloseFailed: "none: its events come again",
    /// Nobody served the partition.
    Unserved: "the next opening",
    /// The foreign reader's epoch is higher than hosts go.
    EpochTooHigh: "none: hosts do not follow it",
    /// The hosts have not room for all partitions.
    NoRoom: "none: nobody may serve it",
}

checks! {
    /// No two calls for one partition at a time.
    CallsOverlap: 6,
    /// No call begins after the lease is over by true time.
    CallAfterLease: 1,
    /// No user code runs in an epoch that is over, or that the store has not issued.
    EpochOfCode: 6,
    /// No user code runs after its host has stopped.
    CodeAfterStop: 100,
    /// A call begins at the next unfinished event.
    OrderOfEvents: 1,
    /// A checkpoint of the policy is written in time.
    CheckpointInTime: 20,
    /// A deferred checkpoint is written in time.
    DeferredCheckpointInTime: 25,
    /// A call ends at its limit.
    CallLimit: 5,
    /// No call begins long after its host was told to stop.
    CallAfterOrderToStop: 15,
    /// A call ends when the time is over that a stop left it.
    CallBeyondStop: 15,
    /// A call in flight gets the time that a stop promises.
    CallCutShort: 80,
    /// No call is cancelled within 5 s.
    CallCancelledEarly: 100,
    /// The lease of a call that blocks its thread far beyond its limit is not renewed.
    RenewedWhileStuck: 65,
    /// A skipped event failed as often as the policy says.
    SkippedEvent: 5,
    /// All events before a checkpoint are finished.
    CoveredByCheckpoint: 100,
    /// The answer to a checkpoint is true.
    CheckpointAnswer: 55,
    /// A processor is closed because of a seek only if somebody sought.
    CloseReason: 20,
    /// A lease does not run out while its host serves it.
    LeaseRunsOut: 100,
    /// No lease is claimed as expired before it is over.
    ClaimedTooEarly: 25,
    /// No lease of a healthy owner is stolen as unresponsive.
    StolenFromHealthy: 100,
    /// No lease is stolen without a request and the time to answer it.
    StolenWithoutWaiting: 100,
    /// No lease is stolen against the owner's answer.
    StolenAgainstAnswer: 100,
    /// No lease is stolen from an owner that drains as it announced.
    StolenFromDraining: 100,
    /// A host that claims a partition back from a foreign reader goes above its epoch.
    AboveForeignReader: 65,
    /// A healthy host saves what it finished before it gives a partition away.
    GivenAwayUnsaved: 90,
    /// A partition given away as saved has its checkpoint at the last finished event.
    SavedAsGivenAway: 5,
    /// Nothing is saved for a processor that failed to close.
    SavedAfterFailedClose: 100,
    /// A stopped host owns nothing, and has abandoned nothing.
    StoppedOwnsNothing: 95,
    /// The report of a stop is true.
    StopReport: 5,
    /// A stop returns in time.
    StopInTime: 10,
    /// A reader of the hub presents an epoch that the store gave out.
    ReaderEpoch: 10,
    /// Events that a host reports as lost are gone, and were next.
    PositionGone: 10,
    /// Gaps that were passed over are reported.
    Gaps: 30,
    /// Every event is finished in the end.
    Finished: 10,
}

/// Below this many evaluations of a check its share of exemptions says nothing.
const MIN_EVALUATIONS: u64 = 1_000;

/// How often each check was evaluated, and how often it was exempt for which reason.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExemptionCounts(BTreeMap<Check, CheckCounts>);

/// The counts of one check.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
struct CheckCounts {
    evaluated: u64,
    exempt: BTreeMap<Exemption, u64>,
}

impl CheckCounts {
    fn exempt_in_all(&self) -> u64 {
        self.exempt.values().sum()
    }
}

impl ExemptionCounts {
    /// Counts an evaluation of a check. If several exemptions apply, the first one counts.
    pub(super) fn count(&mut self, check: Check, exemption: Option<Exemption>) {
        let counts = self.0.entry(check).or_default();
        counts.evaluated += 1;
        if let Some(exemption) = exemption {
            *counts.exempt.entry(exemption).or_default() += 1;
        }
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Self) {
        for (check, counts) in &other.0 {
            let mine = self.0.entry(*check).or_default();
            mine.evaluated += counts.evaluated;
            for (exemption, count) in &counts.exempt {
                *mine.exempt.entry(*exemption).or_default() += count;
            }
        }
    }

    /// The number of evaluations of a check.
    pub fn evaluated(&self, check: Check) -> u64 {
        self.0.get(&check).map_or(0, |counts| counts.evaluated)
    }

    /// The number of evaluations of a check that were exempt.
    pub fn exempt(&self, check: Check) -> u64 {
        self.0.get(&check).map_or(0, CheckCounts::exempt_in_all)
    }

    /// The checks that were exempt more often than they may be, as text.
    pub fn above_limit(&self) -> Vec<String> {
        let checks = self.0.iter().filter(|(check, counts)| {
            counts.evaluated >= MIN_EVALUATIONS
                && counts.exempt_in_all() * 100 > check.max_percent() * counts.evaluated
        });
        checks
            .map(|(check, counts)| {
                let (exempt, evaluated, max) =
                    (counts.exempt_in_all(), counts.evaluated, check.max_percent());
                format!("{check:?} was exempt in {exempt} of {evaluated} cases, more than {max} %")
            })
            .collect()
    }
}

impl Judge {
    /// Counts an evaluation of a check. True if one of these exemptions applies to it.
    pub(super) fn is_exempt<const N: usize>(&self, check: Check, exemptions: [(Exemption, bool); N]) -> bool {
        let applies = exemptions.into_iter().find(|(_, applies)| *applies);
        let mut counts = self.exemptions.lock().unwrap_or_else(PoisonError::into_inner);
        counts.count(check, applies.map(|(exemption, _)| exemption));
        applies.is_some()
    }

    /// How often each check was exempt so far, and why.
    pub fn exemption_counts(&self) -> ExemptionCounts {
        self.exemptions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Display for ExemptionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<26}{:>12}{:>10}{:>8}  exempt because of", "check", "evaluated", "exempt", "at most")?;
        for (check, counts) in &self.0 {
            let share = counts.exempt_in_all() as f64 * 100.0 / counts.evaluated.max(1) as f64;
            let mut reasons: Vec<_> = counts.exempt.iter().collect();
            reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
            let reasons: Vec<String> =
                reasons.iter().map(|(exemption, count)| format!("{exemption:?} {count}")).collect();
            let (name, max) = (format!("{check:?}"), check.max_percent());
            let (evaluated, reasons) = (counts.evaluated, reasons.join(", "));
            write!(f, "\n{name:<26}{evaluated:>12}{share:>8.1} %{max:>6} %  {reasons}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exemption_and_every_check_is_described() {
        for exemption in Exemption::ALL {
            assert!(exemption.reason().ends_with('.') && !exemption.bound().is_empty(), "{exemption:?}");
        }
        for check in Check::ALL {
            assert!(check.what().ends_with('.') && (1..=100).contains(&check.max_percent()), "{check:?}");
        }
    }

    #[test]
    fn counts_add_up_and_name_the_exemptions() {
        let mut one = ExemptionCounts::default();
        one.count(Check::CallLimit, None);
        one.count(Check::CallLimit, Some(Exemption::TimeFault));
        let mut sum = one.clone();
        sum.add(&one);
        assert_eq!((sum.evaluated(Check::CallLimit), sum.exempt(Check::CallLimit)), (4, 2));
        let text = sum.to_string();
        assert!(
            text.contains("CallLimit") && text.contains("50.0 %") && text.contains("TimeFault 2"),
            "{text}"
        );
    }

    #[test]
    fn a_share_above_the_limit_is_named_once_there_are_enough_evaluations() {
        let counts = |evaluated: u64| {
            let mut counts = ExemptionCounts::default();
            (0..evaluated).for_each(|_| counts.count(Check::CallLimit, Some(Exemption::TimeFault)));
            counts
        };
        assert_eq!(counts(MIN_EVALUATIONS - 1).above_limit(), [""; 0]);
        let above = counts(MIN_EVALUATIONS).above_limit();
        assert!(above[0].starts_with("CallLimit was exempt in 1000 of 1000 cases"), "{above:?}");
    }
}
