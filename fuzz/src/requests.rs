//! Fuzzes requests and responses of `$cbs` and `$management`, on both sides.

use ephor_wire::cbs::{PutToken, write_accepted, write_refused};
use ephor_wire::condition::{Condition, Refusal};
use ephor_wire::management::{HubDescription, PartitionDescription, Query};
use ephor_wire::request_response::{
    MAX_ID_LENGTH, MAX_TEXT_LENGTH, Request, RequestId, Response, write_refusal,
};

/// The maximum size of a short answer beside the id that it repeats.
const AROUND_AN_ID: usize = 128;

/// Runs one input.
pub fn run(data: &[u8]) {
    if let Ok(request) = Request::read(data) {
        answer(&request);
        put_again(&request);
        ask_again(&request);
    }
    if let Ok(response) = Response::read(data) {
        describe_again(&response);
    }
}

/// Every answer carries the id of its request.
fn answer(request: &Request<'_>) {
    let (id, refusal) = (request.id.as_ref(), Refusal::new(Condition::NotFound, "no"));
    let mut messages = [Vec::new(), Vec::new(), Vec::new()];
    write_accepted(id, &mut messages[0]);
    write_refused(id, &refusal, &mut messages[1]);
    write_refusal(id, &refusal, &mut messages[2]);
    for (message, status) in messages.iter().zip([202, 404, 404]) {
        assert!(message.len() <= MAX_ID_LENGTH + AROUND_AN_ID, "an answer of {} bytes", message.len());
        let response = Response::read(message).expect("an answer can be read");
        assert_eq!((response.id.as_ref(), response.status), (id, status));
        assert_eq!(response.accepted().is_ok(), status == 202);
    }
}

fn put_again(request: &Request<'_>) {
    let Ok(put) = PutToken::of(request) else { return };
    if put.token.len() > 8 && !put.audience.contains(put.token) {
        assert!(!format!("{put:?}").contains(put.token), "a token is shown");
    }
    let mut message = Vec::new();
    put.write(&RequestId::number(7), "replies", &mut message);
    let again = Request::read(&message).expect("a written value can be read");
    assert_eq!(again.id.as_ref().and_then(RequestId::as_number), Some(7));
    assert_eq!(PutToken::of(&again), Ok(put));
}

fn ask_again(request: &Request<'_>) {
    assert!(request.security_token.is_none_or(|token| token.len() <= MAX_TEXT_LENGTH));
    let Ok(query) = Query::of(request, None) else { return };
    let mut message = Vec::new();
    query.write(&RequestId::number(7), "replies", request.security_token, &mut message);
    let again = Request::read(&message).expect("a written value can be read");
    assert_eq!(again.security_token, request.security_token);
    assert_eq!(Query::of(&again, None), Ok(query));
}

fn describe_again(response: &Response<'_>) {
    let id = response.id.as_ref();
    if let Ok(hub) = HubDescription::read(response) {
        let mut message = Vec::new();
        hub.write(id, &mut message);
        let again = Response::read(&message).expect("a written value can be read");
        assert_eq!(HubDescription::read(&again), Ok(hub));
    }
    if let Ok(partition) = PartitionDescription::read(response) {
        let mut message = Vec::new();
        partition.write(id, &mut message);
        let again = Response::read(&message).expect("a written value can be read");
        assert_eq!(PartitionDescription::read(&again), Ok(partition));
    }
}
