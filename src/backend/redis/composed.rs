//! [`Composed`]: scripts for certain limits, with their numbers in the text.
//!
//! Most calls are alike: the same rules, in the same order, each for one permit. What differs is the keys. So a script is
//! composed for such rules, which reads no arguments, makes no function and has no loop, and decides what most calls are:
//! buckets that owe something under the quota in force, or nothing, and all of which fit. What is otherwise, the same run
//! decides by [`checking`], from the same numbers.

use std::{
    collections::HashMap,
    fmt::Write as _,
    sync::{Arc, PoisonError, RwLock},
};

use ahash::RandomState;
use smallvec::SmallVec;

use super::{
    asked::Asked,
    counted::{Counted, Kind},
    script::{Script, checking},
};

/// Limiters, which of their quotas, and how often these were changed.
type Rules = SmallVec<[(u64, usize, u64); 4]>;

/// Scripts by the rules that they decide.
#[derive(Debug, Default)]
pub(super) struct Composed(RwLock<HashMap<Rules, Arc<Script>, RandomState>>);

/// How many are composed at most: a server keeps them all.
const MOST: usize = 128;

/// How many charges one decides at most: a script has at most 200 local variables, and each charge takes up to five.
const LONGEST: usize = 16;

impl Composed {
    /// The script for these charges; none where there are too many, or none would be quicker.
    pub(super) fn of(&self, asked: &[&Asked]) -> Option<Arc<Script>> {
        if asked.len() > LONGEST || !asked.iter().all(|asked| asked.is_plain()) {
            return None;
        }
        let rule = |asked: &&Asked| (asked.id.0, asked.quota, asked.in_force.changes);
        let rules: Rules = asked.iter().map(rule).collect();
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(&rules) {
            Some(script) => return Some(Arc::clone(script)),
            None if known.len() >= MOST => return None,
            None => drop(known),
        }
        let counted: Vec<&Counted> = asked.iter().map(|asked| asked.counted()).collect();
        let is_given_time = asked.iter().any(|asked| asked.limiter.options.is_given_time);
        let script = Arc::new(Script::new(&text(&counted, is_given_time)));
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(known.entry(rules).or_insert(script)))
    }

    pub(super) fn all(&self) -> Vec<Arc<Script>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// The script. KEYS: one for each charge, no two alike. ARGV: nothing, or for each charge its units; then nothing, or for
/// each its longest wait in microseconds; then the time, if it is given. Answers: now, and what each owed before; or as
/// `check` does.
fn text(counted: &[&Counted], is_given_time: bool) -> String {
    debug_assert!(counted.iter().all(|counted| counted.kind == Kind::Bucket));
    let each = |text: &dyn Fn(usize, &Counted) -> String, between: &str| {
        let texts = counted.iter().zip(1..).map(|(counted, n)| text(n, counted));
        texts.collect::<Vec<_>>().join(between)
    };
    let mut tried = String::from(
        "local call, sub, fmt, keys, given = redis.call, string.sub, string.format, KEYS, ARGV\n",
    );
    if counted.len() == 1 {
        tried += "local k1 = keys[1]\nlocal t1 = call('GET', k1)\n";
    } else {
        let _ = writeln!(tried, "local {} = unpack(keys)", each(&|n, _| format!("k{n}"), ", "));
        let _ = writeln!(
            tried,
            "local {} = unpack(call('MGET', unpack(keys)))",
            each(&|n, _| format!("t{n}"), ", ")
        );
        // That says nothing of what is there and is no text.
        tried += &each(&|n, _| format!("if not t{n} then t{n} = call('GET', k{n}) end\n"), "");
    }
    match is_given_time {
        true => drop(writeln!(tried, "local now = tonumber(given[{}])", 2 * counted.len() + 1)),
        false => tried += "local t = call('TIME')\nlocal now = t[1] * 1000000 + t[2]\n",
    }
    // What each owes; nil where that is not known here.
    tried += &each(
        &|n, Counted { mul, own: [_, tag, ..], .. }| match mul {
            1 => format!(
                "local d{n} = not t{n} and 0 or sub(t{n}, 17) == '{tag}' and sub(t{n}, 1, 16) - now\n"
            ),
            _ => {
                let end = 16 + mul.to_string().len();
                format!(
                    "local d{n} = not t{n} and 0 or sub(t{n}, {}) == '{tag}' and \
                     (sub(t{n}, 1, 16) - now) * {mul} + sub(t{n}, 17, {end})\n",
                    end + 1
                )
            }
        },
        "",
    );
    let _ = writeln!(tried, "if {} then", each(&|n, _| format!("d{n}"), " and "));
    tried += &each(
        &|n, Counted { unit, .. }| {
            format!("if d{n} < 0 then d{n} = 0 end\nlocal o{n} = d{n} + (given[{n}] or {unit})\n")
        },
        "",
    );
    let fits = |n, counted: &Counted| format!("o{n} <= {}", counted.capacity());
    let _ = writeln!(tried, "if {} then", each(&fits, " and "));
    tried += &each(
        &|n, Counted { mul, own: [_, tag, ..], .. }| {
            let (more, paid, digits, rest) = match mul {
                1 => (String::new(), format!("now + o{n}"), String::new(), String::new()),
                _ => (
                    format!("local m{n} = o{n} % {mul}\n"),
                    format!("now + (o{n} - m{n}) / {mul}"),
                    format!("%0{}d", mul.to_string().len()),
                    format!(", m{n}"),
                ),
            };
            let life = life(n, *mul);
            format!("{more}call('PSETEX', k{n}, {life}, fmt('%016d{digits}{tag}', {paid}{rest}))\n")
        },
        "",
    );
    let _ = writeln!(tried, "return {{now, {}}}\nend\nend", each(&|n, _| format!("d{n}"), ", "));
    let count = counted.len();
    let arguments = each(
        &|n, Counted { unit, own: [mul, tag, capacity, horizon], .. }| {
            format!(
                "'b', given[{n}] or '{unit}', given[{}] or '0', '{mul}', '{tag}', '{capacity}', '{horizon}'",
                count + n
            )
        },
        ", ",
    );
    checking(&tried, &format!("local argv = {{'1', '', {arguments}}}\n"))
}

/// A time to live in milliseconds: until all is paid, and up to two more. One that is known need not be written: what is
/// paid soon, as most is, lives up to twice as long and a second.
fn life(n: usize, mul: u64) -> String {
    const KNOWN: [u64; 4] = [1_000, 2_990, 6_970, 14_900];
    let known = KNOWN.map(|life| format!("o{n} <= {} and '{life}' or ", (life - 2) * 1_000 * mul));
    format!("{}fmt('%d', o{n} / {} + 2)", known.concat(), mul * 1_000)
}
