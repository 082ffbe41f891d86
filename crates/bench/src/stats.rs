//! Figures over rounds.

/// The smallest, the middle and the largest of some figures.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The smallest.
    pub min: f64,
    /// The middle one.
    pub median: f64,
    /// The largest.
    pub max: f64,
}

impl Spread {
    /// The spread of `figures`, in any order.
    ///
    /// # Panics
    /// When there are none: a round that measured nothing is a defect of the bench.
    #[must_use]
    pub fn of(figures: &[f64]) -> Self {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (Some(min), Some(max)) = (sorted.first(), sorted.last()) else {
            panic!("a spread is of at least one round");
        };
        Self { min: *min, median: percentile(&sorted, 50.0), max: *max }
    }

    /// The spread of `figures[i] / floors[i]`: each round is compared with itself.
    ///
    /// # Panics
    /// When there are not as many floors as figures, or none.
    #[must_use]
    pub fn of_ratios(figures: &[f64], floors: &[f64]) -> Self {
        assert_eq!(figures.len(), floors.len(), "each round has its own floor");
        let ratios: Vec<f64> = figures.iter().zip(floors).map(|(of, to)| of / to).collect();
        Self::of(&ratios)
    }
}

/// The figure that `percent` of the sorted ones do not exceed.
///
/// # Panics
/// When there are none.
#[must_use]
pub fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let last = sorted.len().checked_sub(1).expect("a percentile is of at least one figure");
    let place = (last as f64 * percent / 100.0).round() as usize;
    sorted[place.min(last)]
}

/// Which way is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The target is an upper bound.
    AtMost,
    /// The target is a lower bound.
    AtLeast,
}

impl Direction {
    /// Whether `figure` keeps to `bound`.
    #[must_use]
    pub fn keeps(self, figure: f64, bound: f64) -> bool {
        match self {
            Self::AtMost => figure <= bound,
            Self::AtLeast => figure >= bound,
        }
    }

    /// The sign for people.
    #[must_use]
    pub const fn sign(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_of_sorted_figures() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]);
        assert_eq!(Spread { min: 1.0, median: 2.0, max: 3.0 }, spread);
        assert_eq!(Spread { min: 4.0, median: 4.0, max: 4.0 }, Spread::of(&[4.0]));
    }

    #[test]
    fn ratios_are_of_each_round() {
        // The rounds differ tenfold, their ratios do not.
        let spread = Spread::of_ratios(&[2.0, 20.0, 9.0], &[1.0, 10.0, 3.0]);
        assert_eq!(Spread { min: 2.0, median: 2.0, max: 3.0 }, spread);
    }

    #[test]
    fn percentiles_are_figures_that_were_measured() {
        let sorted: Vec<f64> = (0..101).map(f64::from).collect();
        for (percent, expected) in [(0.0, 0.0), (50.0, 50.0), (99.0, 99.0), (100.0, 100.0)] {
            assert!((percentile(&sorted, percent) - expected).abs() < f64::EPSILON);
        }
        assert!((percentile(&[7.0], 99.0) - 7.0).abs() < f64::EPSILON);
    }

    #[test]
    fn bounds_are_kept_in_their_direction() {
        assert!(Direction::AtMost.keeps(1.0, 1.2) && !Direction::AtMost.keeps(1.3, 1.2));
        assert!(Direction::AtLeast.keeps(0.9, 0.8) && !Direction::AtLeast.keeps(0.7, 0.8));
    }
}
