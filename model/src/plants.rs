//! Bugs to plant: those of the simulation's that the model keeps by itself or through `ephor-core`.
//!
//! Not among them are an ask in the owner's record (here nobody's record is ever stale), the renewal of what is not
//! served (no call is stuck here), the unfit (nobody is) and a rewind without proof (the hub loses nothing here). A wall clock that is off is a lease ahead here.

use ephor_core::rules::plants;
pub use ephor_core::rules::plants::Plant;

/// Those that the model cannot show.
const NOT_HERE: [&str; 4] = ["ask", "renewal", "unfit", "rewind"];

/// All that can be planted here.
pub fn all() -> impl Iterator<Item = &'static Plant> {
    plants::ALL.iter().filter(|plant| !NOT_HERE.contains(&plant.name))
}

/// The bug of this name.
pub fn find(name: &str) -> Option<&'static Plant> {
    all().find(|plant| plant.name == name)
}
