//! Seeds for the fuzz corpus: records of stores (rows, blobs, and exported checkpoints).

use crate::Seeds;

/// A column, a kind of value, and the value.
fn row(column: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    [&[column, kind, value.len() as u8][..], value].concat()
}

pub(crate) fn rows() -> Seeds {
    let number = |column, number: i64| row(column, 1, &number.to_le_bytes());
    vec![
        ("nothing".into(), vec![]),
        ("empty-columns".into(), (0..=60).flat_map(|column| row(column, 0, b"")).collect()),
        ("high-numbers".into(), (0..=60).flat_map(|column| number(column, i64::MAX)).collect()),
        ("low-numbers".into(), (0..=60).flat_map(|column| number(column, i64::MIN)).collect()),
        ("fractions".into(), (0..=60).flat_map(|column| row(column, 2, &1.5_f64.to_le_bytes())).collect()),
        ("texts".into(), (0..=60).flat_map(|column| row(column, 3, b"b#0000000000000002")).collect()),
        ("no-texts".into(), (0..=60).flat_map(|column| row(column, 3, b"\xff")).collect()),
        ("bytes".into(), (0..=60).flat_map(|column| row(column, 4, b"\0\x01")).collect()),
        ("a-position".into(), row(9, 3, br#"{"after_offset":"@x"}"#)),
        ("a-host".into(), row(25, 3, br#"{"beat":1,"state":"active","lease_ms":1000}"#)),
    ]
}

pub(crate) fn blobs() -> Seeds {
    let group = "ns.servicebus.windows.net/homes/$default";
    let ours = |rest: &str| format!("{group}/{rest}");
    let seeds = [
        ("sdk-lease", ours("ownership/3\nownerid=7f6e5d4c-uuid")),
        ("sdk-checkpoint", ours("checkpoint/3\nsequencenumber=41\noffset=1312")),
        ("sdk-no-offset", ours("checkpoint/3\nSequenceNumber=41\nOffset=no offset")),
        (
            "lease",
            ours(
                "ownership/7\nownerid=a#0000000000000001\nephor={\"epoch\":3,\"duration_ms\":30000,\"acquired_at\":1000,\
                 \"previous\":\"b#0000000000000002\",\"previous_until\":9000,\"heir\":\"c#0000000000000003\",\"on_roll\":true}",
            ),
        ),
        (
            "checkpoint",
            ours(
                "checkpoint/7\nsequencenumber=7\noffset=77\nephor={\"seal\":3,\"position\":{\"finished\":7,\"offset\":\"77\"},\
                 \"log\":\"a1b2\",\"epoch\":2,\"saved_at\":1700000000123}",
            ),
        ),
        ("checkpoint-of-nothing", ours("checkpoint/7\nsequencenumber=-1\noffset=-1\nephor={\"seal\":3}")),
        ("checkpoint-at-an-event", ours("checkpoint/7\nsequencenumber=6\noffset=-1\nephor={\"seal\":3,\"position\":{\"at\":7}}")),
        ("epoch", ours("ephor/epoch/7\nepoch=41")),
        ("epoch-at-the-end", ours("ephor/epoch/7\nepoch=18446744073709551615")),
        (
            "renewals",
            format!(
                "{}/ephor/renewals/{}/0\nbeat=18446744073709551615\nduration=30000\nleases=7:3,8:4\nleft=59:4:1:1\nstruck=5a:5:2:2,5b:9:0:0\nat=12",
                group,
                "ab".repeat(32)
            ),
        ),
        (
            "host",
            format!(
                "{}/ephor/hosts/{}\nid=a#0000000000000001\ndrain=true\nat=12\nrecord={{\"beat\":1,\"state\":\"active\",\"lease_ms\":1000}}",
                group,
                "ab".repeat(32)
            ),
        ),
        ("founding", ours("ephor/founding\nfounding={\"partitions\":[0,1,2]}")),
        ("group", ours("ephor/group\nnamespace=ns\nhub=homes\ngroup=alarms")),
        (
            "history",
            ours("ephor/history/7\n\n[{\"at\":1,\"epoch\":2,\"to\":\"a#0000000000000001\",\"reason\":\"claimed:expired\"}]"),
        ),
        (
            "old-host",
            "$Default/3\n\n{\"PartitionId\":\"3\",\"Owner\":\"681d\",\"Token\":\"2d0c\",\"Epoch\":386,\"Offset\":\"8591964920\",\"SequenceNumber\":960180}"
                .into(),
        ),
        (
            "old-python",
            "3\n\n{\"partition_id\":\"1\",\"owner\":null,\"token\":null,\"epoch\":-1,\"offset\":\"-1\",\"sequence_number\":0}".into(),
        ),
    ];
    seeds.into_iter().map(|(name, text)| (name.to_owned(), text.into_bytes())).collect()
}

pub(crate) fn exports() -> Seeds {
    let file = |checkpoints: &str| {
        format!(
            r#"{{"ephor":1,"namespace":"ns","hub":"homes","group":"$Default","checkpoints":[{checkpoints}]}}"#
        )
    };
    let all = [
        r#"{"partition":0,"position":{"finished":812443,"offset":"77","enqueued_at":1700000000123},"log":"a1b2","saved_at":1}"#,
        r#"{"partition":1,"position":{"start":"earliest"}}"#,
        r#"{"partition":2,"position":{"at":7}}"#,
        r#"{"partition":3,"position":{"after_offset":"@x"}}"#,
        r#"{"partition":4,"position":{"from":1700000000123}}"#,
    ];
    [
        ("empty", file("")),
        ("every-kind", file(&all.join(","))),
        ("twice", file(&[all[0], all[0]].join(","))),
        ("later-form", file(all[0]).replace(":1,", ":2,")),
        ("host", r#"{"beat":1,"state":"active","lease_ms":1000,"wants":[{"partition":1,"owner":"a#0000000000000001","epoch":1}]}"#.into()),
        ("founding", r#"{"partitions":[0,1],"log":"a1b2"}"#.into()),
    ]
    .into_iter()
    .map(|(name, text)| (name.to_owned(), text.into_bytes()))
    .collect()
}
