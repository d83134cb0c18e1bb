//! Tests of receivers on hubs that detach links, repeat events, steal the partition, send junk, do not
//! answer, or are created again.

use std::time::Duration;

use ephor_amqp::performative::{Attach, Error};
use ephor_core::epoch::Epoch;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::receivers::error_texts::stolen;
use ephor_core::source::{EventSource, OpenError, OpenRequest, ReceiveError, SourceError};
use ephor_eventhubs::{EventHubOptions, LogReplaced};
use ephor_gateway::GatewayConfig;
use ephor_wire::selector::Start;

use crate::common::scripted_hub::{Act, Answer, Peer, Script};
use crate::common::{TestHub, quick, receive, request, texts, within};

/// A hub with these answers for its receiver links, one for each.
async fn hub(links: Vec<Answer>) -> Peer {
    let mut links: Vec<Option<Answer>> = links.into_iter().map(Some).collect();
    let receiver = move |number: usize, _: &_| match links.get_mut(number).and_then(Option::take) {
        Some(answer) => answer,
        None => Answer::Accept(vec![]),
    };
    Peer::start(Script { receiver: Box::new(receiver), ..Script::default() }).await
}

fn events(numbers: impl IntoIterator<Item = u64>) -> Vec<Act> {
    numbers.into_iter().map(Act::Send).collect()
}

fn and(mut acts: Vec<Act>, last: Act) -> Answer {
    acts.push(last);
    Answer::Accept(acts)
}

fn behind(number: u64) -> Start {
    Start::Sequence { number: SequenceNumber(number), inclusive: false }
}

async fn numbers(receiver: &mut Box<dyn ephor_core::source::Receiver>, count: usize) -> Vec<u64> {
    within(20, receive(receiver, count)).await.iter().map(|event| event.sequence.0).collect()
}

#[tokio::test]
async fn links_that_end_for_reasons_of_their_own_are_made_again_behind_the_last_event() {
    let idle = Error::new("amqp:link:detach-forced", "The link is force detached. Details: IdleTimerExpired");
    let busy = Error::new("com.microsoft:server-busy", "wait");
    let peer = hub(vec![
        and(events(0..3), Act::Detach(Some(idle))),
        and(events(3..5), Act::Detach(None)),
        and(vec![], Act::Detach(Some(busy.clone()))),
        Answer::Refuse(busy),
        and(events([5]), Act::Close),
        and(vec![], Act::Detach(Some(Error::new("com.example:unheard-of", "?")))),
        Answer::Accept(events(6..9)),
    ])
    .await;
    let client = peer.client(quick());
    let mut receiver = client.open(request("reader", Some(4))).await.unwrap();
    assert_eq!(numbers(&mut receiver, 9).await, Vec::from_iter(0..9));
    let starts = peer.seen(|seen| seen.starts.clone());
    let expected = [Start::Earliest, behind(2), behind(4), behind(4), behind(4), behind(5), behind(5)];
    assert_eq!(starts, expected);
    assert!(peer.seen(|seen| seen.epochs.iter().all(|epoch| *epoch == Some(4))), "the epoch is kept");
    assert_eq!(peer.seen(|seen| seen.connections), 2, "only a lost connection is made again");
}

#[tokio::test]
async fn with_epoch_0_a_lost_link_is_returned_and_not_reattached_before_the_caller_has_checked() {
    let idle =
        || Error::new("amqp:link:detach-forced", "The link is force detached. Details: IdleTimerExpired");
    for last in [Act::Detach(Some(idle())), Act::Detach(None), Act::Close] {
        let peer = hub(vec![and(events(0..3), last)]).await;
        let mut receiver = peer.client(quick()).open(request("reader", Some(0))).await.unwrap();
        assert_eq!(numbers(&mut receiver, 3).await, Vec::from_iter(0..3));
        let error = within(20, receiver.receive(&mut Vec::new(), 10)).await.unwrap_err();
        assert!(matches!(error, ReceiveError::Source(SourceError::Unavailable(_))), "{error:?}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(peer.seen(|seen| seen.epochs.clone()), [Some(0)]);
    }
    let peer = hub(vec![Answer::Refuse(Error::new("com.microsoft:server-busy", "wait"))]).await;
    match peer.client(quick()).open(request("reader", Some(0))).await.map(|_| ()) {
        Err(OpenError::Source(SourceError::Unavailable(_))) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(peer.seen(|seen| seen.epochs.clone()), [Some(0)]);
}

#[tokio::test]
async fn a_hub_that_repeats_itself_is_not_believed() {
    let peer =
        hub(vec![and(events([0, 1, 2, 1, 2, 3]), Act::Detach(None)), Answer::Accept(events(0..6))]).await;
    let client = peer.client(quick());
    let mut receiver = client.open(request("reader", None)).await.unwrap();
    assert_eq!(numbers(&mut receiver, 6).await, Vec::from_iter(0..6));
}

/// A hub that hears of a link only after it was abandoned detaches the next one as stolen, by its own name;
/// like the service, it truncates names.
#[tokio::test]
async fn a_late_link_of_its_own_disconnects_no_receiver_whatever_its_name_is() {
    for name in
        ["reader".into(), "n".repeat(200), "日".repeat(200), "it's".into(), "nil".into(), String::new()]
    {
        let late = move |number: usize, attach: &Attach| {
            let name = attach.properties.as_ref().and_then(|map| map.get("com.microsoft:receiver-name"));
            let name: String =
                name.and_then(|name| name.text()).unwrap_or_default().chars().take(64).collect();
            let epoch = Epoch::from_stored(4);
            let stolen = Error::new("amqp:link:stolen", stolen(&name, epoch, &name, Some(epoch)));
            match number {
                0 => and(events([0]), Act::Detach(None)),
                1 => and(events([1]), Act::Detach(Some(stolen))),
                // Events of a stolen link are requested again.
                _ => Answer::Accept(events([1, 2])),
            }
        };
        let peer = Peer::start(Script { receiver: Box::new(late), ..Script::default() }).await;
        let mut receiver = peer.client(quick()).open(request(&name, Some(4))).await.unwrap();
        assert_eq!(numbers(&mut receiver, 3).await, [0, 1, 2], "{name:?}");
    }
}

#[tokio::test]
async fn a_stolen_receiver_hands_out_nothing_more_and_stays_disconnected() {
    let text = "New receiver 'next' with higher epoch of '9' is created hence current receiver 'reader' with epoch \
                '4' is getting disconnected. If you are recreating the receiver, make sure a higher epoch is used.";
    let peer = hub(vec![and(events(0..3), Act::Detach(Some(Error::new("amqp:link:stolen", text))))]).await;
    let client = peer.client(quick());
    let mut receiver = client.open(request("reader", Some(4))).await.unwrap();
    let mut events = Vec::new();
    for _ in 0..3 {
        let error = loop {
            match within(20, receiver.receive(&mut events, 10)).await {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        let ReceiveError::Disconnected { epoch, by, message } = error else { panic!("{error}") };
        assert_eq!((epoch.map(|epoch| epoch.get()), by.as_deref()), (Some(9), Some("next")));
        assert_eq!(message, text);
    }
    assert_eq!(peer.seen(|seen| seen.starts.len()), 1, "nobody tries to get back what another holds");
}

#[tokio::test]
async fn all_places_taken_is_final_for_a_new_receiver_and_passes_for_one_that_lost_its_own() {
    let full =
        || Error::new("amqp:resource-limit-exceeded", "Exceeded the maximum number of allowed receivers");
    let peer = hub(vec![Answer::Refuse(full())]).await;
    match peer.client(quick()).open(request("reader", None)).await.map(|_| ()) {
        Err(OpenError::TooManyReceivers { .. }) => {}
        other => panic!("{other:?}"),
    }
    let peer = hub(vec![
        and(events([0]), Act::Detach(None)),
        Answer::Refuse(full()),
        Answer::Refuse(full()),
        Answer::Accept(events([1])),
    ])
    .await;
    let mut receiver = peer.client(quick()).open(request("reader", None)).await.unwrap();
    assert_eq!(numbers(&mut receiver, 2).await, [0, 1]);
}

#[tokio::test]
async fn a_permanent_error_is_returned_at_once() {
    let gone = Error::new("amqp:not-found", "The messaging entity 'sb://h/homes' could not be found.");
    let peer = hub(vec![and(events([0]), Act::Detach(Some(gone)))]).await;
    let client = peer.client(quick());
    let mut receiver = client.open(request("reader", None)).await.unwrap();
    let mut events = Vec::new();
    let error = loop {
        match within(20, receiver.receive(&mut events, 10)).await {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(error, ReceiveError::Source(SourceError::NotFound { .. })), "{error}");
    let denied =
        Error::new("amqp:unauthorized-access", "Unauthorized access. 'Listen' claim(s) are required");
    let peer = hub(vec![Answer::Refuse(denied)]).await;
    let error = peer.client(quick()).open(request("reader", None)).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Source(SourceError::Unauthorized { .. })), "{error}");
    assert_eq!(peer.seen(|seen| seen.starts.len()), 1);
}

#[tokio::test]
async fn what_is_no_event_is_an_error_and_not_skipped() {
    let mut acts = events(0..2);
    acts.push(Act::SendJunk);
    let peer = hub(vec![and(acts, Act::Send(3)), Answer::Accept(events(2..4))]).await;
    let client = peer.client(quick());
    let mut receiver = client.open(request("reader", None)).await.unwrap();
    let mut all = Vec::new();
    let error = loop {
        match within(20, receiver.receive(&mut all, 10)).await {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("not an event"), "{error}");
    assert_eq!(all.iter().map(|event| event.sequence.0).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(numbers(&mut receiver, 2).await, [2, 3]);
    assert_eq!(peer.seen(|seen| seen.starts[1].clone()), behind(1));
}

#[tokio::test]
async fn no_more_comes_than_was_asked_for() {
    let peer = hub(vec![Answer::Accept(events(0..1_000))]).await;
    let client = peer.client(quick());
    let small = OpenRequest { prefetch_events: 10, ..request("reader", None) };
    let mut receiver = client.open(small).await.unwrap();
    peer.until(|seen| seen.sent == 10).await;
    assert_eq!(numbers(&mut receiver, 1_000).await, Vec::from_iter(0..1_000));

    let large = (0..100).map(|number| Act::SendLarge(number, 50_000)).collect();
    let peer = hub(vec![Answer::Accept(large)]).await;
    let client = peer.client(quick());
    let few_bytes = OpenRequest { prefetch_bytes: 200_000, ..request("reader", None) };
    let mut receiver = client.open(few_bytes).await.unwrap();
    // More than the bound may be under way when the first shows how large they are, but not all.
    peer.until(|seen| seen.sent > 0).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(peer.seen(|seen| seen.sent) <= 32, "{}", peer.seen(|seen| seen.sent));
    assert_eq!(numbers(&mut receiver, 40).await, Vec::from_iter(0..40));
    assert!(peer.seen(|seen| seen.sent) <= 46, "{}", peer.seen(|seen| seen.sent));
    assert_eq!(numbers(&mut receiver, 60).await, Vec::from_iter(40..100));
}

#[tokio::test]
async fn a_link_that_replaces_another_knows_how_large_the_events_are() {
    let first = vec![Act::SendLarge(0, 50_000), Act::Detach(None)];
    let second = (1..10).map(|number| Act::SendLarge(number, 50_000)).collect();
    let peer = hub(vec![Answer::Accept(first), Answer::Accept(second)]).await;
    let client = peer.client(quick());
    let few_bytes = OpenRequest { prefetch_bytes: 210_000, ..request("reader", None) };
    let mut receiver = client.open(few_bytes).await.unwrap();
    assert_eq!(numbers(&mut receiver, 10).await, Vec::from_iter(0..10));
    assert_eq!(peer.seen(|seen| seen.credits.clone()), [32, 4]);
}

#[tokio::test]
async fn a_hub_that_does_not_answer_is_given_up_and_asked_again() {
    let peer = hub(vec![Answer::Silence, Answer::Accept(events([0]))]).await;
    let timeout = Duration::from_millis(150);
    let options = EventHubOptions { connect_time: timeout, answer_time: timeout, ..quick() };
    let client = peer.client(options);
    let mut receiver = within(20, client.open(request("reader", None))).await.unwrap();
    assert_eq!(numbers(&mut receiver, 1).await, [0]);
    assert_eq!(peer.seen(|seen| seen.connections), 2);
}

#[tokio::test]
async fn a_hub_that_answers_no_token_is_unavailable_and_nothing_hangs() {
    let peer = Peer::start(Script { token: Box::new(|_| None), ..Script::default() }).await;
    let timeout = Duration::from_millis(50);
    let options = EventHubOptions { connect_time: timeout, answer_time: timeout, attempts: 2, ..quick() };
    let error = within(20, peer.client(options).open(request("reader", None))).await.map(|_| ()).unwrap_err();
    assert!(matches!(error, OpenError::Source(SourceError::Unavailable(_))), "{error}");
    assert!(error.to_string().contains("did not answer"), "{error}");
}

#[tokio::test]
async fn a_receiver_that_is_dropped_is_detached() {
    let peer = hub(vec![]).await;
    let client = peer.client(quick());
    let receiver = client.open(request("reader", None)).await.unwrap();
    drop(receiver);
    within(20, peer.until(|seen| seen.detached == 1)).await;
    // Also when the opening itself is dropped.
    let peer = hub(vec![Answer::Silence]).await;
    let client = peer.client(quick());
    tokio::select! {
        _ = client.open(request("reader", None)) => panic!("nobody answers"),
        () = peer.until(|seen| seen.starts.len() == 1) => {}
    }
    within(20, peer.until(|seen| seen.detached == 1)).await;
}

#[tokio::test]
async fn a_new_token_that_is_not_answered_costs_the_connection_and_not_the_receiver() {
    let mut links = vec![Answer::Accept(events([0])), Answer::Accept(events([1]))].into_iter();
    let receiver = move |_, _: &_| links.next().unwrap_or(Answer::Silence);
    let script = Script {
        token: Box::new(|number| (number != 1).then_some(Ok(()))),
        receiver: Box::new(receiver),
        ..Script::default()
    };
    let peer = Peer::start(script).await;
    let timeout = Duration::from_millis(100);
    let options = EventHubOptions { answer_time: timeout, token_life: Duration::from_secs(1), ..quick() };
    let client = peer.client(options);
    let mut receiver = client.open(request("reader", None)).await.unwrap();
    assert_eq!(numbers(&mut receiver, 2).await, [0, 1]);
    assert_eq!(peer.seen(|seen| (seen.connections, seen.tokens.len())), (2, 3));
}

#[tokio::test]
async fn a_receiver_that_comes_back_to_another_log_of_the_same_name_says_so_and_ends() {
    let mut test_hub = TestHub::new(2);
    let served = test_hub.serve().await;
    let (address, client) = (served.address, served.client());
    let was = test_hub.hub.hub_properties().await.unwrap().log.unwrap();
    let send = async |test_hub: &TestHub, text: &'static str| {
        for partition in [PartitionId(0), PartitionId(1)] {
            test_hub.hub.producer().send_to(partition, NewEvent::new(text)).await.unwrap();
        }
    };
    let mut receivers = Vec::new();
    // The client has never asked for the hub's properties.
    for (id, epoch, start) in [(0, Some(1), StartPosition::Earliest), (1, None, StartPosition::Latest)] {
        let request = OpenRequest { partition: PartitionId(id), start, ..request("reader", epoch) };
        receivers.push(client.open(request).await.unwrap());
    }
    send(&test_hub, "one").await;
    for receiver in &mut receivers {
        assert_eq!(texts(&within(20, receive(receiver, 1)).await), ["one"]);
    }
    // The hub is away for a moment, and comes back with the same log.
    served.stop().await;
    send(&test_hub, "two").await;
    let served = test_hub.serve_as(GatewayConfig::default(), &address.to_string(), false).await;
    for receiver in &mut receivers {
        assert_eq!(texts(&within(20, receive(receiver, 1)).await), ["two"]);
    }
    // Now another hub comes back, whose log is already longer than their positions.
    served.stop().await;
    test_hub.recreate();
    for text in ["a", "b", "c", "d"] {
        send(&test_hub, text).await;
    }
    let _served = test_hub.serve_as(GatewayConfig::default(), &address.to_string(), false).await;
    let is = test_hub.hub.hub_properties().await.unwrap().log.unwrap();
    for receiver in &mut receivers {
        for _ in 0..2 {
            let mut events = Vec::new();
            let error = within(20, receiver.receive(&mut events, 10)).await.unwrap_err();
            assert_eq!(texts(&events), Vec::<String>::new());
            let ReceiveError::Source(SourceError::Unavailable(cause)) = &error else { panic!("{error:?}") };
            let replaced = cause.downcast_ref::<LogReplaced>().unwrap();
            assert_eq!((&replaced.was, &replaced.is), (&was, &is));
        }
    }
    assert_eq!(client.hub_properties().await.unwrap().log.unwrap(), is);
    let mut reopened = client.open(request("reader", Some(1))).await.unwrap();
    assert_eq!(texts(&within(20, receive(&mut reopened, 4)).await), ["a", "b", "c", "d"]);
}
