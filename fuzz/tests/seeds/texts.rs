//! What is written as text: selectors, addresses, tokens, connection strings.

use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;
use ephor_wire::sas::{Key, sign};
use ephor_wire::selector::Start;

use crate::Seeds;
use crate::raw::written;

fn numbered<'a>(texts: impl IntoIterator<Item = &'a str>) -> Seeds {
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
    ])
}
