//! Fuzzes AMQP addresses, and the scopes of tokens.

use ephor_wire::address::{Address, MAX_ADDRESS_LENGTH};
use ephor_wire::sas::Scope;

/// Runs one input.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let scope = Scope::parse(text);
    if let Some(scope) = &scope {
        assert!(scope.covers(scope), "the scope covers itself");
        let whole = Scope::parse("").expect("the whole namespace");
        assert!(whole.covers(scope) && whole.address().is_none());
    }
    let Ok(address) = Address::parse(text) else { return };
    assert!(text.len() <= MAX_ADDRESS_LENGTH);
    assert!(scope.is_some_and(|scope| scope.covers_address(&address)), "the address is in its own scope");
    let written = address.to_string();
    if is_ambiguous(&address, &written) {
        return;
    }
    for same in [written.clone(), format!("/{written}/"), address.audience("localhost:5672")] {
        if same.len() <= MAX_ADDRESS_LENGTH {
            assert_eq!(Address::parse(&same).as_ref(), Ok(&address), "{same}");
        }
    }
}

/// A group may be called `$management`; at the end of an address that word means another node. And the last word of
/// a hub's name may be `partitions`; with a slash behind it, the address is that of a partition without an id.
fn is_ambiguous(address: &Address, written: &str) -> bool {
    let written = written.to_ascii_lowercase();
    let is_management = matches!(address, Address::Management { .. });
    written.ends_with("/$management") && !is_management || written.ends_with("/partitions")
}
