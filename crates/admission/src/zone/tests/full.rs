//! Zones in which nobody more may be inside.

use super::*;

/// When the people of a line are told to ask again, in milliseconds, while `max_active` are inside.
fn told_while_full(max_active: u32) -> Vec<u32> {
    let mut zone = Zone::new(Policy { max_active, ..policy(600) }, EPOCH, at(0));
    let verdicts = zone.join(max_active + 20, at(0)).verdicts;
    verdicts.iter().filter(|verdict| !is_in(verdict)).map(|verdict| position(verdict).poll_in_ms).collect()
}

#[test]
fn only_those_ask_often_who_can_be_next() {
    let (alone, few) = (told_while_full(1), told_while_full(5));
    assert_eq!((alone[..2].to_vec(), alone[2..].to_vec()), (vec![500; 2], vec![3_000; 18]));
    assert_eq!((few[..10].to_vec(), few[10..].to_vec()), (vec![500; 10], vec![3_000; 10]));
    assert_eq!(told_while_full(100)[..16], [500; 16]);
}
