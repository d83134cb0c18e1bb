//! Tests of the autoscaler KEDA: its formula on Ephor's checkpoint blobs and the hub's `$management` gives
//! the true backlog, before the first event, while hosts run, and when they are stopped. The last test is
//! about counts that are too high: after retention and a seek.

mod fixture;
mod formula;

use ephor_core::position::StartPosition::{Earliest, Latest};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_stores::azblob::SharedWith;
use fixture::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hub_without_events_has_no_backlog() {
    for shared_with in [SharedWith::EphorOnly, SharedWith::OtherSdks] {
        for start in [Earliest, Latest] {
            let world = World::new(shared_with).await;
            world.keda_counts([0, 0], "nobody was there").await;
            let host = world.host(start).await;
            world.keda_counts([0, 0], "a host waits").await;
            world.send([3, 1]).await;
            world.keda_counts([3, 1], "the first events").await;
            host.allow(4);
            host.has_done(4).await;
            world.keda_comes_to([0, 0], "all is done").await;
            host.stop().await;
            world.keda_counts([0, 0], "stopped").await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_before_the_first_host_are_counted_once_and_as_they_are_done() {
    for shared_with in [SharedWith::EphorOnly, SharedWith::OtherSdks] {
        let world = World::new(shared_with).await;
        world.send([6, 0]).await;
        world.keda_counts([6, 0], "nobody was there").await;
        let host = world.host(Earliest).await;
        world.keda_counts([6, 0], "claimed, and nothing done").await;
        host.allow(2);
        host.has_done(2).await;
        world.keda_comes_to([4, 0], "two are done").await;
        host.stop().await;
        world.keda_counts([4, 0], "stopped").await;
        world.send([1, 2]).await;
        world.keda_counts([5, 2], "more have come").await;
        let host = world.host(Earliest).await;
        world.keda_counts([5, 2], "the next host, and nothing done").await;
        host.allow(7);
        host.has_done(7).await;
        assert_eq!(host.done(), [(0, 2), (0, 3), (0, 4), (0, 5), (0, 6), (1, 0), (1, 1)]);
        world.keda_comes_to([0, 0], "all is done").await;
        host.stop().await;
    }
}

/// From the first claim on, what lies before the newest event is nobody's backlog. Before it, no blob can say so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_begins_at_the_latest_has_what_comes_from_then_on() {
    for shared_with in [SharedWith::EphorOnly, SharedWith::OtherSdks] {
        let world = World::new(shared_with).await;
        world.send([6, 0]).await;
        world.keda_counts([6, 0], "nobody was there").await;
        let host = world.host(Latest).await;
        world.keda_counts([0, 0], "claimed").await;
        if shared_with == SharedWith::OtherSdks {
            // Whoever takes it over goes by the offset: JavaScript cannot do without.
            let blob = world.blob(0).await.unwrap();
            let offset = ephor_hub::offset_of(5).to_string();
            assert_eq!((blob["sequencenumber"].as_str(), blob["offset"].as_str()), ("5", &*offset));
        }
        world.send([2, 1]).await;
        world.keda_counts([2, 1], "new ones").await;
        host.stop().await;
        world.keda_counts([2, 1], "stopped with nothing done").await;
        let host = world.host(Latest).await;
        host.allow(3);
        host.has_done(3).await;
        assert_eq!(host.done(), [(0, 6), (0, 7), (1, 0)]);
        world.keda_comes_to([0, 0], "all is done").await;
        host.stop().await;
    }
}

/// The oldest events are gone: nobody shall count them, and nobody begins elsewhere for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_retention_has_taken_is_no_backlog() {
    for shared_with in [SharedWith::EphorOnly, SharedWith::OtherSdks] {
        let world = World::new(shared_with).await;
        world.send([9, 4]).await;
        world.retention_takes_all();
        world.keda_counts([0, 0], "all is gone").await;
        let host = world.host(Earliest).await;
        world.keda_counts([0, 0], "claimed, and nothing there").await;
        world.send([3, 2]).await;
        world.keda_counts([3, 2], "new ones").await;
        host.stop().await;
        world.keda_counts([3, 2], "stopped with nothing done").await;
        let host = world.host(Earliest).await;
        host.allow(3);
        host.has_done(3).await;
        let left = |partition: u32, all: i64| {
            let done = host.done().iter().filter(|(of, _)| *of == partition).count();
            all - i64::try_from(done).unwrap()
        };
        world.keda_comes_to([left(0, 3), left(1, 2)], "some are done").await;
        host.allow(2);
        host.has_done(5).await;
        assert_eq!(host.done(), [(0, 9), (0, 10), (0, 11), (1, 4), (1, 5)]);
        world.keda_comes_to([0, 0], "all is done").await;
        host.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_group_that_begins_on_a_trimmed_log_has_what_is_kept() {
    for shared_with in [SharedWith::EphorOnly, SharedWith::OtherSdks] {
        let world = World::new(shared_with).await;
        world.send([9, 4]).await;
        world.retention_takes_all();
        world.send([3, 1]).await;
        // Without a blob KEDA takes one event for none, unless it is the very first.
        world.keda_counts([3, 0], "nobody was there").await;
        let host = world.host(Earliest).await;
        let single = if shared_with == SharedWith::EphorOnly { 1 } else { 0 };
        world.keda_counts([3, single], "claimed, and nothing done").await;
        if shared_with == SharedWith::EphorOnly {
            // Other SDKs go by the offset: before everything that there is.
            let blob = world.blob(0).await.unwrap();
            assert_eq!((blob["sequencenumber"].as_str(), blob["offset"].as_str()), ("8", "-1"));
        }
        host.allow(4);
        host.has_done(4).await;
        assert_eq!(host.done(), [(0, 9), (0, 10), (0, 11), (1, 4)]);
        world.keda_comes_to([0, 0], "all is done").await;
        host.stop().await;
        world.keda_counts([0, 0], "stopped").await;
    }
}

/// What it cannot know, it counts too high, and only until the next save.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_counts_too_much_behind_retention_and_behind_a_seek_by_hand() {
    let world = World::new(SharedWith::EphorOnly).await;
    world.send([9, 4]).await;
    let host = world.host(Earliest).await;
    host.stop().await;
    world.retention_takes_all();
    world.send([3, 2]).await;
    world.keda_counts([12, 6], "nobody was there when they went").await;
    let host = world.host(Earliest).await;
    host.allow(5);
    host.has_done(5).await;
    assert_eq!(host.done(), [(0, 9), (0, 10), (0, 11), (1, 4), (1, 5)]);
    world.keda_comes_to([0, 0], "all is done").await;
    host.stop().await;
    let by_number = StartPosition::after(SequenceNumber(9));
    let by_offset = StartPosition::Offset { offset: Offset::new("-7"), inclusive: false };
    for (start, counted) in [(by_number, 2), (Latest, 12), (by_offset, 12)] {
        world.seek(0, &start).await;
        world.keda_counts([counted, 0], &format!("sought to {start}")).await;
    }
}
