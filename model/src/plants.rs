//! Bugs to plant: those of the rules that the model keeps by itself or through `ephor-core`.
//!
//! Not among them are an ask in the owner's record (here nobody's record is ever stale), the renewal of what is not
//! served (no call is stuck here) and the unfit (nobody is). The simulation has those.

use ephor_core::rules::Rules;

/// A bug that can be planted.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    /// As `--plant` calls it.
    pub name: &'static str,
    /// What is wrong, in one line.
    pub what: &'static str,
    /// All rules but one.
    pub rules: Rules,
}

/// All of them.
pub const ALL: [Plant; 9] = [
    Plant {
        name: "fence",
        what: "checkpoints are accepted from whoever owned the partition once",
        rules: Rules { checkpoints_are_fenced: false, ..Rules::KEPT },
    },
    Plant {
        name: "epoch",
        what: "a takeover keeps the epoch of the owner before",
        rules: Rules { takeover_raises_the_epoch: false, ..Rules::KEPT },
    },
    Plant {
        name: "order",
        what: "the lease is given away before the final checkpoint is written",
        rules: Rules { final_checkpoint_comes_first: false, ..Rules::KEPT },
    },
    Plant {
        name: "clock",
        what: "an owner is dead by the wall clock of whoever looks, which is a lease ahead",
        rules: Rules { ages_are_the_stores: false, ..Rules::KEPT },
    },
    Plant {
        name: "deadline",
        what: "a deadline counts from the answer, not from before the request",
        rules: Rules { deadlines_count_from_the_request: false, ..Rules::KEPT },
    },
    Plant {
        name: "checkpoint",
        what: "a new owner begins at the checkpoint that it saw before its claim",
        rules: Rules { claims_bring_the_checkpoint: false, ..Rules::KEPT },
    },
    Plant {
        name: "prefetch",
        what: "events that were fetched are delivered although the time is over",
        rules: Rules { loss_comes_before_delivery: false, ..Rules::KEPT },
    },
    Plant {
        name: "restart",
        what: "epochs begin at 1 again once nobody owns the partition",
        rules: Rules { epochs_never_restart: false, ..Rules::KEPT },
    },
    Plant {
        name: "seek",
        what: "a seek keeps the epoch, and the owner's next save undoes it",
        rules: Rules { seeks_take_a_new_epoch: false, ..Rules::KEPT },
    },
];

/// The bug of this name.
pub fn find(name: &str) -> Option<&'static Plant> {
    ALL.iter().find(|plant| plant.name == name)
}
