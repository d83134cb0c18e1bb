//! Tests of the executor: the properties that the rest of the simulation relies on.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor_core::time::Monotonic;
use tokio::sync::{mpsc, watch};

use super::{Executor, Handle, Machine};
use crate::fingerprint::Fingerprint;
use crate::history::History;

const SECOND: Duration = Duration::from_secs(1);

/// Lets other tasks run once.
async fn yield_now() {
    let mut polled = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut polled, true) {
            return std::task::Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        std::task::Poll::Pending
    })
    .await;
}

fn history(executor: &Executor) -> History {
    History::new(executor.clock(Machine::WORLD))
}

/// Producers with timers, consumers with channels and watchers of a common value, on four machines, one of
/// which pauses and one of which crashes.
fn toy(seed: u64) -> (String, Fingerprint) {
    let mut executor = Executor::new(seed);
    let history = history(&executor);
    let (level, _) = watch::channel(0);
    let level = Arc::new(level);
    let machines: Vec<Machine> = (0..4).map(|n| executor.add_machine(&format!("m{n}"))).collect();
    for (n, machine) in machines.iter().copied().enumerate() {
        for worker in 0..8 {
            let (sender, mut receiver) = mpsc::channel(2);
            let (handle, mut random) = (executor.handle.clone(), executor.fork_random());
            executor.spawn_on(machine, async move {
                for number in 0..50 {
                    handle.sleep(Duration::from_millis(random.u64(0..20))).await;
                    if sender.send(number).await.is_err() {
                        return;
                    }
                }
            });
            let (log, level_here) = (history.clone(), level.clone());
            executor.spawn_on(machine, async move {
                while let Some(number) = receiver.recv().await {
                    log.append(format_args!("m{n} worker {worker} got {number}"));
                    if number % 10 == 0 {
                        level_here.send_modify(|level| *level += 1);
                    }
                }
            });
            let (log, mut seen) = (history.clone(), level.subscribe());
            executor.spawn_on(machine, async move {
                while seen.changed().await.is_ok() {
                    let level = *seen.borrow_and_update();
                    log.append(format_args!("m{n} watcher {worker} sees {level}"));
                }
            });
        }
    }
    executor.run_for(Duration::from_millis(100));
    executor.pause(machines[1]);
    executor.run_for(Duration::from_millis(100));
    executor.crash(machines[2]);
    executor.resume(machines[1]);
    executor.run_for(10 * SECOND);
    (history.text(), executor.fingerprint())
}

#[test]
fn the_same_seed_is_the_same_run_byte_for_byte() {
    for seed in 0..20 {
        let (first, second) = (toy(seed), toy(seed));
        assert!(first.0.lines().count() > 1_000);
        assert_eq!(first, second, "seed {seed}");
    }
}

#[test]
fn different_seeds_are_different_runs() {
    let runs: std::collections::BTreeSet<String> = (0..20).map(|seed| toy(seed).0).collect();
    assert_eq!(runs.len(), 20);
}

#[test]
fn every_order_of_ready_tasks_comes_up() {
    let order = |seed| {
        let mut executor = Executor::new(seed);
        let order = Arc::new(Mutex::new(Vec::new()));
        for n in 0..3 {
            let order = order.clone();
            executor.spawn_on(Machine::WORLD, async move { order.lock().unwrap().push(n) });
        }
        executor.run_for(Duration::ZERO);
        Arc::into_inner(order).unwrap().into_inner().unwrap()
    };
    let orders: std::collections::BTreeSet<Vec<u32>> = (0..200).map(order).collect();
    assert_eq!(orders.len(), 6);
}

#[test]
fn timers_fire_in_order_and_never_early() {
    let mut executor = Executor::new(3);
    let history = history(&executor);
    for milliseconds in [30, 10, 20, 0, 15] {
        let (handle, history) = (executor.handle.clone(), history.clone());
        executor.spawn_on(Machine::WORLD, async move {
            handle.sleep(Duration::from_millis(milliseconds)).await;
            history.append(milliseconds);
        });
    }
    executor.run_until(Monotonic(0) + Duration::from_millis(20));
    assert_eq!(history.text(), "[   0.000s] 0\n[   0.010s] 10\n[   0.015s] 15\n[   0.020s] 20\n");
    executor.run_for(SECOND);
    assert_eq!(history.tail(1), "[   0.030s] 30\n");
    assert_eq!(executor.now(), Monotonic(1_020_000_000));
}

#[test]
fn a_dropped_sleep_leaves_no_timer() {
    let mut executor = Executor::new(0);
    let handle = executor.handle.clone();
    executor.run(async move {
        for _ in 0..100 {
            let (short, long) = (handle.sleep(SECOND), handle.sleep(3_600 * SECOND));
            futures_util::future::select(short, long).await;
            assert_eq!(handle.timers(), 0);
        }
        futures_util::future::select(handle.sleep(SECOND), handle.sleep_until(Monotonic::NEVER)).await;
    });
    assert_eq!(executor.now(), Monotonic(0) + 101 * SECOND);
}

/// Counts up every second.
async fn tick(handle: Handle, ticks: Arc<AtomicU64>) {
    loop {
        handle.sleep(SECOND).await;
        ticks.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_paused_machine_does_nothing_and_catches_up_when_it_goes_on() {
    let mut executor = Executor::new(5);
    let machine = executor.add_machine("host");
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let history = history(&executor);
    let log = history.clone();
    executor.spawn_on(machine, async move {
        while let Some(number) = receiver.recv().await {
            log.append(number);
        }
    });
    let ticks = Arc::new(AtomicU64::new(0));
    executor.spawn_on(machine, tick(executor.handle.clone(), ticks.clone()));
    executor.run_for(3 * SECOND);
    sender.send(1).unwrap();
    executor.pause(machine);
    assert!(executor.is_paused(machine));
    sender.send(2).unwrap();
    executor.run_for(60 * SECOND);
    assert_eq!((ticks.load(Ordering::Relaxed), history.len()), (3, 0));
    executor.resume(machine);
    executor.run_for(Duration::ZERO);
    assert_eq!(history.text(), "[  63.000s] 1\n[  63.000s] 2\n");
    assert_eq!(ticks.load(Ordering::Relaxed), 4, "one timer was due, however long ago");
    executor.run_for(2 * SECOND);
    assert_eq!(ticks.load(Ordering::Relaxed), 6);
}

#[test]
fn a_machine_that_is_paused_between_two_polls_does_not_get_the_second() {
    let mut executor = Executor::new(5);
    let machine = executor.add_machine("host");
    let (polled, polled_before) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for _ in 0..100 {
        let polled = polled.clone();
        executor.spawn_on(machine, async move {
            polled.fetch_add(1, Ordering::Relaxed);
        });
    }
    let (handle, count, seen) = (executor.handle.clone(), polled.clone(), polled_before.clone());
    executor.spawn_on(Machine::WORLD, async move {
        handle.pause(machine);
        seen.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    executor.run_for(SECOND);
    let polled_before = polled_before.load(Ordering::Relaxed);
    assert!((1..100).contains(&polled_before));
    assert_eq!(polled.load(Ordering::Relaxed), polled_before);
    executor.resume(machine);
    executor.run_for(SECOND);
    assert_eq!(polled.load(Ordering::Relaxed), 100);
}

#[test]
fn a_machine_that_crashed_while_paused_runs_again() {
    let mut executor = Executor::new(5);
    let machine = executor.add_machine("host");
    executor.pause(machine);
    let lost = executor.spawn_on(machine, async { unreachable!("it died before") });
    executor.run_for(SECOND);
    executor.crash(machine);
    let task = executor.spawn_on(machine, async {});
    executor.run_for(SECOND);
    assert!(lost.is_finished() && task.is_finished() && !executor.is_paused(machine));
}

/// Writes a line to the history when it is dropped.
struct RecordsDrop(&'static str, History);

impl Drop for RecordsDrop {
    fn drop(&mut self) {
        self.1.append(self.0);
    }
}

#[test]
fn a_crash_drops_every_task_of_its_machine_oldest_first_and_no_other() {
    let mut executor = Executor::new(5);
    let history = history(&executor);
    let (host, other) = (executor.add_machine("host"), executor.add_machine("other"));
    for (machine, name) in [(host, "a"), (other, "x"), (host, "b"), (host, "c")] {
        let held = RecordsDrop(name, history.clone());
        executor.spawn_on(machine, async move {
            let _held = held;
            std::future::pending::<()>().await;
        });
    }
    executor.run_for(SECOND);
    executor.crash(host);
    assert_eq!(history.text(), "[   1.000s] a\n[   1.000s] b\n[   1.000s] c\n");
    assert_eq!(executor.tasks(), 1);
    drop(executor);
    assert_eq!(history.tail(1), "[   1.000s] x\n");
}

#[test]
fn dropping_a_task_may_wake_abort_and_start_others() {
    struct Meddles(Handle, Machine, mpsc::UnboundedSender<()>, Option<super::Task>);
    impl Drop for Meddles {
        fn drop(&mut self) {
            self.2.send(()).ok();
            if let Some(task) = &self.3 {
                task.abort();
            }
            self.0.spawn_on(self.1, async {});
        }
    }
    let mut executor = Executor::new(5);
    let host = executor.add_machine("host");
    let (sender, mut receiver) = mpsc::unbounded_channel();
    let woken = Arc::new(AtomicU64::new(0));
    let count = woken.clone();
    let elsewhere = executor.spawn_on(Machine::WORLD, async move {
        while receiver.recv().await.is_some() {
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    let mut before = None;
    for _ in 0..10 {
        let meddles = Meddles(executor.handle.clone(), host, sender.clone(), before.take());
        before = Some(executor.spawn_on(host, async move {
            let _meddles = meddles;
            std::future::pending::<()>().await;
        }));
    }
    executor.run_for(SECOND);
    executor.crash(host);
    executor.run_for(SECOND);
    assert_eq!((woken.load(Ordering::Relaxed), executor.tasks()), (10, 1));
    drop(sender);
    executor.run_for(SECOND);
    assert!(elsewhere.is_finished());
}

#[test]
fn a_task_may_crash_its_own_machine() {
    let mut executor = Executor::new(5);
    let history = history(&executor);
    let host = executor.add_machine("host");
    let (handle, held) = (executor.handle.clone(), RecordsDrop("gone", history.clone()));
    let task = executor.spawn_on(host, async move {
        let _held = held;
        handle.crash(host);
        yield_now().await;
        unreachable!("a dead process goes no further");
    });
    executor.run_for(SECOND);
    assert!(task.is_finished());
    assert_eq!(history.text(), "[   0.000s] gone\n");
}

#[test]
fn an_aborted_task_is_dropped_when_its_turn_comes() {
    let mut executor = Executor::new(5);
    let history = history(&executor);
    let held = RecordsDrop("dropped", history.clone());
    let task = executor.spawn_on(Machine::WORLD, async move {
        let _held = held;
        std::future::pending::<()>().await;
    });
    executor.run_for(SECOND);
    task.abort();
    assert!(history.is_empty() && !task.is_finished());
    executor.run_for(SECOND);
    assert!(task.is_finished());
    assert_eq!(history.text(), "[   1.000s] dropped\n");
    task.abort();
}

#[test]
#[should_panic(expected = "busy loop on spinner: 10")]
fn a_busy_loop_is_reported_with_its_machine() {
    let mut executor = Executor::new(5);
    executor.limit_polls_per_instant(1_000);
    let (spinner, calm) = (executor.add_machine("spinner"), executor.add_machine("calm"));
    executor.spawn_on(calm, tick(executor.handle.clone(), Arc::default()));
    executor.run_for(5 * SECOND);
    executor.spawn_on(spinner, async {
        loop {
            yield_now().await;
        }
    });
    executor.run_for(SECOND);
}

#[test]
#[should_panic(expected = "nothing can wake this future any more")]
fn a_deadlock_is_reported() {
    Executor::new(5).run(std::future::pending::<()>());
}

#[test]
fn a_result_comes_back_at_the_time_it_is_there() {
    let mut executor = Executor::new(5);
    let handle = executor.handle.clone();
    let answer = executor.run(async move {
        handle.sleep(7 * SECOND).await;
        42
    });
    assert_eq!((answer, executor.now()), (42, Monotonic(7_000_000_000)));
}

#[test]
fn nothing_outlives_its_executor() {
    let mut executor = Executor::new(5);
    let host = executor.add_machine("host");
    let history = history(&executor);
    let (handle, held) = (executor.handle.clone(), RecordsDrop("gone", history.clone()));
    executor.spawn_on(host, async move {
        let _held = held;
        tick(handle, Arc::default()).await;
    });
    executor.run_for(SECOND);
    let handle = executor.handle.clone();
    drop(executor);
    assert_eq!(history.len(), 1);
    assert!(handle.spawn_on(host, async {}).is_finished());
    assert_eq!((handle.tasks(), handle.timers()), (0, 0));
}

#[test]
fn a_task_that_blocks_is_neither_polled_nor_dropped_until_it_is_over() {
    let mut executor = Executor::new(1);
    let machine = executor.add_machine("host");
    let dropped = Arc::new(AtomicBool::new(false));
    let (handle, mark) = ((*executor).clone(), SetOnDrop(dropped.clone()));
    let task = executor.spawn_on(machine, async move {
        let _mark = mark;
        handle.block(Duration::from_secs(10));
        handle.sleep(Duration::from_secs(1)).await;
        std::future::pending::<()>().await;
    });
    executor.run_for(Duration::from_secs(2));
    task.abort();
    executor.run_for(Duration::from_secs(7));
    assert!(!dropped.load(Ordering::Relaxed) && !task.is_finished());
    executor.run_for(Duration::from_secs(1));
    assert!(dropped.load(Ordering::Relaxed) && task.is_finished());
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
