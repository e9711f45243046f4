//! The table of the figures.

use std::fmt;

use super::measure::Cost;
use super::work::{Library, Work};

/// The costs of all runs, in the order of the rounds.
#[derive(Debug, Default)]
pub struct Report {
    costs: Vec<(Work, Library, Cost)>,
}

impl Report {
    /// Adds a run.
    pub fn add(&mut self, work: Work, library: Library, cost: Cost) {
        self.costs.push((work, library, cost));
    }

    fn costs_of(&self, work: Work, library: Library) -> Vec<Cost> {
        let costs = self.costs.iter();
        let meant =
            costs.filter(|(its_work, its_library, _)| (*its_work, *its_library) == (work, library));
        meant.map(|(_, _, cost)| *cost).collect()
    }

    /// Returns the median of the ratios of CPU time per operation, round by round.
    fn cpu_ratio(&self, work: Work, library: Library, base: Library) -> Option<f64> {
        let pairs = self
            .costs_of(work, library)
            .into_iter()
            .zip(self.costs_of(work, base));
        let ratios = pairs.map(|(cost, base)| {
            cost.cpu_us_per_operation() / base.cpu_us_per_operation().max(f64::MIN_POSITIVE)
        });
        median(ratios.collect())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "| work | client | operations/s | client CPU | against tonic | against clientv3 |"
        )?;
        writeln!(f, "| --- | --- | --- | --- | --- | --- |")?;
        for work in Work::ALL {
            for library in Library::ALL {
                let costs = self.costs_of(work, library);
                let rate = median(costs.iter().map(Cost::per_second).collect());
                let cpu = median(costs.iter().map(Cost::cpu_us_per_operation).collect());
                let (Some(rate), Some(cpu)) = (rate, cpu) else {
                    continue;
                };
                let ratio = |base| match self.cpu_ratio(work, library, base) {
                    Some(ratio) if base != library => format!("{ratio:.2}x"),
                    _ => "–".to_owned(),
                };
                writeln!(
                    f,
                    "| {} | {library} | {rate:.0} | {cpu:.2} µs per {} | {} | {} |",
                    work.name(),
                    work.operation(),
                    ratio(Library::Tonic),
                    ratio(Library::Clientv3),
                )?;
            }
        }
        Ok(())
    }
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_is_the_median_of_the_rounds() {
        let mut report = Report::default();
        for (tonic, portunus) in [(100, 110), (200, 400), (100, 120)] {
            for (library, cpu_us) in [(Library::Tonic, tonic), (Library::Portunus, portunus)] {
                let cost = Cost {
                    operations: 10,
                    cpu_us,
                    elapsed_us: 1_000_000,
                };
                report.add(Work::Get, library, cost);
            }
        }
        let text = report.to_string();
        assert!(
            text.contains("| get | portunus | 10 | 12.00 µs per call | 1.20x | – |"),
            "{text}"
        );
        // Nothing was measured.
        assert!(!text.contains("| put |"), "{text}");
    }
}
