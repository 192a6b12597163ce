//! docs/THREE-HOSTS.md, followed: every block of it is typed where it says, none is left out.

use cell_tests::repeats::Repeats;

use super::replaced;
use super::walk::{Section, Walk, sections};

const PAGE: &str = include_str!("../../docs/THREE-HOSTS.md");
/// The section in which a host is lost for good, and another one takes its place.
const REPLACED: &str = "A host is lost, and replaced";
/// A page that lost most of its blocks would be followed soon.
const BLOCKS_MIN: usize = 40;

#[test]
fn page_is_followed_to_its_end_and_no_client_fails_while_a_host_is_lost_and_replaced() {
    if (Repeats { plain: 1, quick: 0, full: 1, long: 1 }).of_this_run() == 0 {
        println!("SKIPPED: the walk-through of three hosts takes minutes: `tests/run quick` leaves it out");
        return;
    }
    let sections = page();
    let Some(walk) = Walk::start() else { return };
    for section in &sections {
        match section.title == REPLACED {
            true => replaced::under_load(&walk, || walk.follow(section)),
            false => walk.follow(section),
        }
    }
    let fences = PAGE.lines().filter(|line| line.trim_start().starts_with("```")).count();
    let shown = sections.iter().flat_map(|section| &section.blocks).filter(|block| block.prints.is_some());
    assert_eq!(2 * (walk.done() + shown.count()), fences, "a block of the page was left out");
}

#[test]
fn page_says_of_each_block_where_it_is_typed() {
    let sections = page();
    let blocks: usize = sections.iter().map(|section| section.blocks.len()).sum();
    assert!(blocks >= BLOCKS_MIN, "{blocks} blocks");
    let lost = sections.iter().filter(|section| section.title == REPLACED);
    assert_eq!(lost.count(), 1, "the page has a section `{REPLACED}`");
}

fn page() -> Vec<Section> {
    sections(PAGE).unwrap_or_else(|wrong| panic!("docs/THREE-HOSTS.md: {wrong}"))
}
