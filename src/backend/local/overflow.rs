//! [`Overflow`]: shared buckets for keys that find no room.
//!
//! When every slot on a new key's path is live, the key shares the one of a fixed set of buckets that its
//! hash names, with other newcomers. A flood of keys thus gains at most what these buckets hold, and no
//! established key loses anything. A key that finds room later starts with what its bucket has spent, so
//! that nobody gets a second burst by changing over.
//!
//! One bucket and not the fuller of two: two would be fairer between newcomers, and would let each spend
//! twice his quota.

use std::sync::atomic::{AtomicBool, Ordering};

use super::{Denied, Kept, cell::Cell, generations::Generations};
use crate::clock::Nanos;

const BUCKETS: usize = if cfg!(sluice_loom) { 2 } else { 1_024 };

/// Places of overflow buckets begin here; slots of a table lie below.
const FIRST_PLACE: u64 = 1 << 62;

#[derive(Debug)]
pub(super) struct Overflow {
    buckets: Box<[Cell]>,
    /// Whether any was ever charged.
    used: AtomicBool,
}

impl Overflow {
    pub(super) fn new() -> Self {
        #[cfg(not(sluice_loom))]
        let buckets = bytemuck::zeroed_slice_box(BUCKETS);
        #[cfg(sluice_loom)]
        let buckets = (0..BUCKETS).map(|_| Cell::new()).collect();
        Self { buckets, used: AtomicBool::new(false) }
    }

    /// Whether keys have had to share.
    #[inline]
    pub(super) fn is_used(&self) -> bool {
        // Relaxed: who does not see it yet finds the buckets as good as untouched.
        self.used.load(Ordering::Relaxed)
    }

    /// Which bucket a key shares; below their number.
    fn index(&self, hash: u64) -> usize {
        (hash >> 16) as usize % self.buckets.len()
    }

    /// The place a new key is counted at.
    pub(super) fn place(&self, hash: u64) -> u64 {
        FIRST_PLACE + self.index(hash) as u64
    }

    /// The bucket at `place`, if that is one of ours.
    pub(super) fn bucket(&self, place: u64) -> Option<&Cell> {
        self.buckets.get(usize::try_from(place.checked_sub(FIRST_PLACE)?).ok()?)
    }

    /// What the bucket of a key has spent, as a state.
    #[inline]
    pub(super) fn state(&self, quotas: &Generations, hash: u64, now: Nanos) -> u64 {
        if self.is_used() { self.buckets[self.index(hash)].read(quotas, now).0 } else { 0 }
    }

    /// The bucket a new key shares, to be charged.
    pub(super) fn shared(&self, hash: u64) -> &Cell {
        // Read first: a flood of new keys should not write one line from all processors.
        if !self.is_used() {
            self.used.store(true, Ordering::Relaxed);
        }
        &self.buckets[self.index(hash)]
    }

    #[cold]
    #[inline(never)]
    pub(super) fn charge<K: Kept>(
        &self,
        quotas: &Generations,
        hash: u64,
        now: Nanos,
        cost: u64,
        held: u64,
    ) -> Result<K, Denied> {
        self.shared(hash).charge(self.place(hash), quotas, (now, cost, held), false)
    }

    pub(super) fn convert(&self, quotas: &Generations, now: Nanos) {
        for bucket in &self.buckets {
            bucket.convert(quotas, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, time::Duration};

    use axum_core::body::Body;
    use http::{Request, Response, StatusCode};
    use tower::{Layer, ServiceExt, service_fn};

    use crate::{
        Algorithm, Backend, FixedWindow, KeyedLimiter, ManualClock, Missing, RateLimitLayer, Rule,
        SlidingLog, SlidingWindow, TokenBucket,
        backend::{Answer, Charge, LimiterSpec, Local, Verdicts},
        clock::Nanos,
        key,
    };

    const HOUR: Duration = Duration::from_secs(3_600);
    const NANO: Duration = Duration::from_nanos(1);

    fn ten_an_hour() -> [Algorithm; 5] {
        let (window, sliding) = (FixedWindow::per_hour(10), SlidingWindow::per_hour(10));
        let log = SlidingLog::per_hour(10).into();
        [
            TokenBucket::per_hour(10).into(),
            window.into(),
            log,
            sliding.into(),
            window.aligned().into(),
        ]
    }

    /// A limiter that keeps one key, and that key is live.
    fn full(algorithm: Algorithm, clock: &ManualClock) -> KeyedLimiter {
        let builder = match algorithm {
            Algorithm::TokenBucket(bucket) => bucket.keyed_limiter(),
            Algorithm::FixedWindow(window) => window.keyed_limiter(),
            Algorithm::LeakyBucket(bucket) => bucket.keyed_limiter(),
            Algorithm::SlidingLog(log) => log.keyed_limiter(),
            Algorithm::SlidingWindow(window) => window.keyed_limiter(),
        };
        let limiter = builder.max_keys(1).clock(clock.clone()).build().expect("a limiter");
        assert_eq!(admitted(&limiter, "live"), 10);
        limiter
    }

    /// How many of 30 requests pass.
    fn admitted(limiter: &KeyedLimiter, key: &str) -> usize {
        (0..30).filter(|_| limiter.try_acquire(key).is_allowed()).count()
    }

    #[test]
    fn changing_over_from_overflow_to_a_slot_gives_no_second_quota() {
        for algorithm in ten_an_hour() {
            let clock = ManualClock::new();
            let limiter = full(algorithm, &clock);
            assert_eq!(admitted(&limiter, "newcomer"), 10, "{algorithm:?}");
            assert_eq!(admitted(&limiter, "live"), 0, "{algorithm:?}");
            // The slot is free, but his debt comes along.
            assert!(limiter.reset("live"));
            clock.advance(NANO);
            assert_eq!(limiter.peek("newcomer", 0).remaining(), 0, "{algorithm:?}");
            assert_eq!(admitted(&limiter, "newcomer"), 0, "{algorithm:?}");
            clock.advance(HOUR + HOUR / 10);
            assert_eq!(limiter.peek("newcomer", 0).remaining(), 10, "{algorithm:?}");
            assert_eq!(admitted(&limiter, "newcomer"), 10, "{algorithm:?}");
        }
    }

    #[test]
    fn who_changes_over_halfway_gets_the_other_half() {
        // An aligned window gives a slot back when it ends, and then nobody owes anything.
        for algorithm in ten_an_hour().into_iter().take(4) {
            let clock = ManualClock::new();
            let limiter = full(algorithm, &clock);
            assert!(limiter.try_acquire_many("newcomer", 7).is_allowed());
            assert!(limiter.reset("live"));
            clock.advance(NANO);
            assert!(!limiter.try_acquire_many("newcomer", 4).is_allowed(), "{algorithm:?}");
            assert_eq!(limiter.tracked_keys(), 0, "a refusal takes no slot: {algorithm:?}");
            assert_eq!(admitted(&limiter, "newcomer"), 3, "{algorithm:?}");
            assert_eq!(limiter.tracked_keys(), 1, "{algorithm:?}");
            clock.advance(HOUR + HOUR / 10);
            assert_eq!(admitted(&limiter, "newcomer"), 10, "{algorithm:?}");
        }
    }

    #[tokio::test]
    async fn nor_does_a_layer_give_a_second_quota() {
        for algorithm in ten_an_hour() {
            let clock = ManualClock::new();
            let rule = Rule::new("per-user", algorithm)
                .key(key::header("x-user-id"))
                .missing(Missing::Skip)
                .max_keys(1);
            let layer = RateLimitLayer::builder().rule(rule).clock(clock.clone()).build().unwrap();
            let passed = async |user: &str| {
                let mut passed = 0;
                for _ in 0..30 {
                    let inner = service_fn(|_: Request<Body>| async {
                        Ok::<_, Infallible>(Response::new(Body::empty()))
                    });
                    let request =
                        Request::get("/").header("x-user-id", user).body(Body::empty()).unwrap();
                    let answer = layer.layer(inner).oneshot(request).await.unwrap();
                    passed += usize::from(answer.status() == StatusCode::OK);
                }
                passed
            };
            assert_eq!((passed("live").await, passed("newcomer").await), (10, 10));
            assert!(layer.handle().reset("per-user", "live").await.unwrap());
            clock.advance(NANO);
            assert_eq!(passed("newcomer").await, 0, "{algorithm:?}");
            clock.advance(HOUR + HOUR / 10);
            assert_eq!(passed("newcomer").await, 10, "{algorithm:?}");
        }
    }

    #[test]
    fn undoing_the_first_charge_in_a_slot_leaves_what_was_spent_before() {
        for algorithm in ten_an_hour() {
            let local = Local::new();
            let spec = LimiterSpec {
                name: "spec".into(),
                algorithm,
                quotas: vec![algorithm.quota()],
                factors: vec![1],
                keyed: true,
                max_keys: 1,
                utc_at_zero: Duration::ZERO,
                now: Nanos::ZERO,
                replaces: None,
            };
            let id = local.register(&spec).expect("a limiter");
            let of = |key: &'static str, cost| Charge::new(id, cost).key(key.as_bytes());
            let check = |now, charge| match local.check(now, &[charge]) {
                Answer::Ready(Ok(verdicts)) => verdicts,
                _ => panic!("the backend answers at once"),
            };
            let left = |now| match local.peek(now, &of("newcomer", 0)) {
                Answer::Ready(Ok(decision)) => decision.remaining(),
                _ => panic!("the backend answers at once"),
            };
            let start = Nanos::new(1);
            assert!(check(start, of("live", 10)).all_allowed());
            assert!(check(start, of("newcomer", 7)).all_allowed());
            assert!(matches!(local.reset(start, &of("live", 0)), Answer::Ready(Ok(true))));
            let later = start + NANO;
            let made: Verdicts = check(later, of("newcomer", 2));
            assert!(made.all_allowed());
            assert_eq!(left(later), 1, "{algorithm:?}");
            local.undo(later, &[made.as_slice()[0].receipt()]);
            assert_eq!(left(later), 3, "{algorithm:?}");
            assert!(!check(later, of("newcomer", 4)).all_allowed(), "{algorithm:?}");
            assert!(check(later, of("newcomer", 3)).all_allowed(), "{algorithm:?}");
            assert_eq!(left(start + HOUR + HOUR), 10, "{algorithm:?}");
        }
    }
}
