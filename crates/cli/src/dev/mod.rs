//! `ephor dev`: runs embedded hubs, on disk or in memory, with their AMQP gateway and a health check, until
//! Ctrl-C or SIGTERM.

mod banner;
mod certificate;
mod health;
mod hubs;
mod keys;

use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use ephor::environment::SystemClock;
use ephor_core::BoxError;
use ephor_core::time::Clock;
use ephor_gateway::{Gateway, GatewayConfig, ServeError};
use ephor_hub::LocalNamespace;
use ephor_runtime::os::EndSignals;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::banner::Banner;
use self::health::Health;
use self::hubs::Configuration;
use self::keys::Keys;
use crate::arguments::Dev;
use crate::table;

pub(crate) async fn run(options: Dev) -> Result<(), BoxError> {
    if options.end_with_parent {
        ephor_runtime::os::end_with_parent()?;
    }
    let began = SystemClock.now();
    let Configuration { namespace: config, hubs: wanted, mut notes } = hubs::configuration(&options)?;
    // Connections count against the limit of open files.
    if let Err(error) = ephor_gateway::raise_open_file_limit() {
        notes.push(format!("cannot raise the limit of open files: {error}"));
    }
    let keys = Keys::chosen(&options)?;
    let own_certificate = certificate::own(&options)?;
    let amqp = bind(options.amqp, "--amqp")?;
    let amqps = match options.amqps {
        Some(address) => Some(bind(address, "--amqps")?),
        None => None,
    };
    let http = bind(options.http, "--http")?;
    let folder = options.data.clone();
    // Opening blocks on the disk.
    let namespace = tokio::task::spawn_blocking(move || LocalNamespace::open(folder, config)).await??;
    let namespace = Arc::new(namespace);
    let config = GatewayConfig {
        keys: keys.keys.clone(),
        allow_insecure: options.allow_insecure,
        ..GatewayConfig::default()
    };
    let gateway = Gateway::new(namespace.clone(), config)?;
    let certificate = match (&amqps, own_certificate) {
        (Some(_), Some(own)) => Some(own),
        (Some(listener), None) => Some(certificate::for_development(&options, listener.local_addr()?)?),
        (None, _) => None,
    };

    let mut banner = Banner {
        amqp: amqp.local_addr()?,
        amqps: amqps.as_ref().map(TcpListener::local_addr).transpose()?,
        certificate: certificate.as_ref().map(|certificate| &certificate.from),
        names: &options.names,
        http: http.local_addr()?,
        data: &options.data,
        keys: &keys,
        notes,
    };

    let (stop, stopping) = watch::channel(false);
    let stopped =
        |mut stopping: watch::Receiver<bool>| async move { drop(stopping.wait_for(|stop| *stop).await) };
    let ctrl_c = async {
        interrupted().await;
        // Stop even if stderr cannot be written.
        drop(writeln!(std::io::stderr(), "stopping"));
        stop.send_replace(true);
        Ok(())
    };
    // Accept no connection before the hubs exist: a waiting client would get an error that there is no such
    // hub.
    let (open, opening) = watch::channel(false);
    let opened = || {
        let mut opening = opening.clone();
        async move { drop(opening.wait_for(|open| *open).await) }
    };
    let plain = async {
        gateway.check_exposure(amqp.local_addr()?, false)?;
        opened().await;
        gateway.serve(amqp, stopped(stopping.clone())).await
    };
    let secure = async {
        match (amqps, &certificate) {
            (Some(listener), Some(certificate)) => {
                gateway.check_exposure(listener.local_addr()?, true)?;
                opened().await;
                let serving = gateway.serve_tls(listener, &certificate.tls, stopped(stopping.clone()));
                tokio::select! {
                    biased;
                    served = serving => served,
                    never = certificate::keep_fresh(certificate) => never,
                }
            }
            _ => Ok(()),
        }
    };
    let asked = namespace.clone();
    let problems = Arc::new(move || asked.health().iter().map(ToString::to_string).collect());
    // The names and problems of hubs are not disclosed to other machines.
    let with_reasons = options.http.ip().is_loopback() || options.allow_insecure;
    let health = async {
        opened().await;
        health::serve(http, Health { problems, with_reasons }, stopped(stopping.clone())).await;
        Ok(())
    };
    let mut serving = pin!(async { tokio::try_join!(plain, secure, health, ctrl_c) });
    tokio::select! {
        biased;
        // An address that must not be served is refused first: no hub is changed, and no banner is printed.
        refused = &mut serving => drop(refused.map_err(advised)?),
        () = std::future::ready(()) => {
            banner.notes.extend(hubs::ensure(&namespace, &wanted, options.grow)?);
            banner.notes.extend(hubs::ensure_groups(&namespace, &options.groups)?);
            banner.notes.extend(keys.notes(&namespace));
            let text = banner.text(&namespace, SystemClock.now().since(began))?;
            table::say(&format!("{text}\n"))?;
            open.send_replace(true);
        }
    }
    serving.await.map_err(advised)?;
    Ok(tokio::task::spawn_blocking(move || namespace.close()).await??)
}

/// Waits for Ctrl-C, or for SIGTERM from a service manager.
pub(crate) async fn interrupted() {
    EndSignals::listen(|_, _| {}).next().await;
}

/// Adds to an error what to write on the command line instead.
fn advised(error: ServeError) -> BoxError {
    match error {
        ServeError::Insecure { address, missing } => format!(
            "{address} can be reached from other machines, and {missing}; use --amqps with --key-file or \
             --keys, listen on 127.0.0.1, or add --allow-insecure if you trust everybody on that network"
        )
        .into(),
        other => other.into(),
    }
}

fn bind(address: SocketAddr, option: &str) -> Result<TcpListener, BoxError> {
    let failed = |error: std::io::Error| {
        let (ip, port) = (address.ip(), address.port());
        let hint = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                format!(
                    "; another program listens there: stop it, or use {option} {ip}:0 to pick a free port"
                )
            }
            std::io::ErrorKind::PermissionDenied => {
                format!("; port {port} is below 1024 and needs special rights: use a port from 1024 on")
            }
            _ => String::new(),
        };
        format!("cannot listen on {address} ({option}): {error}{hint}")
    };
    Ok(ephor_gateway::listen(address).map_err(failed)?)
}
