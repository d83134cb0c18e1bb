//! A call to a store as a value: its method, its caller, and owned copies of its arguments.
//!
//! A [`StoreLayer`](super::StoreLayer) gets every call in this form. It can send it at once, later, from another
//! task, to a store of its choice, or not at all.

use std::fmt;
use std::time::Duration;

use super::{
    ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome, SaveRequest,
    SeekOutcome, SeekRequest, Store, StoreFuture, View,
};
use crate::history::OwnershipChange;
use crate::host_record::HostRecord;
use crate::ids::{GroupId, HostId, PartitionId};
use crate::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};

/// The methods of a [`Store`] that ask it for something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "named after the methods")]
#[non_exhaustive]
pub enum StoreMethod {
    Groups,
    InitGroup,
    View,
    Heartbeat,
    Retire,
    SetDesiredState,
    Claim,
    /// Both `renew` and `renew_within`.
    Renew,
    Transfer,
    Release,
    Save,
    Seek,
    History,
    Changed,
}

impl StoreMethod {
    /// The name of the method.
    pub fn name(self) -> &'static str {
        match self {
            Self::Groups => "groups",
            Self::InitGroup => "init_group",
            Self::View => "view",
            Self::Heartbeat => "heartbeat",
            Self::Retire => "retire",
            Self::SetDesiredState => "set_desired_state",
            Self::Claim => "claim",
            Self::Renew => "renew",
            Self::Transfer => "transfer",
            Self::Release => "release",
            Self::Save => "save",
            Self::Seek => "seek",
            Self::History => "history",
            Self::Changed => "changed",
        }
    }
}

type SendTo<T> = Box<dyn for<'s> FnOnce(&'s dyn Store) -> StoreFuture<'s, T> + Send>;

/// A call that has not been sent yet, and that is answered with a `T`.
#[must_use = "a request does nothing until it is sent"]
pub struct StoreRequest<T> {
    method: StoreMethod,
    caller: Option<HostId>,
    partition: Option<PartitionId>,
    send_to: SendTo<T>,
}

impl<T> StoreRequest<T> {
    fn new(
        method: StoreMethod,
        send_to: impl for<'s> FnOnce(&'s dyn Store) -> StoreFuture<'s, T> + Send + 'static,
    ) -> Self {
        Self { method, caller: None, partition: None, send_to: Box::new(send_to) }
    }

    fn by(self, host: &HostId) -> Self {
        Self { caller: Some(host.clone()), ..self }
    }

    fn about(self, partition: PartitionId) -> Self {
        Self { partition: Some(partition), ..self }
    }

    fn with(self, token: &LeaseToken) -> Self {
        self.by(&token.owner).about(token.partition)
    }

    /// The method.
    pub fn method(&self) -> StoreMethod {
        self.method
    }

    /// The host that calls, where the arguments name it. Operators are no hosts.
    pub fn caller(&self) -> Option<&HostId> {
        self.caller.as_ref()
    }

    /// The partition, if the call is about one.
    pub fn partition(&self) -> Option<PartitionId> {
        self.partition
    }

    /// Calls the store.
    pub fn send(self, store: &dyn Store) -> StoreFuture<'_, T> {
        (self.send_to)(store)
    }
}

impl<T> fmt::Debug for StoreRequest<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StoreRequest({} by {:?} of {:?})", self.method.name(), self.caller, self.partition)
    }
}

impl StoreRequest<Vec<GroupId>> {
    /// A call to [`Store::groups`].
    pub fn groups() -> Self {
        Self::new(StoreMethod::Groups, |store| store.groups())
    }
}

impl StoreRequest<GroupOrigin> {
    /// A call to [`Store::init_group`].
    pub fn init_group(group: &GroupId, origin: &GroupOrigin) -> Self {
        let (group, origin) = (group.clone(), origin.clone());
        Self::new(StoreMethod::InitGroup, |store| {
            Box::pin(async move { store.init_group(&group, &origin).await })
        })
    }
}

impl StoreRequest<View> {
    /// A call to [`Store::view`].
    pub fn view(group: &GroupId) -> Self {
        let group = group.clone();
        Self::new(StoreMethod::View, |store| Box::pin(async move { store.view(&group).await }))
    }
}

impl StoreRequest<DesiredState> {
    /// A call to [`Store::heartbeat`].
    pub fn heartbeat(group: &GroupId, record: &HostRecord) -> Self {
        let (group, record, host) = (group.clone(), record.clone(), &record.id);
        let call = Self::new(StoreMethod::Heartbeat, |store| {
            Box::pin(async move { store.heartbeat(&group, &record).await })
        });
        call.by(host)
    }
}

impl StoreRequest<()> {
    /// A call to [`Store::retire`].
    pub fn retire(group: &GroupId, host: &HostId) -> Self {
        let (group, retired) = (group.clone(), host.clone());
        let call = Self::new(StoreMethod::Retire, |store| {
            Box::pin(async move { store.retire(&group, &retired).await })
        });
        call.by(host)
    }
}

impl StoreRequest<bool> {
    /// A call to [`Store::set_desired_state`].
    pub fn set_desired_state(group: &GroupId, host: &HostId, desired: DesiredState) -> Self {
        let (group, host) = (group.clone(), host.clone());
        Self::new(StoreMethod::SetDesiredState, move |store| {
            Box::pin(async move { store.set_desired_state(&group, &host, desired).await })
        })
    }
}

impl StoreRequest<ClaimOutcome> {
    /// A call to [`Store::claim`].
    pub fn claim(group: &GroupId, request: &ClaimRequest) -> Self {
        let (group, claim) = (group.clone(), request.clone());
        let call =
            Self::new(StoreMethod::Claim, |store| Box::pin(async move { store.claim(&group, &claim).await }));
        call.by(&request.host).about(request.partition)
    }
}

impl StoreRequest<Vec<RenewalOutcome>> {
    /// A call to [`Store::renew_within`], or without a limit to [`Store::renew`].
    pub fn renew(
        group: &GroupId,
        duration: Duration,
        tokens: &[LeaseToken],
        limit: Option<Duration>,
    ) -> Self {
        let (group, renewed) = (group.clone(), tokens.to_vec());
        let call = Self::new(StoreMethod::Renew, move |store| {
            Box::pin(async move {
                match limit {
                    Some(limit) => store.renew_within(&group, duration, &renewed, limit).await,
                    None => store.renew(&group, duration, &renewed).await,
                }
            })
        });
        Self { caller: tokens.first().map(|token| token.owner.clone()), ..call }
    }
}

impl StoreRequest<GiveUpOutcome> {
    /// A call to [`Store::transfer`].
    pub fn transfer(group: &GroupId, request: &TransferRequest) -> Self {
        let (group, transfer) = (group.clone(), request.clone());
        let call = Self::new(StoreMethod::Transfer, |store| {
            Box::pin(async move { store.transfer(&group, &transfer).await })
        });
        call.with(&request.token)
    }

    /// A call to [`Store::release`].
    pub fn release(group: &GroupId, request: &ReleaseRequest) -> Self {
        let (group, release) = (group.clone(), request.clone());
        let call = Self::new(StoreMethod::Release, |store| {
            Box::pin(async move { store.release(&group, &release).await })
        });
        call.with(&request.token)
    }
}

impl StoreRequest<SaveOutcome> {
    /// A call to [`Store::save`].
    pub fn save(group: &GroupId, request: &SaveRequest) -> Self {
        let (group, save) = (group.clone(), request.clone());
        let call =
            Self::new(StoreMethod::Save, |store| Box::pin(async move { store.save(&group, &save).await }));
        call.with(&request.token)
    }
}

impl StoreRequest<SeekOutcome> {
    /// A call to [`Store::seek`].
    pub fn seek(group: &GroupId, request: &SeekRequest) -> Self {
        let (group, seek) = (group.clone(), request.clone());
        let call =
            Self::new(StoreMethod::Seek, |store| Box::pin(async move { store.seek(&group, &seek).await }));
        call.about(request.partition)
    }
}

impl StoreRequest<Vec<OwnershipChange>> {
    /// A call to [`Store::history`].
    pub fn history(group: &GroupId, partition: Option<PartitionId>, max: usize) -> Self {
        let group = group.clone();
        let call = Self::new(StoreMethod::History, move |store| {
            Box::pin(async move { store.history(&group, partition, max).await })
        });
        Self { partition, ..call }
    }
}
