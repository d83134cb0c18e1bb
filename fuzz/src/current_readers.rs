//! Fuzzes the hub's error texts about the current reader of a partition, which contain a name and an epoch
//! that this reader chose.

use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostName, PartitionId};
use ephor_core::receivers::error_texts::{lower_epoch, stolen};
use ephor_core::source::{OpenError, ReceiveError};
use ephor_core::time::Timestamp;
use ephor_wire::condition::{
    Condition, MAX_TEXT, Refusal, Tracking, name_in_errors, open_error, receive_error,
};

/// The tracking suffix of a hub's texts.
const TRACKING: Tracking<'_> = Tracking {
    id: "7f_G1",
    namespace: "ns",
    hub: Some("homes"),
    partition: Some(PartitionId(3)),
    group: Some("$default"),
    at: Timestamp(1_523_755_425_678),
};

/// Runs one input: eight bytes of epoch, the other reader's name, a line break and the name of the host that
/// reads it.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    for text in [&*text, &format!("New receiver '{text}"), &format!("Receiver '{text}")] {
        // Any text is read without a panic.
        told(text.to_owned());
    }
    let Some((number, names)) = data.split_first_chunk() else { return };
    let (epoch, names) = (Epoch::from_stored(u64::from_le_bytes(*number)), String::from_utf8_lossy(names));
    let (name, ours) = names.split_once('\n').unwrap_or((&names, "host-1"));
    let ours = ours.parse::<HostName>().map_or_else(|_| "host-1".to_owned(), |name| name.to_string());
    for sentence in
        [stolen(name, epoch, &ours, Some(Epoch::FIRST)), lower_epoch(name, epoch, &ours, Epoch::FIRST)]
    {
        let tracked = Refusal::new(Condition::LinkStolen, sentence.clone()).tracked(&TRACKING).text;
        for whole in [sentence, tracked] {
            let cut: String = whole.chars().take(MAX_TEXT).collect();
            if whole.chars().count() < MAX_TEXT {
                let expected = (name_in_errors(name), Some(epoch));
                assert_eq!(told(whole), [expected.clone(), expected]);
            } else {
                assert_eq!(told(cut), [(None, None), (None, None)], "nothing is read from a truncated text");
            }
        }
    }
}

/// The reader of the partition, by a refused attach and by a link that ended.
fn told(text: String) -> [(Option<String>, Option<Epoch>); 2] {
    let refusal = Refusal::new(Condition::LinkStolen, text);
    let OpenError::Refused { epoch, by, .. } = open_error(refusal.clone()) else { panic!("not refused") };
    let refused = (by, epoch);
    let ReceiveError::Disconnected { epoch, by, .. } = receive_error(refusal) else {
        panic!("not disconnected")
    };
    [refused, (by, epoch)]
}
