//! Tests of receivers that vanish without a detach: they keep their place in the partition for ten minutes
//! by default, and longer while nobody wants it. Also of events given back, and of the idle probe.

use super::*;

#[tokio::test]
async fn an_owner_that_vanished_counts_for_ten_minutes_and_no_longer() {
    for clocked in ClockedHub::both() {
        let _vanished = clocked.open("vanished", Some(5)).await;
        clocked.pass(10);
        refused(clocked.refusal("guest", None).await);
        refused(clocked.refusal("late", Some(4)).await);
        clocked.clock.set(START + 10 * MINUTE + 1);
        let _guest = clocked.open("guest", None).await;
    }
}

#[tokio::test]
async fn guests_that_vanished_leave_their_places_to_others() {
    for clocked in ClockedHub::both() {
        let mut five = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            five.push(clocked.open(name, None).await);
        }
        clocked.pass(6);
        five[1].heard();
        clocked.pass(11);
        let mut others = Vec::new();
        for name in ["f", "g", "h", "i"] {
            others.push(clocked.open(name, None).await);
        }
        let refusal = clocked.refusal("j", None).await.to_string();
        assert!(refusal.ends_with("List of connected receivers - b, f, g, h, i."), "{refusal}");
    }
}

#[tokio::test]
async fn how_long_silence_is_borne_can_be_configured() {
    for durability in [Durability::Disk, Durability::Memory] {
        let clocked = ClockedHub::new(durability, Duration::from_secs(60));
        let _vanished = clocked.open("vanished", Some(5)).await;
        clocked.pass(1);
        refused(clocked.refusal("guest", None).await);
        clocked.pass(2);
        let _guest = clocked.open("guest", None).await;
    }
}

#[tokio::test]
async fn a_receiver_that_waits_has_not_vanished_however_long_it_waits() {
    for clocked in ClockedHub::both() {
        let mut owner = clocked.open("owner", Some(5)).await;
        {
            let mut waiting = pin!(owner.next(1, usize::MAX));
            let mut context = Context::from_waker(Waker::noop());
            assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Pending));
            clocked.pass(1_000);
            refused(clocked.refusal("guest", None).await);
            clocked.send("door").await;
            assert!(matches!(waiting.as_mut().poll(&mut context), Poll::Ready(Ok(_))));
        }
        clocked.pass(1_010);
        refused(clocked.refusal("guest", None).await);
        clocked.pass(1_021);
        let _guest = clocked.open("guest", None).await;
    }
}

#[tokio::test]
async fn whoever_receives_or_gives_a_sign_of_life_has_not_vanished() {
    for clocked in ClockedHub::both() {
        clocked.send("door").await;
        let mut owner = clocked.open("owner", Some(5)).await;
        clocked.pass(9);
        assert_eq!(next(&mut owner).await, 0);
        clocked.pass(18);
        refused(clocked.refusal("guest", None).await);
        owner.heard();
        clocked.pass(28);
        refused(clocked.refusal("guest", None).await);
    }
}

#[tokio::test]
async fn one_that_comes_back_after_it_was_given_up_is_told_why() {
    for clocked in ClockedHub::both() {
        clocked.send("door").await;
        let mut vanished = clocked.open("vanished", Some(5)).await;
        clocked.pass(17);
        let _guest = clocked.open("guest", None).await;
        let error = vanished.next(1, usize::MAX).await.unwrap_err();
        assert!(matches!(error, ReceiveError::Source(_)), "it was not disconnected by anybody: {error:?}");
        let text =
            "the hub is not available: no sign of life from receiver 'vanished' for 1020 s; it was removed";
        assert_eq!(error.to_string(), text);
    }
}

#[tokio::test]
async fn one_that_vanished_keeps_its_place_while_nobody_wants_it() {
    for clocked in ClockedHub::both() {
        clocked.send("door").await;
        let mut owner = clocked.open("owner", Some(5)).await;
        clocked.pass(1_000);
        assert_eq!(next(&mut owner).await, 0);
    }
}

#[tokio::test]
async fn an_owner_that_waits_is_woken_to_be_told() {
    for clocked in ClockedHub::both() {
        let mut old = clocked.open("old", Some(5)).await;
        let told = check(async {
            let (told, _new) = tokio::join!(disconnected(&mut old), clocked.open("new", Some(6)));
            assert_eq!(told.1, Some("new".into()));
        });
        told.await;
    }
}

#[tokio::test]
async fn what_is_given_back_is_read_again_and_a_lookout_sees_who_waits() {
    for clocked in ClockedHub::both() {
        for _ in 0..5 {
            clocked.send("door").await;
        }
        let mut receiver = clocked.open("owner", Some(1)).await;
        let idle_probe = receiver.idle_probe();
        assert_eq!(receiver.next(5, usize::MAX).await.unwrap().first().0, 0);
        receiver.give_back(SequenceNumber(0));
        assert_eq!(next(&mut receiver).await, 0);
        receiver.give_back(SequenceNumber(3));
        assert!(!idle_probe.is_idle(), "there are two more");
        assert_eq!(next(&mut receiver).await, 3);
        assert_eq!(next(&mut receiver).await, 4);
        let mut waiting = pin!(receiver.next(1, usize::MAX));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        assert!(idle_probe.is_idle(), "it has come to the end");
        clocked.send("door").await;
        assert_eq!(waiting.await.unwrap().first().0, 5);
        assert!(!idle_probe.is_idle());
    }
}
