//! The HTTP routes: pages, their data as JSON, and actions.

use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Query, State as Shared};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router, middleware};
use bytes::Bytes;
use maud::Markup;
use serde::Deserialize;
use serde_json::json;

use super::page_content::Shown;
use super::{State, assets, city, command, home, layout, operator, request_checks, streams};

/// The maximum length of a request body.
const MAX_BODY: usize = 4 * 1024;

/// All routes, behind the guard.
pub(super) fn router(state: State) -> Router {
    Router::new()
        .route("/", get(city_page))
        .route("/home", get(find_home))
        .route("/home/{number}", get(home_page))
        .route("/operator", get(operator_page))
        .route("/assets/{name}", get(assets::asset))
        .route("/api/city", get(city_json))
        .route("/api/home/{number}", get(home_json))
        .route("/api/fleet", get(fleet_json))
        .route("/api/act", post(act))
        .route("/live/city", get(live_city))
        .route("/live/home/{number}", get(live_home))
        .route("/live/fleet", get(live_fleet))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_like_this)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(middleware::from_fn_with_state(state.clone(), request_checks::guard))
        .with_state(state)
}

async fn city_page(Shared(state): Shared<State>) -> Response {
    page(StatusCode::OK, city::page(&city_shown(&state), state.source.homes()))
}

async fn home_page(Shared(state): Shared<State>, Path(number): Path<String>) -> Response {
    match number.parse().ok().and_then(|number| home_shown(&state, number)) {
        Some((number, shown)) => page(StatusCode::OK, home::page(&shown, number, state.source.homes())),
        None => no_home(&state, &number),
    }
}

async fn operator_page(Shared(state): Shared<State>) -> Response {
    page(StatusCode::OK, operator::page(&operator::shown(&state.source.fleet())))
}

#[derive(Deserialize)]
struct Search {
    #[serde(default)]
    number: String,
}

/// The search box: people write a number as they like.
async fn find_home(Shared(state): Shared<State>, Query(search): Query<Search>) -> Response {
    let digits: String = search.number.chars().filter(|c| !matches!(c, ',' | '.' | ' ' | '#')).collect();
    match digits.parse::<u32>() {
        Ok(number) => Redirect::to(&format!("/home/{number}")).into_response(),
        Err(_) => no_home(&state, &search.number),
    }
}

fn no_home(state: &State, asked: &str) -> Response {
    page(StatusCode::NOT_FOUND, layout::no_home(asked, state.source.homes()))
}

fn page(status: StatusCode, markup: Markup) -> Response {
    (status, Html(markup.into_string())).into_response()
}

fn refuse(status: StatusCode, why: &str) -> Response {
    (status, Json(json!({ "error": why }))).into_response()
}

async fn city_json(Shared(state): Shared<State>) -> Response {
    Json(state.source.city()).into_response()
}

async fn fleet_json(Shared(state): Shared<State>) -> Response {
    Json(state.source.fleet()).into_response()
}

async fn home_json(Shared(state): Shared<State>, Path(number): Path<String>) -> Response {
    match number.parse().ok().and_then(|number| state.source.home(number)) {
        Some(home) => Json(home).into_response(),
        None => refuse(StatusCode::NOT_FOUND, "There is no home with this number."),
    }
}

fn city_shown(state: &State) -> Shown {
    city::shown(&state.source.city(), &state.rates())
}

fn home_shown(state: &State, number: u32) -> Option<(u32, Shown)> {
    let home = state.source.home(number)?;
    Some((number, home::shown(&home, state.source.city().time)))
}

async fn live_city(Shared(state): Shared<State>) -> Response {
    let looking = state.clone();
    streams::stream(&state, move || Some(city_shown(&looking)))
}

async fn live_fleet(Shared(state): Shared<State>) -> Response {
    let looking = state.clone();
    streams::stream(&state, move || Some(operator::shown(&looking.source.fleet())))
}

async fn live_home(Shared(state): Shared<State>, Path(number): Path<String>) -> Response {
    let Some(number) = number.parse().ok().filter(|number| state.source.home(*number).is_some()) else {
        return refuse(StatusCode::NOT_FOUND, "There is no home with this number.");
    };
    let looking = state.clone();
    streams::stream(&state, move || home_shown(&looking, number).map(|(_, shown)| shown))
}

/// `POST /api/act`. A form of another web page cannot send this kind of content.
async fn act(
    Shared(state): Shared<State>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case("application/json") {
        return refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, "Send JSON, with Content-Type: application/json.");
    }
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return refuse(rejection.status(), "The body is too long or incomplete."),
    };
    let action = match command::read(&body) {
        Ok(action) => action,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why),
    };
    // In a task of its own: what was begun is done, even if the browser goes away.
    let source = state.source.clone();
    match tokio::spawn(async move { source.act(action).await }).await {
        Ok(Ok(done)) => Json(json!({ "done": done })).into_response(),
        Ok(Err(why)) => refuse(StatusCode::CONFLICT, &why),
        Err(_) => refuse(StatusCode::INTERNAL_SERVER_ERROR, "The action failed: see the demo's output."),
    }
}

async fn nothing_here(uri: Uri) -> Response {
    if uri.path().starts_with("/api/") || uri.path().starts_with("/live/") {
        return refuse(StatusCode::NOT_FOUND, "There is nothing at this path.");
    }
    page(StatusCode::NOT_FOUND, layout::nothing_here(uri.path()))
}

async fn not_like_this() -> Response {
    refuse(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed: use GET for pages and POST for actions.")
}
