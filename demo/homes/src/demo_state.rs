//! The state of the running demo behind the page: the city, the fleet, single homes, and the actions that
//! visitors request.
//!
//! City and fleet are computed once and shared by all visitors: the city twice a second, the fleet once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::BoxError;
use futures_util::future::BoxFuture;

use crate::city::SensorControls;
use crate::fleet::{Action, Fleet, Meter};
use crate::page::Source;
use crate::view::model::{CityNow, FleetNow, HomeNow};
use crate::view::{Operator, Seen, View};

const CITY_EVERY: Duration = Duration::from_millis(500);
const FLEET_EVERY: Duration = Duration::from_secs(1);

/// The running demo, as the page sees it.
pub(crate) struct DemoState {
    pub(crate) view: Arc<View>,
    pub(crate) fleet: tokio::sync::Mutex<Fleet>,
    pub(crate) operator: Operator,
    sensor_controls: SensorControls,
    city: Mutex<CityNow>,
    now: Mutex<FleetNow>,
    meter: Mutex<Meter>,
    quiet: AtomicBool,
}

impl DemoState {
    pub(crate) fn new(
        view: Arc<View>,
        fleet: Fleet,
        operator: Operator,
        sensor_controls: SensorControls,
    ) -> Self {
        Self {
            view,
            fleet: tokio::sync::Mutex::new(fleet),
            operator,
            sensor_controls,
            city: Mutex::default(),
            now: Mutex::default(),
            meter: Mutex::default(),
            quiet: AtomicBool::new(false),
        }
    }

    /// Updates the city, for ever.
    pub(crate) async fn watch_city(&self) {
        loop {
            let now = self.view.city();
            *lock(&self.city) = now;
            tokio::time::sleep(CITY_EVERY).await;
        }
    }

    /// Updates the hosts and leases, for ever.
    pub(crate) async fn watch_fleet(&self) {
        let mut seen = Seen::default();
        loop {
            match self.operator.look(&seen).await {
                Ok(now) => seen = now,
                Err(error) => tracing::warn!(%error, "cannot read the store; retrying"),
            }
            self.look_at_fleet(&seen).await;
            tokio::time::sleep(FLEET_EVERY).await;
        }
    }

    async fn look_at_fleet(&self, seen: &Seen) {
        let mut fleet = self.fleet.lock().await;
        let hosts = fleet.hosts();
        let (hub_up, hub) = fleet.hub();
        drop(fleet);
        let (cores, memory) = lock(&self.meter).note(hosts.iter().map(|host| (host.cores, host.memory)), hub);
        *lock(&self.now) = FleetNow {
            hosts,
            groups: seen.groups.clone(),
            carbon_monoxide: self.sensor_controls.carbon_monoxide(),
            changes: seen.changes.clone(),
            cores,
            memory,
            hub_up,
        };
    }

    /// CPU time in cores on average, and the most memory.
    pub(crate) fn cost(&self) -> (f64, u64) {
        lock(&self.meter).result()
    }

    /// Refuses further actions.
    pub(crate) fn end(&self) {
        self.quiet.store(true, Ordering::Relaxed);
    }

    async fn do_it(&self, action: Action) -> Result<String, BoxError> {
        if self.quiet.load(Ordering::Relaxed) {
            return Err("the demo is ending".into());
        }
        if let Action::CarbonMonoxide(on) = action {
            self.sensor_controls.set_carbon_monoxide(on);
            let what = if on { "on: a third more events" } else { "off" };
            return Ok(format!("the carbon-monoxide detectors of all homes are {what}"));
        }
        self.fleet.lock().await.act(&action).await
    }
}

impl Source for DemoState {
    fn city(&self) -> CityNow {
        lock(&self.city).clone()
    }

    fn home(&self, home: u32) -> Option<HomeNow> {
        self.view.home(home)
    }

    fn homes(&self) -> u32 {
        self.view.homes()
    }

    fn fleet(&self) -> FleetNow {
        lock(&self.now).clone()
    }

    fn act(&self, action: Action) -> BoxFuture<'_, Result<String, String>> {
        Box::pin(async move {
            let done = self.do_it(action.clone()).await.map_err(|error| error.to_string());
            tracing::info!(?action, ?done, "carried out an action");
            done
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
