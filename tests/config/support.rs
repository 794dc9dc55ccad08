//! Building what should not build.

use tower_sluice::{Algorithm, ConfigError, RateLimitLayer, Rule, TokenBucket};

/// A rule that is right.
pub(crate) fn right(name: &str) -> Rule {
    Rule::new(name, TokenBucket::per_second(10))
}

/// What building a layer of `rules` says is wrong.
#[track_caller]
pub(crate) fn error_of(rules: impl IntoIterator<Item = Rule>) -> ConfigError {
    match RateLimitLayer::builder().rules(rules).build() {
        Ok(layer) => panic!("should not build: {layer:?}"),
        Err(error) => error,
    }
}

/// Asserts that a rule named `r` is refused for this field and value, with a reason.
#[track_caller]
pub(crate) fn assert_refused(rule: Rule, field: &str, value: &str) {
    assert_names(&error_of([rule]), "r", field, value);
}

/// Asserts what an error names.
#[track_caller]
pub(crate) fn assert_names(error: &ConfigError, rule: &str, field: &str, value: &str) {
    let named = (error.rule(), error.field(), error.value());
    assert_eq!(named, (Some(rule), field, value), "{error}");
    assert!(error.reason().len() > 10, "{error}");
    let shown = format!("{rule:?}: {field} = {value}: {}", error.reason());
    let said = error.to_string();
    let of_whom = said.strip_suffix(&shown).map(str::trim_end);
    assert!(matches!(of_whom, Some("rule" | "in-flight limit")), "{said}");
}

/// A rule named `r` with this algorithm.
pub(crate) fn rule(algorithm: impl Into<Algorithm>) -> Rule {
    Rule::new("r", algorithm)
}
