//! Tests of the partition hash against known values, and of keys that are too long.

use super::*;

const COUNTS: [u32; 6] = [2, 3, 4, 5, 8, 32];

/// Keys, their hashes, and their partitions for each of [`COUNTS`], as the service's own clients
/// compute them.
const VECTORS: [(&str, i16, [u32; 6]); 36] = [
    ("7", -15263, [1, 2, 3, 3, 7, 31]),
    ("131", 30562, [0, 1, 2, 2, 2, 2]),
    ("7149583486996073602", 12977, [1, 2, 1, 2, 1, 17]),
    ("FWfAT", -22341, [1, 0, 1, 1, 5, 5]),
    ("sOdeEAsyQoEuEFPGerWO", -6503, [1, 2, 3, 3, 7, 7]),
    ("!c*_!I@1^c", 15372, [0, 0, 0, 2, 4, 12]),
    ("p4*!jioeO/z-!-;w:dh", -3104, [0, 2, 0, 4, 0, 0]),
    ("$0cb", 26269, [1, 1, 1, 4, 5, 29]),
    ("-4189260826195535198", 453, [1, 0, 1, 3, 5, 5]),
    ("a", -16220, [0, 2, 0, 0, 4, 28]),
    ("ab", 2093, [1, 2, 1, 3, 5, 13]),
    ("abc", -14161, [1, 1, 1, 1, 1, 17]),
    ("abcd", 23398, [0, 1, 2, 3, 6, 6]),
    ("abcde", 27137, [1, 2, 1, 2, 1, 1]),
    ("abcdef", 28810, [0, 1, 2, 0, 2, 10]),
    ("abcdefg", -14024, [0, 2, 0, 4, 0, 8]),
    ("abcdefgh", 22170, [0, 0, 2, 0, 2, 26]),
    ("abcdefghi", -2485, [1, 1, 1, 0, 5, 21]),
    ("abcdefghij", -5137, [1, 1, 1, 2, 1, 17]),
    ("abcdefghijk", -2676, [0, 0, 0, 1, 4, 20]),
    ("abcdefghijkl", -2373, [1, 0, 1, 3, 5, 5]),
    ("abcdefghijklm", -31855, [1, 1, 3, 0, 7, 15]),
    ("device-1", 26788, [0, 1, 0, 3, 4, 4]),
    ("device-2", 12622, [0, 1, 2, 2, 6, 14]),
    ("device-42", -21548, [0, 2, 0, 3, 4, 12]),
    ("pk1", 13741, [1, 1, 1, 1, 5, 13]),
    ("partition-key", -15301, [1, 1, 1, 1, 5, 5]),
    ("0", 28433, [1, 2, 1, 3, 1, 17]),
    ("1", 3270, [0, 0, 2, 0, 6, 6]),
    ("order:12345", -9891, [1, 0, 3, 1, 3, 3]),
    ("The quick brown fox jumps over the lazy dog", -31937, [1, 2, 1, 2, 1, 1]),
    ("000000000000000000000000", -31706, [0, 2, 2, 1, 2, 26]),
    ("é", -24812, [0, 2, 0, 2, 4, 12]),
    ("日本語キー", 13593, [1, 0, 1, 3, 1, 25]),
    ("naïve-key-ü", -719, [1, 2, 3, 4, 7, 15]),
    ("😀", -17126, [0, 2, 2, 1, 6, 6]),
];

#[test]
fn a_key_hashes_and_chooses_as_the_service_does() {
    for (key, expected, chosen) in VECTORS {
        assert_eq!(hash(key), expected, "{key}");
        assert_eq!(COUNTS.map(|count| partition_for(key, count).0), chosen, "{key}");
    }
}

#[test]
fn the_longest_keys_hash_as_computed_elsewhere() {
    assert_eq!(hash(&"abcdefghijklmnopqrstuvwxyz".repeat(5)[..127]), 26272);
    assert_eq!(hash(&"äöü".repeat(42)), -9483);
}

#[test]
fn the_lowest_hash_has_a_partition_too() {
    assert_eq!(hash("key-19345"), i16::MIN);
    assert_eq!(partition_for("key-19345", 5), PartitionId(32_768 % 5));
}

#[test]
fn the_empty_key_and_a_hub_without_partitions_choose_the_first() {
    assert_eq!(hash(""), 0);
    assert_eq!(partition_for("", 32), PartitionId(0));
    assert_eq!(partition_for("7", 0), PartitionId(0));
    assert_eq!(partition_for("7", 1), PartitionId(0));
    assert_eq!(partition_for("7", u32::MAX), PartitionId(15_263));
}

#[test]
fn a_key_of_128_characters_passes_and_a_longer_one_is_refused_without_being_quoted_whole() {
    assert_eq!(check(""), Ok(()));
    assert_eq!(check(&"é".repeat(MAX_KEY_CHARACTERS)), Ok(()));
    let error = check(&"é".repeat(129)).unwrap_err();
    let quoted = "é".repeat(80);
    assert_eq!(
        error.to_string(),
        format!("partition key \"{quoted}\"… has 129 characters; at most 128 are allowed")
    );
}
