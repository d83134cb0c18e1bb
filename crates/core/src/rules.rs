//! Rules that can be switched off, to prove that the tests notice.
//!
//! Each of them guards a promise. A build in the field keeps them all; the
//! simulation takes one away at a time and must then report a violation.

pub mod plants;

/// The rules in force. [`Rules::default`] is all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A checkpoint is refused unless it carries the epoch it is sealed with.
    pub checkpoints_are_fenced: bool,
    /// Whoever takes a partition from an owner that did not give it takes it in a new epoch.
    pub takeover_raises_the_epoch: bool,
    /// The final checkpoint is written before the lease is given away.
    pub final_checkpoint_comes_first: bool,
    /// How old a lease is, the store says by its own clock, and no host by the clock on its wall.
    pub ages_are_the_stores: bool,
    /// A deadline counts from before the request was sent, not from its answer.
    pub deadlines_count_from_the_request: bool,
    /// Who asks for a partition says so in its own record, and nobody writes another's.
    pub asks_stand_in_the_askers_record: bool,
    /// A lease that no pump serves any more is left to run out.
    pub only_the_served_is_renewed: bool,
    /// A new owner begins at the checkpoint as it stands once the claim is won.
    pub claims_bring_the_checkpoint: bool,
    /// Whether the partition is still ours is looked at before anything that was fetched is delivered.
    pub loss_comes_before_delivery: bool,
    /// An epoch is higher than all before it, also where nobody owns the partition any more.
    pub epochs_never_restart: bool,
    /// A seek takes a new epoch, so that the owner's next save is refused.
    pub seeks_take_a_new_epoch: bool,
    /// A host that says that it cannot serve has no share.
    pub the_unfit_do_not_count: bool,
    /// A checkpoint is written over only on proof that its position does not exist.
    pub rewinds_need_proof: bool,
}

impl Rules {
    /// All of them.
    pub const KEPT: Self = Self {
        checkpoints_are_fenced: true,
        takeover_raises_the_epoch: true,
        final_checkpoint_comes_first: true,
        ages_are_the_stores: true,
        deadlines_count_from_the_request: true,
        asks_stand_in_the_askers_record: true,
        only_the_served_is_renewed: true,
        claims_bring_the_checkpoint: true,
        loss_comes_before_delivery: true,
        epochs_never_restart: true,
        seeks_take_a_new_epoch: true,
        the_unfit_do_not_count: true,
        rewinds_need_proof: true,
    };
}

impl Default for Rules {
    fn default() -> Self {
        Self::KEPT
    }
}
