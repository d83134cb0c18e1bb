//! Test helper: a store whose calls run alternately in this process and in a second one, on one file.
//!
//! Calls of `changed` wait here, as a host does in the process that it lives in; half of what wakes it
//! is done by the other process.

use std::collections::BTreeMap;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::epoch::Epoch;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, LeaseVersion, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome,
    SaveRequest, SeekOutcome, SeekRequest, Store, StoreError, StoreFuture, View,
};
use ephor_stores::sqlite::SqliteStore;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::call_encoding::*;
use crate::child_process::{ChildProcess, orders, say};

type Answered = Result<Value, ErrorT>;
type Waiting = Arc<Mutex<BTreeMap<u64, oneshot::Sender<Answered>>>>;

/// This process and another one, by turns.
pub(crate) struct TwoProcesses {
    here: SqliteStore,
    there: Mutex<ChildStdin>,
    waiting: Waiting,
    calls: AtomicU64,
    /// The other process, which ends with this.
    _child: Mutex<ChildProcess>,
}

impl TwoProcesses {
    pub(crate) fn start(folder: &Path) -> Self {
        let here = SqliteStore::open(folder.join("ephor.db")).unwrap();
        let mut child = ChildProcess::start("two_processes::serve_as_a_child", folder, "");
        let waiting = Waiting::default();
        let (answers, waits) =
            (std::mem::replace(&mut child.words, std::sync::mpsc::channel().1), waiting.clone());
        std::thread::spawn(move || {
            for answer in answers {
                let (id, answer): (u64, Answered) = serde_json::from_str(&answer).unwrap();
                let waiter = waits.lock().unwrap().remove(&id).unwrap();
                // Whoever asked may have given up.
                let _ = waiter.send(answer);
            }
            waits.lock().unwrap().clear();
        });
        let there = Mutex::new(child.input.take().unwrap());
        Self { here, there, waiting, calls: AtomicU64::new(0), _child: Mutex::new(child) }
    }

    /// The number of a call that is the other process's turn.
    fn their_turn(&self) -> Option<u64> {
        let number = self.calls.fetch_add(1, Ordering::SeqCst);
        (number % 2 == 1).then_some(number)
    }

    async fn ask<T: DeserializeOwned>(&self, id: u64, group: GroupT, call: Call) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap().insert(id, answer);
        let line = serde_json::to_string(&(id, group, call)).unwrap();
        writeln!(self.there.lock().unwrap(), "{line}").unwrap();
        let answer = answered.await.expect("the other process lives");
        answer.map(|value| serde_json::from_value(value).unwrap()).map_err(error_in)
    }

    /// Here or there, and what comes back from there is read by `read`.
    fn call<'a, T: Send + 'a, R: DeserializeOwned + Send>(
        &'a self,
        group: &GroupId,
        call: impl FnOnce() -> Call,
        read: impl FnOnce(R) -> T + Send + 'a,
        here: impl FnOnce(&'a SqliteStore) -> StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        match self.their_turn() {
            None => here(&self.here),
            Some(id) => {
                let (group, call) = (group_out(group), call());
                Box::pin(async move { self.ask(id, group, call).await.map(read) })
            }
        }
    }
}

fn done(given: bool) -> GiveUpOutcome {
    if given { GiveUpOutcome::Done } else { GiveUpOutcome::NotOurs }
}

impl Store for TwoProcesses {
    fn capabilities(&self) -> Capabilities {
        self.here.capabilities()
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        let anywhere = ("n".into(), "h".into(), "g".into());
        let read = |groups: Vec<GroupT>| groups.iter().map(group_in).collect();
        self.call(&group_in(&anywhere), || Call::Groups, read, |here| here.groups())
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        let call = || Call::Found(origin_out(origin));
        self.call(group, call, |it: OriginT| origin_in(&it), |here| here.init_group(group, origin))
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.call(group, || Call::View, |it: ViewT| view_in(&it), |here| here.view(group))
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        let call = || Call::Heartbeat(record_out(record));
        self.call(group, call, |drain| DesiredState { drain }, |here| here.heartbeat(group, record))
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        self.call(group, || Call::Retire(host.to_string()), |()| (), |here| here.retire(group, host))
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        let call = || Call::Order(host.to_string(), desired.drain);
        self.call(group, call, |known: bool| known, |here| here.set_desired_state(group, host, desired))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, it: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        let call = || {
            let seen = it.seen.as_ref().map(|version| version.as_revision().unwrap());
            let (above, cause) = (it.above.get(), index(&CLAIMS, &it.cause));
            Call::Claim(it.partition.0, it.host.to_string(), ms(it.duration), seen, above, cause)
        };
        let read = |claim| match claim {
            ClaimT::Won(token, lease, checkpoint) => {
                let (token, lease) = (token_in(&token), lease_in(&lease));
                ClaimOutcome::Won { token, lease, checkpoint: checkpoint.as_ref().map(checkpoint_in) }
            }
            ClaimT::Lost(holder) => ClaimOutcome::Lost { holder: holder.as_ref().map(lease_in) },
        };
        self.call(group, call, read, |here| here.claim(group, it))
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        let call = || Call::Renew(ms(duration), tokens.iter().map(token_out).collect());
        let renewal = |renewal| match renewal {
            RenewalT::Renewed => RenewalOutcome::Renewed,
            RenewalT::Lost(holder) => RenewalOutcome::Lost { holder: holder.as_ref().map(lease_in) },
            RenewalT::Unknown(what) => RenewalOutcome::Unknown { what, retry_after: None },
        };
        let read = move |all: Vec<RenewalT>| all.into_iter().map(renewal).collect();
        self.call(group, call, read, |here| here.renew(group, duration, tokens))
    }

    fn transfer<'a>(&'a self, group: &'a GroupId, it: &'a TransferRequest) -> StoreFuture<'a, GiveUpOutcome> {
        let call =
            || Call::Transfer(token_out(&it.token), it.to.to_string(), ms(it.duration), it.checkpoint_saved);
        self.call(group, call, done, |here| here.transfer(group, it))
    }

    fn release<'a>(&'a self, group: &'a GroupId, it: &'a ReleaseRequest) -> StoreFuture<'a, GiveUpOutcome> {
        let cause = index(&RELEASES, &it.cause);
        let call = || Call::Release(token_out(&it.token), cause, text(&it.successor), it.checkpoint_saved);
        self.call(group, call, done, |here| here.release(group, it))
    }

    fn save<'a>(&'a self, group: &'a GroupId, it: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        let position = position_out(&it.position);
        let call = || Call::Save(token_out(&it.token), position, log_text(&it.log), it.rewind);
        let read = |save| match save {
            SaveT::Saved(checkpoint) => SaveOutcome::Saved(checkpoint_in(&checkpoint)),
            SaveT::Behind(stored) => SaveOutcome::Behind { stored: checkpoint_in(&stored) },
            SaveT::Fenced(epoch) => SaveOutcome::Fenced { epoch: Epoch::from_stored(epoch) },
        };
        self.call(group, call, read, |here| here.save(group, it))
    }

    fn seek<'a>(&'a self, group: &'a GroupId, it: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        let position = position_out(&it.position);
        let call = || Call::Seek(it.partition.0, position, log_text(&it.log), it.by.clone(), it.force);
        let read = |epoch| SeekOutcome::Done { epoch: Epoch::from_stored(epoch) };
        self.call(group, call, read, |here| here.seek(group, it))
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        let call = || Call::History(partition.map(|partition| partition.0), max);
        let read = |changes: Vec<ChangeT>| changes.iter().map(change_in).collect();
        self.call(group, call, read, |here| here.history(group, partition, max))
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        self.here.changed(group, host)
    }
}

/// Not a test of its own: the other process.
#[test]
fn serve_as_a_child() {
    let Some((folder, _)) = orders() else { return };
    let store = Arc::new(SqliteStore::open(folder.join("ephor.db")).unwrap());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for line in std::io::stdin().lock().lines() {
        let (id, group, call): (u64, GroupT, Call) = serde_json::from_str(&line.unwrap()).unwrap();
        let store = store.clone();
        runtime.spawn(async move {
            let answer = carry_out(&*store, &group_in(&group), call).await.map_err(error_out);
            say(&serde_json::to_string(&(id, answer)).unwrap());
        });
    }
}

fn value(answer: impl Serialize) -> Value {
    serde_json::to_value(answer).unwrap()
}

async fn carry_out(store: &dyn Store, group: &GroupId, call: Call) -> Result<Value, StoreError> {
    let partition_of = PartitionId;
    Ok(match call {
        Call::Groups => value(store.groups().await?.iter().map(group_out).collect::<Vec<_>>()),
        Call::Found(origin) => value(origin_out(&store.init_group(group, &origin_in(&origin)).await?)),
        Call::View => value(view_out(&store.view(group).await?)),
        Call::Heartbeat(record) => value(store.heartbeat(group, &record_in(&record)).await?.drain),
        Call::Retire(host) => value(store.retire(group, &host.parse().unwrap()).await?),
        Call::Order(host, drain) => {
            value(store.set_desired_state(group, &host.parse().unwrap(), DesiredState { drain }).await?)
        }
        Call::Claim(partition, host, duration, seen, above, cause) => {
            let request = ClaimRequest {
                partition: partition_of(partition),
                host: host.parse().unwrap(),
                duration: Duration::from_millis(duration),
                seen: seen.map(LeaseVersion::revision),
                above: Epoch::from_stored(above),
                cause: CLAIMS[cause],
            };
            value(match store.claim(group, &request).await? {
                ClaimOutcome::Won { token, lease, checkpoint } => {
                    ClaimT::Won(token_out(&token), lease_out(&lease), checkpoint.as_ref().map(checkpoint_out))
                }
                ClaimOutcome::Lost { holder } => ClaimT::Lost(holder.as_ref().map(lease_out)),
            })
        }
        Call::Renew(duration, tokens) => {
            let tokens: Vec<_> = tokens.iter().map(token_in).collect();
            let renewals = store.renew(group, Duration::from_millis(duration), &tokens).await?;
            let renewal = |renewal| match renewal {
                RenewalOutcome::Renewed => RenewalT::Renewed,
                RenewalOutcome::Lost { holder } => RenewalT::Lost(holder.as_ref().map(lease_out)),
                RenewalOutcome::Unknown { what, .. } => RenewalT::Unknown(what),
            };
            value(renewals.into_iter().map(renewal).collect::<Vec<_>>())
        }
        Call::Transfer(token, to, duration, checkpoint_saved) => {
            let (token, duration) = (token_in(&token), Duration::from_millis(duration));
            let request = TransferRequest { token, to: to.parse().unwrap(), duration, checkpoint_saved };
            value(store.transfer(group, &request).await? == GiveUpOutcome::Done)
        }
        Call::Release(token, cause, successor, checkpoint_saved) => {
            let (token, cause, successor) = (token_in(&token), RELEASES[cause], maybe_id(&successor));
            let request = ReleaseRequest { token, cause, successor, checkpoint_saved };
            value(store.release(group, &request).await? == GiveUpOutcome::Done)
        }
        Call::Save(token, position, named, rewind) => {
            let (token, position, log) = (token_in(&token), position_in(&position), log(&named));
            value(match store.save(group, &SaveRequest { token, position, log, rewind }).await? {
                SaveOutcome::Saved(checkpoint) => SaveT::Saved(checkpoint_out(&checkpoint)),
                SaveOutcome::Behind { stored } => SaveT::Behind(checkpoint_out(&stored)),
                SaveOutcome::Fenced { epoch } => SaveT::Fenced(epoch.get()),
            })
        }
        Call::Seek(partition, position, named, by, force) => {
            let (partition, position, log) = (partition_of(partition), position_in(&position), log(&named));
            match store.seek(group, &SeekRequest { partition, position, log, by, force }).await? {
                SeekOutcome::Done { epoch } => value(epoch.get()),
                SeekOutcome::OtherSdkOwner { owner } => panic!("{owner} is not an owner of another SDK"),
            }
        }
        Call::History(partition, max) => {
            let history = store.history(group, partition.map(partition_of), max).await?;
            value(history.iter().map(change_out).collect::<Vec<_>>())
        }
    })
}
