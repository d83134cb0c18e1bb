//! Tests that an epoch that no column can hold is refused.

use ephor_core::epoch::Epoch;
use ephor_core::store::{Store, StoreError};

use crate::fixture::{Folder, P, claim, group, try_claim, wait};

#[test]
fn an_epoch_beyond_what_can_be_counted_is_refused_and_the_store_goes_on() {
    let folder = Folder::new();
    let store = folder.open();
    let largest = Epoch::from_stored(i64::MAX as u64);
    let refused = try_claim(&store, P, "a", largest).expect_err("it does not fit");
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    let refused = try_claim(&store, P, "a", Epoch::from_stored(u64::MAX)).expect_err("there is none above");
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    assert!(wait(store.view(&group())).unwrap().leases.is_empty());
    assert_eq!(claim(&store, P, "a").epoch.get(), 1);
}
