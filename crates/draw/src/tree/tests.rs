//! The published vectors, and the tree beside the recursive definition of RFC 6962.

use super::*;
use crate::spelling::{from_hex, to_hex};

/// The inputs of the test vectors that the reference implementation of RFC 6962 publishes
/// (transparency-dev/merkle, `testonly/constants.go`), and the roots of their first 1 to 8.
const INPUTS: [&[u8]; 8] = [
    b"",
    b"\x00",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    b"\x50\x51\x52\x53\x54\x55\x56\x57",
    b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
];
const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

fn hash_leaf(data: &[u8]) -> Hash {
    Sha256::digest([&[0], data].concat()).into()
}

/// `MTH` of RFC 6962, section 2.1, word by word.
fn root_of(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Sha256::digest(b"").into(),
        [leaf] => *leaf,
        _ => {
            let split = leaves.len().next_power_of_two() / 2;
            node(&root_of(&leaves[..split]), &root_of(&leaves[split..]))
        }
    }
}

/// `PATH` of RFC 6962, section 2.1.1, word by word.
fn path_of(index: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() == 1 {
        return Vec::new();
    }
    let split = leaves.len().next_power_of_two() / 2;
    let (left, right) = leaves.split_at(split);
    let (mut path, other) = if index < split {
        (path_of(index, left), root_of(right))
    } else {
        (path_of(index - split, right), root_of(left))
    };
    path.push(other);
    path
}

#[test]
fn the_published_vectors() {
    assert_eq!(to_hex(&root_of(&[])), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    let leaves: Vec<Hash> = INPUTS.iter().map(|input| hash_leaf(input)).collect();
    for (at, root) in ROOTS.iter().enumerate() {
        assert_eq!(to_hex(&root_of(&leaves[..=at])), *root, "{} leaves", at + 1);
        let mut level = leaves[..=at].to_vec();
        while level.len() > 1 {
            climb(&mut level);
        }
        assert_eq!(to_hex(&level[0]), *root, "{} leaves, level by level", at + 1);
    }
    // A path that the same file publishes: leaf 5 of 8.
    let path = [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ];
    let path = path.map(|hash| from_hex(hash).expect("hex"));
    assert_eq!(path_of(5, &leaves), path);
    let root = from_hex(ROOTS[7]).expect("hex");
    assert!(path_leads(leaves[5], 5, &path, 8, &root));
    assert!(!path_leads(leaves[5], 4, &path, 8, &root) && !path_leads(leaves[5], 5, &path[..2], 8, &root));
}

#[test]
fn roots_and_paths_are_those_of_the_definition() {
    for count in (0..40).chain([255, 256, 257, 511, 512, 513, 770, 1_024, 1_025, 2_999]) {
        let places: Places = (0..count).map(|place| place % 5 != 3).collect();
        let leaves: Vec<Hash> = (0..count).map(|place| leaf(place, place % 5 != 3)).collect();
        let (tree, root) = (Tree::new(&places), root_of(&leaves));
        assert_eq!(tree.root(), root, "{count} places");
        for place in 0..count {
            let path = tree.path(place).expect("the place exists");
            assert_eq!(path, path_of(place as usize, &leaves), "place {place} of {count}");
            assert!(check_path(place, place % 5 != 3, &path, count, &root));
            assert!(!check_path(place, place % 5 == 3, &path, count, &root));
        }
        assert_eq!(tree.path(count), None);
    }
}

#[test]
fn a_path_that_was_changed_leads_elsewhere() {
    let places: Places = (0..777).map(|place| place % 2 == 0).collect();
    let tree = Tree::new(&places);
    let (root, path) = (tree.root(), tree.path(300).expect("the place exists"));
    assert!(check_path(300, true, &path, 777, &root));
    for at in 0..path.len() {
        let mut changed = path.clone();
        changed[at][at] ^= 1;
        assert!(!check_path(300, true, &changed, 777, &root), "hash {at}");
        changed.remove(at);
        assert!(!check_path(300, true, &changed, 777, &root), "without hash {at}");
    }
    let longer = [path.as_slice(), &[[0; 32]]].concat();
    assert!(!check_path(300, true, &longer, 777, &root));
    assert!(!check_path(302, true, &path, 777, &root) && !check_path(300, true, &path, 300, &root));
}
