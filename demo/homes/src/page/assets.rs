//! The style sheet, scripts and other static files of the web page, embedded in the program.

use axum::extract::Path;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

const STYLE: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Name, kind and content.
const FILES: [(&str, &str, &str); 6] = [
    ("page.css", STYLE, include_str!("assets/page.css")),
    ("shared.js", SCRIPT, include_str!("assets/shared.js")),
    ("city.js", SCRIPT, include_str!("assets/city.js")),
    ("home.js", SCRIPT, include_str!("assets/home.js")),
    ("operator.js", SCRIPT, include_str!("assets/operator.js")),
    ("icon.svg", "image/svg+xml", include_str!("assets/icon.svg")),
];

/// `GET /assets/{name}`.
pub(super) async fn asset(Path(name): Path<String>) -> Response {
    match FILES.iter().find(|(file, ..)| *file == name) {
        Some((_, kind, content)) => {
            ([(header::CONTENT_TYPE, *kind), (header::CACHE_CONTROL, "no-cache")], *content).into_response()
        }
        None => (StatusCode::NOT_FOUND, "There is no such file.\n").into_response(),
    }
}
