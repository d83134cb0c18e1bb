//! `ephor dev`: a hub, its front door and a health check, until Ctrl-C.

mod banner;
mod health;
mod hubs;

use std::net::SocketAddr;
use std::sync::Arc;

use ephor::environment::SystemClock;
use ephor_core::BoxError;
use ephor_core::time::Clock;
use ephor_gateway::{Gateway, GatewayConfig, Tls};
use ephor_hub::LocalNamespace;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::banner::Banner;
use crate::arguments::Dev;

/// The folder for certificates made for development, inside the data folder.
const CERTIFICATES: &str = "certificates";

pub(crate) async fn run(options: Dev) -> Result<(), BoxError> {
    let began = SystemClock.now();
    let (config, notes) = hubs::configuration(&options)?;
    let folder = options.data.clone();
    let opened = config.clone();
    // Opening waits for the disk.
    let namespace = tokio::task::spawn_blocking(move || LocalNamespace::open(folder, opened)).await??;
    let namespace = Arc::new(namespace);
    hubs::ensure_one(&namespace)?;
    hubs::ensure_groups(&namespace, &options.groups)?;

    let amqp = bind(options.amqp, "--amqp").await?;
    let amqps = match options.amqps {
        Some(address) => Some(bind(address, "--amqps").await?),
        None => None,
    };
    let http = bind(options.http, "--http").await?;
    let gateway = Gateway::new(namespace.clone(), GatewayConfig::default())?;
    let tls = match &amqps {
        Some(listener) => Some(certificate(&options, listener.local_addr()?)?),
        None => None,
    };

    let banner = Banner {
        amqp: amqp.local_addr()?,
        amqps: amqps.as_ref().map(TcpListener::local_addr).transpose()?,
        certificate: tls.as_ref().map(|(_, pem)| pem.clone()),
        http: http.local_addr()?,
        data: &options.data,
        notes: &notes,
        took: SystemClock.now().since(began),
    };
    println!("{}", banner.text(&namespace)?);

    let (stop, stopping) = watch::channel(false);
    let stopped =
        |mut stopping: watch::Receiver<bool>| async move { drop(stopping.wait_for(|stop| *stop).await) };
    let ctrl_c = async {
        interrupted().await;
        eprintln!("stopping");
        stop.send_replace(true);
    };
    let plain = gateway.serve(amqp, stopped(stopping.clone()));
    let secure = async {
        match (amqps, tls) {
            (Some(listener), Some((tls, _))) => {
                gateway.serve_tls(listener, &tls, stopped(stopping.clone())).await
            }
            _ => Ok(()),
        }
    };
    let (plain, secure, (), ()) =
        tokio::join!(plain, secure, health::serve(http, stopped(stopping.clone())), ctrl_c);
    plain?;
    secure?;
    Ok(tokio::task::spawn_blocking(move || namespace.close()).await??)
}

/// Ctrl-C, or a service manager that asks for the end.
async fn interrupted() {
    let terminated = async {
        match tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) {
            Ok(mut signal) => drop(signal.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {}
        () = terminated => {}
    }
}

async fn bind(address: SocketAddr, option: &str) -> Result<TcpListener, BoxError> {
    let failed = |error: std::io::Error| {
        let (ip, port) = (address.ip(), address.port());
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!("; something else listens there: stop it, or give {option} {ip}:0 for a free port")
            }
            std::io::ErrorKind::PermissionDenied => {
                format!("; a port below 1024 needs rights, and {port} is one")
            }
            _ => String::new(),
        };
        format!("cannot listen on {address} ({option}): {error}{hint}")
    };
    Ok(TcpListener::bind(address).await.map_err(failed)?)
}

fn certificate(options: &Dev, address: SocketAddr) -> Result<(Tls, std::path::PathBuf), BoxError> {
    let folder = match options.memory {
        true => std::env::temp_dir().join(format!("ephor-{}", std::process::id())),
        false => options.data.join(CERTIFICATES),
    };
    let made = std::fs::create_dir_all(&folder);
    made.map_err(|error| format!("cannot make {} for certificates: {error}", folder.display()))?;
    let ip = address.ip().to_string();
    Ok(Tls::for_development(&folder, &["localhost", &ip])?)
}
