//! tower-sluice beside other limiters, and beside what the same work costs at the least.
//!
//! `bench-compare [direct|keyed|permits|memory|layer|instructions]..` prints Markdown; without a name, all
//! of them. `--quick` takes fewer rounds; `--out FILE` writes the tables between the two marks of
//! that file instead of printing them.

mod contenders;
mod direct;
mod harness;
mod instructions;
mod keyed;
mod layer;
mod memory;
mod permits;
mod report;
mod rivals;
mod yardstick;

use std::{fs, process::ExitCode};

use harness::Pace;
use report::Report;

const PARTS: [&str; 6] = ["direct", "keyed", "permits", "memory", "layer", "instructions"];

const BEGIN: &str = "<!-- results: begin -->\n";
const END: &str = "<!-- results: end -->\n";

fn main() -> ExitCode {
    let mut pace = Pace::NORMAL;
    let mut parts = Vec::new();
    let mut out = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--quick" => pace = Pace::QUICK,
            "--out" => out = arguments.next(),
            "one" => {
                let name = arguments.next().unwrap_or_default();
                let times = arguments.next().and_then(|times| times.parse().ok());
                instructions::one(&name, times.unwrap_or(1_000));
                return ExitCode::SUCCESS;
            }
            "samples" => {
                print!("{}", layer::samples().write());
                return ExitCode::SUCCESS;
            }
            part if PARTS.contains(&part) => parts.push(argument),
            other => {
                eprintln!("no part {other:?}; there are {}", PARTS.join(", "));
                return ExitCode::FAILURE;
            }
        }
    }
    let mut report = Report::default();
    for part in PARTS {
        if !parts.is_empty() && !parts.iter().any(|wanted| wanted == part) {
            continue;
        }
        match part {
            "direct" => direct::run(pace, &mut report),
            "keyed" => keyed::run(pace, &mut report),
            "permits" => permits::run(pace, &mut report),
            "memory" => memory::run(&mut report),
            "layer" => layer::run(&mut report),
            _ => instructions::run(&mut report),
        }
    }
    report.heading("Targets missed in this run");
    let missed: Vec<String> = report.missed.iter().map(|missed| format!("- {missed}")).collect();
    report.note(&if missed.is_empty() { "None.".into() } else { missed.join("\n") });
    match out {
        None => print!("{}", report.text),
        Some(path) => {
            if let Err(error) = write_between_marks(&path, &report.text) {
                eprintln!("{path}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn write_between_marks(path: &str, results: &str) -> Result<(), String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    let (before, rest) = text.split_once(BEGIN).ok_or(format!("has no line {BEGIN:?}"))?;
    let (_, after) = rest.split_once(END).ok_or(format!("has no line {END:?}"))?;
    let text = format!("{before}{BEGIN}\n{results}{END}{after}");
    fs::write(path, text).map_err(|error| error.to_string())
}
