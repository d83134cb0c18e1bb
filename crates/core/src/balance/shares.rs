//! Computes the number of partitions that each host should have.

use std::cmp::Reverse;

use super::{Member, tie_breaker};

/// Divides `partitions` among the members that take part, as evenly as their maxima allow.
///
/// Each member gets the same number, or its maximum if that is less. The remainder goes to the
/// members that already hold more, which makes the number of moves the smallest possible.
pub fn shares(members: &[Member], held: &[u32], partitions: usize) -> Vec<u32> {
    let limit = |member: &Member| {
        let max = u32::try_from(partitions).unwrap_or(u32::MAX);
        if member.takes_part { member.max.unwrap_or(max).min(max) } else { 0 }
    };
    let filled = |level: u32| members.iter().map(|member| limit(member).min(level) as usize).sum::<usize>();

    // The highest level to which all can be filled, by binary search: the sum grows with the level.
    let (mut low, mut high) = (0, u32::try_from(partitions).unwrap_or(u32::MAX));
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if filled(middle) <= partitions {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    let mut shares: Vec<u32> = members.iter().map(|member| limit(member).min(low)).collect();
    let left = partitions - filled(low);
    let mut open: Vec<usize> = (0..members.len()).filter(|&i| limit(&members[i]) > low).collect();
    open.sort_by_cached_key(|&i| (Reverse(held[i]), tie_breaker(&members[i].id), i));
    for &i in open.iter().take(left) {
        shares[i] += 1;
    }
    shares
}
