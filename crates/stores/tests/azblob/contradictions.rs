//! Test helper: checks the recorded answers of several hosts for contradictions, such as two owners of one
//! epoch.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::{Lease, LeaseToken};

/// A moment, in the order of this process.
pub(crate) type Tick = u64;

/// One call, from before it was sent until after it was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) sent: Tick,
    pub(crate) done: Tick,
}

#[derive(Clone, Debug)]
struct Renewed {
    token: LeaseToken,
    span: Span,
}

/// Somebody was told that every epoch up to this one is over.
#[derive(Clone, Debug)]
struct Ended {
    through: Epoch,
    /// Nor may it save. After a release it may.
    fenced: bool,
    span: Span,
    #[expect(dead_code, reason = "a failure shows it")]
    what: String,
}

/// A claim that won.
#[derive(Clone, Debug)]
struct Won {
    token: LeaseToken,
    /// What it was made for, and when that had been seen.
    seen: Option<LeaseToken>,
    seen_by: Tick,
}

#[derive(Clone, Debug)]
struct Position {
    sequence: u64,
    span: Span,
}

impl Position {
    /// It may have been written over the other.
    fn may_follow(&self, other: &Self) -> bool {
        self.span.done > other.span.sent
    }
}

#[derive(Default)]
struct Record {
    renewed: Vec<Renewed>,
    ended: Vec<Ended>,
    won: Vec<Won>,
    positions: Vec<Position>,
    /// Seeks, also those that failed.
    seeks: Vec<Position>,
    owners: BTreeMap<Epoch, HostId>,
}

#[derive(Default)]
struct All {
    now: Tick,
    records: BTreeMap<PartitionId, Record>,
}

/// Everything that anybody was told.
pub(crate) struct Oracle {
    all: Mutex<All>,
    /// Whether checkpoints are fenced, too.
    fenced: bool,
}

impl Oracle {
    pub(crate) fn new(fenced: bool) -> Self {
        Self { all: Mutex::default(), fenced }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        // Whoever found something ends the test; what the others find meanwhile is told, too.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Tick {
        let mut all = self.all();
        all.now += 1;
        all.now
    }

    fn with<T>(&self, partition: PartitionId, look: impl FnOnce(&mut Record) -> T) -> T {
        look(self.all().records.entry(partition).or_default())
    }

    /// How many calls of each kind were judged: renewals, takings away, claims.
    pub(crate) fn judged(&self) -> (usize, usize, usize) {
        let all = self.all();
        let sum = |count: fn(&Record) -> usize| all.records.values().map(count).sum();
        (sum(|record| record.renewed.len()), sum(|record| record.ended.len()), sum(|record| record.won.len()))
    }

    pub(crate) fn renewed(&self, token: &LeaseToken, span: Span) {
        self.with(token.partition, |record| {
            if let Some(ended) =
                record.ended.iter().find(|ended| ended.through >= token.epoch && ended.span.done < span.sent)
            {
                panic!("{token:?} was renewed in {span:?}, after {ended:?}");
            }
            record.renewed.push(Renewed { token: token.clone(), span });
            record.check_claims();
        });
    }

    /// A claim won: whoever had it has it no more.
    pub(crate) fn won(&self, token: &LeaseToken, seen: Option<LeaseToken>, seen_by: Tick, span: Span) {
        self.owned(token.partition, token.epoch, &token.owner);
        self.with(token.partition, |record| {
            if let Some(ended) =
                record.ended.iter().find(|ended| ended.through >= token.epoch && ended.span.done < span.sent)
            {
                panic!("{token:?} was won in {span:?}, and is not above {ended:?}");
            }
            assert!(record.won.iter().all(|won| won.token.epoch != token.epoch), "{token:?} was won twice");
            record.won.push(Won { token: token.clone(), seen, seen_by });
            record.check_claims();
        });
        let before = Epoch::from_stored(token.epoch.get() - 1);
        self.ended(token.partition, before, true, span, format!("the claim {token:?}"));
    }

    /// Epochs up to this one are over.
    pub(crate) fn ended(
        &self,
        partition: PartitionId,
        through: Epoch,
        fenced: bool,
        span: Span,
        what: String,
    ) {
        self.with(partition, |record| record.ended.push(Ended { through, fenced, span, what }));
    }

    /// Nobody else ever has this epoch.
    fn owned(&self, partition: PartitionId, epoch: Epoch, owner: &HostId) {
        self.with(partition, |record| {
            let first = record.owners.entry(epoch).or_insert_with(|| owner.clone());
            assert_eq!(first, owner, "two owners of {partition:?} in epoch {epoch}");
        });
    }

    /// Somebody saw this lease.
    pub(crate) fn seen(&self, lease: &Lease, span: Span) {
        if let Some(owner) = &lease.owner {
            self.owned(lease.partition, lease.epoch, owner);
        }
        self.with(lease.partition, |record| {
            let later = record.ended.iter().find(|ended| {
                let over = ended.through > lease.epoch
                    || (ended.through == lease.epoch && lease.owner.is_some() && lease.successor.is_none());
                over && ended.span.done < span.sent
            });
            assert!(later.is_none(), "{lease:?} was seen in {span:?}, after {later:?}");
        });
    }

    /// A position was written: by an owner in its epoch, or by a person.
    pub(crate) fn written(&self, partition: PartitionId, epoch: Option<Epoch>, sequence: u64, span: Span) {
        if !self.fenced {
            return;
        }
        self.with(partition, |record| {
            let over = record.ended.iter().find(|ended| {
                ended.fenced
                    && epoch.is_some_and(|epoch| ended.through >= epoch)
                    && ended.span.done < span.sent
            });
            assert!(over.is_none(), "{sequence} was saved in epoch {epoch:?} in {span:?}, after {over:?}");
            record.positions.push(Position { sequence, span });
        });
    }

    /// A person wrote this, or nobody knows: from there on it goes, also back.
    pub(crate) fn sought(&self, partition: PartitionId, sequence: u64, span: Span) -> usize {
        self.with(partition, |record| {
            record.seeks.push(Position { sequence, span });
            record.seeks.len() - 1
        })
    }

    /// That seek is over.
    pub(crate) fn sought_by(&self, partition: PartitionId, place: usize, done: Tick) {
        self.with(partition, |record| record.seeks[place].span.done = done);
    }

    /// This is what was read: nothing that was written before is ahead of it, unless somebody sought back.
    pub(crate) fn read(&self, partition: PartitionId, sequence: u64, span: Span) {
        if !self.fenced {
            return;
        }
        self.with(partition, |record| {
            let ahead = record.positions.iter().find(|position| {
                let back = |seek: &Position| seek.sequence <= sequence && seek.may_follow(position);
                position.sequence > sequence
                    && position.span.done < span.sent
                    && !record.seeks.iter().any(back)
            });
            assert!(ahead.is_none(), "{partition:?}: {sequence} was read in {span:?}, after {ahead:?}");
        });
    }
}

impl Record {
    /// A claim names the state that it saw. A renewal that was sent after that look changed it, and so the claim lost; or
    /// the claim was first, and so the renewal was refused.
    fn check_claims(&self) {
        for won in &self.won {
            let both = self
                .renewed
                .iter()
                .find(|renewed| won.seen.as_ref() == Some(&renewed.token) && renewed.span.sent > won.seen_by);
            assert!(both.is_none(), "{won:?}, although its owner got {both:?}");
        }
    }
}
