//! Tests that pin the content of a PostgreSQL schema: its tables, the rows that a fixed script writes, and
//! the notifications that hosts of other releases receive.

#[path = "../shared/golden.rs"]
mod script;

use std::fmt::Write as _;

use ephor_core::time::Timestamp;
use ephor_stores::postgres::sqlx::Row;
use ephor_stores::postgres::sqlx::postgres::PgListener;

use crate::fixture::{database, group, open, sql, wait};

const TABLES: &str = "SELECT tablename::text AS line FROM pg_tables WHERE schemaname = 'ephor' ORDER BY 1";
const COLUMNS: &str = "SELECT format('%s.%s %s, nullable %s, default %s, identity %s', table_name, column_name, \
                       data_type, is_nullable, coalesce(column_default, 'none'), \
                       coalesce(identity_generation, 'none')) AS line FROM information_schema.columns \
                       WHERE table_schema = 'ephor' ORDER BY table_name, ordinal_position";
/// Without NOT NULL, which only later servers list.
const CONSTRAINTS: &str = "SELECT format('%s %s %s', conrelid::regclass, conname, pg_get_constraintdef(oid)) AS line \
                           FROM pg_constraint WHERE connamespace = 'ephor'::regnamespace AND contype <> 'n' \
                           ORDER BY 1";
const INDEXES: &str = "SELECT indexdef AS line FROM pg_indexes WHERE schemaname = 'ephor' ORDER BY 1";
const OTHERS: &str = "SELECT format('%s %s', relkind, relname) AS line FROM pg_class \
                      WHERE relnamespace = 'ephor'::regnamespace AND relkind NOT IN ('r', 'i') \
                      UNION SELECT format('function %s', proname) FROM pg_proc \
                      WHERE pronamespace = 'ephor'::regnamespace ORDER BY 1";

async fn lines(url: &str, query: &str) -> Vec<String> {
    sql(url, query).await.iter().map(|row| row.get("line")).collect()
}

async fn dump(url: &str, now: Timestamp) -> String {
    let mut dump = String::new();
    for (title, query) in
        [("columns", COLUMNS), ("constraints", CONSTRAINTS), ("indexes", INDEXES), ("other objects", OTHERS)]
    {
        writeln!(dump, "{title}").unwrap();
        for line in lines(url, query).await {
            writeln!(dump, "{line}").unwrap();
        }
        dump.push('\n');
    }
    for table in lines(url, TABLES).await {
        writeln!(dump, "rows of {table}").unwrap();
        let mut rows = Vec::new();
        for row in sql(url, &format!("SELECT row_to_json(t)::text AS line FROM ephor.{table} t")).await {
            let line: String = row.get("line");
            rows.push(script::shortened(&script::without_times(&line, now)));
        }
        rows.sort();
        for row in rows {
            writeln!(dump, "{row}").unwrap();
        }
        dump.push('\n');
    }
    dump
}

/// Everything that was said on the channel until the word that this says itself.
async fn heard(url: &str, listener: &mut PgListener) -> Vec<String> {
    sql(url, "NOTIFY ephor_wakes, 'end'").await;
    let mut heard = Vec::new();
    loop {
        let payload = listener.recv().await.unwrap().payload().to_owned();
        if payload == "end" {
            return heard;
        }
        heard.push(payload);
    }
}

#[test]
fn what_is_stored_is_as_it_was() {
    wait(async {
        let url = database().await;
        let mut listener = PgListener::connect(&url).await.unwrap();
        listener.listen("ephor_wakes").await.unwrap();
        let store = open(&url);
        let now = script::play(&store, &group(), &|| {}).await;
        let mut dump = dump(&url, now).await;
        writeln!(dump, "notifications on ephor_wakes").unwrap();
        for payload in heard(&url, &mut listener).await {
            writeln!(dump, "{payload}").unwrap();
        }
        script::compare("postgres.txt", &dump);
    });
}
