//! Holds `docs/cases.md` and `docs/oracles.md` to the tests they name: every id once, every name a
//! test, every test named, one kind of coverage per row.

use std::{collections::BTreeSet, fs, path::Path};

/// Every case.
const CASES: [&str; 108] = [
    "AR-01", "AR-02", "AR-04", "AR-06", "AR-07", "AR-09", "AR-10", "AR-11", "AR-13", "AR-14",
    "AR-16", "AR-18", "AR-20", "AR-22", "AR-23", "AR-24", "AR-25", "AR-26", "AR-28", "WN-01",
    "WN-02", "WN-03", "WN-05", "WN-06", "WN-09", "WN-11", "CM-01", "CM-03", "CM-04", "CM-06",
    "HT-01", "HT-03", "HT-05", "HT-06", "HT-08", "HT-09", "HT-11", "HT-12", "HT-14", "HT-15",
    "HT-17", "KY-01", "KY-02", "KY-04", "KY-05", "KY-06", "KY-08", "KY-09", "KY-10", "KY-12",
    "KY-14", "KY-16", "TW-01", "TW-02", "TW-03", "TW-06", "IF-01", "IF-02", "IF-03", "IF-05",
    "IF-06", "IF-08", "IF-11", "QU-01", "QU-02", "QU-03", "QU-05", "QU-06", "QU-08", "QU-10",
    "QU-11", "RD-01", "RD-03", "RD-06", "RD-07", "RD-09", "RD-10", "RD-11", "RD-12", "RD-14",
    "RD-15", "RD-16", "RD-18", "RD-19", "RD-21", "LE-01", "LE-03", "LE-04", "ME-01", "ME-02",
    "ME-04", "ME-05", "ME-07", "ME-08", "CF-01", "CF-02", "CF-04", "CF-05", "CF-07", "WU-01",
    "WU-02", "WU-04", "OB-01", "OB-03", "OB-04", "OB-05", "RS-01", "RS-03",
];

/// Every oracle.
const ORACLES: [&str; 88] = [
    "O-01", "O-02", "O-04", "O-05", "O-07", "O-08", "O-10", "O-11", "O-13", "O-14", "O-16", "O-17",
    "O-19", "O-20", "O-22", "O-23", "O-25", "O-26", "O-28", "O-29", "O-31", "O-32", "O-34", "O-35",
    "O-37", "O-38", "O-40", "O-41", "O-43", "O-44", "O-46", "O-47", "O-49", "O-50", "O-52", "O-53",
    "O-55", "O-56", "O-58", "O-59", "O-61", "O-62", "O-64", "O-65", "O-67", "O-68", "O-70", "O-71",
    "O-73", "O-74", "O-76", "O-77", "O-79", "O-80", "O-82", "O-83", "O-85", "O-86", "O-88", "O-89",
    "O-91", "O-92", "O-94", "O-95", "O-97", "O-98", "O-100", "O-101", "O-103", "O-104", "O-106",
    "O-107", "O-109", "O-110", "O-112", "O-113", "O-115", "O-116", "O-118", "O-119", "O-121",
    "O-122", "O-124", "O-125", "O-127", "O-128", "O-130", "O-131",
];

/// What `later: ` and `closed by: ` may name.
const CAPABILITIES: &[&str] = &[
    "What happens to what does not fit",
    "Every algorithm, exact",
    "The wire and the welcome",
    "One quota for a fleet: Redis and Valkey",
    "Reload and configuration files",
    "Observation and metrics",
    "Leases",
    "Overload and adaptive limits",
    "Load and endurance",
];

/// One of the two pages and where its tests are.
struct Table {
    page: &'static str,
    /// What names a test in the page: `cases::ar_01_..`, by the binary it is in.
    prefixes: &'static [&'static str],
    ids: &'static [&'static str],
}

const TABLES: [Table; 2] = [
    Table { page: "docs/cases.md", prefixes: &["cases::", "redis::"], ids: &CASES },
    Table { page: "docs/oracles.md", prefixes: &["oracles::"], ids: &ORACLES },
];

impl Table {
    /// The start of the names of a row's tests: `ar_01_` for `AR-01`.
    fn stem(id: &str) -> String {
        format!("{}_", id.to_lowercase().replace('-', "_"))
    }

    /// Everything wrong with `text`, where `tests` are the test functions there are.
    fn faults(&self, text: &str, tests: &BTreeSet<String>) -> Vec<String> {
        let page = self.page;
        let mut faults = Vec::new();
        let mut seen = Vec::new();
        let mut named = BTreeSet::new();
        for (number, line) in text.lines().enumerate() {
            let cells: Vec<&str> =
                line.trim().trim_matches('|').split('|').map(str::trim).collect();
            let id = cells[0];
            let heading = id == "id" || id.starts_with("---");
            if !line.starts_with('|') || heading {
                continue;
            }
            let row = format!("{page}:{}: {id}", number + 1);
            if !self.ids.contains(&id) {
                faults.push(format!("{row}: no such id"));
            }
            if seen.contains(&id) {
                faults.push(format!("{row}: a second row of this id"));
            }
            seen.push(id);
            let &[_, .., covered, open] = cells.as_slice() else {
                faults.push(format!("{row}: too few columns"));
                continue;
            };

            let is_name = |name: &&str| self.prefixes.iter().any(|prefix| name.starts_with(prefix));
            let tests_named: Vec<&str> = covered.split('`').filter(is_name).collect();
            let later = covered.strip_prefix("later: ");
            let not_ours = covered.strip_prefix("not ours, because ");
            let kinds = [!tests_named.is_empty(), later.is_some(), not_ours.is_some()];
            if kinds.iter().filter(|kind| **kind).count() != 1 {
                faults.push(format!(
                    "{row}: `{covered}` is not exactly one of `{}..`, `later: ..` and \
                     `not ours, because ..`",
                    self.prefixes.join("..` or `")
                ));
            }
            if not_ours.is_some_and(str::is_empty) {
                faults.push(format!("{row}: not ours, without a reason"));
            }
            if let Some(capability) = later.filter(|c| !CAPABILITIES.contains(c)) {
                faults.push(format!("{row}: no such capability: `{capability}`"));
            }
            for test in tests_named {
                let function = test.split_once("::").map_or(test, |(_, function)| function);
                if !function.starts_with(&Self::stem(id)) {
                    faults.push(format!("{row}: `{test}` does not start with {}", Self::stem(id)));
                }
                if !tests.contains(test) {
                    faults.push(format!("{row}: no test `{test}`"));
                }
                named.insert(test.to_owned());
            }

            let closers = open.split_once("; closed by: ").map(|(_, closers)| closers);
            match closers {
                None if open == "-" => {}
                None => faults.push(format!(
                    "{row}: the open part `{open}` is neither `-` nor ends in `; closed by: ..`"
                )),
                Some(closers) => {
                    for closer in closers.split("; ").filter(|c| !CAPABILITIES.contains(c)) {
                        faults.push(format!("{row}: closed by no such capability: `{closer}`"));
                    }
                }
            }
        }
        for id in self.ids.iter().filter(|id| !seen.contains(id)) {
            faults.push(format!("{page}: no row for {id}"));
        }
        for test in tests.difference(&named) {
            let function = test.split_once("::").map_or(&**test, |(_, function)| function);
            if self.ids.iter().any(|id| function.starts_with(&Self::stem(id))) {
                faults.push(format!("{page}: no row names `{test}`"));
            }
        }
        faults
    }
}

/// The names of the functions under a test attribute.
fn test_functions(source: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim) {
        let function = line.split_once("fn ").filter(|(before, _)| {
            before.split_whitespace().all(|word| matches!(word, "pub" | "async"))
        });
        if line.starts_with("#[") {
            is_test |= ["#[test]", "#[tokio::test"].iter().any(|t| line.starts_with(t));
        } else if let Some((_, after)) = function {
            if is_test {
                let end = after.find(|c: char| c != '_' && !c.is_alphanumeric());
                names.insert(after[..end.unwrap_or(after.len())].to_owned());
            }
            is_test = false;
        }
    }
    names
}

/// The test functions of `tests/<name>.rs` and of every file under `tests/<name>/`.
fn tests_of(name: &str) -> BTreeSet<String> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut names = BTreeSet::new();
    if let Ok(source) = fs::read_to_string(tests.join(format!("{name}.rs"))) {
        names.append(&mut test_functions(&source));
    }
    if let Ok(entries) = fs::read_dir(tests.join(name)) {
        for entry in entries {
            let path = entry.expect("a readable entry").path();
            if path.extension().is_some_and(|e| e == "rs") {
                let source = fs::read_to_string(&path).expect("UTF-8");
                names.append(&mut test_functions(&source));
            }
        }
    }
    names
}

#[test]
fn every_id_has_one_row_and_every_row_its_tests() {
    let mut faults = Vec::new();
    for table in &TABLES {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(table.page);
        let text = fs::read_to_string(&path).expect(table.page);
        let tests = table.prefixes.iter().flat_map(|prefix| {
            let names = tests_of(prefix.trim_end_matches(':'));
            names.into_iter().map(move |name| format!("{prefix}{name}"))
        });
        let tests = tests.collect();
        faults.append(&mut table.faults(&text, &tests));
    }
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn a_wrong_row_is_caught() {
    let table = Table { page: "page.md", prefixes: &["cases::"], ids: &["AR-01", "AR-02"] };
    let tests = test_functions(
        "#[test]\nfn ar_01_steps() {}\n#[tokio::test(start_paused = true)]\nasync fn ar_02_x() {}\n\
         fn ar_01_helper() {}\n#[test]\nfn unrelated() {}",
    );
    let tests = tests.into_iter().map(|name| format!("cases::{name}")).collect();
    let head = "| id | fault | covered by | open part |\n|---|---|---|---|\n";
    let first = "| AR-01 | f | `cases::ar_01_steps` | a, b; closed by: Leases |\n";
    let second = "| AR-02 | f | `cases::ar_02_x` | - |\n";
    let found = |rows: &[&str]| table.faults(&format!("{head}{}", rows.concat()), &tests);
    assert_eq!(found(&[first, second]), Vec::<String>::new());

    let wrong = [
        ("| AR-03 | f | later: Leases | - |\n", "page.md:4: AR-03: no such id"),
        (first, "page.md:4: AR-01: a second row"),
        ("| AR-02 | f | `cases::ar_02_y` | - |\n", "no test `cases::ar_02_y`"),
        ("| AR-02 | f | `cases::ar_01_steps` | - |\n", "does not start with ar_02_"),
        ("| AR-02 | f | `cases::ar_01_helper` | - |\n", "no test `cases::ar_01_helper`"),
        ("| AR-02 | f | later: Never | - |\n", "no such capability: `Never`"),
        ("| AR-02 | f | | - |\n", "not exactly one of"),
        ("| AR-02 | f | later: `cases::ar_02_x` | - |\n", "not exactly one of"),
        ("| AR-02 | f | `cases::ar_02_x` | a part |\n", "neither `-` nor ends in"),
        ("| AR-02 | f | `cases::ar_02_x` | a; closed by: Luck |\n", "closed by no such"),
        ("| AR-02 |\n", "too few columns"),
        ("", "no row for AR-02"),
        ("| AR-02 | f | later: Leases | - |\n", "no row names `cases::ar_02_x`"),
    ];
    for (row, message) in wrong {
        let faults = found(&[first, row]);
        assert!(faults.iter().any(|f| f.contains(message)), "{row}: {message}: {faults:?}");
    }
}
