//! Between a client and a server: drops replies, or breaks connections.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
};

/// What is to be done with replies.
#[derive(Default)]
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// So many replies of a hundred are lost, each with its connection, before the client sees them.
    pub(crate) loses: AtomicU64,
    /// Milliseconds by which replies are late.
    pub(crate) delays: AtomicU64,
    replies: AtomicU64,
    pub(crate) connections: AtomicUsize,
}

impl Proxy {
    pub(crate) fn before(server: u16) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let proxy = Arc::new(Self { port, ..Self::default() });
        let own = Arc::clone(&proxy);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                own.connections.fetch_add(1, Relaxed);
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let _ = (server.set_nodelay(true), client.set_nodelay(true));
                let (mut to, mut from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
                let own = Arc::clone(&own);
                std::thread::spawn(move || own.answer(server, client));
            }
        });
        proxy
    }

    fn answer(&self, mut server: TcpStream, mut client: TcpStream) {
        let mut bytes = [0; 65_536];
        while let Ok(n @ 1..) = server.read(&mut bytes) {
            let reply = self.replies.fetch_add(1, Relaxed);
            if reply * 37 % 100 < self.loses.load(Relaxed) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(self.delays.load(Relaxed)));
            if client.write_all(&bytes[..n]).is_err() {
                break;
            }
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}
