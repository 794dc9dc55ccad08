//! Comparing several ways of doing the same thing, slice by slice, in one process.
//!
//! Every row runs for a few milliseconds, then the next; each round starts one row further on. A
//! ratio or difference is taken between slices of one round and the median of rounds is told, so
//! that what slows the machine for a while slows all rows alike.

use std::{process::Command, sync::Barrier, thread, time::Duration};

use rustix::time::{ClockId, clock_gettime};

/// How often every row is run, and for how long at a time.
#[derive(Clone, Copy)]
pub struct Pace {
    pub rounds: usize,
    pub slice: Duration,
}

impl Pace {
    pub const NORMAL: Self = Self { rounds: 21, slice: Duration::from_millis(8) };
    /// For one of several processes.
    pub const SHORT: Self = Self { rounds: 7, slice: Duration::from_millis(6) };
    pub const QUICK: Self = Self { rounds: 13, slice: Duration::from_millis(5) };
}

/// Does a thing so many times.
type Run<'a> = Box<dyn FnMut(u64) + 'a>;

/// What is to be compared.
#[derive(Default)]
pub struct Rows<'a> {
    rows: Vec<(String, Run<'a>)>,
}

impl<'a> Rows<'a> {
    pub fn add(&mut self, name: &str, run: impl FnMut(u64) + 'a) {
        self.rows.push((name.into(), Box::new(run)));
    }

    /// Runs all rows, interleaved.
    pub fn measure(mut self, pace: Pace) -> Measured {
        let count = self.rows.len();
        let counts: Vec<u64> =
            self.rows.iter_mut().map(|(_, run)| times_in(pace.slice, &mut **run)).collect();
        let mut samples = vec![Vec::with_capacity(pace.rounds); count];
        for round in 0..pace.rounds {
            for row in (0..count).map(|step| (round + step) % count) {
                samples[row].push(time(&mut *self.rows[row].1, counts[row]));
            }
        }
        let names = self.rows.into_iter().map(|(name, _)| name).collect();
        Measured { names, samples }
    }
}

/// Does a thing so many times, also where another thread does.
type Shared<'a> = Box<dyn Fn(u64) + Sync + 'a>;

/// What is to be compared while two threads do it at the same time.
#[derive(Default)]
pub struct Contended<'a> {
    rows: Vec<(String, Shared<'a>)>,
}

impl<'a> Contended<'a> {
    pub fn add(&mut self, name: &str, run: impl Fn(u64) + Sync + 'a) {
        self.rows.push((name.into(), Box::new(run)));
    }

    /// Runs all rows, interleaved: a thread's time for one, while the other thread does the same.
    pub fn measure(self, pace: Pace) -> Measured {
        const TIMES: u64 = 100_000;
        let mut samples = vec![Vec::with_capacity(pace.rounds); self.rows.len()];
        for round in 0..pace.rounds {
            for step in 0..self.rows.len() {
                let row = (round + step) % self.rows.len();
                samples[row].push(twice(&*self.rows[row].1, TIMES));
            }
        }
        let names = self.rows.into_iter().map(|(name, _)| name).collect();
        Measured { names, samples }
    }
}

/// Nanoseconds each on two threads, which begin together.
fn twice(run: &(dyn Fn(u64) + Sync), times: u64) -> f64 {
    let begin = Barrier::new(2);
    let one = || {
        run(times / 16);
        begin.wait();
        let mut run = |times| run(times);
        time(&mut run, times)
    };
    thread::scope(|scope| {
        let other = scope.spawn(one);
        (one() + other.join().expect("a row that runs")) / 2.0
    })
}

/// Nanoseconds each.
fn time(run: &mut dyn FnMut(u64), times: u64) -> f64 {
    let start = thread_time();
    run(times);
    (thread_time() - start) as f64 / times as f64
}

/// How long this thread has run, in nanoseconds: time in which another program had the processor is
/// not counted, though what that left of the caches is felt.
fn thread_time() -> i64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// How many times fit in a slice; warms the row up.
fn times_in(slice: Duration, run: &mut dyn FnMut(u64)) -> u64 {
    let mut times = 64;
    loop {
        let each = time(run, times);
        let fit = (slice.as_nanos() as f64 / each) as u64;
        if fit <= times.saturating_mul(4) {
            return fit.max(1);
        }
        times = (times * 4).min(fit);
    }
}

/// Nanoseconds of every row in every round.
pub struct Measured {
    names: Vec<String>,
    samples: Vec<Vec<f64>>,
}

impl Measured {
    /// What `processes` of this program measured, each one after the other: where the kernel happened to
    /// put a process's pages moves some rows by 20 ns, all its life long.
    pub fn of_processes(processes: usize, arguments: &[&str]) -> Self {
        let this = std::env::current_exe().expect("the path of this program");
        let mut all: Option<Self> = None;
        for _ in 0..processes {
            let output = Command::new(&this).args(arguments).output().expect("this program runs");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            let one = Self::read(&String::from_utf8_lossy(&output.stdout));
            match &mut all {
                None => all = Some(one),
                Some(all) => {
                    for (row, more) in all.samples.iter_mut().zip(one.samples) {
                        row.extend(more);
                    }
                }
            }
        }
        all.expect("at least one process")
    }

    /// One line a row: its name, then its rounds.
    pub fn write(&self) -> String {
        let line = |(name, samples): (&String, &Vec<f64>)| {
            let samples: Vec<String> = samples.iter().map(f64::to_string).collect();
            format!("{name}\t{}\n", samples.join(" "))
        };
        self.names.iter().zip(&self.samples).map(line).collect()
    }

    fn read(text: &str) -> Self {
        let rows = text.lines().filter_map(|line| line.split_once('\t'));
        let numbers =
            |samples: &str| samples.split(' ').map(|ns| ns.parse().expect("nanoseconds")).collect();
        let (names, samples) =
            rows.map(|(name, samples)| (name.to_owned(), numbers(samples))).unzip();
        Self { names, samples }
    }

    fn of(&self, name: &str) -> &[f64] {
        let row = self.names.iter().position(|known| known == name);
        &self.samples[row.unwrap_or_else(|| panic!("no row {name:?}"))]
    }

    fn rounds(&self, row: &str, base: &str, how: impl Fn(f64, f64) -> f64) -> Spread {
        Spread::of(self.of(row).iter().zip(self.of(base)).map(|(row, base)| how(*row, *base)))
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub fn ns(&self, row: &str) -> Spread {
        Spread::of(self.of(row).iter().copied())
    }

    /// The row's time in parts of the base's, of the same round.
    pub fn ratio(&self, row: &str, base: &str) -> Spread {
        self.rounds(row, base, |row, base| row / base)
    }

    /// How much longer the row takes than the base, in the same round.
    pub fn extra(&self, row: &str, base: &str) -> Spread {
        self.rounds(row, base, |row, base| row - base)
    }

    /// Two rows' extra time over a third, in proportion. Of the medians: in one round the lesser is
    /// not far above what the clock can tell.
    pub fn extra_ratio(&self, row: &str, over: &str, base: &str) -> f64 {
        self.extra(row, base).median / self.extra(over, base).median.max(0.1)
    }
}

/// The rounds' median, with the quartiles.
#[derive(Clone, Copy)]
pub struct Spread {
    pub low: f64,
    pub median: f64,
    pub high: f64,
}

impl Spread {
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let at = |part: usize| values[(values.len() - 1) * part / 4];
        Self { low: at(1), median: at(2), high: at(3) }
    }

    /// The median, and where half of the rounds lie.
    pub fn text(&self, digits: usize) -> String {
        let Self { low, median, high } = *self;
        format!("{median:.digits$} ({low:.digits$} to {high:.digits$})")
    }
}
