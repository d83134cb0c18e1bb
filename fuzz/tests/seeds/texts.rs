//! Seeds for the fuzz corpus: selectors, addresses, tokens, connection strings, lists of keys, names of
//! readers and of entities, URLs.

use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;
use ephor_wire::sas::{Key, sign};
use ephor_wire::selector::Start;

use crate::Seeds;
use crate::raw_frames::written;

pub(crate) fn numbered<'a>(texts: impl IntoIterator<Item = &'a str>) -> Seeds {
    texts.into_iter().enumerate().map(|(number, text)| (format!("{number:02}"), text.into())).collect()
}

pub(crate) fn selectors() -> Seeds {
    let mut starts = vec![("earliest", Start::Earliest)];
    for inclusive in [false, true] {
        starts.extend([
            ("latest", Start::Latest { inclusive }),
            ("offset", Start::Offset { offset: Offset::new("4242"), inclusive }),
            ("sequence", Start::Sequence { number: SequenceNumber(12_345), inclusive }),
            ("time", Start::EnqueuedTime { time: Timestamp(1_700_000_000_000), inclusive }),
        ]);
    }
    let mut seeds = Vec::new();
    for (number, (name, start)) in starts.into_iter().enumerate() {
        seeds.push((format!("text-{number}-{name}"), start.selector().into_bytes()));
        seeds.push((format!("filter-{number}-{name}"), written(|into| start.write_filter(into))));
    }
    seeds.push(("text-bare".into(), b"amqp.annotation.x-opt-offset >=@latest".to_vec()));
    seeds.push(("filter-null".into(), b"\x40".to_vec()));
    seeds
}

pub(crate) fn addresses() -> Seeds {
    numbered([
        "$cbs",
        "$management",
        "homes/$management",
        "homes",
        "/homes/",
        "amqps://localhost:5672/homes",
        "sb://[::1]:5672/homes/Partitions/3",
        "homes/ConsumerGroups/$Default/Partitions/0",
        "/a%2FB/consumergroups/%24Default/partitions/31",
        "sb://localhost/homes/consumergroups/cg",
        "Partitions/Partitions/1",
    ])
}

pub(crate) fn secrets() -> Seeds {
    let token = sign("sb://localhost/homes", "send", &Key::new("nobody's"), Timestamp(1_700_000_060_000));
    let by_token = format!("Endpoint=sb://localhost;SharedAccessSignature={token};EntityPath=homes");
    numbered([
        &*token,
        &by_token,
        "Endpoint=sb://localhost:5672;SharedAccessKeyName=send;SharedAccessKey=bm9ib2R5J3M=;EntityPath=a/b",
        "Endpoint=sb://[::1];SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true;",
        " endpoint = amqp://host/ ; ; OperationTimeout=5 ",
        "Endpoint=https://ns.servicebus.windows.net:443/",
        "Endpoint=ws://LOCALHOST:5672;SharedAccessKeyName=a;SharedAccessKey=b;EntityPath=c",
        "# name claims key hub\nsensors send bm9ib2R5J3Mga2V5IGF0IGFsbA== homes\n\nops listen,send c29tZWJvZHkncyBrZXkhIQ==\n",
        "root manage 0123456789abcdef a/b\nroot Manage 0123456789abcdeg",
    ])
}

/// An epoch, a name, and the name of the host that reads both.
pub(crate) fn current_readers() -> Seeds {
    let readers = [
        ("plain", 7, "reader", "host-1"),
        ("nameless", 7, "", "host-1"),
        ("nil", 0, "nil", "nil"),
        ("quote", 1 << 62, "it's", "it's"),
        ("stolen", 7, "a' with higher epoch of '18446744073709551615' is created", "host-1"),
        ("stolen-whole", 7, "a' with higher epoch of '9' is created hence current receiver 'b", "host-1"),
        ("refused", 7, "a' with a higher epoch '18446744073709551615' already exists", "host-1"),
        (
            "refused-whole",
            i64::MAX as u64,
            "a' with a higher epoch '9' already exists. Receiver 'b",
            "host-1",
        ),
        ("another-sentence", 7, "Receiver 'a' with a higher epoch '9' already exists. Receiver '", "host-1"),
        ("unicode", u64::MAX, "日本 🏠", "日本"),
    ];
    let seed = |(title, epoch, name, ours): (&str, u64, &str, &str)| {
        (title.to_owned(), [&epoch.to_le_bytes(), name.as_bytes(), b"\n", ours.as_bytes()].concat())
    };
    let mut seeds: Seeds = readers.into_iter().map(seed).collect();
    let long = "a' with higher epoch of '9' is created hence current receiver 'b' with epoch '1'".repeat(30);
    seeds.push(seed(("long", 7, &long, "host-1")));
    seeds
}

pub(crate) fn names() -> Seeds {
    numbered([
        "contoso.servicebus.windows.net",
        "[::1]:5672",
        "homes/north",
        "$Default",
        "vm-7",
        "vm-7#0123456789abcdef",
        "31",
        "caf\u{e9}\u{202e}#FFFFFFFFFFFFFFFF",
    ])
}

pub(crate) fn store_urls() -> Seeds {
    numbered([
        "sqlite:ephor.db",
        "sqlite:///var/lib/ephor.db",
        "postgres://ada:correct-horse@db.example:5432/fleet?sslmode=require",
        "postgresql://db.example/fleet",
        "azblob://contoso/leases/blue?shared-with=other-sdks",
        "AccountName=contoso;AccountKey=bm9ib2R5J3MgYXQgYWxs;Container=leases",
        "BlobEndpoint=https://contoso.example/;SharedAccessSignature=sv=1&sig=nobody-s-signature",
        "UseDevelopmentStorage=true",
        "azblob://contoso/leases;AccountKey=bm9ib2R5J3MgYXQgYWxs",
    ])
}

pub(crate) fn hub_urls() -> Seeds {
    numbered([
        "memory:homes?partitions=4",
        "hub:hub-data/homes?partitions=16",
        "hub:///var/lib/ephor/homes",
        "hub:/homes",
        "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=reader;\
         SharedAccessKey=bm9ib2R5J3MgYXQgYWxs;EntityPath=homes",
        "Endpoint=sb://localhost:5672;SharedAccessSignature=SharedAccessSignature sr=x&sig=nobody-s&se=1;EntityPath=a/b",
        "entitypath=homes;sharedaccesskey=bm9ib2R5J3M=;endpoint=bm9ib2R5J3MgYXQgYWxs",
    ])
}
