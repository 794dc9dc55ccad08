//! [`Lines`]: the memory of a table, in lines of the processor's cache.

use crate::sync::AtomicU64;

/// Slots of a line: so many hashes, then so many words.
pub(super) const SLOTS: usize = 4;

/// Eight atomics, which are 64 bytes.
const ATOMICS: usize = 2 * SLOTS;

/// Lines that begin at 64-byte boundaries.
///
/// An allocation that asks for this alignment is written over with zeros at once, all of it, whatever is
/// used of it later. One that asks for the alignment of its numbers is handed out as the system has it,
/// zeroed when it is touched. So this takes a line more and begins at the first boundary.
#[derive(Debug)]
pub(super) struct Lines {
    atomics: Box<[AtomicU64]>,
    skipped: usize,
    count: usize,
}

/// One line: what lies at a slot.
#[derive(Clone, Copy)]
pub(super) struct Line<'l>(&'l [AtomicU64; ATOMICS]);

impl Lines {
    /// So many lines of zeros; `None` where there is no memory for them.
    pub(super) fn new(count: usize) -> Option<Self> {
        let atomics = zeroed(count.checked_add(1)?.checked_mul(ATOMICS)?)?;
        let start = atomics.as_ptr().addr();
        let skipped = (start.next_multiple_of(64) - start) / size_of::<AtomicU64>();
        // Less than a line; under a model checker, whose atomics are larger, it may be more.
        let skipped = if skipped < ATOMICS { skipped } else { 0 };
        Some(Self { atomics, skipped, count })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn line(&self, index: usize) -> Line<'_> {
        let (lines, _) = self.atomics[self.skipped..].as_chunks();
        Line(&lines[index])
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Line<'_>> {
        (0..self.count).map(|index| self.line(index))
    }
}

impl<'l> Line<'l> {
    #[inline]
    pub(super) fn hash(self, slot: usize) -> &'l AtomicU64 {
        &self.0[slot % SLOTS]
    }

    #[inline]
    pub(super) fn word(self, slot: usize) -> &'l AtomicU64 {
        &self.0[SLOTS + slot % SLOTS]
    }
}

#[cfg(not(sluice_loom))]
fn zeroed(atomics: usize) -> Option<Box<[AtomicU64]>> {
    bytemuck::try_zeroed_slice_box(atomics).ok()
}

#[cfg(sluice_loom)]
fn zeroed(atomics: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..atomics).map(|_| AtomicU64::new(0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_begin_at_boundaries_and_do_not_overlap() {
        let lines = Lines::new(1_000).expect("memory");
        let starts: Vec<usize> =
            lines.iter().map(|line| std::ptr::from_ref(line.hash(0)).addr()).collect();
        assert_eq!((starts.len(), lines.len()), (1_000, 1_000));
        assert!(starts.iter().all(|start| start % 64 == 0));
        assert!(starts.windows(2).all(|pair| pair[1] - pair[0] == 64));
        let last = lines.line(999);
        assert_eq!(std::ptr::from_ref(last.word(3)).addr() - starts[999], 56);
    }
}
