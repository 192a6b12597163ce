//! Interleaved measuring. Two runs of one program differ by a quarter here even on an idle machine, so
//! contenders take turns in short rounds of the same work, in an order that reverses each round, and medians
//! are compared.

use std::time::{Duration, Instant};

/// A number that has been worked through; keeps the optimiser from dropping the work.
pub type Proof = u64;

/// One who takes part: does round `n` and says how many operations that was, and a proof of the work.
pub struct Contender<'a> {
    /// How notes name it.
    pub name: &'static str,
    /// Does a round.
    pub round: Box<dyn FnMut(usize) -> (u64, Proof) + 'a>,
}

impl<'a> Contender<'a> {
    /// A contender.
    pub fn new(name: &'static str, round: impl FnMut(usize) -> (u64, Proof) + 'a) -> Self {
        Self { name, round: Box::new(round) }
    }
}

/// How one contender did.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Operations per second, one number a round.
    pub rates: Vec<f64>,
    /// All operations over all time: for work that changes as it goes, like filling an empty store.
    pub rate_overall: f64,
    /// Of all rounds; contenders that did the same work agree.
    pub proof: Proof,
}

impl Outcome {
    /// The median round's rate.
    pub fn rate(&self) -> f64 {
        median(&self.rates)
    }
}

/// Lets all contenders do `rounds` rounds, in turns, after `warm_up` rounds that do not count.
pub fn run(contenders: &mut [Contender<'_>], warm_up: usize, rounds: usize) -> Vec<Outcome> {
    run_prepared(contenders, warm_up, rounds, |_| {})
}

/// As [`run`], with work before each round that nobody's clock sees.
#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
pub fn run_prepared(
    contenders: &mut [Contender<'_>],
    warm_up: usize,
    rounds: usize,
    mut prepare: impl FnMut(usize),
) -> Vec<Outcome> {
    let mut tallies = vec![(Vec::new(), Duration::ZERO, 0u64, 0u64); contenders.len()];
    for round in 0..warm_up + rounds {
        prepare(round);
        let mut order: Vec<usize> = (0..contenders.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            let started = Instant::now();
            let (operations, proof) = (contenders[index].round)(round);
            let taken = started.elapsed();
            let tally = &mut tallies[index];
            tally.3 = tally.3.wrapping_add(std::hint::black_box(proof));
            if round >= warm_up {
                tally.0.push(operations as f64 / taken.as_secs_f64());
                tally.1 += taken;
                tally.2 += operations;
            }
        }
    }
    tallies
        .into_iter()
        .map(|(rates, taken, operations, proof)| Outcome {
            rates,
            rate_overall: operations as f64 / taken.as_secs_f64(),
            proof,
        })
        .collect()
}

/// The middle number, or the mean of the middle two; NaN of none.
pub fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_odd_even_none_is_the_middle() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn run_two_contenders_take_turns_in_changing_order() {
        let turns = std::cell::RefCell::new(Vec::new());
        let mut contenders = [
            Contender::new("a", |round| {
                turns.borrow_mut().push(('a', round));
                (1, 1)
            }),
            Contender::new("b", |round| {
                turns.borrow_mut().push(('b', round));
                (1, 1)
            }),
        ];
        let outcomes = run(&mut contenders, 1, 2);
        drop(contenders);
        assert_eq!(turns.into_inner(), [('a', 0), ('b', 0), ('b', 1), ('a', 1), ('a', 2), ('b', 2)]);
        assert!(outcomes.iter().all(|outcome| outcome.rates.len() == 2 && outcome.proof == 3));
    }
}
