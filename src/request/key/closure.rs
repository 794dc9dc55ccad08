//! Extractors around closures.

use std::{any::type_name, borrow::Cow, marker::PhantomData};

use super::KeyExtractor;
use crate::{Head, Key};

/// `key::from_fn`.
pub(super) struct Borrows<F>(pub(super) F);

impl<F> KeyExtractor for Borrows<F>
where
    F: for<'a> Fn(&Head<'a>) -> Option<Key<'a>> + Send + Sync + 'static,
{
    fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>> {
        (self.0)(head)
    }

    fn describe(&self) -> Cow<'static, str> {
        "closure".into()
    }
}

/// `key::always`.
pub(super) struct Always<F>(pub(super) F);

impl<F> KeyExtractor for Always<F>
where
    F: for<'a> Fn(&Head<'a>) -> Key<'a> + Send + Sync + 'static,
{
    fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>> {
        Some((self.0)(head))
    }

    fn describe(&self) -> Cow<'static, str> {
        "closure".into()
    }

    fn is_total(&self) -> bool {
        true
    }
}

/// `key::extension`.
pub(super) struct Extension<T, F> {
    key: F,
    // A function pointer, so that `T` has no say in whether this is `Send`.
    reads: PhantomData<fn(T)>,
}

impl<T, F> Extension<T, F> {
    pub(super) fn new(key: F) -> Self {
        Self { key, reads: PhantomData }
    }
}

impl<T, F> KeyExtractor for Extension<T, F>
where
    T: Send + Sync + 'static,
    F: for<'a> Fn(&'a T) -> Key<'a> + Send + Sync + 'static,
{
    fn extract<'a>(&'a self, head: &Head<'a>) -> Option<Key<'a>> {
        head.extensions().get().map(&self.key)
    }

    fn describe(&self) -> Cow<'static, str> {
        format!("extension {}", type_name::<T>()).into()
    }
}
