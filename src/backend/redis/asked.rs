//! [`Asked`]: one charge, made ready for the scripts; and what their answers say.

use std::{sync::Arc, time::Duration};

use redis::{Cmd, Value};
use smallvec::SmallVec;

use super::{
    counted::{Counted, Kind, LONGEST_WAIT},
    failure::Failure,
    limiter::{InForce, Limiter},
    names::Digest,
};
use crate::{
    Decision,
    backend::{Charge, LimiterId, Receipt, Verdict},
    clock::Nanos,
    decision::Level,
};

/// One charge, made ready.
pub(super) struct Asked {
    pub(super) id: LimiterId,
    pub(super) limiter: Arc<Limiter>,
    pub(super) in_force: Arc<InForce>,
    pub(super) quota: usize,
    pub(super) digest: Digest,
    /// What its key is called in the store.
    pub(super) name: String,
    pub(super) cost: u64,
    pub(super) longest_wait: Duration,
}

/// Numbers that the script gives for each charge.
const NUMBERS: usize = 6;

impl Asked {
    pub(super) fn new(limiter: Arc<Limiter>, charge: &Charge<'_>) -> Self {
        let digest = Digest::of(charge.key);
        Self {
            id: charge.limiter,
            in_force: limiter.in_force(),
            quota: charge.quota,
            digest,
            name: limiter.names.of(digest),
            cost: charge.cost,
            longest_wait: charge.longest_wait,
            limiter,
        }
    }

    /// A charge of the same key on a limiter of this process.
    pub(super) fn on(&self, limiter: LimiterId, cost: u64) -> Charge<'_> {
        Charge::new(limiter, cost).key(&self.digest.0).quota_index(self.quota)
    }

    pub(super) fn counted(&self) -> &Counted {
        self.in_force.quota(self.quota)
    }

    /// A verdict where nothing is counted.
    pub(super) fn uncounted(&self) -> Verdict {
        let limit = self.counted().limit;
        let decision = Decision::allowed(limit, limit, Duration::ZERO);
        Verdict::new(decision, Receipt::nothing(self.id))
    }

    /// What chooses the server in a cluster.
    pub(super) fn slot(&self) -> &str {
        let tag = |name: &str| Some((name.find('{')?, name.find('}')?));
        tag(&self.name).map_or("", |(from, to)| &self.name[from..to])
    }

    /// The time that the script is told; none where it reads the server's.
    pub(super) fn time(&self, now: Nanos) -> String {
        if !self.limiter.options.is_given_time {
            return String::new();
        }
        let utc = self.in_force.spec.utc_at_zero + Duration::from(now);
        utc.as_micros().to_string()
    }

    /// Whether a script can be composed for it: a charge that may be made, of a kind that takes few steps.
    pub(super) fn is_composed(&self) -> bool {
        let counted = self.counted();
        let is_month = counted.kind == Kind::Window && counted.own[1] == "M";
        counted.kind != Kind::Log && !is_month && self.cost > 0 && self.cost <= counted.limit
    }

    /// The longest wait in microseconds, where the store may tell it to depart later.
    fn longest_micros(&self) -> u64 {
        // Whole microseconds within it.
        let micros = u64::try_from(self.longest_wait.as_micros()).unwrap_or(u64::MAX);
        micros.min(LONGEST_WAIT)
    }

    /// The arguments of the script that decides any charges.
    pub(super) fn add(&self, cmd: &mut Cmd) {
        let counted = self.counted();
        let wait = if counted.kind == Kind::Bucket { self.longest_micros() } else { 0 };
        cmd.arg(counted.kind.letter()).arg(counted.cost(self.cost)).arg(wait);
        for own in &counted.own[..counted.kind.owns()] {
            cmd.arg(own);
        }
    }

    /// What the long answer would have been to a charge that was made.
    fn said_briefly(&self, now: u64, said: &[u64]) -> [u64; NUMBERS] {
        match *said {
            [before, start] => {
                [1, before, (start + self.window()).saturating_sub(now), 0, start, 0]
            }
            [before, stamp, total] => [1, before, 0, 0, stamp, total],
            _ => [1, said.first().copied().unwrap_or(0), 0, 0, 0, 0],
        }
    }

    /// What one charge got.
    fn verdict(&self, now: u64, said: [u64; NUMBERS], is_charged: bool) -> Verdict {
        let [fits, before, whole, lacks, mark, other] = said;
        let counted = self.counted();
        let (is_charged, cost) = (is_charged && self.cost > 0, counted.cost(self.cost));
        let spent = if is_charged { before + cost } else { before };
        let reset = match counted.kind {
            Kind::Bucket => spent.div_ceil(counted.mul),
            Kind::Window if spent == 0 => 0,
            Kind::Cells | Kind::Log if is_charged => (mark + self.window()).saturating_sub(now),
            _ => whole,
        };
        let level = Level {
            capacity: counted.capacity(),
            left: counted.capacity().saturating_sub(spent),
            unit: counted.unit,
            reset_after: micros(reset),
        };
        let nothing = Receipt::nothing(self.id);
        if fits == 0 {
            let is_never = self.cost > counted.limit;
            let decision =
                if is_never { level.never() } else { level.denied(micros(lacks.max(1))) };
            return Verdict::new(decision, nothing);
        }
        if !is_charged {
            return Verdict::new(level.allowed(), nothing);
        }
        let receipt = match counted.kind {
            Kind::Bucket => {
                let paid = now.saturating_add(spent / counted.mul);
                self.receipt(paid, spent % counted.mul, other)
            }
            Kind::Window => self.receipt(mark, spent, other),
            Kind::Cells | Kind::Log => self.receipt(mark, other, 0),
        };
        let verdict = Verdict::new(level.allowed(), receipt);
        match counted.kind {
            Kind::Bucket if lacks > 0 => {
                verdict.depart_after(Duration::from_micros(lacks).min(self.longest_wait))
            }
            _ => verdict,
        }
    }

    /// In microseconds.
    fn window(&self) -> u64 {
        self.in_force.spec.quota(self.quota).1.period().as_micros() as u64
    }

    fn receipt(&self, at: u64, mark: u64, resets: u64) -> Receipt {
        let [high, low] = self.digest.to_words();
        let words = Charged { at, mark, resets, quota: self.quota, cost: self.cost }.to_words();
        let [when, what] = words.unwrap_or_default();
        Receipt::new(self.id, [high, low, when, what])
    }
}

/// Whether a composed script takes arguments for these: not where all are of one permit, as most are, and none may wait.
pub(super) fn has_arguments(asked: &[&Asked]) -> bool {
    let is_usual = |asked: &&Asked| {
        asked.cost == 1 && asked.longest_wait.is_zero() && !asked.limiter.options.is_given_time
    };
    !asked.iter().all(is_usual)
}

/// The arguments of a composed script that takes any.
pub(super) fn add_composed(asked: &[&Asked], cmd: &mut Cmd, now: Nanos) {
    for asked in asked {
        cmd.arg(asked.counted().cost(asked.cost));
    }
    for asked in asked {
        cmd.arg(asked.longest_micros());
    }
    // None where it is the server's.
    cmd.arg(asked.first().map(|asked| asked.time(now)).filter(|time| !time.is_empty()));
}

/// What the script answered to these: a verdict for each.
pub(super) fn verdicts(
    asked: &[&Asked],
    answer: &Value,
    may_charge: bool,
) -> Result<Vec<Verdict>, Failure> {
    let numbers = numbers(answer);
    let Some((now, said)) = numbers.as_deref().and_then(<[u64]>::split_first) else {
        return Err(Failure::shapeless(answer));
    };
    let answers = |asked: &&Asked| asked.counted().kind.answers();
    if may_charge && said.len() == asked.iter().map(answers).sum::<usize>() {
        // A composed script has made them all at once.
        let mut said = said;
        let verdict = |asked: &&Asked| {
            let (own, rest) = said.split_at(asked.counted().kind.answers());
            said = rest;
            asked.verdict(*now, asked.said_briefly(*now, own), true)
        };
        return Ok(asked.iter().map(verdict).collect());
    }
    if said.len() != NUMBERS * asked.len() {
        return Err(Failure::shapeless(answer));
    }
    let (said, _) = said.as_chunks::<NUMBERS>();
    let is_charged = may_charge && said.iter().all(|[fits, ..]| *fits == 1);
    Ok(asked.iter().zip(said).map(|(asked, said)| asked.verdict(*now, *said, is_charged)).collect())
}

fn numbers(answer: &Value) -> Option<SmallVec<[u64; 4]>> {
    let Value::Array(values) = answer else { return None };
    let number = |value: &Value| match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    values.iter().map(number).collect()
}

fn micros(micros: u64) -> Nanos {
    Nanos::new(micros.saturating_mul(1_000))
}

/// What a charge is known by, so that it is undone only while no other has built on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Charged {
    /// The microsecond at which a bucket is paid, a window began, or a stamp was put.
    pub(super) at: u64,
    /// What tells it from others of that microsecond, modulo 2^24.
    pub(super) mark: u64,
    /// How often the key was reset, modulo 64.
    pub(super) resets: u64,
    pub(super) quota: usize,
    pub(super) cost: u64,
}

impl Charged {
    /// None where it does not fit: then it stays spent.
    fn to_words(self) -> Option<[u64; 2]> {
        let Self { at, mark, resets, quota, cost } = self;
        let cost = u32::try_from(cost).ok()?;
        let quota = u8::try_from(quota).ok()?;
        if at >= 1 << 52 {
            return None;
        }
        let what = (mark & 0xff_ffff) << 40 | u64::from(quota) << 32 | u64::from(cost);
        Some([at << 12 | (resets & 63), what])
    }

    /// None where there is nothing to undo.
    pub(super) fn of_words([when, what]: [u64; 2]) -> Option<Self> {
        let cost = what & 0xffff_ffff;
        (cost > 0).then_some(Self {
            at: when >> 12,
            mark: what >> 40,
            resets: when & 63,
            quota: (what >> 32 & 0xff) as usize,
            cost,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_comes_back_from_its_words() {
        let charged =
            Charged { at: 1_790_000_000_123_456, mark: 0xff_ffff, resets: 63, quota: 255, cost: 1 };
        assert_eq!(Charged::of_words(charged.to_words().unwrap()), Some(charged));
        let most = Charged { cost: u32::MAX.into(), ..charged };
        assert_eq!(Charged::of_words(most.to_words().unwrap()), Some(most));
    }

    #[test]
    fn what_does_not_fit_stays_spent() {
        let charged = Charged { at: 1, mark: 0, resets: 0, quota: 0, cost: 1 << 32 };
        assert_eq!(charged.to_words(), None);
        assert_eq!(Charged::of_words([0; 2]), None);
    }
}
