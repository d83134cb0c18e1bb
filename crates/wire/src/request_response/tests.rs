//! Tests of requests and responses, as each SDK writes and reads them.

use proptest::prelude::*;

use super::*;
use crate::cbs::{PutToken, TokenKind, write_accepted};
use crate::condition::error_texts;
use crate::sas::InvalidToken;

fn put(kind: TokenKind) -> PutToken<'static> {
    PutToken { audience: "sb://localhost/eh1", kind, token: "canary", expires_at: Some(Timestamp(5)) }
}

fn written(put: &PutToken<'_>) -> Vec<u8> {
    let mut message = Vec::new();
    put.write(&RequestId::number(7), "reply", &mut message);
    message
}

#[test]
fn a_put_token_reads_back_as_it_was_written() {
    for kind in [TokenKind::Sas, TokenKind::Jwt] {
        let message = written(&put(kind));
        let request = Request::read(&message).unwrap();
        assert_eq!(PutToken::of(&request).unwrap(), put(kind));
        assert_eq!(request.id.as_ref().and_then(RequestId::as_number), Some(7));
        assert_eq!(request.reply_to, Some("reply"));
        let shown = format!("{request:?} {:?}", PutToken::of(&request).unwrap());
        assert!(!shown.contains("canary"), "{shown}");
    }
}

#[test]
fn a_put_token_of_go_tells_its_end_in_seconds_and_has_a_text_for_an_id() {
    let mut message = [
        b"\x00\x53\x73\xc0\x0b\x05\xa1\x02id\x40\x40\x40\xa1\x01r".as_slice(),
        b"\x00\x53\x74\xc1\x00\x08",
        b"\xa1\x09operation\xa1\x09put-token",
        b"\xa1\x04type\xa1\x1fservicebus.windows.net:sastoken",
        b"\xa1\x04name\xa1\x05sb://",
        b"\xa1\x0aexpiration\xa1\x0a1800000000",
        b"\x00\x53\x77\xa1\x05token",
    ]
    .concat();
    let map = message.windows(3).position(|window| window == b"\x00\x53\x74").unwrap();
    let body = message.windows(3).position(|window| window == b"\x00\x53\x77").unwrap();
    message[map + 4] = (body - map - 5) as u8;
    let request = Request::read(&message).unwrap();
    let token = PutToken::of(&request).unwrap();
    assert_eq!((token.token, token.expires_at), ("token", Some(Timestamp(1_800_000_000_000))));
    let mut answer = Vec::new();
    write_accepted(request.id.as_ref(), &mut answer);
    let expected = [
        b"\x00\x53\x73\xc0\x11\x0d\x40\x40\x40\x40\x40\xa1\x02id\x40\x40\x40\x40\x40\x40\x40".as_slice(),
        b"\x00\x53\x74\xc1\x31\x04\xa1\x0bstatus-code\x71\x00\x00\x00\xca",
        b"\xa1\x12status-description\xa1\x08Accepted",
        b"\x00\x53\x77\x40",
    ]
    .concat();
    assert_eq!(answer, expected, "202 as an int, keys with hyphens, the id in its own type");
}

#[test]
fn an_id_is_repeated_in_its_own_type() {
    for id in [
        b"\x98\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f".as_slice(),
        b"\x44",
        b"\x53\x07",
        b"\x80\x00\x00\x00\x00\x00\x00\x00\x00",
        b"\xa1\x03abc",
        b"\xa0\x03abc",
    ] {
        let request = [b"\x00\x53\x73\xc0", [id.len() as u8 + 1, 1].as_slice(), id].concat();
        let request = Request::read(&request).unwrap();
        let mut answer = Vec::new();
        write_accepted(request.id.as_ref(), &mut answer);
        assert_eq!(&answer[11..11 + id.len()], id);
        let response = Response::read(&answer).unwrap();
        assert_eq!(response.id, request.id);
        assert_eq!(response.accepted(), Ok(()));
    }
}

#[test]
fn a_request_that_cannot_be_understood_says_why() {
    let refused = |change: &dyn Fn(&mut Request<'_>)| {
        let message = written(&put(TokenKind::Sas));
        let mut request = Request::read(&message).unwrap();
        change(&mut request);
        PutToken::of(&request).unwrap_err().condition.status()
    };
    assert_eq!(refused(&|request| request.operation = "take-token"), 501);
    assert_eq!(refused(&|request| request.kind = "password"), 400);
    assert_eq!(refused(&|request| request.name = None), 400);
    assert_eq!(refused(&|request| request.text = None), 400);
}

#[test]
fn a_refusal_has_a_status_a_text_and_a_condition() {
    let mut answer = Vec::new();
    write_refusal(None, &InvalidToken::Signature.into(), &mut answer);
    let response = Response::read(&answer).unwrap();
    assert_eq!((response.status, response.id.clone()), (401, None));
    assert_eq!(response.accepted(), Err(InvalidToken::Signature.into()));
    let mut answer = Vec::new();
    write_refusal(None, &error_texts::not_found("sb://ns/hub"), &mut answer);
    assert_eq!(Response::read(&answer).unwrap().status, 404);
}

#[test]
fn a_refused_token_has_the_condition_that_the_service_uses_there() {
    let mut answer = Vec::new();
    crate::cbs::write_refused(None, &InvalidToken::Signature.into(), &mut answer);
    let response = Response::read(&answer).unwrap();
    assert_eq!((response.status, response.condition), (401, Some("com.microsoft:auth-failed")));
    let refusal = response.accepted().unwrap_err();
    assert_eq!(refusal.class(), crate::condition::Class::GiveUp);
    let mut answer = Vec::new();
    crate::cbs::write_refused(None, &InvalidToken::Expired.into(), &mut answer);
    let refusal = Response::read(&answer).unwrap().accepted().unwrap_err();
    assert_eq!(refusal.class(), crate::condition::Class::Reopen, "it is replaced by a new one");
    let mut answer = Vec::new();
    crate::cbs::write_refused(None, &error_texts::not_found("sb://ns/hub"), &mut answer);
    let response = Response::read(&answer).unwrap();
    assert_eq!((response.status, response.condition), (404, Some("amqp:not-found")));
}

#[test]
fn a_status_without_a_condition_still_means_something() {
    let response = |status| Response { id: None, status, description: None, condition: None, body: None };
    for status in [200, 202, 299] {
        assert_eq!(response(status).accepted(), Ok(()));
    }
    for (status, condition) in [
        (401, Condition::UnauthorizedAccess),
        (404, Condition::NotFound),
        (503, Condition::ServerBusy),
        (199, Condition::InternalError),
        (599, Condition::InternalError),
    ] {
        let refusal = response(status).accepted().unwrap_err();
        assert_eq!((refusal.condition, refusal.text), (condition, format!("status {status}")));
    }
    let camel = b"\x00\x53\x74\xc1\x0f\x02\xa1\x0astatusCode\x54\x64\x00\x53\x77\x40";
    assert_eq!(Response::read(camel).unwrap().status, 100);
}

#[test]
fn what_is_too_long_is_refused() {
    let long = "x".repeat(MAX_TEXT_LENGTH + 1);
    let message = written(&PutToken { token: &long, ..put(TokenKind::Jwt) });
    assert!(Request::read(&message).is_err());
    let message = written(&PutToken { audience: &long, ..put(TokenKind::Jwt) });
    assert!(Request::read(&message).is_err());
    let message = written(&PutToken { audience: &long[..3000], ..put(TokenKind::Jwt) });
    assert!(PutToken::of(&Request::read(&message).unwrap()).is_err());
    let id =
        [b"\x00\x53\x73\xd0\x00\x00\x01\x09\x00\x00\x00\x01\xb1\x00\x00\x01\x00".as_slice(), &[b'x'; 256]]
            .concat();
    assert_eq!(Request::read(&id).unwrap_err().what, "an id that is too long");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_request_is_refused_or_read(
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        cut in any::<proptest::sample::Index>(),
    ) {
        let mut message = written(&put(TokenKind::Sas));
        for (index, byte) in changes {
            let at = index.index(message.len());
            message[at] = byte;
        }
        for message in [&message[..], &message[..cut.index(message.len())]] {
            if let Ok(request) = Request::read(message) {
                let _ = PutToken::of(&request);
                let _ = crate::management::Query::of(&request, None);
            }
            let _ = Response::read(message);
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        let _ = Request::read(&bytes);
        let _ = Response::read(&bytes);
    }
}
