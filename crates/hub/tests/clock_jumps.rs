//! A wall clock that jumps, in both directions, at start and while the hub runs: no acknowledged event is
//! deleted because of it, and new events carry the right time again once the clock does.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail right there")]

mod house;

use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::time::Timestamp;
use ephor_hub::NewEvent;

use house::{DAY, FIRST, HOUR, House, MINUTE, RETENTION, YEAR};

/// Further than the retention, in both directions.
const JUMPS: [i64; 4] = [8 * DAY, 10 * YEAR, -8 * DAY, -40 * YEAR];

#[tokio::test]
async fn a_jump_while_the_hub_runs_deletes_nothing() {
    for jump in JUMPS {
        for mut house in House::every_kind() {
            house.send(10).await;
            house.run(MINUTE);
            house.clock.set_off(jump);
            house.assert_all_there("after the jump").await;
            house.send(10).await;
            house.run(6 * HOUR);
            house.assert_all_there("hours after the jump").await;
            house.clock.set_off(0);
            house.assert_all_there("when the clock is right again").await;
            house.send(10).await;
            house.run(2 * DAY);
            house.assert_all_there("days later").await;
        }
    }
}

#[tokio::test]
async fn a_clock_that_is_wrong_at_start_deletes_nothing() {
    for jump in JUMPS {
        for mut house in House::on_disk() {
            house.send(10).await;
            // What is stored under the wrong clock must not make the older look old at the next start either.
            for _ in 0..3 {
                house.close();
                house.clock.set_off(jump);
                house.clock.pass(MINUTE);
                house.open();
                house.assert_all_there("opened under the wrong clock").await;
                house.send(10).await;
                house.run(2 * HOUR);
                house.assert_all_there("two hours under the wrong clock").await;
            }
            house.close();
            house.clock.set_off(0);
            house.open();
            house.assert_all_there("opened under the right clock").await;
            house.send(10).await;
            house.run(5 * DAY);
            house.assert_all_there("days later").await;
        }
    }
}

#[tokio::test]
async fn a_jump_does_not_keep_events_for_longer_than_their_age_from_then_on() {
    for jump in JUMPS {
        for mut house in House::every_kind() {
            house.send(10).await;
            house.clock.set_off(jump);
            house.send(10).await;
            house.run(HOUR);
            house.clock.set_off(0);
            house.run(HOUR);
            house.send(1).await;
            house.run(RETENTION - 3 * HOUR);
            house.assert_all_there("shortly before the time").await;
            house.run(2 * DAY);
            assert_eq!(house.first().await, 21, "jump {jump}");
        }
    }
}

#[tokio::test]
async fn after_a_jump_ahead_is_undone_new_events_carry_the_right_time_again() {
    for jump in [2 * HOUR, 8 * DAY, 10 * YEAR] {
        for mut house in House::every_kind() {
            house.send(2).await;
            house.clock.set_off(jump);
            assert_eq!(house.send(2).await, house.clock.truth() + jump);
            house.clock.set_off(0);
            // A clock that just looks in does not make time go back.
            assert_eq!(house.send(1).await, house.clock.truth() + jump);
            house.run(MINUTE);
            let before = house.clock.truth();
            assert_eq!(house.send(2).await, before, "jump {jump}");
            house.run(MINUTE);
            assert_eq!(house.send(2).await, before + MINUTE);
            // Whoever asks for what came since then gets it.
            let since = StartPosition::EnqueuedTime(Timestamp(before + MINUTE));
            let mut reader = house.hub().reader(FIRST, since).await.unwrap();
            let first = reader.next(1, usize::MAX).await.unwrap().events().next().unwrap().sequence.0;
            assert!(first <= 7, "it begins at {first} and event 7 was wanted");
            house.assert_all_there("after all").await;
        }
    }
}

#[tokio::test]
async fn what_a_wrong_clock_stamped_before_a_restart_does_not_date_later_events() {
    for mut house in House::on_disk() {
        house.clock.set_off(10 * YEAR);
        house.hub().producer().send_to(PartitionId(1), NewEvent::new("from the future")).await.unwrap();
        house.send(2).await;
        for _ in 0..2 {
            house.close();
            house.clock.set_off(0);
            house.open();
            house.hub().enforce_retention();
            house.run(2 * MINUTE);
            assert_eq!(house.send(2).await, house.clock.truth());
        }
        let sent = house.hub().producer().send_to(PartitionId(1), NewEvent::new("from today")).await.unwrap();
        assert_eq!(sent.enqueued_at.0, house.clock.truth());
        house.assert_all_there("after two restarts").await;
    }
}

#[tokio::test]
async fn while_the_clock_is_set_back_time_goes_on_at_its_pace() {
    for mut house in House::every_kind() {
        let began = house.send(1).await;
        house.clock.set_off(-40 * YEAR);
        let mut last = began;
        for _ in 0..5 {
            house.run(HOUR);
            let stored = house.send(1).await;
            assert_eq!(stored, last + HOUR);
            last = stored;
        }
        house.clock.set_off(0);
        assert_eq!(house.send(1).await, house.clock.truth());
    }
}

#[tokio::test]
async fn a_hub_that_was_off_for_long_frees_what_is_too_old_after_a_day_of_agreeing_clocks() {
    for mut house in House::on_disk() {
        house.send(10).await;
        house.close();
        house.clock.pass(10 * DAY);
        house.open();
        assert_eq!(house.send(1).await, house.clock.truth(), "new events carry the time at once");
        house.assert_all_there("in the first instant").await;
        house.run(23 * HOUR);
        house.assert_all_there("shortly before the day is over").await;
        house.run(2 * HOUR);
        assert_eq!(house.first().await, 10, "what was stored since then stays");
        house.run(5 * DAY);
        assert_eq!(house.first().await, 10);
        house.run(2 * DAY);
        assert_eq!(house.first().await, 11);
    }
}

#[tokio::test]
async fn a_jump_ahead_that_stays_makes_nothing_older() {
    for restarts in [false, true] {
        for mut house in House::on_disk() {
            house.send(10).await;
            house.run(HOUR);
            house.clock.set_off(10 * YEAR);
            house.send(10).await;
            for _ in 0..6 {
                house.run(DAY);
                if restarts {
                    house.open();
                }
                house.assert_all_there("under a clock that is years ahead").await;
            }
            house.run(2 * DAY);
            assert!(house.first().await >= 8, "what is past its age goes");
            house.run(DAY);
            assert_eq!(house.first().await, 20);
        }
    }
}

#[tokio::test]
async fn what_a_clock_that_was_years_behind_stamped_is_not_old_when_it_is_put_right() {
    for mut house in House::on_disk() {
        house.send(10).await;
        house.clock.set_off(-40 * YEAR);
        house.run(2 * DAY);
        assert_eq!(house.send(10).await, house.clock.truth() - 40 * YEAR, "it is believed in the end");
        house.run(DAY);
        house.clock.set_off(0);
        for _ in 0..3 {
            house.run(DAY);
            house.assert_all_there("under the right clock").await;
            house.open();
        }
    }
}

#[tokio::test]
async fn a_hub_that_was_made_under_a_clock_that_was_ahead_follows_it_back_after_a_day() {
    for mut house in House::on_disk() {
        house.clock.set_off(10 * YEAR);
        house.run(3 * DAY);
        house.send(10).await;
        house.clock.set_off(0);
        house.run(DAY + HOUR);
        assert_eq!(house.send(10).await, house.clock.truth());
        house.run(5 * DAY);
        house.assert_all_there("until they are past their age").await;
        house.run(3 * DAY);
        assert_eq!(house.first().await, 20);
    }
}

#[tokio::test]
async fn a_clock_that_does_not_agree_with_itself_is_never_trusted() {
    for mut house in House::on_disk() {
        house.send(10).await;
        house.close();
        house.clock.set_off(10 * DAY);
        house.open();
        for turn in 0..60 {
            house.run(2 * HOUR);
            house.clock.set_off(10 * DAY + (turn % 2) * HOUR);
        }
        house.assert_all_there("five days under a clock that goes to and fro").await;
    }
}

#[tokio::test]
async fn restarts_in_a_row_do_not_keep_events_for_ever() {
    for mut house in House::on_disk() {
        house.send(10).await;
        // The time that a hub runs counts at once, also when it never runs for a day.
        for _ in 0..16 {
            house.run(12 * HOUR);
            house.open();
        }
        assert_eq!(house.first().await, 10);
    }
}
