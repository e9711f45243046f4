//! The table of a comparison.

use std::fmt::Write;

use super::loads::{Load, Sample};

/// What this project wants of a load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// At most this part of the sample's figure.
    Ratio(f64),
    /// At most this figure.
    Value(f64),
    /// Nothing.
    None,
}

fn target(load: Load) -> Target {
    match load {
        Load::Create | Load::Get => Target::Ratio(0.5),
        Load::IdleMemory => Target::Value(40.0),
        Load::Start => Target::Value(150.0),
        Load::List | Load::Watch => Target::None,
    }
}

/// Returns the median of the figures of a load; 0 without any.
#[must_use]
pub fn median(samples: &[Sample], load: Load) -> f64 {
    let mut values: Vec<f64> = samples
        .iter()
        .filter(|sample| sample.load == load)
        .map(|sample| sample.value)
        .collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Returns the table of both servers' samples, as Markdown.
#[must_use]
pub fn table(sample: &[Sample], ours: &[Sample]) -> String {
    let mut text = String::from(
        "| load | unit | sample-apiserver | Portunus | ratio | wanted |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for load in Load::ALL {
        let (theirs, own) = (median(sample, load), median(ours, load));
        let ratio = if theirs > 0.0 { own / theirs } else { 0.0 };
        let wanted = match target(load) {
            Target::Ratio(most) => format!("{most}x: {}", met(ratio <= most)),
            Target::Value(most) => format!("{most} {}: {}", load.unit(), met(own <= most)),
            Target::None => String::new(),
        };
        let (name, unit) = (load.name(), load.unit());
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {name} | {unit} | {theirs:.1} | {own:.1} | {ratio:.2}x | {wanted} |"
        );
    }
    text
}

fn met(is_met: bool) -> &'static str {
    if is_met { "met" } else { "missed" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(load: Load, value: f64) -> Sample {
        Sample {
            load,
            value,
            per_second: None,
        }
    }

    #[test]
    fn table_has_medians_ratios_and_targets() {
        let theirs = [100.0, 300.0, 200.0].map(|value| sample(Load::Get, value));
        let ours = [50.0, 40.0, 120.0].map(|value| sample(Load::Get, value));
        assert!((median(&theirs, Load::Get) - 200.0).abs() < f64::EPSILON);
        let text = table(&theirs, &ours);
        let row = "| get | us CPU/request | 200.0 | 50.0 | 0.25x | 0.5x: met |";
        assert!(text.contains(row), "{text}");
        let row = "| start to ready | ms | 0.0 | 0.0 | 0.00x | 150 ms: met |";
        assert!(text.contains(row), "{text}");
    }
}
