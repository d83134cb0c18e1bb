//! Tests of a host that runs until its process receives SIGINT or SIGTERM, in a second process.
#![cfg(unix)]
#![allow(clippy::print_stdout, reason = "a process tells the other one how far it is")]
#![allow(clippy::disallowed_methods, reason = "two real processes: time is the machine's")]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ephor::EventProcessorHost;
use ephor::memory::{MemoryHub, MemoryStore};

/// Tells the second process that it is one, and what its processor does.
const PROCESSOR: &str = "EPHOR_TEST_PROCESSOR";
const HOUR: Duration = Duration::from_secs(3_600);
const RETRY: Duration = Duration::from_millis(200);
const MAX_RETRIES: usize = 300;

#[test]
fn run_as_a_second_process() {
    let Ok(processor) = std::env::var(PROCESSOR) else { return };
    // The other process reads in the log how far this one is.
    tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stdout).init();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let hub = MemoryHub::new("homes", 1).unwrap();
        hub.send_with_key("home-7", "door").unwrap();
        let (endless, blocks) = (processor == "endless", processor.starts_with("blocking"));
        let within = if processor == "blocking, with little time" { RETRY } else { HOUR };
        let host = EventProcessorHost::builder(hub, MemoryStore::default())
            .for_each_event(move |_, _| async move {
                println!("processing");
                if blocks {
                    std::thread::sleep(HOUR);
                }
                if endless {
                    std::future::pending::<()>().await;
                }
                Ok(())
            })
            .unwrap();
        let report = host.run_until_signal(within).await.unwrap();
        println!("drained {}, lost on the way {}", report.drained.len(), report.lost.len());
        assert!(host.snapshot().is_none());
    });
}

/// The second process, once it processes an event.
fn start(processor: &str) -> (Child, impl BufRead) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "signals::run_as_a_second_process", "--nocapture"])
        .env(PROCESSOR, processor)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    read_until("processing", &mut output);
    (child, output)
}

fn read_until(text: &str, output: &mut impl BufRead) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the process ended before it printed {text:?}");
    }
}

fn send(signal: &str, child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", signal, &pid]).status().unwrap().success());
}

#[test]
fn a_signal_stops_a_host_gracefully() {
    for signal in ["TERM", "INT"] {
        let (mut child, mut output) = start("quick");
        send(signal, &child);
        let mut rest = String::new();
        output.read_to_string(&mut rest).unwrap();
        assert!(child.wait().unwrap().success(), "{signal}: {rest}");
        assert!(rest.contains("drained 1, lost on the way 0"), "{signal}: {rest}");
    }
}

#[test]
fn a_second_signal_gives_up_calls_in_flight() {
    let (mut child, mut output) = start("endless");
    // Two signals that nobody has received yet would be one, and a third would end the process.
    send("TERM", &child);
    read_until("a second signal gives up calls in flight", &mut output);
    send("TERM", &child);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert!(child.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("drained 0"), "{rest}");
}

#[test]
fn a_further_signal_ends_a_process_whose_thread_is_blocked() {
    let (mut child, _output) = start("blocking");
    // Signals that nobody has received yet are one signal, so it is sent again and again.
    for _ in 0..MAX_RETRIES {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        send("TERM", &child);
        std::thread::sleep(RETRY);
    }
    // Only if it still runs.
    let _ = child.kill();
    // 128 and the number of the signal, as shells say it.
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn a_signal_after_the_stop_ends_a_process_whose_thread_is_blocked() {
    let (mut child, mut output) = start("blocking, with little time");
    send("TERM", &child);
    // The time of the stop passes, and the runtime cannot end.
    read_until("drained 0", &mut output);
    send("TERM", &child);
    for _ in 0..MAX_RETRIES {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        std::thread::sleep(RETRY);
    }
    // Only if it still runs.
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
