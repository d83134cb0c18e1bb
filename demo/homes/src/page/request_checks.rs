//! Checks the `Host` and `Origin` headers of requests, so that only pages of this server can send them, and
//! sets the security headers of all answers.
//!
//! Another web page in the same browser can send requests to loopback, and can give its own name the address
//! 127.0.0.1. The first shows in `Origin`, the second in `Host`.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

/// The headers of every response.
const HEADERS: [(HeaderName, &str); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'self'; style-src 'self'; script-src 'self'; object-src 'none'; base-uri 'none'; \
         form-action 'self'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
];

/// Lets through who may ask, and puts the headers on every answer.
pub(super) async fn guard(State(state): State<super::State>, request: Request, next: Next) -> Response {
    let mut response = match refusal(&request, state.port) {
        Some((status, why)) => (status, why).into_response(),
        None => next.run(request).await,
    };
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

fn refusal(request: &Request, port: u16) -> Option<(StatusCode, String)> {
    let headers = request.headers();
    let host = only(headers, &header::HOST);
    let authority = request.uri().authority().map(|authority| authority.as_str());
    if !host.is_some_and(|host| is_ours(host, port))
        || authority.is_some_and(|authority| !is_ours(authority, port))
    {
        let why = format!(
            "This page is available only under names of this machine: open http://127.0.0.1:{port}/\n"
        );
        return Some((StatusCode::MISDIRECTED_REQUEST, why));
    }
    let cross_origin = headers.contains_key(header::ORIGIN)
        && !only(headers, &header::ORIGIN)
            .and_then(|origin| origin.strip_prefix("http://"))
            .is_some_and(|host| is_ours(host, port));
    cross_origin.then(|| (StatusCode::FORBIDDEN, "Requests from other web pages are refused.\n".to_owned()))
}

/// The value of a header that is there once and is text.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Whether it is a name of this machine with our port.
fn is_ours(host: &str, port: u16) -> bool {
    let (name, given) = match host.rsplit_once(':') {
        Some((name, given)) if !given.ends_with(']') => (name, Some(given)),
        _ => (host, None),
    };
    let same_port = match given {
        Some(given) => given == port.to_string(),
        None => port == 80,
    };
    let ours = ["127.0.0.1", "[::1]", "localhost"];
    same_port && ours.iter().any(|ours| name.eq_ignore_ascii_case(ours))
}

#[cfg(test)]
mod tests {
    use super::is_ours;

    #[test]
    fn only_names_of_this_machine_with_our_port_are_ours() {
        for ours in ["127.0.0.1:8233", "localhost:8233", "LOCALHOST:8233", "[::1]:8233"] {
            assert!(is_ours(ours, 8233), "{ours}");
        }
        let other_names = [
            "127.0.0.1",
            "localhost",
            "[::1]",
            "127.0.0.1:8234",
            "127.0.0.1:08233",
            "evil.example:8233",
            "",
            "localhost.evil.example:8233",
            "evil-localhost:8233",
            "127.0.0.1:8233@evil.example",
            ":8233",
            "user@localhost:8233",
            "localhost:8233:8233",
            "null",
        ];
        for name in other_names {
            assert!(!is_ours(name, 8233), "{name}");
        }
        assert!(is_ours("localhost", 80) && is_ours("[::1]", 80) && is_ours("[::1]:80", 80));
    }
}
