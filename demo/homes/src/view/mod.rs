//! What the page knows, read from the results; and the audit.

pub mod model;
