//! Protocol rules that tests can switch off, to prove that violations are detected (mutation
//! testing).
//!
//! Each rule guards a promise. A production build keeps them all; the simulation switches off one
//! at a time and must then report a violation.

pub mod plants;

/// The rules in force. [`Rules::default`] keeps all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// A checkpoint is refused unless it carries the epoch with which it is fenced.
    pub checkpoints_are_fenced: bool,
    /// A host that takes a partition from an owner that did not give it takes a new epoch.
    pub takeover_raises_the_epoch: bool,
    /// The final checkpoint is written before the lease is given away.
    pub final_checkpoint_comes_first: bool,
    /// The store computes the age of a lease by its own clock; no host uses its wall clock for
    /// that.
    pub ages_are_the_stores: bool,
    /// A deadline counts from before the request was sent, not from its answer.
    pub deadlines_count_from_the_request: bool,
    /// A host asks for a partition in its own record, and nobody writes another host's record.
    pub asks_stand_in_the_askers_record: bool,
    /// A lease without a pump is left to expire.
    pub only_the_served_is_renewed: bool,
    /// A new owner starts at the checkpoint as it is once the claim is won.
    pub claims_bring_the_checkpoint: bool,
    /// The pump checks that the partition is still its own before it delivers prefetched events.
    pub loss_comes_before_delivery: bool,
    /// An epoch is higher than all before it, even if nobody owns the partition any more.
    pub epochs_never_restart: bool,
    /// A seek takes a new epoch, so that the owner's next save is refused.
    pub seeks_take_a_new_epoch: bool,
    /// A host that reports itself unhealthy gets no share.
    pub unhealthy_hosts_do_not_count: bool,
    /// A checkpoint is overwritten only on proof that its position does not exist.
    pub rewinds_need_proof: bool,
}

impl Rules {
    /// All rules kept.
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
        unhealthy_hosts_do_not_count: true,
        rewinds_need_proof: true,
    };
}

impl Default for Rules {
    fn default() -> Self {
        Self::KEPT
    }
}
