//! Tests of wall clock jumps, ahead and back, at start and while the hub runs: no acknowledged event is
//! deleted because of a jump, and new events carry the right time again once the clock is right.

use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::time::Timestamp;
use ephor_hub::NewEvent;
use ephor_testkit::CapturedLog;

use crate::clocked_hub::{ClockedHub, DAY, FIRST, HOUR, MINUTE, RETENTION, YEAR};

/// Further than the retention, in both directions.
const JUMPS: [i64; 4] = [8 * DAY, 10 * YEAR, -8 * DAY, -40 * YEAR];

#[tokio::test]
async fn a_jump_while_the_hub_runs_deletes_nothing() {
    for jump in JUMPS {
        for mut clocked in ClockedHub::every_kind() {
            clocked.send(10).await;
            clocked.run(MINUTE);
            clocked.clock.set_off(jump);
            clocked.assert_all_there("after the jump").await;
            clocked.send(10).await;
            clocked.run(6 * HOUR);
            clocked.assert_all_there("hours after the jump").await;
            clocked.clock.set_off(0);
            clocked.assert_all_there("when the clock is right again").await;
            clocked.send(10).await;
            clocked.run(2 * DAY);
            clocked.assert_all_there("days later").await;
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_wrong_at_start_deletes_nothing() {
    for jump in JUMPS {
        for mut clocked in ClockedHub::on_disk() {
            clocked.send(10).await;
            // What is stored under the wrong clock must not make the older look old at the next start either.
            for _ in 0..3 {
                clocked.close();
                clocked.clock.set_off(jump);
                clocked.clock.pass(MINUTE);
                clocked.open();
                clocked.assert_all_there("opened under the wrong clock").await;
                clocked.send(10).await;
                clocked.run(2 * HOUR);
                clocked.assert_all_there("two hours under the wrong clock").await;
            }
            clocked.close();
            clocked.clock.set_off(0);
            clocked.open();
            clocked.assert_all_there("opened under the right clock").await;
            clocked.send(10).await;
            clocked.run(5 * DAY);
            clocked.assert_all_there("days later").await;
        }
    }
}

#[tokio::test]
async fn a_jump_does_not_keep_events_for_longer_than_their_age_from_then_on() {
    for jump in JUMPS {
        for mut clocked in ClockedHub::every_kind() {
            clocked.send(10).await;
            clocked.clock.set_off(jump);
            clocked.send(10).await;
            clocked.run(HOUR);
            clocked.clock.set_off(0);
            clocked.run(HOUR);
            clocked.send(1).await;
            clocked.run(RETENTION - 3 * HOUR);
            clocked.assert_all_there("shortly before the time").await;
            clocked.run(2 * DAY);
            assert_eq!(clocked.first().await, 21, "jump {jump}");
        }
    }
}

#[tokio::test]
async fn after_a_jump_ahead_is_undone_new_events_carry_the_right_time_again() {
    for jump in [2 * HOUR, 8 * DAY, 10 * YEAR] {
        for mut clocked in ClockedHub::every_kind() {
            clocked.send(2).await;
            clocked.clock.set_off(jump);
            assert_eq!(clocked.send(2).await, clocked.clock.truth() + jump);
            clocked.clock.set_off(0);
            // A clock that just looks in does not make time go back.
            assert_eq!(clocked.send(1).await, clocked.clock.truth() + jump);
            clocked.run(MINUTE);
            let before = clocked.clock.truth();
            assert_eq!(clocked.send(2).await, before, "jump {jump}");
            clocked.run(MINUTE);
            assert_eq!(clocked.send(2).await, before + MINUTE);
            // Whoever asks for what came since then gets it.
            let since = StartPosition::EnqueuedTime(Timestamp(before + MINUTE));
            let mut reader = clocked.hub().reader(FIRST, since).await.unwrap();
            let first = reader.next(1, usize::MAX).await.unwrap().events().next().unwrap().sequence.0;
            assert!(first <= 7, "it begins at {first} and event 7 was wanted");
            clocked.assert_all_there("after all").await;
        }
    }
}

#[tokio::test]
async fn what_a_wrong_clock_stamped_before_a_restart_does_not_date_later_events() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.clock.set_off(10 * YEAR);
        clocked.hub().producer().send_to(PartitionId(1), NewEvent::new("from the future")).await.unwrap();
        clocked.send(2).await;
        for _ in 0..2 {
            clocked.close();
            clocked.clock.set_off(0);
            clocked.open();
            clocked.hub().enforce_retention();
            clocked.run(2 * MINUTE);
            assert_eq!(clocked.send(2).await, clocked.clock.truth());
        }
        let sent =
            clocked.hub().producer().send_to(PartitionId(1), NewEvent::new("from today")).await.unwrap();
        assert_eq!(sent.enqueued_at.0, clocked.clock.truth());
        clocked.assert_all_there("after two restarts").await;
    }
}

#[tokio::test]
async fn while_the_clock_is_set_back_time_goes_on_at_its_pace() {
    for mut clocked in ClockedHub::every_kind() {
        let began = clocked.send(1).await;
        clocked.clock.set_off(-40 * YEAR);
        let mut last = began;
        for _ in 0..5 {
            clocked.run(HOUR);
            let stored = clocked.send(1).await;
            assert_eq!(stored, last + HOUR);
            last = stored;
        }
        clocked.clock.set_off(0);
        assert_eq!(clocked.send(1).await, clocked.clock.truth());
    }
}

#[tokio::test]
async fn a_hub_that_was_off_for_long_frees_what_is_too_old_after_a_day_of_agreeing_clocks() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.send(10).await;
        clocked.close();
        clocked.clock.pass(10 * DAY);
        clocked.open();
        assert_eq!(clocked.send(1).await, clocked.clock.truth(), "new events carry the time at once");
        clocked.assert_all_there("in the first instant").await;
        clocked.run(23 * HOUR);
        clocked.assert_all_there("shortly before the day is over").await;
        clocked.run(2 * HOUR);
        assert_eq!(clocked.first().await, 10, "events stored since then stay");
        clocked.run(5 * DAY);
        assert_eq!(clocked.first().await, 10);
        clocked.run(2 * DAY);
        assert_eq!(clocked.first().await, 11);
    }
}

#[tokio::test]
async fn a_jump_ahead_that_stays_makes_nothing_older() {
    for restarts in [false, true] {
        for mut clocked in ClockedHub::on_disk() {
            clocked.send(10).await;
            clocked.run(HOUR);
            clocked.clock.set_off(10 * YEAR);
            clocked.send(10).await;
            for _ in 0..6 {
                clocked.run(DAY);
                if restarts {
                    clocked.open();
                }
                clocked.assert_all_there("under a clock that is years ahead").await;
            }
            clocked.run(2 * DAY);
            assert!(clocked.first().await >= 8, "expired events are deleted");
            clocked.run(DAY);
            assert_eq!(clocked.first().await, 20);
        }
    }
}

#[tokio::test]
async fn what_a_clock_that_was_years_behind_stamped_is_not_old_when_it_is_put_right() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.send(10).await;
        clocked.clock.set_off(-40 * YEAR);
        clocked.run(2 * DAY);
        assert_eq!(clocked.send(10).await, clocked.clock.truth() - 40 * YEAR, "it is believed in the end");
        clocked.run(DAY);
        clocked.clock.set_off(0);
        for _ in 0..3 {
            clocked.run(DAY);
            clocked.assert_all_there("under the right clock").await;
            clocked.open();
        }
    }
}

#[tokio::test]
async fn a_hub_that_was_made_under_a_clock_that_was_ahead_follows_it_back_after_a_day() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.clock.set_off(10 * YEAR);
        clocked.run(3 * DAY);
        clocked.send(10).await;
        clocked.clock.set_off(0);
        clocked.run(DAY + HOUR);
        assert_eq!(clocked.send(10).await, clocked.clock.truth());
        clocked.run(5 * DAY);
        clocked.assert_all_there("until they are past their age").await;
        clocked.run(3 * DAY);
        assert_eq!(clocked.first().await, 20);
    }
}

#[tokio::test]
async fn a_clock_that_does_not_agree_with_itself_is_never_trusted() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.send(10).await;
        clocked.close();
        clocked.clock.set_off(10 * DAY);
        clocked.open();
        for turn in 0..60 {
            clocked.run(2 * HOUR);
            clocked.clock.set_off(10 * DAY + (turn % 2) * HOUR);
        }
        clocked.assert_all_there("five days under a clock that goes to and fro").await;
    }
}

#[tokio::test]
async fn restarts_in_a_row_do_not_keep_events_for_ever() {
    for mut clocked in ClockedHub::on_disk() {
        clocked.send(10).await;
        // The time that a hub runs counts at once, also when it never runs for a day.
        for _ in 0..16 {
            clocked.run(12 * HOUR);
            clocked.open();
        }
        assert_eq!(clocked.first().await, 10);
    }
}

/// A clock that is wrong for a day is believed in the end, so whoever is on call has to learn of it before.
#[tokio::test]
async fn while_expired_events_wait_for_a_day_the_log_says_so_every_hour() {
    const HOURS: usize = 10;
    for mut clocked in ClockedHub::on_disk() {
        let log = CapturedLog::of_this_thread();
        let waits =
            || log.take().iter().filter(|line| line.contains("expired events are kept for now")).count();
        clocked.send(10).await;
        clocked.run(HOUR);
        assert_eq!(waits(), 0);
        clocked.close();
        clocked.clock.set_off(10 * DAY);
        clocked.open();
        for _ in 0..6 * HOURS {
            clocked.run(10 * MINUTE);
        }
        clocked.assert_all_there("until the clock has agreed for a day").await;
        // The hub's own thread may log one of them, when it begins to rest.
        let said = waits();
        assert!((HOURS - 1..=HOURS).contains(&said), "{said} lines in {HOURS} hours");
        clocked.run(DAY);
        assert_eq!(clocked.first().await, 10, "then they are deleted");
        waits();
        clocked.run(DAY);
        assert_eq!(waits(), 0, "nothing waits any more");
    }
}
