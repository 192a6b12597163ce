//! Which cores of a machine which of its processes may use.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::exit::Failure;

/// Cores of its own for each of so many processes, of those that this one may use, in their order.
pub(crate) fn share_out(processes: u16) -> anyhow::Result<Vec<Vec<usize>>> {
    let set = sched_getaffinity(None).context("cannot find out which cores there are")?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect();
    Ok(shares(&cores, processes)?)
}

/// All cores, each to one process; no process has two more than another.
fn shares(cores: &[usize], processes: u16) -> Result<Vec<Vec<usize>>, Failure> {
    let (all, count) = (usize::from(processes), cores.len());
    if all > count {
        let what = format!("--pin-cores cannot give {all} processes cores of their own: there are {count}");
        return Err(Failure::usage(what).next("leave --pin-cores out, or start fewer processes"));
    }
    let share = |place: usize| cores.get(count * place / all..count * (place + 1) / all);
    Ok((0..all).map(|place| share(place).unwrap_or_default().to_vec()).collect())
}

/// The argument of `cell node` that binds it to these cores.
pub(crate) fn argument(cores: &[usize]) -> String {
    let cores: Vec<String> = cores.iter().map(usize::to_string).collect();
    format!("--cores={}", cores.join(","))
}

/// Binds this process, and the threads that it will have, to these cores; without any, to none.
pub(crate) fn pin(cores: &[usize]) -> anyhow::Result<()> {
    if cores.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    for core in cores {
        if *core >= CpuSet::MAX_CPU {
            return Err(Failure::usage(format!("there is no core {core}")).into());
        }
        set.set(*core);
    }
    sched_setaffinity(None, &set).context("cannot bind the process to its cores")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_apart_and_have_all_cores() {
        for (cores, processes) in [(2, 2), (8, 3), (64, 64), (5, 1)] {
            let cores: Vec<usize> = (0..cores).map(|core| 2 * core + 1).collect();
            let shares = shares(&cores, processes).unwrap();
            assert_eq!(shares.len(), usize::from(processes));
            assert_eq!(shares.concat(), cores);
            let lengths = || shares.iter().map(Vec::len);
            assert!(lengths().min().unwrap() > 0 && lengths().max().unwrap() - lengths().min().unwrap() <= 1);
        }
        let refused = shares(&[0, 1], 3).unwrap_err();
        assert!(refused.what.contains("3 processes cores of their own: there are 2"), "{refused}");
    }

    #[test]
    fn argument_names_each_core() {
        assert_eq!((argument(&[4]), argument(&[0, 2, 3])), ("--cores=4".into(), "--cores=0,2,3".into()));
    }
}
