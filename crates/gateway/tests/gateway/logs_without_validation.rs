//! Tests of a log whose messages were stored without validating every section: readers get every event, and
//! can decode all of them.

use ephor_amqp::validate::validate;
use ephor_wire::annotations::{Delivered, received};
use ephor_wire::selector::Start;

use crate::client::Client;
use crate::messages_without_validation::{HUB, Kept, messages};
use crate::server::Server;

#[tokio::test]
async fn readers_of_an_old_log_get_every_event_and_can_decode_all_of_it() {
    let (server, _folder) = Server::over_golden("v1-without-validation");
    let mut client = Client::of(&server).await;
    assert_eq!(HUB, crate::server::HUB);
    let receiver = client.receiver(0, Start::Earliest).await;
    client.connection().grant(receiver, 100);
    for (number, sent) in messages().into_iter().enumerate() {
        let what = sent.what;
        let (_, payload) = client.delivery().await;
        let found = validate(&payload).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(Delivered::read(&payload).unwrap().sequence.0, number as u64);
        let (event, _) = received(&payload).unwrap();
        let body = if sent.kept == Kept::BodyAsBytes { sent.message } else { sent.body };
        assert_eq!(event.body, body, "{what}");
        let whole = sent.kept == Kept::Everything && number == 0;
        assert_eq!(found.footer.is_some(), whole, "{what}");
        assert!(found.header.is_none(), "{what}: no header is delivered");
    }
}
