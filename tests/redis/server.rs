//! A `redis-server` of a test's own: on a free port of the loopback, in a folder of its own, gone with the test.

use std::{
    fs,
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use redis::{Cmd, FromRedisValue};

/// A server that is there.
pub(crate) struct Server {
    child: Option<Child>,
    dir: PathBuf,
    pub(crate) port: u16,
    args: Vec<String>,
}

static SERVERS: AtomicU32 = AtomicU32::new(0);

impl Server {
    /// Without persistence.
    pub(crate) fn start() -> Self {
        Self::with(&[])
    }

    /// On a port that is known.
    pub(crate) fn on(port: u16) -> Self {
        Self::on_with(port, &[])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        Self::on_with(free_port(), args)
    }

    fn on_with(port: u16, args: &[&str]) -> Self {
        let number = SERVERS.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("sluice-redis-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let args = args.iter().map(|arg| (*arg).to_owned()).collect();
        let mut server = Self { child: None, dir, port, args };
        server.run();
        server
    }

    /// More arguments, for when it starts again.
    pub(crate) fn args(&mut self, args: &[&str]) {
        self.args.extend(args.iter().map(|arg| (*arg).to_owned()));
    }

    /// Starts it, and waits until it listens.
    pub(crate) fn run(&mut self) {
        self.spawn();
        self.listens();
    }

    /// Starts it, and does not wait.
    pub(crate) fn spawn(&mut self) {
        let child = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .args([
                "--enable-debug-command",
                "yes",
                "--repl-diskless-sync-delay",
                "0",
                "--dir",
                self.dir.to_str().unwrap(),
            ])
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(fs::File::create(self.dir.join("log")).unwrap())
            .spawn()
            .expect("redis-server, which scripts/test installs");
        self.child = Some(child);
    }

    /// Waits until it answers, its data read.
    pub(crate) fn listens(&self) {
        let end = Instant::now() + Duration::from_secs(10);
        while self.try_ask::<String>(&redis::cmd("PING")).is_err() {
            assert!(Instant::now() < end, "{}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, signal: &str) {
        let sent = Command::new("kill").args([signal, &self.pid().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Asks it over a connection of its own.
    pub(crate) fn ask<T: FromRedisValue>(&self, cmd: &Cmd) -> T {
        self.try_ask(cmd).unwrap()
    }

    pub(crate) fn try_ask<T: FromRedisValue>(&self, cmd: &Cmd) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.url())?;
        let mut connection = client.get_connection_with_timeout(Duration::from_secs(5))?;
        cmd.query(&mut connection)
    }

    pub(crate) fn try_ask_as<T: FromRedisValue>(
        &self,
        password: &str,
        cmd: &Cmd,
    ) -> redis::RedisResult<T> {
        let client = redis::Client::open(format!("redis://:{password}@127.0.0.1:{}/", self.port))?;
        cmd.query(&mut client.get_connection_with_timeout(Duration::from_secs(5))?)
    }

    /// The same in words.
    pub(crate) fn say<T: FromRedisValue>(&self, words: &str) -> T {
        let mut words = words.split_whitespace();
        let mut cmd = redis::cmd(words.next().unwrap());
        words.for_each(|word| {
            cmd.arg(word);
        });
        self.ask(&cmd)
    }

    /// All keys but those that tell that a process is there.
    pub(crate) fn keys(&self) -> Vec<String> {
        let keys: Vec<String> = self.say("KEYS *");
        keys.into_iter()
            .filter(|key| !key.ends_with(":instances") && !key.ends_with(":probe"))
            .collect()
    }

    /// A number of `INFO`.
    pub(crate) fn info(&self, section: &str, field: &str) -> Option<String> {
        let text: String = self.say(&format!("INFO {section}"));
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.map(str::to_owned)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
