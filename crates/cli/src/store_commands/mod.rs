//! The commands on the store of a consumer group: `group`, `host`, `checkpoint` and `lease`. They read the
//! store, and make all changes through it.
//!
//! | command | file |
//! |---|---|
//! | `ephor group list`, `describe` | `group.rs` |
//! | `ephor host list`, `drain` | `host.rs` |
//! | `ephor checkpoint list`, `seek`, `export`, `import` | `checkpoint.rs`, `seek.rs` |
//! | `ephor lease history` | `lease.rs` |
//!
//! `store_and_group.rs` finds the store and the group, `table.rs` prints for people and for programs.

pub(crate) mod arguments;
mod checkpoint;
mod group;
mod host;
mod lease;
mod seek;
mod store_and_group;

use ephor_core::BoxError;

use self::arguments::{CheckpointCommand, GroupCommand, HostCommand, LeaseCommand};

pub(crate) async fn group(command: GroupCommand) -> Result<(), BoxError> {
    match command {
        GroupCommand::List(options) => group::list(&options).await,
        GroupCommand::Describe(options) => group::describe(&options).await,
    }
}

pub(crate) async fn host(command: HostCommand) -> Result<(), BoxError> {
    match command {
        HostCommand::List(options) => host::list(&options).await,
        HostCommand::Drain(options) => host::drain(&options).await,
    }
}

pub(crate) async fn checkpoint(command: CheckpointCommand) -> Result<(), BoxError> {
    match command {
        CheckpointCommand::List(options) => checkpoint::list(&options).await,
        CheckpointCommand::Seek(options) => seek::run(&options).await,
        CheckpointCommand::Export(options) => checkpoint::export(&options).await,
        CheckpointCommand::Import(options) => checkpoint::import(&options).await,
    }
}

pub(crate) async fn lease(command: LeaseCommand) -> Result<(), BoxError> {
    match command {
        LeaseCommand::History(options) => lease::history(&options).await,
    }
}
