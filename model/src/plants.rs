//! The bugs of the simulation that the model can switch on, by itself or through `ephor-core`.
//!
//! Left out are an ask in the owner's record (no record is stale here), the renewal of partitions that are not served (no
//! call is stuck here), unhealthy hosts (there are none) and a rewind without proof (the hub loses nothing here). A wrong wall
//! clock is a lease ahead here.

use ephor_core::rules::plants;
pub use ephor_core::rules::plants::Plant;

/// The bugs that the model cannot show.
const NOT_HERE: [&str; 4] = ["ask", "renewal", "unfit", "rewind"];

/// Lists the bugs that can be switched on here.
pub fn all() -> impl Iterator<Item = &'static Plant> {
    plants::ALL.iter().filter(|plant| !NOT_HERE.contains(&plant.name))
}

/// Finds a bug by its name.
pub fn find(name: &str) -> Option<&'static Plant> {
    all().find(|plant| plant.name == name)
}
