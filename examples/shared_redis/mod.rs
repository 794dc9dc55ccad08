//! A Redis for examples that need one, on a free port of the loopback, gone with the example.

#![allow(dead_code, reason = "no example needs all of it")]

use std::{
    io,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    time::Duration,
};

/// A server that was started here. Dropping it kills it, as a crash would.
pub(crate) struct Server {
    child: Child,
    port: u16,
}

/// The server that `REDIS_URL` names, or one that is started here.
pub(crate) fn store() -> io::Result<(String, Option<Server>)> {
    if let Ok(url) = std::env::var("REDIS_URL") {
        return Ok((url, None));
    }
    let server = Server::start(free_port()?)?;
    Ok((server.url(), Some(server)))
}

/// A prefix that no other run has, since the server may keep what an earlier one has counted.
pub(crate) fn prefix() -> String {
    format!("example-{}-{}", std::process::id(), free_port().unwrap_or_default())
}

pub(crate) fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Server {
    /// Starts an empty one that keeps nothing on disk, and waits until it listens.
    pub(crate) fn start(port: u16) -> io::Result<Self> {
        let mut command = Command::new("redis-server");
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1"]);
        command.args(["--save", "", "--appendonly", "no"]).stdout(Stdio::null());
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::other(
                "this example starts a redis-server, and there is none: install it (apt install redis-server, \
                 brew install redis). `fleet` and `shared_pace` take a server that is there: REDIS_URL=redis://..",
            ),
            _ => error,
        })?;
        let mut server = Self { child, port };
        for _ in 0..1_000 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                return Err(io::Error::other(format!("redis-server has ended: {status}")));
            }
            #[allow(clippy::disallowed_methods, reason = "nothing else is to be done meanwhile")]
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(io::Error::other("redis-server does not listen after 10 s"))
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Stops it where it is: connections stay open, and nobody answers any more.
    pub(crate) fn hang(&self) -> io::Result<()> {
        Command::new("kill").args(["-STOP", &self.child.id().to_string()]).status().map(drop)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, then.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
