//! The mutations that the model must detect: rules of `ephor-core` that can be switched off (mutation
//! testing). Not in release builds.
//!
//! Left out are an ask in the owner's record (no record is stale here), the renewal of partitions that are not served (no
//! call is stuck here), unhealthy hosts (there are none) and a rewind without proof (the hub loses nothing here). A wrong wall
//! clock is a lease ahead here.

use ephor_core::rules::mutations;
pub use ephor_core::rules::mutations::Mutation;

/// The mutations that the model cannot show.
const NOT_HERE: [&str; 4] = ["ask", "renewal", "unhealthy", "rewind"];

/// Lists the mutations that the model can show.
pub fn all() -> impl Iterator<Item = &'static Mutation> {
    mutations::ALL.iter().filter(|mutation| !NOT_HERE.contains(&mutation.name))
}

/// Finds a mutation by its name.
pub fn find(name: &str) -> Option<&'static Mutation> {
    all().find(|mutation| mutation.name == name)
}
