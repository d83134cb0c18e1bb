//! Protocol rules that tests can switch off, to prove that violations are detected (mutation
//! testing).
//!
//! Each rule guards a promise. Only the feature `mutations`, which no release has, makes it possible
//! to switch one off; the simulation and the model do so one at a time, and must then report a
//! violation. Without the feature [`Rules`] has no size and every rule is the constant `true`, so
//! that nothing of this is left in a program.

#[cfg(feature = "mutations")]
pub mod mutations;

/// True if no rule can be switched off in this build.
pub const ALWAYS_KEPT: bool = cfg!(not(feature = "mutations"));

/// Declares the rules: as fields that can be false with the feature `mutations`, as constants
/// without it.
macro_rules! rules {
    ($($(#[doc = $rule:literal])+ $name:ident,)+) => {
        /// The rules in force. [`Rules::default`] keeps all of them.
        #[cfg(feature = "mutations")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Rules {
            $($(#[doc = $rule])+ pub $name: bool,)+
        }

        #[cfg(feature = "mutations")]
        impl Rules {
            /// All rules kept.
            pub const KEPT: Self = Self { $($name: true,)+ };

            $($(#[doc = $rule])+ pub const fn $name(&self) -> bool { self.$name })+
        }

        /// The rules in force: all of them.
        #[cfg(not(feature = "mutations"))]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Rules(());

        #[cfg(not(feature = "mutations"))]
        impl Rules {
            /// All rules kept.
            pub const KEPT: Self = Self(());

            $($(#[doc = $rule])+ #[inline(always)] pub const fn $name(&self) -> bool { true })+
        }
    };
}

rules! {
    /// A checkpoint is refused unless it carries the epoch with which it is fenced.
    checkpoints_are_fenced,
    /// A host that takes a partition from an owner that did not give it takes a new epoch.
    takeover_raises_the_epoch,
    /// The final checkpoint is written before the lease is given away.
    final_checkpoint_comes_first,
    /// The store computes the age of a lease by its own clock; no host uses its wall clock for
    /// that.
    ages_are_the_stores,
    /// A deadline counts from before the request was sent, not from its answer.
    deadlines_count_from_the_request,
    /// A host asks for a partition in its own record, and nobody writes another host's record.
    asks_stand_in_the_askers_record,
    /// A lease without a pump is left to expire.
    only_the_served_is_renewed,
    /// A new owner starts at the checkpoint as it is once the claim is won.
    claims_bring_the_checkpoint,
    /// The pump checks that the partition is still its own before it delivers prefetched events.
    loss_comes_before_delivery,
    /// An epoch is higher than all before it, even if nobody owns the partition any more.
    epochs_never_restart,
    /// A seek takes a new epoch, so that the owner's next save is refused.
    seeks_take_a_new_epoch,
    /// A host that reports itself unhealthy gets no share.
    unhealthy_hosts_do_not_count,
    /// A checkpoint is overwritten only on proof that its position does not exist.
    rewinds_need_proof,
}

impl Default for Rules {
    fn default() -> Self {
        Self::KEPT
    }
}
