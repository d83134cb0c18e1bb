//! Test helper: a store that fails, hangs, answers wrongly and counts its calls, on request.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ephor::{GroupId, HostId, PartitionId, Store};
use ephor_core::BoxFuture;
use ephor_core::lease::LeaseToken;
pub use ephor_core::store::StoreMethod as Op;
use ephor_core::store::{
    RenewalOutcome, SaveOutcome, SaveRequest, StoreError, StoreFuture, StoreLayer, StoreRequest, View,
};

/// All operations that a host uses.
pub const HOST_OPS: [Op; 9] = [
    Op::InitGroup,
    Op::View,
    Op::Heartbeat,
    Op::Retire,
    Op::Claim,
    Op::Renew,
    Op::Transfer,
    Op::Release,
    Op::Save,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// An error, and nothing is carried out.
    Fails,
    /// No answer, and nothing is carried out.
    Hangs,
    /// An error, although it is carried out.
    LandsAndFails,
    /// No answer, although it is carried out.
    LandsAndHangs,
    /// It is carried out at once, and the answer takes this long.
    AnswersAfter(Duration),
    /// It is carried out after this long, and answered then.
    LandsAfter(Duration),
    /// No answer, and it is carried out after this long even if nobody waits for it. Only for saves.
    LandsUnheardAfter(Duration),
    /// A panic, and nothing is carried out.
    Panics,
}

type RenewalRule = Box<dyn FnMut(PartitionId) -> Option<RenewalOutcome> + Send>;

#[derive(Default)]
struct State {
    troubles: BTreeMap<Op, (Trouble, usize)>,
    calls: BTreeMap<Op, usize>,
    /// The answers for single leases instead of a renewal, which is then not carried out.
    renewals: Option<RenewalRule>,
    /// The partitions of each renewal.
    renewed: Vec<Vec<PartitionId>>,
    /// Views show leases without their age.
    ages_unknown: bool,
}

/// A store with faults. Clones share them.
#[derive(Clone)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    state: Arc<Mutex<State>>,
}

impl FaultyStore {
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, state: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Injects a fault until [`heal`](Self::heal).
    pub fn trouble(&self, op: Op, trouble: Trouble) {
        self.trouble_times(op, trouble, usize::MAX);
    }

    /// Injects a fault the next `times` times.
    pub fn trouble_times(&self, op: Op, trouble: Trouble, times: usize) {
        self.state().troubles.insert(op, (trouble, times));
    }

    /// Injects a fault into all operations that a host uses.
    pub fn trouble_all(&self, trouble: Trouble) {
        HOST_OPS.iter().for_each(|op| self.trouble(*op, trouble));
    }

    /// From now on these are the answers to renewals of single leases.
    pub fn answer_renewals(&self, rule: impl FnMut(PartitionId) -> Option<RenewalOutcome> + Send + 'static) {
        self.state().renewals = Some(Box::new(rule));
    }

    /// The partitions of each renewal since the start or the last [`reset`](Self::reset).
    pub fn renewed(&self) -> Vec<Vec<PartitionId>> {
        self.state().renewed.clone()
    }

    /// From now on views do not tell how old a lease is.
    pub fn forget_ages(&self) {
        self.state().ages_unknown = true;
    }

    pub fn heal(&self) {
        let mut state = self.state();
        state.troubles.clear();
        state.renewals = None;
    }

    /// Calls since the start or the last [`reset`](Self::reset).
    pub fn calls(&self, op: Op) -> usize {
        self.state().calls.get(&op).copied().unwrap_or(0)
    }

    pub fn all_calls(&self) -> BTreeMap<Op, usize> {
        self.state().calls.clone()
    }

    pub fn reset(&self) {
        let mut state = self.state();
        state.calls.clear();
        state.renewed.clear();
    }

    fn call<'a, T: Send + 'a>(&'a self, op: Op, call: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        let trouble = {
            let mut state = self.state();
            *state.calls.entry(op).or_default() += 1;
            let left = state.troubles.get_mut(&op);
            left.filter(|(_, times)| *times > 0).map(|(trouble, times)| {
                *times -= 1;
                *trouble
            })
        };
        Box::pin(async move {
            match trouble {
                None => call.await,
                Some(Trouble::Fails) => Err(out_of_order()),
                Some(Trouble::Hangs | Trouble::LandsUnheardAfter(_)) => std::future::pending().await,
                Some(Trouble::Panics) => panic!("the store panics in {op:?}"),
                Some(Trouble::LandsAndFails) => {
                    call.await?;
                    Err(out_of_order())
                }
                Some(Trouble::LandsAndHangs) => {
                    call.await?;
                    std::future::pending().await
                }
                Some(Trouble::AnswersAfter(time)) => {
                    let answer = call.await;
                    pass(time).await;
                    answer
                }
                Some(Trouble::LandsAfter(time)) => {
                    pass(time).await;
                    call.await
                }
            }
        })
    }
}

/// Lets virtual time pass.
#[expect(clippy::disallowed_methods, reason = "these tests run on virtual time")]
pub async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Carries a save out later.
#[expect(clippy::disallowed_methods, reason = "these tests run on virtual time")]
fn land(store: Arc<dyn Store>, group: GroupId, request: SaveRequest, after: Duration) {
    tokio::spawn(async move {
        pass(after).await;
        drop(store.save(&group, &request).await);
    });
}

fn out_of_order() -> StoreError {
    StoreError::Unavailable("out of order".into())
}

impl StoreLayer for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn forward<T: Send + 'static>(&self, request: StoreRequest<T>) -> StoreFuture<'_, T> {
        self.call(request.method(), request.send(&*self.inner))
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        let ages_unknown = self.state().ages_unknown;
        let through = async move {
            let mut view = self.inner.view(group).await?;
            for lease in view.leases.iter_mut().filter(|_| ages_unknown) {
                (lease.age, lease.age_known) = (Duration::ZERO, false);
            }
            Ok(view)
        };
        self.call(Op::View, Box::pin(through))
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
        limit: Option<Duration>,
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        let answers: Vec<Option<RenewalOutcome>> = {
            let mut state = self.state();
            state.renewed.push(tokens.iter().map(|token| token.partition).collect());
            let mut rule = state.renewals.take();
            let answer = |token: &LeaseToken| rule.as_mut().and_then(|rule| rule(token.partition));
            let answers = tokens.iter().map(answer).collect();
            state.renewals = rule;
            answers
        };
        let through = async move {
            let asked = tokens.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
            let asked: Vec<LeaseToken> = asked.map(|(token, _)| token.clone()).collect();
            let request = StoreRequest::renew(group, duration, &asked, limit);
            let mut renewed = request.send(&*self.inner).await?.into_iter();
            Ok(answers.into_iter().map(|answer| answer.or_else(|| renewed.next()).unwrap()).collect())
        };
        self.call(Op::Renew, Box::pin(through))
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        let trouble = self.state().troubles.get(&Op::Save).filter(|(_, times)| *times > 0).map(|it| it.0);
        if let Some(Trouble::LandsUnheardAfter(time)) = trouble {
            land(self.inner.clone(), group.clone(), request.clone(), time);
        }
        self.forward(StoreRequest::save(group, request))
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        // Not counted, because it is a wait and not a request.
        let panics = matches!(self.state().troubles.get(&Op::Changed), Some((Trouble::Panics, _)));
        assert!(!panics, "the store panics in {:?}", Op::Changed);
        self.inner.changed(group, host)
    }
}
