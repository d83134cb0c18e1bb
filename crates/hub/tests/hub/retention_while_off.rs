//! Tests of a hub that is off for most of the day: these hours count for retention, and clocks that are
//! wrong in between expire no event.

use ephor_hub::files::Files;

use crate::clocked_hub::{ClockedHub, DAY, HOUR, MINUTE, RETENTION, YEAR};

/// When each event was really stored, and how much the hub had run by then.
#[derive(Default)]
struct Diary {
    stored: Vec<(i64, i64)>,
    ran: i64,
}

impl Diary {
    /// Sends four events, which fill a segment.
    async fn send(&mut self, clocked: &mut ClockedHub) {
        clocked.send(4).await;
        self.stored.extend([(clocked.clock.truth(), self.ran); 4]);
    }

    async fn run(&mut self, clocked: &ClockedHub, milliseconds: i64) {
        let mut left = milliseconds;
        while left > 0 {
            let step = left.min(HOUR);
            clocked.run(step);
            left -= step;
            self.ran += step;
            self.nothing_went_early(clocked).await;
        }
    }

    /// No event is gone before its age.
    async fn nothing_went_early(&self, clocked: &ClockedHub) {
        let first = clocked.first().await;
        if let Some((gone, _)) = first.checked_sub(1).map(|last| self.stored[last as usize]) {
            let age = clocked.clock.truth() - gone;
            assert!(age >= RETENTION, "event {} went {age} ms after it was stored", first - 1);
        }
    }

    /// Checks that events that were past their age this much running time ago are gone.
    async fn what_is_old_is_gone(&self, clocked: &ClockedHub, proof: i64) {
        let first = clocked.first().await;
        let Some((stored, ran)) = self.stored.get(first as usize) else { return };
        let age = clocked.clock.truth() - stored;
        assert!(
            age < RETENTION + 3 * DAY || self.ran - ran < proof,
            "event {first} is there {} days after it was stored, of which the hub ran {} hours",
            age / DAY,
            (self.ran - ran) / HOUR
        );
    }
}

#[tokio::test]
async fn the_hours_in_which_a_hub_is_off_count_for_retention() {
    for mut clocked in ClockedHub::on_disk() {
        let mut diary = Diary::default();
        // So much it runs in seven days, and a day more, until the mark of an hour proves the time.
        let proof = 7 * 8 * HOUR + DAY + HOUR;
        for _ in 0..60 {
            diary.send(&mut clocked).await;
            diary.run(&clocked, 8 * HOUR).await;
            diary.what_is_old_is_gone(&clocked, proof).await;
            clocked.close();
            clocked.clock.pass(16 * HOUR);
            clocked.open();
        }
        assert!(clocked.first().await >= 4 * 48, "{} of {} are gone", clocked.first().await, clocked.sent);
    }
}

#[tokio::test]
async fn a_clock_that_starts_behind_and_catches_up_was_off_that_long() {
    for late in [MINUTE / 2, 5 * MINUTE] {
        for mut clocked in ClockedHub::on_disk() {
            let mut diary = Diary::default();
            for _ in 0..60 {
                diary.send(&mut clocked).await;
                diary.run(&clocked, 8 * HOUR).await;
                clocked.close();
                clocked.clock.pass(16 * HOUR);
                // Nobody set it yet: it goes on where it was saved last.
                clocked.clock.set_off(-18 * HOUR);
                clocked.open();
                diary.send(&mut clocked).await;
                diary.run(&clocked, late).await;
                clocked.clock.set_off(0);
                diary.nothing_went_early(&clocked).await;
            }
            let first = clocked.first().await;
            assert!(first >= 8 * 45, "{first} of {} are gone", clocked.sent);
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_now_and_then_wrong_at_start_proves_nothing() {
    for jump in [8 * DAY, 10 * YEAR] {
        for mut clocked in ClockedHub::on_disk() {
            clocked.send(10).await;
            // A day and more in all, but never one after the other.
            for _ in 0..40 {
                for (off, hours) in [(jump, 2), (0, 1)] {
                    clocked.close();
                    clocked.clock.set_off(off);
                    clocked.open();
                    clocked.run(hours * HOUR - MINUTE);
                    clocked.assert_all_there("under a clock that contradicts itself").await;
                }
            }
        }
    }
}

#[tokio::test]
async fn a_clock_that_was_believed_wrongly_is_followed_back_over_restarts() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.clock.set_off(10 * YEAR);
        clocked.run(2 * DAY);
        clocked.send(10).await;
        clocked.close();
        clocked.clock.set_off(0);
        for _ in 0..5 {
            clocked.open();
            clocked.run(8 * HOUR);
        }
        assert_eq!(clocked.send(10).await, clocked.clock.truth(), "a day of running is over");
        clocked.assert_all_there("after all").await;
    }
}

#[tokio::test]
async fn a_time_file_that_is_damaged_or_gone_makes_no_event_older() {
    for harm in ["cut", "cut in the middle", "flip", "flip behind", "empty", "gone"] {
        for mut clocked in ClockedHub::on_disk() {
            clocked.send(10).await;
            for _ in 0..6 {
                clocked.run(8 * HOUR);
                clocked.close();
                clocked.clock.pass(8 * HOUR);
                let folder = clocked.files.list("hubs").unwrap().remove(0);
                let path = format!("hubs/{folder}/time");
                let file = clocked.files.open(&path).unwrap();
                match harm {
                    "cut" => file.set_len(43).unwrap(),
                    "cut in the middle" => file.set_len(60).unwrap(),
                    "flip" => file.write_at(20, &[&[0xff]]).unwrap(),
                    "flip behind" => file.write_at(70, &[&[0xff]]).unwrap(),
                    "empty" => file.set_len(0).unwrap(),
                    _ => clocked.files.remove(&path).unwrap(),
                }
                clocked.open();
                clocked.assert_all_there(harm).await;
            }
        }
    }
}

#[tokio::test]
async fn whatever_the_hours_are_no_event_goes_early_and_none_stays_for_ever() {
    for seed in 0..20 {
        let mut chance = fastrand::Rng::with_seed(seed);
        for mut clocked in ClockedHub::on_disk() {
            let mut diary = Diary::default();
            for _ in 0..80 {
                diary.send(&mut clocked).await;
                diary.run(&clocked, chance.i64(MINUTE..20 * HOUR)).await;
                clocked.close();
                let off = chance.i64(0..3 * DAY);
                clocked.clock.pass(off);
                // One that is behind, but not behind what it said before, cannot be told from one that jumps.
                let least = if seed % 2 == 0 { off + 2 * MINUTE } else { 0 };
                let behind = if chance.bool() { least + chance.i64(0..4 * DAY) } else { 0 };
                clocked.clock.set_off(-behind);
                clocked.open();
                diary.send(&mut clocked).await;
                diary.run(&clocked, chance.i64(0..20 * MINUTE)).await;
                clocked.clock.set_off(0);
                diary.nothing_went_early(&clocked).await;
            }
            if seed % 2 == 0 {
                diary.run(&clocked, DAY + 2 * HOUR).await;
                // What a clock that was behind stamped may stay for as long as it was behind.
                let first = clocked.first().await as usize;
                let age = clocked.clock.truth() - diary.stored[first].0;
                assert!(age <= RETENTION + 7 * DAY, "seed {seed}: event {first} is {} days old", age / DAY);
            }
        }
    }
}

/// A clock that was behind by more than the age is put right while the hub runs, and is believed a day later.
async fn put_right_while_it_runs(clocked: &mut ClockedHub) {
    clocked.send(8).await;
    clocked.run(HOUR);
    clocked.clock.set_off(8 * DAY);
    clocked.run(26 * HOUR);
    clocked.assert_all_there("under a clock that was put right").await;
}

#[tokio::test]
async fn a_clock_that_was_ahead_at_one_start_takes_nothing_from_an_earlier_jump() {
    for ahead in [8 * DAY, 10 * YEAR] {
        for mut clocked in ClockedHub::on_disk() {
            put_right_while_it_runs(&mut clocked).await;
            clocked.close();
            clocked.clock.set_off(8 * DAY + ahead);
            clocked.open();
            clocked.send(1).await;
            clocked.run(10 * MINUTE);
            clocked.close();
            clocked.clock.set_off(8 * DAY);
            clocked.open();
            for _ in 0..5 {
                clocked.run(2 * HOUR);
                clocked.assert_all_there("when the clock is right again").await;
                clocked.run(DAY - 2 * HOUR);
                clocked.open();
                clocked.assert_all_there("after a restart").await;
            }
            clocked.run(3 * DAY);
            assert!(
                clocked.first().await >= 5,
                "what shares no segment with what the wrong clock stamped goes"
            );
        }
    }
}

#[tokio::test]
async fn a_clock_that_jumps_now_and_then_does_not_keep_events_for_ever() {
    for (jumps_a_day, jump) in [(1, 2 * MINUTE), (5, 2 * MINUTE), (1, 10 * HOUR)] {
        for mut clocked in ClockedHub::on_disk() {
            let mut diary = Diary::default();
            diary.send(&mut clocked).await;
            diary.run(&clocked, HOUR).await;
            let mut off = 3 * YEAR;
            clocked.clock.set_off(off);
            for day in 0..30 {
                diary.send(&mut clocked).await;
                // One that jumps more often than once a day proves nothing; so it rests now and then.
                let jumps = if day % 3 == 0 { 1 } else { jumps_a_day };
                for _ in 0..jumps {
                    diary.run(&clocked, DAY / jumps).await;
                    off += jump;
                    clocked.clock.set_off(off);
                    diary.run(&clocked, MINUTE).await;
                }
                clocked.open();
                diary.nothing_went_early(&clocked).await;
            }
            let first = clocked.first().await as usize;
            let age = clocked.clock.truth() - diary.stored[first].0;
            assert!(
                age <= RETENTION + 4 * DAY,
                "{jumps_a_day} jumps by {jump} ms a day: event {first} is {} days old",
                age / DAY
            );
        }
    }
}

#[tokio::test]
async fn what_a_clock_that_was_ahead_stamped_is_not_old_when_a_later_jump_passes_it() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.run(HOUR);
        clocked.clock.set_off(5 * DAY);
        clocked.send(8).await;
        clocked.run(HOUR);
        // Back, and then far ahead from a time before those stamps.
        clocked.clock.set_off(0);
        clocked.run(2 * DAY);
        clocked.clock.set_off(54 * DAY);
        for _ in 0..4 {
            clocked.run(DAY);
            clocked.open();
            clocked.assert_all_there("four days later").await;
        }
        clocked.run(8 * DAY);
        assert_eq!(clocked.first().await, 8, "its stamps were five days ahead");
    }
}

#[tokio::test]
async fn a_jump_that_was_undone_while_the_hub_was_off_keeps_nothing_for_ever() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.send(4).await;
        clocked.run(HOUR);
        clocked.clock.set_off(10 * YEAR);
        clocked.run(HOUR);
        clocked.close();
        clocked.clock.set_off(0);
        for _ in 0..10 {
            clocked.open();
            clocked.run(DAY);
        }
        assert_eq!(clocked.first().await, 4);
    }
}

#[tokio::test]
async fn a_log_without_its_time_file_keeps_everything_for_one_age() {
    for harm in ["cut", "cut behind", "flip", "flip at the end", "empty", "gone"] {
        for mut clocked in ClockedHub::on_disk() {
            put_right_while_it_runs(&mut clocked).await;
            clocked.send(4).await;
            clocked.close();
            let folder = clocked.files.list("hubs").unwrap().remove(0);
            let path = format!("hubs/{folder}/time");
            let file = clocked.files.open(&path).unwrap();
            let length = file.len().unwrap();
            match harm {
                "cut" => file.set_len(43).unwrap(),
                "cut behind" => file.set_len(length - 1).unwrap(),
                "flip" => file.write_at(20, &[&[0xff]]).unwrap(),
                "flip at the end" => file.write_at(length - 9, &[&[0x5a]]).unwrap(),
                "empty" => file.set_len(0).unwrap(),
                _ => clocked.files.remove(&path).unwrap(),
            }
            for _ in 0..6 {
                clocked.open();
                clocked.assert_all_there(harm).await;
                clocked.run(DAY);
                clocked.assert_all_there(harm).await;
            }
            clocked.run(3 * DAY);
            assert_eq!(clocked.first().await, 12, "{harm}: one age later they go");
        }
    }
}
