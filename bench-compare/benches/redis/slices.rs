//! Rows, run slice by slice: a ratio is taken between slices of one round, and the median of rounds is
//! told, so that what slows the machine for a while slows all rows alike.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{Connection, cmd};
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Runtime;

use crate::contenders::Contender;

/// How many keys there are.
const USERS: usize = 10_000;

/// When a slice is over.
#[derive(Clone, Copy)]
pub enum End {
    After(Duration),
    /// Each task decides once.
    Once,
}

/// What a slice showed.
#[derive(Clone, Copy)]
pub struct Slice {
    /// Decisions a second.
    pub rate: f64,
    /// Microseconds: half of the answers came by then, and 99 of 100.
    pub p50: f64,
    pub p99: f64,
    /// Microseconds a decision that the server took, and this thread.
    pub server: f64,
    pub client: f64,
}

type Run<'a> = Box<dyn Fn(usize, End) -> Slice + 'a>;

/// What is to be compared.
pub struct Rows<'a> {
    runtime: &'a Runtime,
    url: String,
    users: Arc<[String]>,
    rows: Vec<(&'static str, Run<'a>)>,
}

impl<'a> Rows<'a> {
    pub fn new(runtime: &'a Runtime, url: String) -> Self {
        // As long as a UUID.
        let users = (0..USERS).map(|number| format!("user-{number:031}")).collect();
        Self { runtime, url, users, rows: Vec::new() }
    }

    /// `command` is what the server counts this contender's work under.
    pub fn add(&mut self, name: &'static str, command: &'static str, contender: impl Contender) {
        let (runtime, users) = (self.runtime, Arc::clone(&self.users));
        let contender = Arc::new(contender);
        let server = ServerTime { url: self.url.clone(), command };
        let run = move |tasks, end| {
            let mut connection = server.reset();
            let (began, thread) = (Instant::now(), thread_time());
            let mut took = runtime.block_on(decide(&contender, &users, tasks, end));
            let (elapsed, thread) = (began.elapsed(), thread_time() - thread);
            let decisions = took.len() as f64;
            took.sort_unstable();
            let at = |part: usize| micros(took[(took.len() - 1) * part / 100]);
            Slice {
                rate: decisions / elapsed.as_secs_f64(),
                p50: at(50),
                p99: at(99),
                server: server.micros(&mut connection) / decisions,
                client: micros(thread) / decisions,
            }
        };
        self.rows.push((name, Box::new(run)));
    }

    /// Runs each row once with each number of tasks, unmeasured.
    pub fn test(&self, tasks: &[usize]) {
        for (name, run) in &self.rows {
            for tasks in tasks {
                run(*tasks, End::Once);
                println!("{name}, {tasks} at once: ok");
            }
        }
    }

    /// Runs all rows, interleaved; each round begins one row further on.
    pub fn measure(&self, tasks: usize, rounds: usize, slice: Duration) -> Measured {
        let count = self.rows.len();
        let mut samples = vec![Vec::with_capacity(rounds); count];
        for (_, run) in &self.rows {
            run(tasks, End::After(slice / 2));
        }
        for round in 0..rounds {
            for row in (0..count).map(|step| (round + step) % count) {
                samples[row].push(self.rows[row].1(tasks, End::After(slice)));
            }
        }
        Measured { names: self.rows.iter().map(|(name, _)| *name).collect(), samples }
    }
}

/// So many tasks, each of which asks again as soon as it is answered: how long each answer took.
async fn decide<C: Contender>(
    contender: &Arc<C>,
    users: &Arc<[String]>,
    tasks: usize,
    end: End,
) -> Vec<Duration> {
    let began = Instant::now();
    let task = |number: usize| {
        let (contender, users) = (Arc::clone(contender), Arc::clone(users));
        tokio::spawn(async move {
            let mut random = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(number as u64 + 1);
            let mut took = Vec::with_capacity(4_096);
            loop {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let user = &users[(random >> 32) as usize % USERS];
                let asked = Instant::now();
                assert!(contender.decide(user).await, "nobody is denied here");
                let answered = Instant::now();
                took.push(answered - asked);
                match end {
                    End::After(slice) if answered - began < slice => {}
                    _ => return took,
                }
            }
        })
    };
    let mut all = Vec::new();
    for task in (0..tasks).map(task).collect::<Vec<_>>() {
        all.extend(task.await.expect("a task that ends"));
    }
    all
}

/// The server's own count of what its commands took.
struct ServerTime {
    url: String,
    command: &'static str,
}

impl ServerTime {
    fn reset(&self) -> Connection {
        let client = redis::Client::open(&*self.url).expect("an address");
        let mut connection = client.get_connection().expect("a server that listens");
        cmd("CONFIG").arg("RESETSTAT").exec(&mut connection).expect("a server that answers");
        connection
    }

    fn micros(&self, connection: &mut Connection) -> f64 {
        let text: String =
            cmd("INFO").arg("commandstats").query(connection).expect("a server that answers");
        let count = |line: &str| {
            let counts = line.strip_prefix("cmdstat_")?.strip_prefix(self.command)?;
            let micros = counts.strip_prefix(':')?.split(',').find_map(|c| c.strip_prefix("usec="));
            micros?.parse::<f64>().ok()
        };
        text.lines().find_map(count).unwrap_or_default()
    }
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// How long this thread has run.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Every row's slices.
pub struct Measured {
    names: Vec<&'static str>,
    samples: Vec<Vec<Slice>>,
}

impl Measured {
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.names.iter().copied()
    }

    pub fn has(&self, name: &str) -> bool {
        self.names.contains(&name)
    }

    fn of(&self, name: &str) -> &[Slice] {
        let row = self.names.iter().position(|known| *known == name);
        &self.samples[row.unwrap_or_else(|| panic!("no row {name:?}"))]
    }

    pub fn median(&self, name: &str, what: impl Fn(&Slice) -> f64) -> f64 {
        median(self.of(name).iter().map(what))
    }

    /// In parts of the base's, of the same round.
    pub fn ratio(&self, name: &str, base: &str, what: impl Fn(&Slice) -> f64) -> f64 {
        median(self.of(name).iter().zip(self.of(base)).map(|(row, base)| what(row) / what(base)))
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
