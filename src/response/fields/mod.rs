//! Fields that tell a caller how he stands: [`Headers`] says in which of the forms there are.
//!
//! What is where: here the forms and which fields of them an answer gets; `text` writes their values. Nothing else
//! of the crate knows their syntax, which is that of a work in progress.

mod text;

use std::{
    fmt,
    num::{NonZeroU8, NonZeroU32},
    sync::Arc,
    time::Duration,
};

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::{digits, retry_after};
use crate::{
    ConfigError,
    clock::{Nanos, Time},
};

/// A form of the fields that tell a caller how much is left: see
/// [`RateLimitLayerBuilder::headers`](crate::RateLimitLayerBuilder::headers).
///
/// The numbers are the same in each. Here a token bucket of 10/s with a burst of 50, of which 20 are spent:
///
/// | form | fields |
/// | --- | --- |
/// | [`Draft11`](Self::Draft11) | `RateLimit-Policy: "api";q=50;w=5`, `RateLimit: "api";r=30;t=2` |
/// | [`Draft07`](Self::Draft07) | `RateLimit-Policy: 50;w=5`, `RateLimit: limit=50, remaining=30, reset=2` |
/// | [`Draft06`](Self::Draft06) | `RateLimit-Policy: 50;w=5`, `RateLimit-Limit: 50`, `RateLimit-Remaining: 30`, `RateLimit-Reset: 2` |
/// | [`XRateLimit`](Self::XRateLimit) | `X-RateLimit-Limit: 50`, `X-RateLimit-Remaining: 30`, `X-RateLimit-Reset: 2`, or a second since 1970 |
///
/// - `q` and the limit are what may be spent at once: the burst, or a window's limit. Of an in-flight limit, how many
///   may be under way.
/// - `w` is the time in which that comes back from nothing, or the window, in whole seconds, rounded up. It is
///   left out below a second, where it would say less than is allowed, and of in-flight limits, which have none.
/// - `r` and remaining are what is left after this request.
/// - `t` and reset are the seconds until the quota is whole again, rounded up. `t` is left out, and reset 0, where it
///   is whole already. On a refusal they are the number in `Retry-After`.
///
/// `RateLimit-Policy` names all limits that apply to the request and are shown. The other fields speak of one: on a
/// refusal, among those that refuse, of the one with the longest wait; else of the one with the least left.
/// In-flight limits are only in `Draft11`, which has a unit for them, and its `RateLimit` speaks of one where it refuses or
/// no rate is shown.
///
/// A policy takes some 20 bytes and the name of its limit. A layer that shows dozens may exceed what proxies take for a
/// header, often 8 KiB in all.
///
/// The first three are versions of an Internet-Draft, [draft-ietf-httpapi-ratelimit-headers][draft]: work in progress,
/// whose final form may differ. The last is what many services have long sent, in no standard.
///
/// [draft]: https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_sluice::{Headers, ManualClock, RateLimitLayer, Reset, Rule, TokenBucket, key};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("api", TokenBucket::per_second(10).burst(50)).key(key::client_ip()).cost(20))
///     .headers(Headers::Draft11)
///     .headers(Headers::XRateLimit(Reset::After))
///     .clock(ManualClock::new())
///     .build()?;
/// let app: Router = Router::new().route("/", get(|| async {})).layer(layer);
///
/// let answer = app.oneshot(Request::get("/").body(Body::empty())?).await?;
/// assert_eq!(answer.headers()["ratelimit-policy"], r#""api";q=50;w=5"#);
/// assert_eq!(answer.headers()["ratelimit"], r#""api";r=30;t=2"#);
/// assert_eq!(answer.headers()["x-ratelimit-remaining"], "30");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Headers {
    /// `RateLimit` and `RateLimit-Policy` as in versions 08 to 11 of the draft.
    Draft11,
    /// `RateLimit` and `RateLimit-Policy` as in version 07.
    Draft07,
    /// `RateLimit-Limit`, `-Remaining`, `-Reset` and `-Policy` as in versions 04 to 06.
    Draft06,
    /// `X-RateLimit-Limit`, `-Remaining` and `-Reset`, the last as [`Reset`] says.
    XRateLimit(Reset),
}

/// What `X-RateLimit-Reset` counts: services differ, and a client that takes one for the other sleeps for years or
/// not at all. Ask what your clients expect.
///
/// ```
/// use tower_sluice::{Headers, Reset};
///
/// // As GitHub's API has it, among others.
/// let headers = Headers::XRateLimit(Reset::Epoch);
/// # let _ = headers;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reset {
    /// Seconds from now: `50`.
    After,
    /// The second of that instant since 1970, UTC: `1764000050`. By the layer's clock.
    Epoch,
}

const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const DRAFT_06: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit-limit"),
    HeaderName::from_static("ratelimit-remaining"),
    HeaderName::from_static("ratelimit-reset"),
];
const X_RATELIMIT: [HeaderName; 3] = [
    HeaderName::from_static("x-ratelimit-limit"),
    HeaderName::from_static("x-ratelimit-remaining"),
    HeaderName::from_static("x-ratelimit-reset"),
];

/// All names of fields that tell a caller how he stands.
pub(super) fn names() -> impl Iterator<Item = HeaderName> {
    [RATELIMIT, POLICY].into_iter().chain(DRAFT_06).chain(X_RATELIMIT)
}

impl Headers {
    /// What is wrong with these forms together: a field has one meaning.
    pub(crate) fn check(all: &[Self]) -> Result<(), ConfigError> {
        for (index, form) in all.iter().enumerate() {
            let is_x = |form: &Self| matches!(form, Self::XRateLimit(_));
            let Some(other) = all[..index].iter().find(|other| is_x(other) == is_x(form)) else {
                continue;
            };
            let reason = format!(
                "{other:?} is chosen too, and both write the same fields with another meaning; keep one of them"
            );
            return Err(ConfigError::new("headers", format!("{form:?}"), reason));
        }
        Ok(())
    }
}

/// One limit that applies to a request, as callers are told of it.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) name: Arc<str>,
    /// What may be spent at once, or how many may be under way.
    pub(crate) limit: u64,
    pub(crate) unit: Unit,
}

/// What a policy's limit counts.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unit {
    /// Requests, in a window of so many seconds if it is known.
    Requests(Option<u64>),
    /// Requests under way.
    InFlight,
}

/// How a caller stands with one of the policies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Standing {
    /// Which, counted from 1.
    pub(crate) policy: NonZeroU8,
    pub(crate) remaining: u64,
    /// None where there is nothing to wait for.
    pub(crate) wait: Option<Wait>,
}

/// How long it is until a quota is whole, or until a request fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait {
    /// In whole seconds.
    secs: NonZeroU32,
    /// The second since 1970, rounded up. Told from the instant of the decision: the answer may come much later.
    until: u64,
}

impl Wait {
    /// A wait, of which so many whole seconds are told; none for none.
    pub(crate) fn new(time: &Time, now: Nanos, wait: Duration, secs: u64) -> Option<Self> {
        // More are told than it is where they are spread, or where another limit's are longer.
        let told =
            if retry_after::seconds(wait) == secs { wait } else { Duration::from_secs(secs) };
        Some(Self {
            secs: NonZeroU32::new(u32::try_from(secs).unwrap_or(u32::MAX))?,
            until: epoch_secs(time, now, told),
        })
    }
}

/// The policies that apply to some requests, and the forms in which those are told of them: written once, used by
/// all answers that say the same.
pub(crate) struct Policies {
    all: Box<[Policy]>,
    forms: Box<[Headers]>,
    /// As the draft's later versions have it, and as its earlier.
    later: Option<HeaderValue>,
    earlier: Option<HeaderValue>,
    time: Time,
}

impl Policies {
    pub(crate) fn new(all: Vec<Policy>, forms: &[Headers], time: &Time) -> Self {
        let has = |form| forms.contains(&form);
        Self {
            later: has(Headers::Draft11).then(|| text::policies(&all)).flatten(),
            earlier: (has(Headers::Draft07) || has(Headers::Draft06))
                .then(|| text::earlier_policies(&all))
                .flatten(),
            all: all.into(),
            forms: forms.into(),
            time: time.clone(),
        }
    }

    /// Adds the fields to the inner service's answer. Lists go on; of what has one value the inner one stands.
    pub(crate) fn add_to_inner(
        &self,
        standing: Option<Standing>,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        if is_redirect(status, headers) {
            return;
        }
        self.add(standing, |name, value, is_list| {
            if is_list {
                headers.append(name, value);
            } else if !headers.contains_key(&name) {
                headers.insert(name, value);
            }
        });
    }

    /// Adds the fields to an answer of ours where they are absent. Where it says itself when to come back, so do they.
    pub(crate) fn add_to_ours(
        &self,
        mut standing: Option<Standing>,
        status: StatusCode,
        headers: &mut HeaderMap,
    ) {
        if is_redirect(status, headers) {
            return;
        }
        if let Some(Standing { wait: Some(wait), .. }) = &mut standing
            && let Some(secs) = retry_after::read(headers)
            && secs != u64::from(wait.secs.get())
        {
            let now = self.time.now();
            *wait = Wait::new(&self.time, now, Duration::from_secs(secs), secs).unwrap_or(*wait);
        }
        self.add(standing, |name, value, _| {
            if !headers.contains_key(&name) {
                headers.insert(name, value);
            }
        });
    }

    /// Gives each field, its value, and whether it is a list.
    fn add(
        &self,
        standing: Option<Standing>,
        mut field: impl FnMut(HeaderName, HeaderValue, bool),
    ) {
        if let Some(later) = &self.later {
            field(POLICY, later.clone(), true);
        }
        if let Some(earlier) = &self.earlier {
            field(POLICY, earlier.clone(), true);
        }
        let Some(standing) = standing else { return };
        let Some(policy) = self.all.get(usize::from(standing.policy.get()) - 1) else { return };
        let reset_secs = standing.wait.map(|wait| wait.secs.get().into());
        // Where the quota changes at this moment, or a backend has another in mind, it is no more than is told.
        let remaining = standing.remaining.min(policy.limit);
        let numbers = || (policy.limit, remaining, reset_secs.unwrap_or(0));
        for form in &self.forms {
            match form {
                Headers::Draft11 => {
                    if let Some(value) = text::standing(policy, remaining, reset_secs) {
                        field(RATELIMIT, value, true);
                    }
                }
                // Forms without a unit for what is in flight.
                _ if matches!(policy.unit, Unit::InFlight) => {}
                Headers::Draft07 => {
                    if let Some(value) = text::dictionary(numbers()) {
                        field(RATELIMIT, value, false);
                    }
                }
                Headers::Draft06 => {
                    let (limit, remaining, reset) = numbers();
                    for (name, number) in DRAFT_06.into_iter().zip([limit, remaining, reset]) {
                        field(name, digits::value(text::integer(number)), false);
                    }
                }
                Headers::XRateLimit(form) => {
                    let (limit, remaining, reset) = numbers();
                    let reset = match form {
                        Reset::After => reset,
                        Reset::Epoch => {
                            let now = || epoch_secs(&self.time, self.time.now(), Duration::ZERO);
                            standing.wait.map_or_else(now, |wait| wait.until)
                        }
                    };
                    for (name, number) in X_RATELIMIT.into_iter().zip([limit, remaining, reset]) {
                        field(name, digits::value(number), false);
                    }
                }
            }
        }
    }
}

/// The second since 1970, rounded up, in which `wait` is over.
fn epoch_secs(time: &Time, now: Nanos, wait: Duration) -> u64 {
    let until = time.utc_at_zero().saturating_add(now.into()).saturating_add(wait);
    retry_after::rounded_up(until)
}

/// Redirects have no fields: a client that is told that nothing is left might not follow.
fn is_redirect(status: StatusCode, headers: &HeaderMap) -> bool {
    status.is_redirection() && headers.contains_key(header::LOCATION)
}

impl fmt::Debug for Policies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|policy| &policy.name)).finish()
    }
}
