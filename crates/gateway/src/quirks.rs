//! Workarounds for individual SDKs, chosen by the product name in the properties of `open`, so that other
//! clients are not affected. Today there is one: delayed acknowledgements for the Rust SDK.
//!
//! Only workarounds with a cost for other clients belong here. Most mistakes of SDKs are harmless to tolerate
//! for everybody, and are tolerated where they occur: addresses in six forms (`wire::address`), selectors
//! with and without quotes and three descriptors (`wire::selector`), two spellings of the receiver's name
//! (`connection/attach.rs`), credit that is overdrawn and frames after the end of a session
//! (`amqp::connection`), delivery annotations at the end of a message (`amqp::message`).

use std::time::Duration;

/// The workaround for one product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirk {
    /// `product` in the properties of `open`.
    pub product: &'static str,
    /// The time after arrival before which a message is not settled and a `detach` not answered.
    pub acknowledgement_delay: Duration,
    /// The reason for the workaround.
    pub why: &'static str,
}

/// All workarounds.
pub const QUIRKS: &[Quirk] = &[Quirk {
    product: "azure_messaging_eventhubs",
    acknowledgement_delay: Duration::from_millis(3),
    why: "its AMQP library (fe2o3-amqp up to 0.18.1) notes a delivery after it has written it: on loopback \
          the disposition is there before the note, is dropped, and the send waits for ever; and of a `detach` that \
          is answered at once it says that there is no such session, and closes the connection",
}];

/// The delay that the product of a connection needs; zero for nearly all.
pub(crate) fn acknowledgement_delay(product: Option<&str>) -> Duration {
    let quirk = QUIRKS.iter().find(|quirk| Some(quirk.product) == product);
    quirk.map_or(Duration::ZERO, |quirk| quirk.acknowledgement_delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_product_itself_pays_for_its_quirk() {
        assert_eq!(acknowledgement_delay(Some("azure_messaging_eventhubs")), Duration::from_millis(3));
        for product in [None, Some("azsdk-python-eventhubs"), Some("MSJSClient"), Some("")] {
            assert_eq!(acknowledgement_delay(product), Duration::ZERO);
        }
    }
}
