//! What single SDKs need that nobody else shall pay for, by the product name in the properties of `open`.
//!
//! Only what would cost the others something stands here. Most of what SDKs get wrong is harmless to
//! forgive for everybody, and is forgiven where it belongs: addresses in six forms (`wire::address`),
//! selectors with and without quotes and three descriptors (`wire::selector`), two spellings of the
//! receiver's name (`connection/attach.rs`), credit that is overdrawn and frames after the end of a session
//! (`amqp::connection`), delivery annotations at the end of a message (`amqp::message`).

use std::time::Duration;

/// What one product needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quirk {
    /// `product` in the properties of `open`.
    pub product: &'static str,
    /// A message is not settled, and a `detach` not answered, before it has been here for so long.
    pub acknowledgement_delay: Duration,
    /// Why.
    pub why: &'static str,
}

/// The table.
pub const QUIRKS: &[Quirk] = &[Quirk {
    product: "azure_messaging_eventhubs",
    acknowledgement_delay: Duration::from_millis(3),
    why: "its AMQP library (fe2o3-amqp up to 0.18.1) notes a delivery after it has written it: on loopback \
          the disposition is there before the note, is dropped, and the send waits for ever; and of a `detach` that \
          is answered at once it says that there is no such session, and closes the connection",
}];

/// What the product of a connection needs; nothing, for nearly all.
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
