//! Serializes the errors in snapshots as their message text.

use serde::{Serialize, Serializer};

use super::{ProcessorError, StoreCallError};

impl Serialize for ProcessorError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Serialize for StoreCallError {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
