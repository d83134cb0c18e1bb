//! Starts a host: checks the hub, refuses to join hosts that read another hub, and spawns the tasks.

use std::sync::Arc;

use ephor_core::ids::{GroupId, HostId, Incarnation};
use ephor_core::source::{OpenError, OpenRequest, SourceError};
use tokio::sync::watch;

use super::hub_refresh::HubAnswer;
use super::manager::Manager;
use super::running_host::RunningHost;
use super::{EventProcessorHost, Running, StartError, other_hubs_at_start, renewer};
use crate::error::HostError;
use crate::error_reports::Reporter;
use crate::host_services::{Counters, HostServices};
use crate::hub_calls::while_bytes_come;
use crate::hub_health::HubHealth;
use crate::store_calls::StoreCalls;

impl EventProcessorHost {
    /// Joins the fleet and starts to claim partitions.
    ///
    /// A hub that is unreachable now is retried in the background, unless
    /// [`start_timeout`](crate::EventProcessorOptions::start_timeout) is set. A failure that a retry would not
    /// fix is an error: a hub or consumer group that does not exist, missing permissions, a hub
    /// without partitions. So is a living host of this group that reads another hub of the same
    /// name. With the default options that error comes after 90 s to two minutes, because it takes
    /// so long to rule out that the hub was deleted and created again.
    pub async fn start(&self) -> Result<(), StartError> {
        let config = &self.0.config;
        let me = HostId { name: config.name.clone(), incarnation: Incarnation(config.environment.random()) };
        {
            let mut state = self.state();
            let other = state.running().map(|running| running.host.me.clone());
            if let Some(host) = other.or_else(|| state.starting.clone()) {
                return Err(StartError::AlreadyStarted { host });
            }
            state.starting = Some(me.clone());
        }
        // Also cleared if this future is dropped half-way.
        let _starting = Starting(self);
        let reporter = Reporter::new(config.group.clone(), me.clone(), config.options.on_error.clone());
        if let Some(within) = config.options.start_timeout {
            self.wait_until_reachable(within).await?;
        }
        let hub = self.check_hub(&reporter).await?;
        let services = self.services(me, reporter);
        let host = Arc::new(RunningHost::new(services, config.run_pump.clone(), self.0.changes.clone()));
        tracing::info!(group = %config.group, host = %host.me, "starting");
        let hub = match hub {
            Some(answer) => Some(other_hubs_at_start::refuse_another(&host, answer).await?),
            None => None,
        };
        let (report, ended) = watch::channel(None);
        let manager = Manager::new(host.clone(), report, hub);
        let pulse = config.environment.keep_timers_running();
        let mut state = self.state();
        // Under one lock with `running`, so that a later `pause` finds the running host.
        host.status().paused = state.paused.clone();
        let tasks = [host.spawn("manager", manager.run()), host.spawn("renewer", renewer::run(host.clone()))];
        let ended = state.running.replace(Running { host, ended, _tasks: tasks, _pulse: pulse });
        drop(state);
        drop(ended);
        Ok(())
    }

    fn services(&self, me: HostId, reporter: Reporter) -> HostServices {
        let config = &self.0.config;
        let store = StoreCalls::new(
            config.store.clone(),
            config.environment.clone(),
            reporter.clone(),
            config.group.clone(),
            config.manager.store_timeout,
        );
        HostServices {
            environment: config.environment.clone(),
            source: config.source.clone(),
            store,
            hub_health: Arc::new(HubHealth::new(config.group.clone(), me.clone())),
            me,
            options: config.options.clone(),
            manager: config.manager.clone(),
            rules: config.rules,
            reporter,
            loss_view: tokio::sync::Mutex::default(),
            counters: Counters::default(),
        }
    }

    /// The hub in messages.
    pub(super) fn hub_name(&self) -> String {
        let GroupId { namespace, hub, .. } = self.group();
        format!("{namespace}/{hub}")
    }

    /// Checks that the hub and the group exist, as far as the hub answers.
    async fn check_hub(&self, reporter: &Reporter) -> Result<Option<HubAnswer>, StartError> {
        let config = &self.0.config;
        let passing = |error: SourceError| match error {
            SourceError::Unavailable(_) => {
                reporter.report(&HostError::Hub { error });
                Ok(None)
            }
            error => Err(StartError::Hub { hub: self.hub_name(), error }),
        };
        let environment = &*config.environment;
        let asked = environment.now();
        let source = &*config.source;
        let hub = match while_bytes_come(environment, source, source.hub_properties()).await {
            Ok(hub) => hub,
            Err(error) => return passing(error),
        };
        let Some(first) = hub.partitions.first().copied() else {
            return Err(StartError::EmptyHub { hub: self.hub_name() });
        };
        let answer = HubAnswer { hub, asked };
        let probe = OpenRequest::probe(&config.group.group, first, config.name.as_str());
        match while_bytes_come(environment, source, source.open(probe)).await {
            // Dropped and not closed, because nothing should wait for a hub here.
            Ok(receiver) => drop(receiver),
            Err(OpenError::Source(error)) => return Ok(passing(error)?.or(Some(answer))),
            // Another receiver reads it: it exists.
            Err(_) => {}
        }
        Ok(Some(answer))
    }
}

/// Clears the mark that a start is in progress.
struct Starting<'a>(&'a EventProcessorHost);

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.0.state().starting = None;
    }
}
