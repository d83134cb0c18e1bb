//! Tests that the results of the demo match the sent readings exactly after random faults, that few events
//! are delivered twice, and that no process is left.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::owner_changes::moves;
use crate::processes::must_all_be_gone;
use crate::recount::{Count, recount};
use crate::running_demo::Demo;

/// Readings a second. The long run has fewer, so that a few gigabytes of disk are enough.
const SHORT_LOAD: u64 = 10_000;
const LONG_LOAD: u64 = 5_000;
const LONG: u64 = 120;
const HOMES: u64 = 20_000;

/// The maximum amount of a partition that is delivered again after one unplanned change, in seconds of its
/// readings. Results are written every half second, checkpoints once a second, so 1.5 s. An owner that has
/// just taken over from a dead one reads the backlog at once: a lease of 6 s, and 1 s until the next scan.
/// The rest is for a busy machine.
const AGAIN_SECONDS: u64 = 12;

/// After this time the lease of a paused host, 6 s, has expired.
const PAUSE: Duration = Duration::from_secs(9);
const SLOW: Duration = Duration::from_secs(8);
const MAX_HOSTS: usize = 9;
const LOOK: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trick {
    Kill,
    Pause,
    Slow,
    Add,
    Stop,
    RestartHub,
    Detectors,
}

use Trick::{Add, Detectors, Kill, Pause, RestartHub, Slow, Stop};

/// All of these happen, in any order, before any of them happens again.
const DECK: [Trick; 12] = [Kill, Kill, Kill, Pause, Slow, Add, Add, Add, Stop, Stop, RestartHub, Detectors];

struct Chaos {
    random: fastrand::Rng,
    deck: Vec<Trick>,
    /// Actions that end a fault, with their times.
    later: Vec<(Instant, Value)>,
    detectors: bool,
    killed: u32,
    paused: u32,
}

impl Chaos {
    /// Injects faults for this time, and at least until every one has happened.
    fn reign(&mut self, demo: &Demo, lasts: Duration) {
        let began = Instant::now();
        let (pace, mut played) = (lasts.as_secs_f64() / (DECK.len() as f64 + 2.0), 0);
        let mut next = began + Duration::from_secs_f64(pace);
        while began.elapsed() < lasts || played < DECK.len() {
            self.end_what_is_over(demo);
            if Instant::now() >= next {
                // Long runs have as many faults per second as the short one, never more.
                let pause = pace.clamp(1.0, 5.0) * (0.5 + self.random.f64());
                next = Instant::now() + Duration::from_secs_f64(pause);
                played += 1;
                let trick = self.draw();
                let done = self.play(demo, trick);
                println!("{:6.1} s  {trick:?}: {done}", began.elapsed().as_secs_f64());
            }
            let audit = demo.audit();
            assert_eq!(audit.invented, 0, "{audit:?}");
            assert!(audit.processed <= audit.sent, "{audit:?}");
            std::thread::sleep(LOOK);
        }
    }

    fn draw(&mut self) -> Trick {
        if self.deck.is_empty() {
            self.deck = DECK.to_vec();
            self.random.shuffle(&mut self.deck);
        }
        self.deck.pop().unwrap()
    }

    fn play(&mut self, demo: &Demo, trick: Trick) -> String {
        let running = demo.hosts("running");
        // At least one host keeps running.
        if running.len() < 2 && [Kill, Pause, Stop].contains(&trick) || running.len() < 3 && trick == Stop {
            self.deck.insert(0, trick);
            return format!("later; first, {}", demo.act(&json!({"action": "add_host"})).unwrap());
        }
        if running.len() >= MAX_HOSTS && trick == Add {
            return "there are enough".to_owned();
        }
        let host = self.random.choice(&running).unwrap();
        let done = match trick {
            Kill => demo.do_to(host, "kill_host"),
            Stop => demo.do_to(host, "stop_host"),
            Pause => {
                self.later.push((Instant::now() + PAUSE, json!({"action": "resume_host", "host": host})));
                demo.do_to(host, "pause_host")
            }
            Slow => {
                self.later.push((Instant::now() + SLOW, slow(host, 0)));
                demo.act(&slow(host, self.random.u32(20..400)))
            }
            Add => demo.act(&json!({"action": "add_host"})),
            RestartHub => demo.act(&json!({"action": "restart_hub"})),
            Detectors => {
                self.detectors = !self.detectors;
                demo.act(&json!({"action": "carbon_monoxide", "on": self.detectors}))
            }
        };
        self.killed += u32::from(trick == Kill);
        self.paused += u32::from(trick == Pause);
        done.unwrap_or_else(|why| panic!("{trick:?} of {host}: {why}"))
    }

    fn end_what_is_over(&mut self, demo: &Demo) {
        let now = Instant::now();
        let (over, later) = self.later.drain(..).partition(|(at, _)| *at <= now);
        self.later = later;
        for (_, action) in over {
            // A host that was killed or stopped meanwhile no longer exists.
            if let Err(why) = demo.act(&action) {
                assert!(why.contains("there is no host"), "{action}: {why}");
            }
        }
    }
}

fn slow(host: &str, by: u32) -> Value {
    json!({"action": "slow_host", "host": host, "milliseconds": by})
}

#[test]
fn whatever_is_killed_the_results_are_what_was_sent() {
    let seconds = std::env::var("EPHOR_DEMO_SECONDS").ok().map_or(60, |seconds| seconds.parse().unwrap());
    let seed = std::env::var("EPHOR_DEMO_SEED").ok().map_or(fastrand::u64(..), |seed| seed.parse().unwrap());
    println!("{seconds} s with EPHOR_DEMO_SEED={seed}");
    let place = tempfile::tempdir().unwrap();
    let load = if seconds > LONG { LONG_LOAD } else { SHORT_LOAD };
    // Three readings per home and minute at speed 1.
    let speed = load * 20 / HOMES;
    let arguments = ["--homes", &HOMES.to_string(), "--speed", &speed.to_string()];
    let mut demo = Demo::start(place.path(), &arguments);
    demo.wait_until_it_flows();
    let mut chaos = Chaos {
        random: fastrand::Rng::with_seed(seed),
        deck: Vec::new(),
        later: Vec::new(),
        detectors: false,
        killed: 0,
        paused: 0,
    };
    chaos.reign(&demo, Duration::from_secs(seconds));
    let folder = demo.folder();
    let outcome = demo.interrupt();
    must_all_be_gone(&folder);
    let audit = outcome.must_be_exact();

    let moves = moves(&folder);
    // A third more with the detectors.
    let most = moves.unplanned * (load * 4 / 3) / 16 * AGAIN_SECONDS;
    let Count { readings, repeats, replayed } = recount(&folder);
    assert_eq!((readings, repeats), (audit.sent, audit.sensor_repeats), "the hub's log, counted here");
    assert!(audit.replayed <= replayed, "the page saw {}, the results say {replayed}", audit.replayed);
    assert!(replayed <= most, "{replayed} events came again, {most} could after {moves:?}");
    assert!(moves.planned > 0, "{moves:?}");
    println!(
        "demo: exact: {} readings of {HOMES} homes at {load}/s, {repeats} repeats, {replayed} events delivered again (at most {most}) after \
         {} kills, {} pauses, {} unplanned and {} planned moves in {seconds} s; seed {seed}",
        audit.sent, chaos.killed, chaos.paused, moves.unplanned, moves.planned
    );
}
