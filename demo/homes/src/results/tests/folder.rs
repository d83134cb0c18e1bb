//! Tests of results that are stored in a folder.

use super::*;

#[tokio::test]
async fn a_folder_is_made_and_used_by_many() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/here");
    let place = ResultStore::open(path.to_str().unwrap(), "unused").await.unwrap();
    let log = place.under("run-1").log("alarms", PartitionId(0));
    let mut writer = open(&log, 1).await;
    fold(&mut writer, 1..=3);
    writer.flush().await.unwrap();
    assert!(path.join("run-1/alarms/00/updates/000000000001").is_file());
    let mut follower = Follower::<OrderSensitiveState>::new(log);
    follower.next().await.unwrap();
    assert_eq!(follower.state(), writer.state());
    let other = Follower::<OrderSensitiveState>::new(place.under("run-2").log("alarms", PartitionId(0)))
        .next()
        .await
        .unwrap();
    assert_eq!((other, place.to_string()), (Some(News::Whole), path.to_str().unwrap().to_owned()));
}

#[tokio::test]
async fn what_a_killed_writer_left_does_not_disturb() {
    let folder = tempfile::tempdir().unwrap();
    let place = ResultStore::open(folder.path().to_str().unwrap(), "unused").await.unwrap();
    let log = place.log("homes", PartitionId(3));
    for (kind, number) in [("updates", 1), ("updates", 2), ("snapshots", 2)] {
        // Half a write: how the folder's own writer names it until it is whole.
        let half = folder.path().join(format!("homes/03/{kind}/{number:012}#1"));
        std::fs::create_dir_all(half.parent().unwrap()).unwrap();
        std::fs::write(half, "EPHO").unwrap();
    }
    let mut writer = open(&log, 1).await.with_snapshot_every(2);
    for sequence in 1..=9 {
        fold(&mut writer, sequence..=sequence);
        writer.flush().await.unwrap();
    }
    let again = open(&log, 2).await;
    assert_eq!(again.state(), writer.state());
    assert!(again.state().is_right());
}

#[tokio::test]
async fn a_place_that_is_none_is_refused_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    for (text, words) in [
        (file.join("below").to_str().unwrap(), "may write to"),
        ("", "neither a path nor"),
        ("https://contoso.blob.core.windows.net/", "neither a path nor"),
        (
            "AccountName=a;AccountKey=canary!;BlobEndpoint=http://127.0.0.1:9/a",
            "AccountKey that is not base64",
        ),
        (
            "AccountName=a;AccountKey=Y2FuYXJ5;BlobEndpoint=http://127.0.0.1:9/a",
            "create the container yourself",
        ),
        (
            "SharedAccessSignature=sv=1&sig=canary;BlobEndpoint=http://127.0.0.1:9/a",
            "create the container yourself",
        ),
    ] {
        let error =
            ResultStore::open(text, "homes").await.map(|place| place.to_string()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(!error.contains("canary") && !error.contains("Y2FuYXJ5"), "{error}");
    }
}
