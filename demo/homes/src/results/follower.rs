//! Follows a log of results: reads one new update at a time, and the whole state again if updates were
//! deleted before they were read.

use super::entry::Entry;
use super::load::load;
use super::log::{Log, LogError};
use crate::consolidate::Consolidation;

/// After this many polls without an update, checks whether the next update was deleted.
const SUSPICIOUS: u32 = 8;

/// News of a follower.
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// The state as a whole is another one: at the beginning, and when updates were deleted before they were read.
    Whole,
    /// One update, which the state includes by now: all that is known of it.
    Update(Entry<()>),
}

/// Follows one log.
#[derive(Debug)]
pub struct Follower<C: Consolidation> {
    log: Log,
    state: C,
    number: u64,
    loaded: bool,
    empty: u32,
}

impl<C: Consolidation> Follower<C> {
    /// Nothing is read yet.
    pub fn new(log: Log) -> Self {
        Self { log, state: C::default(), number: 0, loaded: false, empty: 0 }
    }

    /// Returns the state, as far as the log was read.
    pub fn state(&self) -> &C {
        &self.state
    }

    /// The last update that was read.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next news; none if there is none. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<News>, LogError> {
        if !self.loaded {
            return self.reload().await;
        }
        let number = self.number + 1;
        let Some(bytes) = self.log.update_bytes(number).await? else {
            self.empty += 1;
            let look = self.empty.is_multiple_of(SUSPICIOUS);
            return if look && self.log.floor().await? >= number { self.reload().await } else { Ok(None) };
        };
        // Below the floor updates are deleted, and what is there may be of somebody who slept for long.
        if self.log.floor().await? >= number {
            return self.reload().await;
        }
        let (entry, update) = self.log.read_update::<C::Update>(number, &bytes)?.apart();
        self.state.apply(update);
        (self.number, self.empty) = (number, 0);
        Ok(Some(News::Update(entry)))
    }

    async fn reload(&mut self) -> Result<Option<News>, LogError> {
        let loaded = load::<C>(&self.log).await?;
        (self.state, self.number, self.empty) = (loaded.state, loaded.number, 0);
        self.loaded = true;
        Ok(Some(News::Whole))
    }
}
