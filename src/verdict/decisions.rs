//! [`Decisions`]: what the rules decided of an admitted request, for whoever wants to know.

use http::Extensions;
use smallvec::SmallVec;

use crate::decision::RuleDecision;

/// The decisions of all rules that applied to an admitted request; in the extensions of the request and
/// of its response where [`expose_decision`](crate::RateLimitLayerBuilder::expose_decision) asks for it.
/// Of stacked layers that ask, the outermost come first.
///
/// Admitted answers may say how much is left:
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
///         headers.insert("x-ratelimit-limit", least.limit().into());
///         headers.insert("x-ratelimit-remaining", least.remaining().into());
///         headers.insert("x-ratelimit-reset", least.reset_after().as_secs().into());
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
/// assert_eq!(answer.headers()["x-ratelimit-remaining"], "999");
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
