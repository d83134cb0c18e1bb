//! Tests of an idempotent producer with random faults from a seed: lost connections, failing syncs and a
//! power failure.

use super::*;

/// The number of runs; each has other faults, by its seed.
const SEEDS: u64 = 20;
/// The power fails at the latest after about this many events.
const MAX_LIFE: i32 = 12;

/// The numbers that a power failure at this moment would leave, if only what is on disk survives.
async fn on_disk(files: &FaultyFiles, fate: Fate) -> Vec<i32> {
    let namespace = namespace(Arc::new(files.after_crash(fate)));
    stored(&namespace.hub(HUB).unwrap()).await
}

/// One run of a gateway whose connections break, whose disk is slow and fails, and whose power fails in the
/// end.
async fn life(seed: u64) {
    let mut chance = fastrand::Rng::with_seed(seed);
    let files = FaultyFiles::new(u64::MAX);
    let (gated, gates) = Gated::over(Arc::new(files.clone()));
    let (gateway, gates) = (TestGateway::on(gated).await, Disk(gates));
    let mut acknowledged = 0..0;
    while !files.has_crashed() {
        gates.syncs.set_shut(chance.bool());
        let mut connection = gateway.connect().await;
        let (link, last) = connection.producer(acknowledged.end - 1).await;
        // The gateway acknowledges nothing that is not on disk.
        let durable = on_disk(&files, Fate::AllLost).await;
        assert!(
            (0..=last).all(|number| durable.contains(&number)),
            "seed {seed}: answered {last}, has {durable:?}"
        );
        let wanted = acknowledged.end..acknowledged.end + chance.i32(1..4);
        connection.begin(link, wanted.clone()).await;
        match chance.u8(0..8) {
            0 => files.power_off(),
            1 | 2 => files.fail_next_syncs(1),
            _ => {}
        }
        if chance.bool() {
            // The client reconnects, and sends the same again.
            connection.lose().await;
            gates.syncs.set_shut(false);
            continue;
        }
        gates.syncs.set_shut(false);
        let mut settled = 0;
        while settled < wanted.len() as u32 {
            let (count, outcome) = connection.client.outcome().await;
            settled += count;
            // Events after a failed one may be stored: they are sent again all the same.
            if outcome == Some(Outcome::Accepted)
                && wanted.start + settled as i32 - count as i32 == acknowledged.end
            {
                acknowledged.end += count as i32;
            }
        }
        let durable = on_disk(&files, Fate::AllLost).await;
        let lost: Vec<_> = acknowledged.clone().filter(|number| !durable.contains(number)).collect();
        assert!(lost.is_empty(), "seed {seed}: {lost:?} acknowledged, and not on disk");
        if acknowledged.end > MAX_LIFE {
            files.power_off();
        }
    }
    for fate in [Fate::AllLost, Fate::AllKept, Fate::Random(seed)] {
        let durable = on_disk(&files, fate).await;
        let lost: Vec<_> = acknowledged.clone().filter(|number| !durable.contains(number)).collect();
        assert!(
            lost.is_empty(),
            "seed {seed}: {lost:?} acknowledged, and gone after the power failed: {fate:?}"
        );
        let twice =
            durable.iter().filter(|number| durable.iter().filter(|other| other == number).count() > 1);
        // A failed commit may be on disk all the same; only then is there a second copy, after a crash.
        assert!(twice.count() == 0 || fate != Fate::AllLost, "seed {seed}: {durable:?}");
    }
}

#[tokio::test]
async fn what_is_acknowledged_survives_lost_connections_failing_syncs_and_a_power_failure() {
    for seed in 0..SEEDS {
        life(seed).await;
    }
}
