//! Tests that TCP segments on loopback are small, so that clients with a small receive buffer get full
//! speed.

#![cfg(target_os = "linux")]

use tokio::net::TcpStream;

use crate::server::Server;

#[tokio::test]
async fn segments_on_loopback_are_as_small_as_on_a_network() {
    let server = Server::start().await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let segment = socket2::SockRef::from(&stream).tcp_mss().unwrap();
    assert!(segment <= 1_460, "{segment} bytes: a receive buffer of 8 KiB does not hold two of them");
}
