//! Encodes the origin of a group (the partitions that existed when the consumer group began) as text, and
//! decodes it: `{"partitions":[0,1,2],"log":"a1b2"}`.

use ephor_core::ids::{LogId, PartitionId};
use ephor_core::store::GroupOrigin;
use serde::{Deserialize, Serialize};

use super::{Unreadable, read, write};

#[derive(Serialize, Deserialize)]
struct Fields {
    partitions: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    log: Option<String>,
}

pub(crate) fn write_origin(origin: &GroupOrigin) -> String {
    let partitions = origin.partitions.iter().map(|partition| partition.0).collect();
    write(&Fields { partitions, log: origin.log.as_ref().map(ToString::to_string) })
}

pub(crate) fn read_origin(text: &str) -> Result<GroupOrigin, Unreadable> {
    let fields: Fields = read(text)?;
    let partitions = fields.partitions.into_iter().map(PartitionId).collect();
    Ok(GroupOrigin { partitions, log: fields.log.as_deref().map(LogId::new) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_stays_readable() {
        let partitions = vec![PartitionId(0), PartitionId(u32::MAX)];
        let origin = GroupOrigin { partitions, log: Some(LogId::new("a \"b\"")) };
        let text = r#"{"partitions":[0,4294967295],"log":"a \"b\""}"#;
        assert_eq!(write_origin(&origin), text);
        assert_eq!(read_origin(text), Ok(origin));
        let bare = GroupOrigin { partitions: vec![], log: None };
        assert_eq!(read_origin(&write_origin(&bare)), Ok(bare.clone()));
        assert_eq!(read_origin(r#"{"partitions":[],"by":"x"}"#), Ok(bare));
        assert!(read_origin("{}").is_err());
    }
}
