//! One run of a simulated process: opens a namespace, runs the script, and ends by a close, a kill or a
//! power failure.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Waker};

use bytes::Bytes;
use ephor_core::ids::PartitionId;
use ephor_hub::files::Files;
use ephor_hub::{
    Hub, HubConfig, HubError, LocalNamespace, NewEvent, Receipt, Retention, SendError, Target, verify_files,
};
use rustix::io::Errno;
use tokio::runtime::Runtime;

use super::Checked;
use super::acknowledged::{Certainty, Model};
use super::committer_clock::CommitterClock;
use super::reading::{all_of, reader, rest_of};
use super::script::{HOMES, Operation, Sent, Variant};
use super::watched_files::Watched;

/// Opening is tried at most this often, while calls fail on demand of the script.
const OPENINGS: usize = 5;

/// The bytes by which a size limit may be off: a segment goes as a whole, and the commit that was cut is not counted.
const RETENTION_SLACK: u64 = 20_000;

pub struct ProcessRun<'a> {
    variant: &'a Variant,
    runtime: &'a Runtime,
    watched: Watched,
    committer_clock: Arc<CommitterClock>,
    model: Arc<Mutex<Model>>,
    namespace: LocalNamespace,
    /// The number of committers that have used this clock.
    committers: usize,
}

type Sending = Pin<Box<dyn Future<Output = Result<Receipt, SendError>>>>;

impl<'a> ProcessRun<'a> {
    /// Opens the namespace; none if that was not survived.
    pub fn open(
        variant: &'a Variant,
        runtime: &'a Runtime,
        watched: &Watched,
        wall: i64,
        model: &Arc<Mutex<Model>>,
    ) -> Checked<Option<ProcessRun<'a>>> {
        let mut problem = String::new();
        for _ in 0..OPENINGS {
            let committer_clock = CommitterClock::new(wall);
            let opened = LocalNamespace::on(
                Arc::new(watched.clone()),
                variant.config.clone(),
                committer_clock.clone(),
            );
            if watched.is_down() {
                return Ok(None);
            }
            match opened {
                Ok(namespace) if namespace.broken().is_empty() => {
                    let committers = namespace.hubs_open().len();
                    let run = ProcessRun {
                        variant,
                        runtime,
                        watched: watched.clone(),
                        committer_clock,
                        model: model.clone(),
                        namespace,
                        committers,
                    };
                    run.wait_until_idle()?;
                    run.let_readers_look()?;
                    return Ok(Some(run));
                }
                Ok(namespace) => problem = format!("{:?}", namespace.broken()),
                Err(error) => problem = error.to_string(),
            }
        }
        Err(format!("opening fails: {problem}"))
    }

    pub fn wall_time(&self) -> i64 {
        self.committer_clock.wall_time()
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_down(&self) -> bool {
        self.watched.is_down()
    }

    /// Waits until the committers have nothing to do.
    fn wait_until_idle(&self) -> Checked {
        match self.committer_clock.wait_for_rest(self.committers) {
            true => Ok(()),
            false => Err("a committer does not become idle".to_owned()),
        }
    }

    /// Before every sync of a log, readers take what they can see: from then on it is promised.
    fn let_readers_look(&self) -> Checked {
        self.watched.look_before_syncs(None);
        let Ok(hub) = self.namespace.hub(HOMES) else { return Ok(()) };
        let readers = (0..hub.partition_count()).map(|partition| reader(&hub, partition));
        let mut readers = readers.collect::<Checked<Vec<_>>>()?;
        let (model, watched) = (self.model.clone(), self.watched.clone());
        self.watched.look_before_syncs(Some(Box::new(move || {
            let mut model = model.lock().unwrap_or_else(PoisonError::into_inner);
            for (partition, reader) in readers.iter_mut().enumerate() {
                let events = rest_of(reader);
                let seen = events.and_then(|events| {
                    events.iter().try_for_each(|event| model.seen(HOMES, partition as u32, event).map(drop))
                });
                if let Err(violation) = seen
                    && !watched.is_down()
                {
                    model.violations.push(violation);
                }
            }
        })));
        Ok(())
    }

    /// Does all of it, or as much as this process run lasts; tells whether it is over. What an operation that
    /// failed may have done is unknown from then on.
    pub fn run(mut self, script: &[Operation]) -> Checked<Option<ProcessRun<'a>>> {
        for operation in script {
            self = match operation {
                Operation::Reopen => match self.reopen()? {
                    Some(run) => run,
                    None => return Ok(None),
                },
                operation => {
                    self.perform(operation)?;
                    self
                }
            };
            if let Some(violation) = self.model().violations.pop() {
                return Err(format!("{violation} (after {operation:?})"));
            }
            self.wait_until_idle()?;
            if self.is_down() {
                return Ok(None);
            }
        }
        Ok(Some(self))
    }

    fn perform(&mut self, operation: &Operation) -> Checked {
        match operation {
            Operation::CreateHub(name) => self.create_hub(name),
            Operation::DeleteHub(name) => self.delete_hub(name),
            Operation::Send(name, sent) => self.send(name, std::slice::from_ref(sent)),
            Operation::SendTogether(sent) => self.send(HOMES, sent),
            Operation::CreateGroup(group) => self.change_group(*group, true),
            Operation::DeleteGroup(group) => self.change_group(*group, false),
            Operation::Grow(partitions) => self.grow(*partitions),
            Operation::SealSegment => {
                if let Some(hub) = self.homes() {
                    // Whether it works or not, nothing that was promised changes.
                    drop(hub.seal_segment());
                }
                Ok(())
            }
            Operation::MoveClock(milliseconds) => {
                self.committer_clock.advance(*milliseconds);
                Ok(())
            }
            Operation::FailWrites(count) => {
                self.watched.files.fail_next_writes(*count, Errno::IO);
                Ok(())
            }
            Operation::FailSyncs(count) => {
                self.model().sync_failed = true;
                self.watched.files.fail_next_syncs(*count);
                Ok(())
            }
            Operation::FillDisk(left) => {
                let used: usize = self.watched.files.files().iter().map(|(_, length)| length).sum();
                self.watched.files.limit_bytes(used + left);
                Ok(())
            }
            Operation::FreeDisk => {
                self.watched.files.lift_limit();
                Ok(())
            }
            Operation::Reopen => Err("reopening is not for here".to_owned()),
        }
    }

    fn homes(&self) -> Option<Hub> {
        self.namespace.hub(HOMES).ok()
    }

    fn create_hub(&mut self, name: &str) -> Checked {
        if self.namespace.hub(name).is_ok() {
            return Ok(());
        }
        let partitions = if name == HOMES { 2 } else { 1 };
        let bytes = self.variant.kept_bytes;
        self.model().hub_asked_for(name, partitions, bytes);
        let retention = Retention { bytes, ..Retention::default() };
        let config = HubConfig::new(name, partitions).map_err(|error| error.to_string())?;
        if self.namespace.create_hub(HubConfig { retention, ..config }).is_err() {
            return Ok(());
        }
        self.model().hub(name).existence = Certainty::Sure;
        self.committers += 1;
        self.let_readers_look()
    }

    fn delete_hub(&mut self, name: &str) -> Checked {
        if self.namespace.hub(name).is_err() {
            return Ok(());
        }
        self.model().hub(name).existence = Certainty::Unknown;
        if self.namespace.delete_hub(name).is_ok() {
            self.model().hub(name).existence = Certainty::Gone;
        }
        Ok(())
    }

    fn change_group(&mut self, group: u32, create: bool) -> Checked {
        let Some(hub) = self.homes() else { return Ok(()) };
        let name = format!("group-{group}");
        let before = self.model().hub(HOMES).groups.get(&name).copied();
        if create == (before == Some(Certainty::Sure)) || (!create && before.is_none()) {
            return Ok(());
        }
        self.model().hub(HOMES).groups.insert(name.clone(), Certainty::Unknown);
        let (result, after) = match create {
            true => (hub.create_group(&name).map(drop), Certainty::Sure),
            false => (hub.delete_group(&name), Certainty::Gone),
        };
        match result {
            Ok(()) => drop(self.model().hub(HOMES).groups.insert(name, after)),
            // It was never known here, though it may be on disk.
            Err(HubError::NoSuchGroup { .. }) if before == Some(Certainty::Unknown) => {}
            Err(HubError::Catalog(_)) => {}
            Err(error) => return Err(format!("{name}: {error}")),
        }
        Ok(())
    }

    fn grow(&mut self, partitions: u32) -> Checked {
        let Some(hub) = self.homes() else { return Ok(()) };
        let (sure, most) = self.model().hub(HOMES).partitions;
        self.model().hub(HOMES).partitions = (sure, most.max(partitions));
        if hub.grow(partitions).is_ok() {
            self.model().hub(HOMES).partitions.0 = partitions;
            self.let_readers_look()?;
        }
        Ok(())
    }

    /// Sends the first batch; and all others together, while the commit of the first is held back.
    fn send(&mut self, name: &str, sent: &[Sent]) -> Checked {
        let Ok(hub) = self.namespace.hub(name) else { return Ok(()) };
        let mut sending: Vec<(u32, Sending)> = Vec::new();
        if sent.len() > 1 {
            self.committer_clock.hold();
        }
        let mut held = true;
        for (partition, lengths) in sent {
            // A script may count on partitions that a failed growth did not bring.
            let partition = partition % hub.partition_count();
            let (batch, bodies) = self.model().hub(name).sending(partition, lengths);
            let mut future = send(&hub, partition, bodies);
            if sent.len() > 1 {
                let answer = future.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                if answer.is_ready() {
                    self.committer_clock.release();
                    return Err("a send is answered before its commit".to_owned());
                }
                held &= self.committer_clock.wait_for_held();
            }
            sending.push((batch, future));
        }
        self.committer_clock.release();
        if !held {
            return Err("a commit does not begin".to_owned());
        }
        for (batch, future) in sending {
            match self.runtime.block_on(future) {
                Ok(receipt) => self.model().acknowledged(name, batch, &receipt)?,
                Err(SendError::Disk(_) | SendError::DiskFull(_)) => {}
                Err(error) => return Err(format!("sending: {error}")),
            }
        }
        self.wait_until_idle()
    }

    /// Closes in good order and opens again; none if that was not survived.
    fn reopen(self) -> Checked<Option<ProcessRun<'a>>> {
        self.watched.files.lift_limit();
        // Whoever reads a hub that closes is told so.
        self.watched.look_before_syncs(None);
        let closed = self.namespace.close();
        if self.is_down() {
            return Ok(None);
        }
        if closed.is_ok() {
            let mut model = self.model();
            let names: Vec<String> = model.hubs.keys().cloned().collect();
            names.iter().for_each(|name| model.all_is_on_disk(name));
        }
        let (variant, runtime, wall) = (self.variant, self.runtime, self.wall_time());
        let (watched, model) = (self.watched.clone(), self.model.clone());
        drop(self);
        ProcessRun::open(variant, runtime, &watched, wall, &model)
    }

    /// Whether all that was promised is there.
    pub fn check(&self) -> Checked {
        // A committer that rests may still be freeing what need not be kept; this waits for it.
        self.namespace.hubs_open().iter().for_each(Hub::enforce_retention);
        let checked = self.try_check();
        // Nobody can be blamed for what was not read because the power failed.
        if self.is_down() { Ok(()) } else { checked }
    }

    fn try_check(&self) -> Checked {
        let open = self.namespace.hubs_open();
        let mut found = Vec::new();
        for hub in &open {
            let description = hub.describe();
            let partitions = 0..hub.partition_count();
            let events = partitions.map(|partition| all_of(hub, partition)).collect::<Checked<Vec<_>>>()?;
            self.model().found(hub.name().as_str(), &description, &events, RETENTION_SLACK)?;
            let damage = hub.damage();
            if self.variant.is_strict() && !damage.is_empty() {
                return Err(format!("there is damage: {}", damage[0]));
            }
            found.push(hub.name().to_string());
        }
        let names: Vec<String> = self.model().hubs.keys().cloned().collect();
        names.iter().filter(|name| !found.contains(name)).try_for_each(|name| self.model().not_found(name))
    }

    /// Whether every hub says that it was closed in good order.
    pub fn check_was_closed(&self) -> Checked {
        for hub in self.namespace.hubs_open() {
            let report = hub.recovery();
            if !report.clean || report.jumped > 0 || report.torn_bytes > 0 {
                return Err(format!("hub {} was closed, and is found like this: {report:?}", hub.name()));
            }
        }
        Ok(())
    }

    /// The operations of every process run after the first: all partitions are written, and something is changed.
    pub fn afterlife(&self, chance: &mut fastrand::Rng) -> Vec<Operation> {
        let mut operations = Vec::new();
        if let Some(hub) = self.homes() {
            let partitions = hub.partition_count();
            let mut some = |partition| (partition, vec![chance.usize(20..700); chance.usize(1..4)]);
            operations.extend((0..partitions).map(|partition| Operation::Send(HOMES, some(partition))));
            operations.push(Operation::CreateGroup(9));
            operations.push(Operation::SendTogether((0..partitions.max(2)).map(some).collect()));
        }
        operations
    }

    /// Closes in good order.
    pub fn close(self) -> Checked {
        self.watched.look_before_syncs(None);
        match self.namespace.close() {
            Err(error) if !self.is_down() => Err(format!("closing fails: {error}")),
            _ => Ok(()),
        }
    }
}

impl Drop for ProcessRun<'_> {
    /// The readers hold the files, which hold the readers.
    fn drop(&mut self) {
        self.watched.look_before_syncs(None);
    }
}

fn send(hub: &Hub, partition: u32, bodies: Vec<Bytes>) -> Sending {
    let producer = hub.producer();
    let events: Vec<NewEvent> = bodies.into_iter().map(NewEvent::new).collect();
    Box::pin(async move { producer.send_batch(Target::Partition(PartitionId(partition)), events).await })
}

/// Whether reading every file finds nothing damaged. A creation that was cut short has no record yet.
pub fn check_files(files: &dyn Files) -> Checked {
    let Ok(hubs) = verify_files(files) else { return Ok(()) };
    let damaged = hubs.iter().find(|hub| match (&hub.record, &hub.log) {
        (Err(problem), Ok(log)) if log.segments == 0 => !problem.starts_with("there is no"),
        _ => !hub.is_intact(),
    });
    damaged.map_or(Ok(()), |hub| Err(format!("verifying finds {hub:?}")))
}
