//! [`HandleError`].

use std::{error::Error, fmt};

use crate::{BackendError, ConfigError, plan::Planned};

/// Why a [`Handle`](crate::Handle) could not do what it was asked.
///
/// An admin route gives each its status:
///
/// ```
/// use axum::{Router, body::Body, extract::{Path, State}, http::{Request, StatusCode}, routing::post};
/// use tower::ServiceExt;
/// use tower_sluice::{Handle, HandleError, Quota, RateLimitLayer, Rule, TokenBucket};
///
/// async fn set_limit(
///     State(handle): State<Handle>,
///     Path(rule): Path<String>,
///     quota: String,
/// ) -> Result<StatusCode, (StatusCode, String)> {
///     let said = |status| move |error: &dyn std::error::Error| (status, error.to_string());
///     let quota: Quota = quota.parse().map_err(|e| said(StatusCode::BAD_REQUEST)(&e))?;
///     handle.set_limit(&rule, quota).map_err(|error| {
///         let status = match &error {
///             HandleError::NoSuchRule(_) => StatusCode::NOT_FOUND,
///             HandleError::Config(_) | HandleError::WrongKey { .. } => StatusCode::BAD_REQUEST,
///             HandleError::Backend(_) => StatusCode::BAD_GATEWAY,
///             _ => StatusCode::INTERNAL_SERVER_ERROR,
///         };
///         said(status)(&error)
///     })?;
///     Ok(StatusCode::NO_CONTENT)
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let orders = Rule::new("orders", TokenBucket::per_second(500));
/// let layer = RateLimitLayer::builder().rule(orders).build()?;
/// let admin = Router::new().route("/limits/{rule}", post(set_limit)).with_state(layer.handle());
/// let ask = |uri: &str, quota: &'static str| {
///     admin.clone().oneshot(Request::post(uri).body(Body::from(quota)).unwrap())
/// };
/// assert_eq!(ask("/limits/orders", "100/s burst 150").await?.status(), 204);
/// assert_eq!(layer.handle().peek("orders", (), 1).await?.limit(), 150);
/// assert_eq!(ask("/limits/odrers", "100/s").await?.status(), 404);
/// assert_eq!(ask("/limits/orders", "many").await?.status(), 400);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum HandleError {
    /// The backend could not answer.
    Backend(BackendError),
    /// The quota cannot be counted.
    Config(ConfigError),
    /// What is called so is an in-flight limit, and a rule is wanted.
    IsInFlight(String),
    /// The layer has no in-flight limit of this name.
    NoSuchInFlight(String),
    /// The layer has no rule of this name.
    NoSuchRule(String),
    /// The rule has no tier of this name.
    NoSuchTier {
        /// The rule.
        rule: String,
        /// The tier that was asked for.
        tier: String,
        /// The tiers it has, in the order written.
        tiers: Vec<String>,
    },
    /// The key named is not one the rule can have.
    WrongKey {
        /// The rule.
        rule: String,
        /// What its keys are.
        expected: String,
    },
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backend(error) => fmt::Display::fmt(error, f),
            Self::Config(error) => fmt::Display::fmt(error, f),
            Self::IsInFlight(name) => write!(
                f,
                "{name:?} is an in-flight limit, not a rule: see in_flight, waiting and set_in_flight"
            ),
            Self::NoSuchInFlight(name) => write!(f, "the layer has no in-flight limit {name:?}"),
            Self::NoSuchRule(name) => write!(f, "the layer has no rule {name:?}"),
            Self::NoSuchTier { rule, tier, tiers } if tiers.is_empty() => {
                write!(f, "rule {rule:?} has no tier {tier:?}, nor any other")
            }
            Self::NoSuchTier { rule, tier, tiers } => {
                write!(f, "rule {rule:?} has no tier {tier:?}; it has {}", tiers.join(", "))
            }
            Self::WrongKey { rule, expected } => {
                write!(f, "the key of rule {rule:?} is: {expected}")
            }
        }
    }
}

impl HandleError {
    pub(super) fn no_such_tier(rule: &Planned, tier: &str) -> Self {
        let tiers = rule.tiers.as_ref().map(|tiers| tiers.names().iter().map(ToString::to_string));
        let tiers = tiers.into_iter().flatten().collect();
        Self::NoSuchTier { rule: rule.by.name.to_string(), tier: tier.to_owned(), tiers }
    }
}

impl Error for HandleError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Backend(error) => error.source(),
            Self::Config(_)
            | Self::IsInFlight(_)
            | Self::NoSuchInFlight(_)
            | Self::NoSuchRule(_)
            | Self::NoSuchTier { .. }
            | Self::WrongKey { .. } => None,
        }
    }
}
