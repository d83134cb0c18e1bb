//! The storage service: requests, credentials, signatures, and errors.

pub(super) mod account_checks;
pub(super) mod container;
pub(super) mod credential;
pub(super) mod entra;
pub(super) mod error_mapping;
pub(super) mod sas_expiry;
pub(super) mod signing;
