//! Tests that a connection reports the same events however its input bytes are split.

use proptest::prelude::*;

use crate::client_and_server::config;
use crate::fuzz_findings::{Owner, conversation};

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_of_a_conversation_gives_the_same_events(
        seed in 0u64..20,
        cuts in proptest::collection::vec(1usize..3_000, 1..200),
        tiny in any::<bool>(),
    ) {
        let bytes = conversation(seed);
        let whole = Owner::server(config("s")).feed(&bytes, &mut || usize::MAX);
        let mut cuts = cuts.into_iter().cycle();
        let split = Owner::server(config("s"))
            .feed(&bytes, &mut || if tiny { 1 } else { cuts.next().unwrap_or(1) });
        prop_assert!(whole.len() > 20);
        prop_assert_eq!(whole, split);
    }
}
