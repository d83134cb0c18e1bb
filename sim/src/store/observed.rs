//! Wraps a user's own store, and reports the operations that it executed to the judge.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::memory::StoreEvent;
use ephor_core::epoch::Epoch;
use ephor_core::history::{ChangeReason, OwnershipChange};
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    ClaimOutcome, GiveUpOutcome, RenewalOutcome, SaveOutcome, SaveRequest, SeekOutcome, SeekRequest, Store,
    StoreFuture, StoreLayer, StoreRequest,
};
use ephor_core::time::Clock;

/// Called with every step that was carried out.
pub(crate) type StepObserver = Arc<dyn Fn(&StoreEvent) + Send + Sync>;

/// A store whose answers are passed to the judge.
pub(crate) struct ObservedStore {
    inner: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    on_step: StepObserver,
    /// The owners of partitions, by the answers so far.
    owners: Mutex<BTreeMap<PartitionId, HostId>>,
}

impl ObservedStore {
    pub(crate) fn new(inner: Arc<dyn Store>, clock: Arc<dyn Clock>, on_step: StepObserver) -> Self {
        Self { inner, clock, on_step, owners: Mutex::default() }
    }

    fn ownership_changed(
        &self,
        (partition, epoch): (PartitionId, Epoch),
        to: Option<&HostId>,
        reason: ChangeReason,
        checkpoint_saved: bool,
    ) {
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let from = owners.remove(&partition);
        owners.extend(to.map(|owner| (partition, owner.clone())));
        drop(owners);
        let at = self.clock.wall();
        let change = OwnershipChange { at, partition, epoch, from, to: to.cloned(), reason };
        (self.on_step)(&StoreEvent::Changed { change, checkpoint_saved });
    }

    /// The epoch in which this owner owns a partition. The answer to a transfer does not contain it.
    async fn epoch_of(&self, group: &GroupId, partition: PartitionId, owner: &HostId) -> Option<Epoch> {
        let view = self.inner.view(group).await.ok()?;
        view.lease(partition).filter(|lease| lease.owner.as_ref() == Some(owner)).map(|lease| lease.epoch)
    }
}

impl StoreLayer for ObservedStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        Box::pin(async move {
            let answer = self.inner.claim(group, request).await?;
            if let ClaimOutcome::Won { token, .. } = &answer {
                let reason = ChangeReason::Claimed(request.cause);
                self.ownership_changed((token.partition, token.epoch), Some(&token.owner), reason, false);
            }
            Ok(answer)
        })
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
        limit: Option<Duration>,
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        Box::pin(async move {
            let answers = self.forward(StoreRequest::renew(group, duration, tokens, limit)).await?;
            for (token, answer) in tokens.iter().zip(&answers) {
                if *answer == RenewalOutcome::Renewed {
                    (self.on_step)(&StoreEvent::Renewed { token: token.clone() });
                }
            }
            Ok(answers)
        })
    }

    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        Box::pin(async move {
            let answer = self.inner.transfer(group, request).await?;
            if answer == GiveUpOutcome::Done {
                let partition = request.token.partition;
                let epoch = self.epoch_of(group, partition, &request.to).await;
                let epoch = epoch.or_else(|| request.token.epoch.next()).unwrap_or(request.token.epoch);
                let reason = ChangeReason::HandedOver;
                self.ownership_changed(
                    (partition, epoch),
                    Some(&request.to),
                    reason,
                    request.checkpoint_saved,
                );
            }
            Ok(answer)
        })
    }

    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        Box::pin(async move {
            let answer = self.inner.release(group, request).await?;
            if answer == GiveUpOutcome::Done {
                let (token, reason) = (&request.token, ChangeReason::Released(request.cause));
                self.ownership_changed(
                    (token.partition, token.epoch),
                    None,
                    reason,
                    request.checkpoint_saved,
                );
            }
            Ok(answer)
        })
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        Box::pin(async move {
            let answer = self.inner.save(group, request).await?;
            if let SaveOutcome::Saved(checkpoint) = &answer {
                let (token, checkpoint) = (request.token.clone(), checkpoint.clone());
                (self.on_step)(&StoreEvent::Saved { token, checkpoint });
            }
            Ok(answer)
        })
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        Box::pin(async move {
            let answer = self.inner.seek(group, request).await?;
            if let SeekOutcome::Done { epoch } = answer {
                let reason = ChangeReason::Seek { by: request.by.clone() };
                self.ownership_changed((request.partition, epoch), None, reason, false);
            }
            Ok(answer)
        })
    }
}
