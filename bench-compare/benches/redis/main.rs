//! A decision counted in Redis, beside one script called by hand and beside limitador.
//!
//! `cargo bench --bench redis` starts a `redis-server` of its own and prints Markdown; `-- --test` runs each row once,
//! unmeasured. With the feature `limitador` it is compared as well.

mod contenders;
mod server;
mod slices;

use std::{process::ExitCode, time::Duration};

use tokio::runtime;
use tower_sluice::{backend::Redis, event::StoreState};

use contenders::{Bare, Ours, Ping, bucket, connect, fixed, sliding};
use server::Server;
use slices::{Measured, Rows, Slice};

const PING: &str = "yardstick: PING";
const BARE: &str = "yardstick: one script by hand, GCRA";
const OURS: &str = "**ours**, one token bucket";
const OURS_BUCKETS: &str = "**ours**, three token buckets in one call";
const OURS_MIXED: &str = "**ours**, token bucket, fixed and sliding window in one call";
const LIMITADOR: &str = "limitador, one limit";

/// How many decisions are asked for at once.
const TASKS: [usize; 2] = [1, 64];

const ROUNDS: usize = 31;
const SLICE: Duration = Duration::from_millis(150);

fn main() -> ExitCode {
    let server = match Server::start() {
        Ok(server) => server,
        Err(error) => {
            eprintln!("redis-server, which has to be on the path: {error}");
            return ExitCode::FAILURE;
        }
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime on this thread");
    let url = server.url();
    // A call that the store has not decided is refused, and so an error here.
    let backend = Redis::new(&*url).expect("an address").deadline(Duration::from_secs(5)).refuse();
    let mut rows = Rows::new(&runtime, url.clone());
    rows.add(PING, "ping", Ping(runtime.block_on(connect(&url))));
    let bare = runtime.block_on(async { Bare::new(connect(&url).await).await });
    rows.add(BARE, "evalsha", bare);
    for (name, id, algorithms) in [
        (OURS, "one", &[bucket()][..]),
        (OURS_BUCKETS, "three", &[bucket(), bucket(), bucket()]),
        (OURS_MIXED, "mixed", &[bucket(), fixed(), sliding()]),
    ] {
        rows.add(name, "evalsha", Ours::new(&backend, id, algorithms));
    }
    #[cfg(feature = "limitador")]
    rows.add(LIMITADOR, "evalsha", runtime.block_on(contenders::Limitador::new(&url)));
    runtime.block_on(backend.ready(Duration::from_secs(5))).expect("a server that listens");

    if std::env::args().any(|argument| argument == "--test" || argument == "--quick") {
        rows.test(&TASKS);
    } else {
        let measured = TASKS.map(|tasks| rows.measure(tasks, ROUNDS, SLICE));
        for (tasks, measured) in TASKS.iter().zip(&measured) {
            table(*tasks, measured);
        }
        targets(&measured);
    }
    assert_eq!(backend.state(), StoreState::Up);
    ExitCode::SUCCESS
}

fn table(tasks: usize, measured: &Measured) {
    println!("### Counted in Redis, {tasks} at once\n");
    println!(
        "| one connection | decisions/s | of one script by hand | p50 us | p99 us | server us | client us |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    for name in measured.names() {
        let median = |what: fn(&Slice) -> f64| measured.median(name, what);
        println!(
            "| {name} | {:.0} | {:.2} | {:.0} | {:.0} | {:.1} | {:.1} |",
            median(|slice| slice.rate),
            measured.ratio(name, BARE, |slice| slice.rate),
            median(|slice| slice.p50),
            median(|slice| slice.p99),
            median(|slice| slice.server),
            median(|slice| slice.client),
        );
    }
    println!();
}

fn targets([one, many]: &[Measured; 2]) {
    let rate = |name, base| many.ratio(name, base, |slice: &Slice| slice.rate);
    let mut missed = Vec::new();
    let mut target = |what: &str, figure: f64, is_met: bool, promised: &str| {
        println!(
            "- {what}: {figure:.2}, {promised}: {}",
            if is_met { "met" } else { "**missed**" }
        );
        if !is_met {
            missed.push(format!("- {what}: {figure:.2}, promised {promised}"));
        }
    };
    println!("### Targets\n");
    let mut at_least = |what: &str, figure: f64, least: f64| {
        target(what, figure, figure >= least, &format!("at least {least}"));
    };
    at_least(
        "decisions/s of one token bucket, 64 at once, of one script by hand",
        rate(OURS, BARE),
        0.9,
    );
    at_least(
        "calls/s of three token buckets, 64 at once, of one script by hand",
        rate(OURS_BUCKETS, BARE),
        0.6,
    );
    at_least(
        "calls/s of three algorithms, 64 at once, of one script by hand",
        rate(OURS_MIXED, BARE),
        0.6,
    );
    if many.has(LIMITADOR) {
        at_least(
            "decisions/s of one token bucket, 64 at once, of limitador",
            rate(OURS, LIMITADOR),
            1.5,
        );
    }
    let p50 = one.ratio(OURS, BARE, |slice| slice.p50);
    target(
        "p50 of one token bucket, alone, of one script by hand",
        p50,
        p50 <= 1.15,
        "at most 1.15",
    );
    println!("\n### Targets missed in this run\n");
    println!("{}", if missed.is_empty() { "None.".into() } else { missed.join("\n") });
}
