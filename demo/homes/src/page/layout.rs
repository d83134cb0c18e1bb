//! The layout of all pages: head, navigation, connection state; and the pages for "not found".

use maud::{DOCTYPE, Markup, html};

use super::format;

/// The parts in which pages differ.
pub(super) struct Page<'a> {
    /// In the browser's tab.
    pub(super) title: &'a str,
    /// Which of the ways around it is, if any: `/` or `/operator`.
    pub(super) here: &'a str,
    /// The path of its stream; none for a static page.
    pub(super) live: Option<&'a str>,
    /// Its script.
    pub(super) script: Option<&'a str>,
}

/// The whole document.
pub(super) fn document(page: &Page<'_>, content: &Markup) -> Markup {
    let way = |to: &str, name: &str| {
        html! { a href=(to) aria-current=[(page.here == to).then_some("page")] { (name) } }
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (page.title) " · Ephor homes" }
                link rel="icon" type="image/svg+xml" href="/assets/icon.svg";
                link rel="stylesheet" href="/assets/page.css";
                @if let Some(script) = page.script {
                    script type="module" src=(format!("/assets/{script}")) {}
                }
            }
            body data-live=[page.live] data-stream=[page.live.map(|_| "waiting")] {
                a.skip href="#content" { "Skip to the content" }
                header.top {
                    a.brand href="/" {
                        img src="/assets/icon.svg" alt="" width="26" height="26";
                        span { "Ephor " b { "homes" } }
                    }
                    nav aria-label="Pages" { (way("/", "City")) (way("/operator", "Operator")) }
                    (search())
                    @if page.live.is_some() {
                        p.stream role="status" { span.dot aria-hidden="true" {} span #stream { "connecting" } }
                    }
                }
                p.banner #banner role="alert" hidden {}
                noscript { p.banner { "Without JavaScript this page is not updated." } }
                main #content { (content) }
            }
        }
    }
}

fn search() -> Markup {
    html! {
        form.search action="/home" method="get" role="search" {
            label.hidden for="number" { "Find a home by its number" }
            input #number name="number" type="text" inputmode="numeric" placeholder="Home number"
                autocomplete="off" maxlength="12" required;
            button type="submit" { "Find" }
        }
    }
}

/// There is no home with this number.
pub(super) fn no_home(asked: &str, homes: u32) -> Markup {
    let last = homes.saturating_sub(1);
    let content = html! {
        section.lost {
            h1 { "No such home" }
            p { "There is no home “" (shortened(asked)) "”. The city has " (format::count(homes.into())) " homes, from 0 to " (last) "." }
            p { a href=(format!("/home/{}", last / 2)) { "See home " (last / 2) } " or " a href="/" { "the city" } "." }
        }
    };
    document(&Page { title: "No such home", here: "", live: None, script: None }, &content)
}

/// There is no page of this name.
pub(super) fn nothing_here(path: &str) -> Markup {
    let content = html! {
        section.lost {
            h1 { "Nothing here" }
            p { "There is no page “" (shortened(path)) "”." }
            p { "Go to " a href="/" { "the city" } " or to " a href="/operator" { "the operator’s view" } "." }
        }
    };
    document(&Page { title: "Nothing here", here: "", live: None, script: None }, &content)
}

fn shortened(text: &str) -> String {
    const MAX_LENGTH: usize = 40;
    let mut short: String = text.chars().take(MAX_LENGTH).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
