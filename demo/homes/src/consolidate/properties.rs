//! Property tests of every consolidation: processing readings, applying updates and reading a snapshot give
//! the same state; replayed and repeated readings change only their counts.

use std::fmt::Debug;

use proptest::prelude::*;

use super::{Consolidation, Homes, OpenAlarms};
use crate::reading::{Reading, Sensor};
use crate::time::CityTime;

/// States of which a part can be left out of a comparison.
trait Lawful: Consolidation + Clone + PartialEq + Debug {
    /// Without the count of replays.
    fn but_replays(self) -> Self;
    /// Without the count of repeats.
    fn but_repeats(self) -> Self;
}

impl Lawful for Homes {
    fn but_replays(mut self) -> Self {
        self.now.progress.replayed = 0;
        self
    }

    fn but_repeats(mut self) -> Self {
        self.now.repeats = 0;
        self.homes.values_mut().for_each(|home| home.forget_repeats());
        self
    }
}

impl Lawful for OpenAlarms {
    fn but_replays(mut self) -> Self {
        self.now.progress.replayed = 0;
        self
    }

    fn but_repeats(mut self) -> Self {
        self.now.repeats = 0;
        self
    }
}

/// A change that may happen to a state.
#[derive(Clone, Copy, Debug)]
enum Act {
    Fold(Reading),
    Skip,
    /// The last events are delivered again.
    Replay(usize),
    Flush,
    /// The state is written whole, and read back.
    Snapshot,
    /// Somebody else goes on, who knows the updates only.
    Handover,
}

/// How chance draws one act.
#[derive(Clone, Copy, Debug)]
struct Draw {
    kind: u8,
    home: u32,
    sensor: usize,
    number: u32,
    later: u64,
    clock: u8,
    value: u16,
    armed: bool,
    back: usize,
}

fn draws() -> impl Strategy<Value = Vec<Draw>> {
    let draw = (
        0_u8..40,
        0_u32..5,
        0_usize..4,
        1_u32..150,
        0_u64..40_000,
        0_u8..60,
        0_u16..100,
        any::<bool>(),
        1_usize..20,
    );
    let draw = draw.prop_map(|(kind, home, sensor, number, later, clock, value, armed, back)| Draw {
        kind,
        home,
        sensor,
        number,
        later,
        clock,
        value: if value < 60 { 0 } else { value },
        armed,
        back,
    });
    proptest::collection::vec(draw, 1..300)
}

/// Tame readings come in the order of their numbers, from right clocks, without long pauses. Wild ones come as they like.
fn acts(draws: &[Draw], wild: bool) -> Vec<Act> {
    const START: u64 = 20_000 * 86_400_000 + 86_000_000;
    let (mut now, mut numbers) = (START, [0_u32; 20]);
    draws
        .iter()
        .map(|draw| match draw.kind {
            0 => Act::Skip,
            1 => Act::Replay(draw.back),
            2 | 3 => Act::Flush,
            4 => Act::Snapshot,
            5 => Act::Handover,
            _ => {
                now += draw.later;
                let number = &mut numbers[draw.home as usize * 4 + draw.sensor];
                *number += 1;
                let at = match draw.clock {
                    0 if wild => {
                        now += 3_600_000;
                        now
                    }
                    1 if wild => now + 86_400_000,
                    2 if wild => now / 1_000,
                    3 if wild => now - 3_600_000,
                    4 if wild => now + 8 * 60_000,
                    _ => now - draw.later % 1_000,
                };
                Act::Fold(Reading {
                    home: draw.home,
                    sensor: Sensor::ALL[draw.sensor],
                    number: if wild { draw.number } else { *number },
                    at: CityTime(at),
                    pushed: 0,
                    value: draw.value,
                    armed: draw.armed,
                    battery: 50,
                })
            }
        })
        .collect()
}

/// Plays what happens to a writer, and to a reader who applies its updates.
struct Play<C> {
    writer: C,
    reader: C,
    events: Vec<(u64, Option<Reading>)>,
}

impl<C: Lawful> Play<C> {
    fn new() -> Self {
        Self { writer: C::default(), reader: C::default(), events: Vec::new() }
    }

    fn event(state: &mut C, (sequence, reading): (u64, Option<Reading>)) {
        match reading {
            Some(reading) => state.fold(sequence, &reading),
            None => state.skip(sequence),
        }
    }

    fn new_event(&mut self, reading: Option<Reading>) {
        let event = (self.events.len() as u64 * 3, reading);
        self.events.push(event);
        Self::event(&mut self.writer, event);
    }

    fn flush(&mut self) {
        if let Some(update) = self.writer.take_update() {
            let bytes = postcard::to_stdvec(&update).unwrap();
            self.reader.apply(postcard::from_bytes(&bytes).unwrap());
            assert_eq!(self.writer, self.reader, "applying an update gives the folded state");
            assert_eq!(self.writer.last(), self.reader.last());
        }
        assert!(self.writer.take_update().is_none(), "nothing has changed since");
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Fold(reading) => self.new_event(Some(reading)),
            Act::Skip => self.new_event(None),
            Act::Replay(back) => {
                let before = self.writer.clone().but_replays();
                let known = self.writer.last();
                for event in self.events.iter().rev().take(back).rev() {
                    if Some(event.0) <= known {
                        Self::event(&mut self.writer, *event);
                    }
                }
                assert_eq!(self.writer.clone().but_replays(), before, "replays change nothing");
            }
            Act::Flush => self.flush(),
            Act::Snapshot => {
                self.flush();
                let bytes = postcard::to_stdvec(&self.writer).unwrap();
                let read: C = postcard::from_bytes(&bytes).unwrap();
                assert_eq!(self.writer, read, "reading returns what was written");
                self.writer = read;
            }
            Act::Handover => {
                self.flush();
                self.writer = self.reader.clone();
            }
        }
    }

    /// The state that the events alone lead to.
    fn straight(&self) -> C {
        let mut state = C::default();
        self.events.iter().for_each(|event| Self::event(&mut state, *event));
        state
    }
}

fn play<C: Lawful>(acts: &[Act]) -> Play<C> {
    let mut play = Play::new();
    acts.iter().for_each(|act| play.act(*act));
    play.flush();
    play
}

/// Folds readings at every third sequence number, each repeat in between.
fn with_repeats<C: Lawful>(acts: &[Act], repeats: &[(usize, usize)]) -> C {
    let readings: Vec<_> = acts
        .iter()
        .filter_map(|act| if let Act::Fold(reading) = act { Some(*reading) } else { None })
        .collect();
    let mut state = C::default();
    for (index, reading) in readings.iter().enumerate() {
        let sequence = index as u64 * 3;
        state.fold(sequence, reading);
        if let Some((_, back)) = repeats.iter().find(|(at, _)| *at == index) {
            let old = readings[index.saturating_sub(*back)];
            state.fold(sequence + 1, &Reading { pushed: 9, ..old });
        }
    }
    state.fold(u64::MAX, &Reading { number: 1, home: 1_000, ..readings[readings.len() - 1] });
    state
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn homes_are_one_state_however_they_are_passed_on(draws in draws()) {
        let play = play::<Homes>(&acts(&draws, true));
        prop_assert_eq!(play.writer.clone().but_replays(), play.straight().but_replays());
        prop_assert_eq!(&play.writer, &play.reader);
    }

    #[test]
    fn an_update_of_the_desk_is_all_there_is_to_know(draws in draws()) {
        play::<OpenAlarms>(&acts(&draws, true));
    }

    #[test]
    fn the_desk_tells_the_same_whoever_sits_there(draws in draws()) {
        let play = play::<OpenAlarms>(&acts(&draws, false));
        prop_assert_eq!(play.writer.newest(), play.straight().newest());
        prop_assert_eq!(play.reader.newest(), play.straight().newest());
        prop_assert_eq!(play.reader.opened(), play.straight().opened());
    }

    #[test]
    fn a_sensor_that_repeats_itself_changes_nothing(
        draws in draws(),
        wild in any::<bool>(),
        repeats in proptest::collection::vec((0_usize..300, 0_usize..100), 0..60),
    ) {
        let acts = acts(&draws, wild);
        prop_assume!(acts.iter().any(|act| matches!(act, Act::Fold(_))));
        let (once, again) = (with_repeats::<Homes>(&acts, &[]), with_repeats::<Homes>(&acts, &repeats));
        prop_assert_eq!(once.but_repeats(), again.but_repeats());
    }

    #[test]
    fn the_desk_tells_nothing_again(
        draws in draws(),
        // A few minutes later at most: older ones would make the desk's clock look wrong.
        repeats in proptest::collection::vec((0_usize..300, 0_usize..8), 0..100),
    ) {
        let acts = acts(&draws, false);
        prop_assume!(acts.iter().any(|act| matches!(act, Act::Fold(_))));
        let (once, again) = (with_repeats::<OpenAlarms>(&acts, &[]), with_repeats::<OpenAlarms>(&acts, &repeats));
        prop_assert_eq!(once.newest(), again.newest());
        prop_assert_eq!(once.opened(), again.opened());
    }

    #[test]
    fn everything_counted_is_what_was_sent(draws in draws()) {
        // Tame numbers never leave the window: the count and the sum are exact.
        let acts = acts(&draws, false);
        let homes = play::<Homes>(&acts).reader;
        for number in 0..5 {
            let sent = acts.iter().filter_map(|act| match act {
                Act::Fold(reading) if reading.home == number => Some(reading),
                _ => None,
            });
            let sum = sent.clone().fold(0_u64, |sum, reading| sum.wrapping_add(reading.fingerprint()));
            let (count, fingerprint) =
                homes.home(number).map_or((0, 0), |home| (home.readings(), home.fingerprint()));
            prop_assert_eq!((count, fingerprint), (sent.count() as u64, sum));
        }
    }
}
