//! Markdown tables, and figures beside their targets.

use std::fmt::Write;

/// The tables of a run.
#[derive(Default)]
pub struct Report {
    pub text: String,
    /// What was promised and not reached.
    pub missed: Vec<String>,
}

impl Report {
    pub fn heading(&mut self, text: &str) {
        let _ = writeln!(self.text, "### {text}\n");
        eprintln!("{text}");
    }

    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.text, "{text}\n");
    }

    /// Begins a table; the first column holds names, the others figures.
    pub fn table(&mut self, columns: &[&str]) {
        let _ = writeln!(self.text, "| {} |", columns.join(" | "));
        let _ = writeln!(self.text, "|---|{}", "---:|".repeat(columns.len() - 1));
    }

    pub fn row(&mut self, cells: &[String]) {
        let _ = writeln!(self.text, "| {} |", cells.join(" | "));
    }

    pub fn end_table(&mut self) {
        self.text.push('\n');
    }

    /// A figure's target, and whether it is met.
    pub fn target(&mut self, what: &str, figure: f64, at_most: f64, unit: &str) -> String {
        if figure <= at_most {
            return format!("at most {at_most}{unit}: met");
        }
        self.missed.push(format!("{what}: {figure:.2}{unit}, promised at most {at_most}{unit}"));
        format!("at most {at_most}{unit}: **missed**")
    }
}
