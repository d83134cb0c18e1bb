//! Serves the demo's page with made-up data: `cargo run -p ephor-homes --example page [PORT]`, then open
//! the printed address.
#![allow(clippy::disallowed_methods, reason = "an ordinary program asks for the time as it likes")]
#![allow(clippy::print_stdout, reason = "it says where the page is")]

mod fake_source;

use std::net::Ipv4Addr;
use std::sync::Arc;

use tokio::net::TcpListener;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(0);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
    println!(
        "http://{}/  (home {} has an alarm; Ctrl-C to stop)",
        listener.local_addr()?,
        fake_source::BROKEN
    );
    ephor_homes::page::serve(listener, Arc::new(fake_source::Fake::new()), tokio::signal::ctrl_c()).await
}
