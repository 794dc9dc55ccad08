//! What becomes of a request that does not fit: [`RejectionPolicy`], and the [`Rejection`] it is told about.

mod degrade;
mod policy;

use std::time::Duration;

use axum_core::{body::Body, response::IntoResponse};
use http::{Response, StatusCode};
use smallvec::{SmallVec, smallvec};

pub use self::{degrade::Decline, policy::RejectionPolicy};
pub(crate) use self::{
    degrade::{Declined, Degrade, Degrading},
    policy::Step,
};
use crate::{
    Decision,
    decision::RuleDecision,
    event::Reason,
    response::{Refusal, problem, retry_after},
};

/// Why a request was refused, as a responder sees it; in the response's extensions where
/// [`expose_rejection`](crate::RateLimitLayerBuilder::expose_rejection) asks for it.
///
/// As a response it is the default refusal. Here a layer outside logs what was refused:
///
/// ```
/// use axum::{Router, body::Body, http::Request, response::Response, routing::get};
/// use tower::ServiceExt;
/// use tower_sluice::{FixedWindow, RateLimitLayer, Rejection, Rule, event::Reason};
///
/// async fn log(response: Response) -> Response {
///     if let Some(rejection) = response.extensions().get::<Rejection>() {
///         let rules: Vec<_> = rejection.rules().iter().map(|said| said.rule()).collect();
///         eprintln!("refused by {rules:?}: {}", rejection.reason().as_str());
///     }
///     response
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("daily", FixedWindow::per_day(1)))
///     .expose_rejection()
///     .build()?;
/// let app: Router = Router::new()
///     .route("/", get(|| async {}))
///     .layer(layer)
///     .layer(axum::middleware::map_response(log));
///
/// let ask = || app.clone().oneshot(Request::get("/").body(Body::empty()).unwrap());
/// assert!(ask().await?.extensions().get::<Rejection>().is_none());
/// let refused = ask().await?;
/// assert_eq!(refused.extensions().get::<Rejection>().unwrap().reason(), Reason::Quota);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Rejection {
    pub(crate) reason: Reason,
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<Duration>,
    pub(crate) retry_after_secs: Option<u64>,
    pub(crate) rules: SmallVec<[RuleDecision; 2]>,
}

impl Rejection {
    /// The rejection of what the limiter `name` denied; `None` where it allowed.
    ///
    /// For handlers that ask a limiter themselves, since what they count by is in the body. As a response
    /// it is what a layer answers: 429, `Retry-After`, problem details.
    ///
    /// Of logins mind that a limit by account that refuses is a lock that everybody can shut. Ask for more above it, a
    /// code say, where you can: [login names](crate::guide::identity#login-names). Here the owner waits:
    ///
    /// ```
    /// use axum::{Json, Router, extract::State, response::{IntoResponse, Response}, routing::post};
    /// # use axum::{body::Body, http::Request};
    /// # use tower::ServiceExt;
    /// # use tower_sluice::ManualClock;
    /// use tower_sluice::{FixedWindow, KeyedLimiter, Rejection};
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Login { name: String, password: String }
    ///
    /// async fn log_in(State(logins): State<KeyedLimiter>, Json(login): Json<Login>) -> Response {
    ///     // Five tries an hour for each account, whoever tries and from wherever.
    ///     let decision = logins.try_acquire(&login.name);
    ///     if let Some(rejection) = Rejection::of("logins", decision) {
    ///         return rejection.into_response();
    ///     }
    ///     // .. check the password; on success `logins.reset(&login.name)`
    ///     "welcome".into_response()
    /// }
    ///
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// # let clock = ManualClock::new();
    /// let logins = FixedWindow::per_hour(5).keyed_limiter();
    /// # let logins = logins.clock(clock);
    /// let app = Router::new().route("/login", post(log_in)).with_state(logins.build()?);
    /// # let ask = |name: &str| {
    /// #     let body = Body::from(format!(r#"{{"name": "{name}", "password": "?"}}"#));
    /// #     let request = Request::post("/login").header("content-type", "application/json");
    /// #     app.clone().oneshot(request.body(body).unwrap())
    /// # };
    /// # for _ in 0..5 {
    /// #     assert_eq!(ask("alice").await?.status(), 200);
    /// # }
    /// # let refused = ask("alice").await?;
    /// # assert_eq!(refused.status(), 429);
    /// # assert_eq!(refused.headers()["retry-after"], "3600");
    /// # assert_eq!(ask("bob").await?.status(), 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # }).unwrap();
    /// ```
    #[must_use]
    pub fn of(name: &str, decision: Decision) -> Option<Self> {
        if decision.is_allowed() {
            return None;
        }
        let retry_after = decision.retry_after();
        Some(Self {
            reason: if decision.is_never() { Reason::Never } else { Reason::Quota },
            status: StatusCode::TOO_MANY_REQUESTS,
            retry_after,
            retry_after_secs: retry_after.map(retry_after::seconds),
            rules: smallvec![RuleDecision::new(name.into(), Some(decision))],
        })
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// The status of the answer; of a gRPC answer, whose own is 200, the one that its code stands for.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The longest wait of the rules that refuse, exact; `None` where no waiting helps.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// The number in `Retry-After`: whole seconds, rounded up, with the spread if there is one.
    #[must_use]
    pub fn retry_after_secs(&self) -> Option<u64> {
        self.retry_after_secs
    }

    /// All rules that refuse, in the order written.
    #[must_use]
    pub fn rules(&self) -> &[RuleDecision] {
        &self.rules
    }
}

impl IntoResponse for Rejection {
    /// The default refusal: the status, `Retry-After`, `Cache-Control: no-store` and problem details.
    fn into_response(self) -> Response<Body> {
        let Self { reason, status, retry_after_secs, rules, .. } = self;
        let body = problem::body(status, reason, rules.iter().map(RuleDecision::rule));
        Refusal { status, retry_after_secs, body }.into_response()
    }
}
