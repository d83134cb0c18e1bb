//! Fuzzes names that come from stores, files and the network: namespaces, hubs, groups, hosts and
//! partitions.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use ephor_core::ids::{ConsumerGroup, HostId, HostName, HubName, Namespace, PartitionId};

/// The maximum length of an error beside the name.
const WORDS_OF_A_REFUSAL: usize = 256;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    same_again::<Namespace>(text);
    same_again::<HubName>(text);
    same_again::<ConsumerGroup>(text);
    same_again::<HostName>(text);
    same_again::<HostId>(text);
    same_again::<PartitionId>(text);
}

/// A name is written as it is read, and contains no control characters.
fn same_again<T>(text: &str)
where
    T: FromStr<Err: Display> + Display + PartialEq + Debug,
{
    match text.parse::<T>() {
        Ok(name) => {
            let written = name.to_string();
            assert!(!written.chars().any(char::is_control), "{written:?}");
            assert_eq!(written.parse::<T>().ok(), Some(name));
        }
        Err(refused) => {
            let refused = refused.to_string();
            assert!(refused.len() <= text.len() * 10 + WORDS_OF_A_REFUSAL, "{refused}");
            assert!(!refused.chars().any(char::is_control), "{refused:?}");
        }
    }
}
