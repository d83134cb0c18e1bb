//! Prints the status of a running demo, and of one of its homes.

use ephor_core::BoxError;
use serde_json::Value;

use super::arguments::At;
use super::remote;
use crate::store_commands::arguments::Output;
use crate::table::{Cell, Table, say, thousands};

pub(super) async fn city(at: &At) -> Result<(), BoxError> {
    let city = remote::get(at.page, "/api/city").await?;
    let fleet = remote::get(at.page, "/api/fleet").await?;
    let number = |value: &Value| value.as_u64().unwrap_or(0);
    let audit = &city["audit"];
    let mut text = format!(
        "{} readings a second, the newest is {} old; sent {}, in the results {}, homes not up to date {}\n",
        thousands(city["rate"].as_f64().unwrap_or(0.0) as u64),
        city["age"].as_u64().map_or("unknown".into(), |age| format!("{age} ms")),
        thousands(number(&audit["sent"])),
        thousands(number(&audit["processed"])),
        thousands(number(&audit["homes_behind"])),
    );
    text += &format!(
        "repeated by sensors {}, delivered again {}, never sent {}; {:.2} cores, {} MiB\n",
        thousands(number(&audit["sensor_repeats"])),
        thousands(number(&audit["replayed"])),
        thousands(number(&audit["invented"])),
        fleet["cores"].as_f64().unwrap_or(0.0),
        number(&fleet["memory"]) >> 20,
    );
    say(&text)?;
    let mut table = Table::new(&["host", "state", "partitions", "alarms", "cores", "mib", "slowed"]);
    for host in fleet["hosts"].as_array().into_iter().flatten() {
        let name = host["name"].as_str().unwrap_or_default();
        table.row(vec![
            Cell::text(name),
            Cell::text(host["state"].as_str().unwrap_or_default()),
            Cell::text(owned(&fleet, 0, name)),
            Cell::text(owned(&fleet, 1, name)),
            Cell::text(format!("{:.2}", host["cores"].as_f64().unwrap_or(0.0))),
            Cell::number(number(&host["memory"]) >> 20),
            Cell::number(number(&host["slow"])),
        ]);
    }
    table.print(Output::Table)?;
    Ok(())
}

/// The partitions of a group that a host owns.
fn owned(fleet: &Value, group: usize, host: &str) -> String {
    let partitions = fleet["groups"][group]["partitions"].as_array().into_iter().flatten();
    let owned: Vec<String> = partitions
        .filter(|partition| partition["owner"].as_str() == Some(host))
        .map(|partition| partition["id"].to_string())
        .collect();
    if owned.is_empty() { "-".into() } else { owned.join(" ") }
}

pub(super) async fn home(at: &At, home: u32) -> Result<(), BoxError> {
    let home = remote::get(at.page, &format!("/api/home/{home}")).await?;
    let away = if home["armed"].as_bool() == Some(true) { "away" } else { "at home" };
    say(&format!("home {}, partition {}, the people are {away}\n", home["home"], home["partition"]))?;
    let mut table = Table::new(&["sensor", "room", "says", "battery"]);
    for sensor in home["sensors"].as_array().into_iter().flatten() {
        let text = |field: &str| Cell::text(sensor[field].as_str().unwrap_or_default());
        table.row(vec![
            text("name"),
            text("room"),
            text("says"),
            Cell::text(format!("{} %", sensor["battery"])),
        ]);
    }
    table.print(Output::Table)?;
    for alarm in home["alarms"].as_array().into_iter().flatten() {
        let over = if alarm["open"].as_bool() == Some(true) { "" } else { ", ended" };
        say(&format!("alarm: {}{over}\n", alarm["what"].as_str().unwrap_or_default()))?;
    }
    Ok(())
}
