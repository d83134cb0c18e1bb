//! The builder of a host: takes the source, the store, the options and the user's processor or closure. Also
//! makes unique host names.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use ephor_core::BoxError;
use ephor_core::event::Event;
use ephor_core::ids::{ConsumerGroup, DEFAULT_CONSUMER_GROUP, GroupId, HostName, InvalidName};
use ephor_core::rules::Rules;
use ephor_core::source::EventSource;
use ephor_core::store::Store;

use crate::context::PartitionContext;
use crate::environment::{Environment, TokioEnvironment};
use crate::error::HostError;
use crate::host::{Config, EventProcessorHost};
use crate::options::{ErrorHandler, EventProcessorOptions, InvalidOption, PartitionManagerOptions};
use crate::processor::{EventProcessor, PerBatch, PerEvent};
use crate::pump::{self, Factory};

/// The error of a builder with invalid settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// An invalid name.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// An invalid option.
    #[error(transparent)]
    Option(#[from] InvalidOption),
}

/// A unique host name: the prefix and random digits.
///
/// ```
/// # use ephor_host as ephor;
/// assert_ne!(ephor::host_name("vm"), ephor::host_name("vm"));
/// ```
pub fn host_name(prefix: &str) -> String {
    format!("{prefix}-{:08x}", ephor_runtime::os::random() >> 32)
}

/// Builds a host from a source, a store and a handler of events. Finished by one of the methods
/// that take a processor.
#[must_use = "finish with `processor`, `for_each_batch` or `for_each_event`"]
pub struct HostBuilder {
    source: Arc<dyn EventSource>,
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    group: String,
    name: Option<String>,
    options: EventProcessorOptions,
    on_error: Option<ErrorHandler>,
    manager: PartitionManagerOptions,
    rules: Rules,
}

impl EventProcessorHost {
    /// A host that reads `source` and keeps its leases and checkpoints in `store`. Both may be chosen at run time: an
    /// `Arc<dyn EventSource>` is a source, and an `Arc<dyn Store>` is a store.
    pub fn builder(source: impl EventSource, store: impl Store) -> HostBuilder {
        HostBuilder::new(Arc::new(source), Arc::new(store))
    }
}

impl HostBuilder {
    fn new(source: Arc<dyn EventSource>, store: Arc<dyn Store>) -> Self {
        Self {
            source,
            store,
            environment: Arc::new(TokioEnvironment),
            group: DEFAULT_CONSUMER_GROUP.into(),
            name: None,
            options: EventProcessorOptions::default(),
            on_error: None,
            manager: PartitionManagerOptions::default(),
            rules: Rules::default(),
        }
    }

    /// Sets the consumer group; `$Default` if it is not called. Names keep their case.
    pub fn consumer_group(mut self, group: impl Into<String>) -> Self {
        self.group = group.into();
        self
    }

    /// Sets the host's name, which should be unique in the group: see [`host_name`].
    pub fn host_name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the options of reading and delivering events.
    pub fn options(mut self, options: EventProcessorOptions) -> Self {
        self.options = options;
        self
    }

    /// Calls the function with every error inside the host, in place of
    /// [`EventProcessorOptions::on_error`], in whatever order both are set. It must not block.
    ///
    /// ```
    /// # use ephor_host as ephor;
    /// # use ephor::memory::{MemoryHub, MemoryStore};
    /// # let (hub, store) = (MemoryHub::new("homes", 4)?, MemoryStore::default());
    /// let host = ephor::EventProcessorHost::builder(hub, store)
    ///     .on_error(|error| eprintln!("{error}"))
    ///     .for_each_event(|_, _| async { Ok(()) })?;
    /// # Ok::<(), ephor::BoxError>(())
    /// ```
    pub fn on_error(mut self, handler: impl Fn(&HostError) + Send + Sync + 'static) -> Self {
        self.on_error = Some(ErrorHandler::new(handler));
        self
    }

    /// Sets the options of sharing partitions among hosts.
    pub fn manager_options(mut self, options: PartitionManagerOptions) -> Self {
        self.manager = options;
        self
    }

    /// Sets the source of time, tasks and randomness; tokio and this machine if it is not called.
    pub fn environment(mut self, environment: Arc<dyn Environment>) -> Self {
        self.environment = environment;
        self
    }

    /// Switches protocol rules off, to check that tests detect it (mutation testing).
    #[cfg(feature = "mutations")]
    pub fn rules(mut self, rules: Rules) -> Self {
        self.rules = rules;
        self
    }

    /// Creates a processor for each owned partition.
    pub fn processor<P: EventProcessor>(
        self,
        make: impl Fn(&PartitionContext) -> P + Send + Sync + 'static,
    ) -> Result<EventProcessorHost, BuildError> {
        self.try_processor(move |context| Ok(make(context)))
    }

    /// Creates a processor for each owned partition, which may fail. The partition is then released
    /// and retried later.
    pub fn try_processor<P: EventProcessor>(
        self,
        make: impl Fn(&PartitionContext) -> Result<P, BoxError> + Send + Sync + 'static,
    ) -> Result<EventProcessorHost, BuildError> {
        self.options.validate()?;
        self.manager.validate()?;
        let mut options = self.options;
        options.on_error = self.on_error.or(options.on_error);
        let group = GroupId {
            namespace: self.source.namespace().clone(),
            hub: self.source.hub().clone(),
            group: self.group.parse::<ConsumerGroup>()?,
        };
        let name: HostName = self.name.unwrap_or_else(|| host_name("host")).parse()?;
        let factory: Factory<P> = Arc::new(make);
        Ok(EventProcessorHost::new(Config {
            source: self.source,
            store: self.store,
            environment: self.environment,
            group,
            name,
            options,
            manager: self.manager,
            rules: self.rules,
            run_pump: Arc::new(move |args| Box::pin(pump::run(args, factory.clone()))),
        }))
    }

    /// Calls a function with each batch.
    pub fn for_each_batch<F, Fut>(self, handle: F) -> Result<EventProcessorHost, BuildError>
    where
        F: Fn(PartitionContext, Vec<Event>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let handle = Arc::new(handle);
        self.processor(move |_| {
            let handle = handle.clone();
            PerBatch(move |context, events| handle(context, events))
        })
    }

    /// Calls a function with each event. If it returns an error, the events before it are not
    /// redelivered; if it panics, its whole batch is.
    pub fn for_each_event<F, Fut>(self, handle: F) -> Result<EventProcessorHost, BuildError>
    where
        F: Fn(PartitionContext, Event) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        let handle = Arc::new(handle);
        self.processor(move |_| {
            let handle = handle.clone();
            PerEvent { handle: move |context, event| handle(context, event), finished: None }
        })
    }
}

impl fmt::Debug for HostBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostBuilder({}, {:?})", self.source.hub(), self.group)
    }
}
