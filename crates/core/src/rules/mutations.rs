//! The list of mutations: deliberate bugs, each of which switches off one rule of `rules.rs`. The
//! simulation and the model must detect each (mutation testing). Not in release builds (feature
//! `mutations`).

use super::Rules;

/// A deliberate bug.
#[derive(Clone, Copy, Debug)]
pub struct Mutation {
    /// Its name for `--mutation`.
    pub name: &'static str,
    /// The bug, in one line.
    pub what: &'static str,
    /// All rules but one.
    pub rules: Rules,
}

/// All mutations.
pub static ALL: [Mutation; 13] = [
    Mutation {
        name: "fence",
        what: "checkpoints are accepted from whoever owned the partition once",
        rules: Rules { checkpoints_are_fenced: false, ..Rules::KEPT },
    },
    Mutation {
        name: "epoch",
        what: "a takeover keeps the epoch of the owner before",
        rules: Rules { takeover_raises_the_epoch: false, ..Rules::KEPT },
    },
    Mutation {
        name: "order",
        what: "the lease is given away before the final checkpoint is written",
        rules: Rules { final_checkpoint_comes_first: false, ..Rules::KEPT },
    },
    Mutation {
        name: "clock",
        what: "an owner is dead by the wall clock of whoever looks",
        rules: Rules { ages_are_the_stores: false, ..Rules::KEPT },
    },
    Mutation {
        name: "deadline",
        what: "a deadline counts from the answer, not from before the request",
        rules: Rules { deadlines_count_from_the_request: false, ..Rules::KEPT },
    },
    Mutation {
        name: "ask",
        what: "who asks for a partition writes it into the owner's record",
        rules: Rules { asks_stand_in_the_askers_record: false, ..Rules::KEPT },
    },
    Mutation {
        name: "renewal",
        what: "leases are renewed that nobody serves",
        rules: Rules { only_the_served_is_renewed: false, ..Rules::KEPT },
    },
    Mutation {
        name: "checkpoint",
        what: "a new owner begins at the checkpoint that it saw before its claim",
        rules: Rules { claims_bring_the_checkpoint: false, ..Rules::KEPT },
    },
    Mutation {
        name: "prefetch",
        what: "events that were fetched are delivered although the partition is lost",
        rules: Rules { loss_comes_before_delivery: false, ..Rules::KEPT },
    },
    Mutation {
        name: "restart",
        what: "epochs begin at 1 again once nobody owns the partition",
        rules: Rules { epochs_never_restart: false, ..Rules::KEPT },
    },
    Mutation {
        name: "seek",
        what: "a seek keeps the epoch, and the owner's next save undoes it",
        rules: Rules { seeks_take_a_new_epoch: false, ..Rules::KEPT },
    },
    Mutation {
        name: "unhealthy",
        what: "a host that cannot serve has a share all the same",
        rules: Rules { unhealthy_hosts_do_not_count: false, ..Rules::KEPT },
    },
    Mutation {
        name: "rewind",
        what: "a checkpoint is written over because the hub's properties end before it once",
        rules: Rules { rewinds_need_proof: false, ..Rules::KEPT },
    },
];

/// The mutation of this name.
pub fn find(name: &str) -> Option<&'static Mutation> {
    ALL.iter().find(|mutation| mutation.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mutation_has_its_name_and_its_rule() {
        for mutation in &ALL {
            assert_ne!(mutation.rules, Rules::default(), "{}", mutation.name);
            assert_eq!(find(mutation.name).map(|found| found.rules), Some(mutation.rules));
            assert_eq!(
                ALL.iter().filter(|other| other.rules == mutation.rules).count(),
                1,
                "{}",
                mutation.name
            );
        }
        assert!(find("none").is_none());
    }
}
