//! [`Decisions`]: what the rules decided of an admitted request, for whoever wants to know.

use http::Extensions;
use smallvec::SmallVec;

use crate::{Decision, decision::RuleDecision};

/// The decisions of all rules that applied to an admitted request; in the extensions of the request and
/// of its response where [`expose_decision`](crate::RateLimitLayerBuilder::expose_decision) asks for it.
/// Of stacked layers that ask, the outermost come first. In an axum handler it is an extractor, and so is
/// `Option<Decisions>`.
///
/// ```
/// use axum::{Router, body::Body, http::Request, routing::get};
/// use tower::ServiceExt;
/// use tower_sluice::{Decisions, FixedWindow, RateLimitLayer, Rule};
///
/// async fn report(decisions: Decisions) -> String {
///     let left = decisions.of("reports").map_or(0, |decision| decision.remaining());
///     format!("a report; {left} more today")
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("reports", FixedWindow::per_day(3)))
///     .expose_decision()
///     .build()?;
/// let app: Router = Router::new().route("/report", get(report).layer(layer));
/// let answer = app.oneshot(Request::get("/report").body(Body::empty())?).await?;
/// let body = axum::body::to_bytes(answer.into_body(), 1_000).await?;
/// assert_eq!(body, "a report; 2 more today");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
///
/// Callers are told by [`headers`](crate::RateLimitLayerBuilder::headers). Where they expect fields of another form, a
/// layer outside writes them:
///
/// ```
/// use axum::{Router, body::Body, http::Request, middleware, response::Response, routing::get};
/// use tower::ServiceExt;
/// use tower_sluice::{Decisions, FixedWindow, ManualClock, RateLimitLayer, Rule};
///
/// /// Told of the rule with the least left.
/// async fn tell(mut response: Response) -> Response {
///     let decisions = response.extensions().get::<Decisions>();
///     let said = decisions.iter().flat_map(|said| said.as_slice()).filter_map(|said| said.decision());
///     if let Some(least) = said.min_by_key(|decision| decision.remaining()) {
///         let headers = response.headers_mut();
///         headers.insert("x-quota-left", least.remaining().into());
///     }
///     response
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let layer = RateLimitLayer::builder()
///     .rule(Rule::new("daily", FixedWindow::per_day(1_000)))
///     .expose_decision()
/// #     .clock(ManualClock::new())
///     .build()?;
/// let app: Router = Router::new()
///     .route("/", get(|| async {}))
///     .layer(layer)
///     .layer(middleware::map_response(tell)); // outside
///
/// let answer = app.oneshot(Request::get("/").body(Body::empty())?).await?;
/// assert_eq!(answer.headers()["x-quota-left"], "999");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Decisions(pub(super) SmallVec<[RuleDecision; 2]>);

impl Decisions {
    /// In the order the rules are written.
    #[must_use]
    pub fn as_slice(&self) -> &[RuleDecision] {
        &self.0
    }

    /// What the rule of this name decided; `None` where it did not apply.
    #[must_use]
    pub fn of(&self, rule: &str) -> Option<Decision> {
        self.0.iter().find(|said| said.rule() == rule)?.decision()
    }

    /// Puts them into a request's extensions, after those of layers outside.
    pub(crate) fn join_request(&self, extensions: &mut Extensions) {
        match extensions.get_mut::<Self>() {
            Some(outer) => outer.0.extend(self.0.iter().cloned()),
            None => {
                extensions.insert(self.clone());
            }
        }
    }

    /// Puts them into a response's extensions, before those of layers inside.
    pub(super) fn join_response(self, extensions: &mut Extensions) {
        match extensions.get_mut::<Self>() {
            Some(inner) => inner.0.insert_many(0, self.0),
            None => {
                extensions.insert(self);
            }
        }
    }
}
