//! [`Composed`]: scripts for certain limits, with their numbers in the text.
//!
//! Most calls are alike: the same rules, in the same order, each for one permit. What differs is the keys. So a script is
//! composed for such rules, which reads no arguments, makes no function and has no loop, and decides what most calls are: keys
//! that are new, or were written under the quota in force, and all of which fit. What is otherwise, the same run decides by
//! [`checking`], from the same numbers.

use std::{
    collections::HashMap,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use ahash::RandomState;
use smallvec::SmallVec;

use super::{
    asked::Asked,
    counted::{Counted, Kind},
    script::{Script, checking},
};
use crate::backend::LimiterId;

/// Limiters, which of their quotas, and how often these were changed; and whether there are arguments.
type Rules = (SmallVec<[(u64, usize, u64); 4]>, bool);

/// Scripts by the rules that they decide.
#[derive(Debug, Default)]
pub(super) struct Composed {
    scripts: RwLock<HashMap<Rules, Arc<Script>, RandomState>>,
    /// How many were composed in all.
    made: AtomicUsize,
}

/// How many there are at most; and how many are made, where quotas change: a server keeps them all.
const MOST: usize = 128;
const EVER: usize = 1_024;

/// For how many charges: a function in Lua has 200 variables at most.
const CHARGES: usize = 8;

impl Composed {
    /// The script for these charges; none where there are too many, or none would be quicker.
    pub(super) fn of(&self, asked: &[&Asked], has_arguments: bool) -> Option<Arc<Script>> {
        if asked.len() > CHARGES || !asked.iter().all(|asked| asked.is_composed()) {
            return None;
        }
        let rule = |asked: &&Asked| (asked.id.0, asked.quota, asked.in_force.changes);
        let rules: Rules = (asked.iter().map(rule).collect(), has_arguments);
        let known = self.scripts.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(&rules) {
            Some(script) => return Some(Arc::clone(script)),
            None if known.len() >= MOST => return None,
            None => drop(known),
        }
        // Relaxed: a count, nothing is read through it.
        if self.made.fetch_add(1, Ordering::Relaxed) >= EVER {
            return None;
        }
        let counted: Vec<&Counted> = asked.iter().map(|asked| asked.counted()).collect();
        let is_given_time = asked.iter().any(|asked| asked.limiter.options.is_given_time);
        let text = text(&counted, has_arguments, is_given_time);
        let script = Arc::new(Script::new(&text));
        let mut known = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(known.entry(rules).or_insert(script)))
    }

    /// A quota of this limiter was changed.
    pub(super) fn forget(&self, id: LimiterId) {
        let mut known = self.scripts.write().unwrap_or_else(PoisonError::into_inner);
        known.retain(|(rules, _), _| rules.iter().all(|(limiter, ..)| *limiter != id.0));
    }

    pub(super) fn all(&self) -> Vec<Arc<Script>> {
        self.scripts.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

/// The script. KEYS: one for each charge, no two alike. ARGV, if it has any: for each charge its units; for each its longest
/// wait in microseconds; the time, if it is given. Answers: now, and for each charge what its kind
/// [answers](Kind::answers); or as `check` does.
fn text(counted: &[&Counted], has_arguments: bool, is_given_time: bool) -> String {
    let cost = |n, counted: &Counted| match has_arguments {
        true => format!("given[{n}]"),
        false => counted.unit.to_string(),
    };
    let part = |(counted, n): (&&Counted, usize)| Part::of(n, counted, &cost(n, counted));
    let parts: Vec<Part> = counted.iter().zip(1..).map(part).collect();
    let each = |text: &dyn Fn(&Part) -> &str, between: &str| {
        parts.iter().map(text).collect::<Vec<_>>().join(between)
    };
    let numbered = |letter: char| {
        let name = |n| format!("{letter}{n}");
        (1..=parts.len()).map(name).collect::<Vec<_>>().join(", ")
    };
    let read = match parts.len() {
        1 => "local k1 = keys[1]\nlocal t1 = call('GET', k1)\n".to_owned(),
        _ => {
            // It says nothing of what is there and is no text.
            let keys = numbered('k');
            let again = |n| format!("if not t{n} then t{n} = call('GET', k{n}) end\n");
            format!(
                "local {keys} = unpack(keys)\nlocal {} = unpack(call('MGET', {keys}))\n{}",
                numbered('t'),
                (1..=parts.len()).map(again).collect::<String>()
            )
        }
    };
    let time = match is_given_time {
        true => format!("local now = tonumber(given[{}])\n", 2 * parts.len() + 1),
        false => "local t = call('TIME')\nlocal now = t[1] * 1000000 + t[2]\n".to_owned(),
    };
    let given = if has_arguments { "local given = ARGV\n" } else { "" };
    let tried = format!(
        "local call, sub, fmt, keys = redis.call, string.sub, string.format, KEYS\n{given}\
         {read}{time}{}if {} then\n{}if {} then\n{}return {{now, {}}}\nend\nend\n",
        each(&|part| &part.load, ""),
        each(&|part| &part.known, " and "),
        each(&|part| &part.charged, ""),
        each(&|part| &part.fits, " and "),
        each(&|part| &part.save, ""),
        each(&|part| &part.answers, ", "),
    );
    let argument = |(n, counted): (usize, &&Counted)| {
        let own = counted.own[..counted.kind.owns()].iter().map(|own| format!(", '{own}'"));
        format!(
            "'{}', {}, {}{}",
            counted.kind.letter(),
            cost(n, counted),
            if has_arguments { format!("given[{}]", parts.len() + n) } else { "0".to_owned() },
            own.collect::<String>()
        )
    };
    let arguments: Vec<_> = (1..).zip(counted).map(argument).collect();
    checking(&tried, &format!("local argv = {{'1', '', {}}}\n", arguments.join(", ")))
}

/// What is done for one charge: all its names end in its number.
struct Part {
    /// Reads what is stored.
    load: String,
    /// Whether that is what it mostly is; if not, `check` decides.
    known: String,
    /// What it comes to with the charge.
    charged: String,
    fits: String,
    save: String,
    answers: String,
}

impl Part {
    fn of(n: usize, counted: &Counted, cost: &str) -> Self {
        match counted.kind {
            Kind::Bucket => Self::bucket(n, counted, cost),
            Kind::Window => Self::window(n, counted, cost),
            // A log is not composed.
            Kind::Cells | Kind::Log => Self::cells(n, counted, cost),
        }
    }

    /// It owes something under the quota in force and since no reset, or nothing.
    fn bucket(n: usize, counted: &Counted, cost: &str) -> Self {
        let Counted { mul, own: [_, tag, ..], .. } = counted;
        let digits = if *mul == 1 { 0 } else { mul.to_string().len() };
        let (at, until) = (17 + digits, 16 + digits);
        let (times, more) = match mul {
            1 => (String::new(), String::new()),
            _ => (format!(" * {mul}"), format!(" + sub(t{n}, 17, {until})")),
        };
        let (paid, format, rest) = match mul {
            1 => (format!("now + o{n}"), String::new(), String::new()),
            _ => (
                format!("now + (o{n} - o{n} % {mul}) / {mul}"),
                format!("%0{digits}d"),
                format!(", o{n} % {mul}"),
            ),
        };
        let life = life(n, *mul);
        Self {
            load: format!(
                "local d{n} = not t{n} and 0 or sub(t{n}, {at}) == '{tag}' and (sub(t{n}, 1, 16) - now){times}{more}\n"
            ),
            known: format!("d{n}"),
            charged: format!("if d{n} < 0 then d{n} = 0 end\nlocal o{n} = d{n} + {cost}\n"),
            fits: format!("o{n} <= {}", counted.capacity()),
            save: format!(
                "call('PSETEX', k{n}, {life}, fmt('%016d{format}{tag}', {paid}{rest}))\n"
            ),
            answers: format!("d{n}"),
        }
    }

    /// It is of the length in force and was not reset; it goes on, or has ended.
    fn window(n: usize, counted: &Counted, cost: &str) -> Self {
        let [limit, length, phase, _] = &counted.own;
        let (head, at) = (format!(":{length}:"), 19 + length.len());
        let (begins, goes_on) = match phase.as_str() {
            "" => ("now".to_owned(), format!("p{n} <= now and p{n} + {length} > now")),
            _ => (format!("now - (now + {phase}) % {length}"), format!("p{n} == s{n}")),
        };
        let ended = match phase.as_str() {
            "" => format!("p{n} + {length} > now"),
            _ => format!("p{n} > s{n}"),
        };
        Self {
            load: format!(
                "local s{n}, d{n} = {begins}, 0\n\
                 if t{n} then\n\
                 if sub(t{n}, 17, {}) == '{head}' and sub(t{n}, -2) == '#0' then\n\
                 local p{n}, c{n} = sub(t{n}, 1, 16) + 0, sub(t{n}, {at}, -3) + 0\n\
                 if c{n} > 0 then\n\
                 if {goes_on} then s{n}, d{n} = p{n}, c{n} elseif {ended} then d{n} = nil end\n\
                 end\n\
                 else d{n} = nil end\n\
                 end\n",
                at - 1
            ),
            known: format!("d{n}"),
            charged: format!("local o{n} = d{n} + {cost}\n"),
            fits: format!("o{n} <= {limit}"),
            save: format!(
                "call('PSETEX', k{n}, fmt('%d', (s{n} + {length} - now) / 1000 + 2), fmt('%016d{head}%d#0', s{n}, o{n}))\n"
            ),
            answers: format!("d{n}, s{n}"),
        }
    }

    /// It is new, or none of its cells has ended to count.
    fn cells(n: usize, counted: &Counted, cost: &str) -> Self {
        let [limit, window, cell, _] = &counted.own;
        Self {
            load: format!(
                "local s{n} = now - now % {cell} + {cell}\n\
                 local f{n}, d{n}, b{n}, r{n} = s{n}, 0, 0, ''\n\
                 if t{n} then\n\
                 local l{n}\n\
                 f{n}, l{n}, d{n} = tonumber(sub(t{n}, 1, 16)), tonumber(sub(t{n}, 17, 32)), nil\n\
                 if f{n} and l{n} and l{n} <= s{n} and now - f{n} < {window} and #t{n} % 32 == 0 then\n\
                 d{n}, b{n} = tonumber(sub(t{n}, 33, 48)), tonumber(sub(t{n}, 49, 64))\n\
                 r{n} = l{n} == s{n} and sub(t{n}, 65) or sub(t{n}, 65) .. sub(t{n}, 17, 48)\n\
                 end\n\
                 end\n"
            ),
            known: format!("d{n} and b{n}"),
            charged: format!("local o{n} = d{n} + {cost}\n"),
            fits: format!("o{n} - b{n} <= {limit}"),
            save: format!(
                "call('PSETEX', k{n}, fmt('%d', (s{n} + {window} - now) / 1000 + 2), \
                 fmt('%016d%016d%016d%016d%s', f{n}, s{n}, o{n}, b{n}, r{n}))\n"
            ),
            answers: format!("d{n} - b{n}, s{n}, o{n}"),
        }
    }
}

/// A time to live in milliseconds: until all is paid, and up to two more. One that is known need not be written: what is
/// paid soon, as most is, lives up to twice as long and a second.
fn life(n: usize, mul: u64) -> String {
    const KNOWN: [u64; 4] = [1_000, 2_990, 6_970, 14_900];
    let known = KNOWN.map(|life| format!("o{n} <= {} and '{life}' or ", (life - 2) * 1_000 * mul));
    format!("{}fmt('%d', o{n} / {} + 2)", known.concat(), mul * 1_000)
}
