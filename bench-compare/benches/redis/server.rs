//! A `redis-server` of the bench's own, without persistence, gone with it.

use std::{
    io,
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

pub struct Server {
    child: Child,
    port: u16,
}

impl Server {
    /// On a free port of the loopback; waits until it listens.
    pub fn start() -> io::Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
            .args(["--save", "", "--appendonly", "no", "--daemonize", "no"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()?;
        let server = Self { child, port };
        let end = Instant::now() + Duration::from_secs(10);
        while let Err(error) = TcpStream::connect(("127.0.0.1", port)) {
            if Instant::now() > end {
                return Err(error);
            }
            sleep(Duration::from_millis(5));
        }
        Ok(server)
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
