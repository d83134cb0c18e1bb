//! The layout of the container: the names of blobs, and their metadata.

pub(super) mod blob_names;
pub(super) mod metadata;
