//! What decides: one connection each, all on one server.

use std::time::Duration;

use redis::{AsyncConnectionConfig, Client, aio::MultiplexedConnection, cmd};
use tower_sluice::{
    Algorithm, FixedWindow, SlidingWindow, TokenBucket,
    backend::{Answer, Backend, Charge, LimiterId, LimiterSpec, Redis},
    clock::Nanos,
};

/// Permits a minute, and how many may go at once: nobody is denied here, and no key is forgotten while
/// other rows run, since a server that forgets many of them answers late.
const RATE: u64 = 1;
const BURST: u64 = 100_000;
/// As many, of a limit without a burst of its own.
const LIMIT: u64 = 1_000_000;
const WINDOW: Duration = Duration::from_secs(3_600);

/// Decides for one user after another.
pub trait Contender: Send + Sync + 'static {
    /// Whether this user may pass.
    fn decide(&self, user: &str) -> impl Future<Output = bool> + Send;
}

/// A connection as our own is made, without a timer of the driver's.
pub async fn connect(url: &str) -> MultiplexedConnection {
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_write_backpressure_boundary(2_048);
    let client = Client::open(url).expect("an address");
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.expect("a server that listens")
}

/// A round trip alone.
pub struct Ping(pub MultiplexedConnection);

impl Contender for Ping {
    async fn decide(&self, _: &str) -> bool {
        let answer: String = cmd("PING").query_async(&mut self.0.clone()).await.expect("an answer");
        answer == "PONG"
    }
}

/// One script on one key, as one would write it by hand.
pub struct Bare {
    connection: MultiplexedConnection,
    digest: String,
}

impl Bare {
    pub async fn new(mut connection: MultiplexedConnection) -> Self {
        let load = cmd("SCRIPT").arg("LOAD").arg(include_str!("bare.lua")).to_owned();
        let digest = load.query_async(&mut connection).await.expect("a script that loads");
        Self { connection, digest }
    }
}

impl Contender for Bare {
    async fn decide(&self, user: &str) -> bool {
        const EACH: u64 = 60_000_000 / RATE;
        let mut call = cmd("EVALSHA");
        call.arg(&self.digest).arg(1).arg(format!("bare:{user}")).arg(EACH).arg(EACH * BURST);
        let answer = call.query_async(&mut self.connection.clone()).await;
        let (is_allowed, _left, _wait): (bool, u64, u64) = answer.expect("an answer");
        is_allowed
    }
}

/// Ours, as a layer asks it.
pub struct Ours {
    backend: Redis,
    limiters: Vec<LimiterId>,
}

impl Ours {
    pub fn new(backend: &Redis, name: &str, algorithms: &[Algorithm]) -> Self {
        let limiter = |(number, algorithm): (usize, &Algorithm)| {
            let spec = LimiterSpec::new(format!("{name}-{number}"), *algorithm).keyed(100_000);
            backend.register(&spec).expect("what Redis can count")
        };
        let limiters = algorithms.iter().enumerate().map(limiter).collect();
        Self { backend: backend.clone(), limiters }
    }
}

impl Contender for Ours {
    async fn decide(&self, user: &str) -> bool {
        let charge = |limiter: &LimiterId| Charge::new(*limiter, 1).key(user.as_bytes());
        let answer = match *self.limiters {
            [one] => self.backend.check(Nanos::ZERO, &[charge(&one)]),
            [one, two, three] => {
                self.backend.check(Nanos::ZERO, &[charge(&one), charge(&two), charge(&three)])
            }
            _ => unreachable!("one rule, or three"),
        };
        // A store that is away is asked no more: then a rule answers at once.
        assert!(matches!(answer, Answer::Pending(_)), "asked of the store");
        // Of a rule that refuses while its store is away, an answer is the store's.
        answer.resolve().await.expect("decided by the store").all_allowed()
    }
}

pub fn bucket() -> Algorithm {
    TokenBucket::per_minute(RATE).burst(BURST).into()
}

pub fn fixed() -> Algorithm {
    FixedWindow::new(LIMIT, WINDOW).into()
}

pub fn sliding() -> Algorithm {
    SlidingWindow::new(LIMIT, WINDOW).into()
}

#[cfg(feature = "limitador")]
pub use limitador_rows::Limitador;

#[cfg(feature = "limitador")]
mod limitador_rows {
    use std::collections::HashMap;

    use limitador::{
        AsyncRateLimiter,
        limit::{Limit, Namespace},
        storage::redis::AsyncRedisStorage,
    };

    use super::{Contender, LIMIT, WINDOW};

    /// One limit of it, by the same users.
    pub struct Limitador {
        limiter: AsyncRateLimiter,
        namespace: Namespace,
    }

    impl Limitador {
        pub async fn new(url: &str) -> Self {
            let counters = AsyncRedisStorage::new(url).await.expect("a server that listens");
            let limiter = AsyncRateLimiter::new_with_storage(Box::new(counters));
            let user = ["user".try_into().expect("an expression")];
            limiter.add_limit(Limit::new("bench", LIMIT, WINDOW.as_secs(), [], user));
            Self { limiter, namespace: "bench".into() }
        }
    }

    impl Contender for Limitador {
        async fn decide(&self, user: &str) -> bool {
            let context = HashMap::from([("user".to_owned(), user.to_owned())]).into();
            let answer = self.limiter.check_rate_limited_and_update(&self.namespace, &context, 1);
            !answer.await.expect("an answer").limited
        }
    }
}
