//! [`Cost`]: how many permits a request needs.

use std::{fmt, sync::Arc};

use crate::Head;

/// How many permits a request spends: a number, or a function of its head.
///
/// A rule's cost is 1 unless it says otherwise. A cost of 0 is allowed and spends nothing; a cost
/// above the burst never fits and is refused for good.
///
/// ```
/// use tower_sluice::{Cost, Rule, TokenBucket};
///
/// let exports = Rule::new("exports", TokenBucket::per_second(10)).cost(5);
/// let search = Rule::new("search", TokenBucket::per_second(10))
///     .cost_fn(|head| if head.path().ends_with("/all") { 5 } else { 1 });
///
/// // The same, as values.
/// let costs = [Cost::from(5), Cost::from_fn(|head| head.headers().len() as u64)];
/// # let _ = (exports, search, costs);
/// ```
#[derive(Clone)]
#[must_use]
pub struct Cost(Kind);

#[derive(Clone)]
enum Kind {
    Fixed(u64),
    Computed(Arc<Compute>),
}

type Compute = dyn Fn(&Head<'_>) -> u64 + Send + Sync;

impl Cost {
    /// The cost that `compute` returns for each request, in permits.
    ///
    /// It runs once for each request and rule, on the request path: it should neither block nor
    /// allocate.
    pub fn from_fn<F>(compute: F) -> Self
    where
        F: Fn(&Head<'_>) -> u64 + Send + Sync + 'static,
    {
        Self(Kind::Computed(Arc::new(compute)))
    }

    /// The cost, where it is the same for every request.
    pub(crate) fn fixed(&self) -> Option<u64> {
        match &self.0 {
            Kind::Fixed(permits) => Some(*permits),
            Kind::Computed(_) => None,
        }
    }

    /// The cost of the request with this head.
    #[inline]
    pub(crate) fn of(&self, head: &Head<'_>) -> u64 {
        match &self.0 {
            Kind::Fixed(permits) => *permits,
            Kind::Computed(compute) => compute(head),
        }
    }
}

impl Default for Cost {
    /// One permit.
    fn default() -> Self {
        Self::from(1)
    }
}

impl From<u64> for Cost {
    fn from(permits: u64) -> Self {
        Self(Kind::Fixed(permits))
    }
}

impl fmt::Debug for Cost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Fixed(permits) => write!(f, "Cost({permits})"),
            Kind::Computed(_) => f.write_str("Cost(computed)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn costs_are_fixed_or_computed_from_the_head() {
        let request = Request::get("/12345").body(()).unwrap();
        let head = Head::of(&request);
        assert_eq!(Cost::default().of(&head), 1);
        assert_eq!(Cost::from(0).of(&head), 0);
        assert_eq!(Cost::from_fn(|head| head.path().len() as u64).of(&head), 6);
        assert_eq!(format!("{:?}", Cost::from_fn(|_| 1)), "Cost(computed)");
    }
}
