//! [`Script`]: what runs in the store, and sending it by its digest.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use redis::{Arg, Cmd, ErrorKind, RedisError, ServerErrorKind, Value};

use super::{link::Link, shared::pause};

/// A script, known by its digest where it was loaded before.
#[derive(Debug)]
pub(super) struct Script {
    text: String,
    digest: String,
    /// How often it was sent whole.
    sent: AtomicU64,
}

/// All scripts that any call may run; those of certain limits are [composed](super::composed).
#[derive(Debug)]
pub(super) struct Scripts {
    pub(super) check: Script,
    pub(super) undo: Script,
    pub(super) reset: Script,
    pub(super) instances: Script,
    pub(super) probe: Script,
}

const PRELUDE: &str = include_str!("lua/prelude.lua");
const BUCKET: &str = include_str!("lua/bucket.lua");
const WINDOW: &str = include_str!("lua/window.lua");
const CELLS: &str = include_str!("lua/cells.lua");
const LOG: &str = include_str!("lua/log.lua");

impl Scripts {
    pub(super) fn new() -> Self {
        let of = |parts: &[&str]| Script::new(&parts.concat());
        let given = "local keys, argv, now = KEYS, ARGV, time(ARGV[2])\n";
        Self {
            check: Script::new(&checking("", given)),
            undo: of(&[PRELUDE, BUCKET, LOG, include_str!("lua/undo.lua")]),
            reset: of(&[PRELUDE, BUCKET, WINDOW, CELLS, LOG, include_str!("lua/reset.lua")]),
            instances: of(&[PRELUDE, include_str!("lua/instances.lua")]),
            probe: of(&[PRELUDE, include_str!("lua/probe.lua")]),
        }
    }

    pub(super) fn all(&self) -> [&Script; 5] {
        [&self.check, &self.undo, &self.reset, &self.instances, &self.probe]
    }
}

/// The script that decides any charges, after what is `tried` first, on keys and arguments that are `given`.
pub(super) fn checking(tried: &str, given: &str) -> String {
    let kinds = kind_of(&[
        ("b", BUCKET, include_str!("lua/check_bucket.lua")),
        ("w", WINDOW, include_str!("lua/check_window.lua")),
        ("c", CELLS, include_str!("lua/check_cells.lua")),
        ("l", LOG, include_str!("lua/check_log.lua")),
    ]);
    [tried, PRELUDE, &kinds, given, include_str!("lua/check.lua")].concat()
}

/// A function that makes a kind's functions: each run makes its functions anew, so it makes those alone which it calls.
fn kind_of(kinds: &[(&str, &str, &str)]) -> String {
    let kind = |(letter, functions, kind): &(&str, &str, &str)| {
        format!("if letter == '{letter}' then\n{functions}{kind}end\n")
    };
    format!("local function kind_of(letter)\n{}end\n", kinds.iter().map(kind).collect::<String>())
}

impl Script {
    pub(super) fn new(text: &str) -> Self {
        // Comments are for readers, and cost the server nothing but the time to load them.
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("--"));
        let text = lines.map(|line| format!("{line}\n")).collect::<String>();
        let digest = redis::Script::new(&text).get_hash().to_owned();
        Self { text, digest, sent: AtomicU64::new(0) }
    }

    /// A call of it on these keys, to which its arguments are added.
    pub(super) fn on(&self, keys: &[impl AsRef<str>]) -> Cmd {
        // Nine words for one charge, each further one has eight; they are mostly short.
        let words = 2 + 8 * keys.len();
        let mut cmd = Cmd::with_capacity(words, 64 + 24 * words);
        cmd.arg("EVALSHA").arg(&self.digest).arg(keys.len());
        for key in keys {
            cmd.arg(key.as_ref());
        }
        cmd
    }

    /// A command that loads it.
    pub(super) fn load(&self) -> Cmd {
        let mut cmd = redis::cmd("SCRIPT");
        cmd.arg("LOAD").arg(&self.text);
        cmd
    }

    /// Sends a call, and once more where nothing ran: the server has forgotten the script, or the slot is another's.
    /// What was not answered is never sent again.
    pub(super) async fn run(&self, link: &dyn Link, cmd: &Cmd) -> Result<Value, RedisError> {
        // Relaxed throughout: a count, nothing is read through it. Who is wrong about it sends the script once more.
        let before = self.sent.load(Ordering::Relaxed);
        let answer = match link.send(cmd).await {
            Err(error) if link.is_cluster() && has_moved(&error) => found(link, cmd).await,
            answer => answer,
        };
        if !is_forgotten(&answer) {
            return answer;
        }
        let (relaxed, after) = (Ordering::Relaxed, before + 1);
        let is_first = self.sent.compare_exchange(before, after, relaxed, relaxed).is_ok();
        if !is_first {
            // Another has sent it meanwhile, and what is sent now comes after that.
            let answer = link.send(cmd).await;
            if !is_forgotten(&answer) {
                return answer;
            }
        }
        link.send(&self.whole(cmd)).await
    }

    /// The same call with the script itself.
    fn whole(&self, call: &Cmd) -> Cmd {
        let mut cmd = redis::cmd("EVAL");
        cmd.arg(&self.text);
        for arg in call.args_iter().skip(2) {
            if let Arg::Simple(arg) = arg {
                cmd.arg(arg);
            }
        }
        cmd
    }
}

/// Sends a call on a slot that has moved until it is found: the driver learns of that while calls go on. Nothing has run.
async fn found(link: &dyn Link, cmd: &Cmd) -> Result<Value, RedisError> {
    for _ in 0..FINDS {
        pause(LEARNS).await;
        match link.send(cmd).await {
            Err(error) if has_moved(&error) => {}
            answer => return answer,
        }
    }
    link.send(cmd).await
}

/// How often a slot is looked for, and how long a driver may take to learn of a move.
const FINDS: u32 = 4;
const LEARNS: Duration = Duration::from_millis(1);

fn is_forgotten(answer: &Result<Value, RedisError>) -> bool {
    let no_script = ErrorKind::Server(ServerErrorKind::NoScript);
    answer.as_ref().is_err_and(|error| error.kind() == no_script)
}

fn has_moved(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask))
}
