//! Replays recorded conversations with Azure Event Hubs against Ephor's gateway and a hub in memory, and
//! compares the answers.
//!
//! Recordings hold every frame between a client and the service. The client's frames are sent to a gateway with a hub in
//! memory, on virtual time, and every answer is compared with the service's, field by field. What depends on the run is
//! left out: ids, times, offsets, tracking ids.
//!
//! | file | owns |
//! |---|---|
//! | `recording.rs` | the file format, and the conversations of one test as a group |
//! | `initial_state.rs` | what a group needs: hubs, valid tokens, the partitions that the service chose |
//! | `client.rs` | the client's frames, with new tokens |
//! | `connection.rs` | a connection to the gateway, and its answers |
//! | `play.rs`, `conversation_state.rs` | playing a group in the recorded order; the state of one conversation |
//! | `schema.rs`, `fields.rs`, `message.rs`, `normalize_text.rs` | answers as texts by field, from both sides alike |
//! | `compare.rs` | the comparison, and the translation of positions |
//! | `report.rs` | differences by kind, and the list of those that are explained |

mod client;
mod compare;
mod connection;
mod conversation_state;
mod fields;
mod initial_state;
mod message;
mod normalize_text;
mod play;
pub mod recording;
pub mod report;
mod schema;

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use recording::Group;
use report::Outcome;

/// Plays groups on several threads.
pub fn play_all(groups: Vec<Group>, threads: usize) -> Result<Outcome, String> {
    let queue = Mutex::new(VecDeque::from(groups));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.max(1))
            .map(|_| {
                scope.spawn(|| {
                    let mut outcome = Outcome::default();
                    while let Some(group) = next() {
                        outcome.add(play_group(&group)?);
                    }
                    Ok::<_, String>(outcome)
                })
            })
            .collect();
        let mut all = Outcome::default();
        for thread in threads {
            all.add(thread.join().map_err(|_| "a thread that plays conversations panicked".to_owned())??);
        }
        all.empty.sort();
        all.differences
            .sort_by(|one, other| (&one.conversation, one.frame).cmp(&(&other.conversation, other.frame)));
        Ok(all)
    })
}

/// Plays one group, on a runtime of its own whose time is virtual.
pub fn play_group(group: &Group) -> Result<Outcome, String> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .map_err(|error| format!("could not start a runtime: {error}"))?;
    runtime.block_on(Box::pin(play::play(group)))
}
