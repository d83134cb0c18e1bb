//! Tests of opening hubs by URL: the same program runs on every kind of hub, and errors are clear.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ephor_gateway::{Gateway, GatewayConfig};
use ephor_host::{BoxError, EventProcessorHost, NewEvent, PartitionId, Target};
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig};
use ephor_stores::StoreUrl;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{HubUrl, OpenHubError, open};

/// The connection string of a gateway that serves the hub `homes` with this many partitions.
fn serve(tasks: &mut JoinSet<()>, partitions: u32) -> String {
    let namespace = Arc::new(LocalNamespace::in_memory(NamespaceConfig::default()).unwrap());
    namespace.create_hub(HubConfig::new("homes", partitions).unwrap()).unwrap();
    let gateway = Gateway::new(namespace, GatewayConfig::default()).unwrap();
    let listener = ephor_gateway::listen("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = listener.local_addr().unwrap().port();
    tasks.spawn(async move { gateway.serve(listener, std::future::pending()).await.unwrap() });
    format!(
        "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE;\
         UseDevelopmentEmulator=true;"
    )
}

/// A whole program: it sends, reads everything with a host, and stops.
async fn program(hub: &str, store: &str) -> Result<BTreeSet<(PartitionId, String)>, BoxError> {
    let hub = open(&hub.parse::<HubUrl>()?).await?;
    let store = ephor_stores::open(&store.parse::<StoreUrl>()?).await?;
    let keyed = |home: u32| NewEvent {
        partition_key: Some(format!("home-{home}").into()),
        ..NewEvent::new(format!("home {home}"))
    };
    hub.producer.send_batch(Target::Any, (0..20).map(keyed).collect()).await?;
    let (tell, mut told) = mpsc::unbounded_channel();
    let host = EventProcessorHost::builder(hub.source, store).for_each_event(move |context, event| {
        let tell = tell.clone();
        async move {
            tell.send((context.partition(), event.text().unwrap_or_default().to_owned()))?;
            Ok(())
        }
    })?;
    host.start().await?;
    let mut seen = BTreeSet::new();
    while seen.len() < 20 {
        seen.extend(told.recv().await);
    }
    host.stop(Duration::from_secs(30)).await?;
    Ok(seen)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_runs_on_every_hub_that_its_url_names() {
    let folder = tempfile::tempdir().unwrap();
    let mut tasks = JoinSet::new();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let hubs = [
        "memory:homes?partitions=8".to_owned(),
        format!("hub:{}/homes?partitions=8", path("data")),
        format!("{}EntityPath=homes", serve(&mut tasks, 8)),
    ];
    let mut results = Vec::new();
    for (number, hub) in hubs.iter().enumerate() {
        results.push(program(hub, &format!("sqlite:{}", path(&format!("{number}.db")))).await.unwrap());
    }
    // Each home's event is in the same partition on every hub.
    assert!(results.iter().all(|seen| *seen == results[0]), "{results:?}");
    assert!(results[0].iter().map(|(partition, _)| partition).collect::<BTreeSet<_>>().len() > 1);
}

#[tokio::test]
async fn the_folder_stays_open_as_long_as_the_source_or_the_producer_is_used() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("hub:{}/homes", folder.path().display());
    let url: HubUrl = text.parse().unwrap();
    let producer = open(&url).await.unwrap().producer;
    producer.send(NewEvent::new("the door opened")).await.unwrap();
    // Another program must not open it now.
    let error = open(&url).await.unwrap_err();
    assert!(matches!(error, OpenHubError::Embedded { .. }), "{error}");
    drop(producer);
    let hub = open(&url).await.unwrap();
    assert_eq!(hub.source.hub_properties().await.unwrap().partitions.len(), 4);
    drop(hub);

    // A URL with another number changes nothing.
    let other: HubUrl = format!("{text}?partitions=16").parse().unwrap();
    let error = open(&other).await.unwrap_err();
    assert!(matches!(error, OpenHubError::OtherPartitions { present: 4, .. }), "{error}");
    let hub = open(&url).await.unwrap();
    assert_eq!(hub.source.hub_properties().await.unwrap().partitions.len(), 4);
}

#[tokio::test]
async fn a_wrong_hub_key_or_address_is_reported_when_it_is_opened_and_no_key_is_shown() {
    let mut tasks = JoinSet::new();
    let right = serve(&mut tasks, 1);
    let wrong_key = right.replace("SAS_KEY_VALUE", "canary");
    for (text, part) in [
        (format!("{right}EntityPath=offices"), "offices"),
        (format!("{wrong_key}EntityPath=homes"), "not permitted"),
        (right.clone(), "EntityPath"),
        ("Endpoint=sb://127.0.0.1;SharedAccessKey=canary;EntityPath=homes".to_owned(), "SharedAccessKeyName"),
    ] {
        let url: HubUrl = text.parse().unwrap();
        let error = open(&url).await.unwrap_err();
        let shown = format!("{error} {error:?} {url} {url:?}");
        assert!(shown.contains(part) && !shown.contains("canary"), "{shown}");
    }
}
