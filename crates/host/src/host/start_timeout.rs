//! Waits at the start of a host until hub and store have answered once, or until its `start_timeout`.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::failure_policy::Backoff;
use ephor_core::source::SourceError;
use ephor_core::store::StoreError;
use ephor_core::time::Monotonic;

use super::{EventProcessorHost, StartError};
use crate::error::StoreCallError;
use crate::hub_calls::within_limit;

const RETRY: Backoff = Backoff { first: Duration::from_millis(200), max: Duration::from_secs(5) };

impl EventProcessorHost {
    pub(super) async fn wait_until_reachable(&self, within: Duration) -> Result<(), StartError> {
        let until = self.0.config.environment.now() + within;
        self.wait_for_hub(within, until).await?;
        self.wait_for_store(within, until).await
    }

    async fn wait_for_hub(&self, within: Duration, until: Monotonic) -> Result<(), StartError> {
        let config = &self.0.config;
        let environment = &*config.environment;
        for attempt in 1.. {
            let left = until.since(environment.now());
            let error = match within_limit(environment, left, config.source.hub_properties()).await {
                Ok(_) => break,
                Err(error @ SourceError::Unavailable(_)) => error,
                Err(error) => return Err(StartError::Hub { hub: self.hub_name(), error }),
            };
            if !self.pause_before_retry(attempt, until).await {
                return Err(StartError::HubUnavailable { hub: self.hub_name(), within, error });
            }
        }
        Ok(())
    }

    async fn wait_for_store(&self, within: Duration, until: Monotonic) -> Result<(), StartError> {
        let config = &self.0.config;
        let environment = &*config.environment;
        for attempt in 1.. {
            let after = config.manager.store_timeout.min(until.since(environment.now()));
            let answer = tokio::select! {
                biased;
                answer = config.store.view(&config.group) => answer.map_err(Some),
                () = environment.sleep_until(environment.now() + after) => Err(None),
            };
            let error = match answer {
                Ok(_) => break,
                Err(Some(error @ (StoreError::Unavailable(_) | StoreError::Throttled(_)))) => {
                    StoreCallError::Failed(Arc::new(error))
                }
                Err(Some(error)) => return Err(StartError::Store { error }),
                Err(None) => StoreCallError::TimedOut { after },
            };
            if !self.pause_before_retry(attempt, until).await {
                return Err(StartError::StoreUnavailable { within, error });
            }
        }
        Ok(())
    }

    /// Waits before the next attempt; false if the time is over by then.
    async fn pause_before_retry(&self, attempt: u32, until: Monotonic) -> bool {
        let environment = &*self.0.config.environment;
        let next = environment.now() + RETRY.delay(attempt, environment.random());
        environment.sleep_until(next.min(until)).await;
        next < until
    }
}
