//! A decoder like those of simple AMQP libraries: it recurses, allocates as many items as a message claims,
//! and has no limits. It panics where such a library would run out of stack or memory, or where a strict
//! library would refuse a key or an application property.

use ephor_amqp::check::MAX_EMPTY_ELEMENTS;
use ephor_amqp::decode::MAX_NESTING;

/// The maximum depth of nested values, including the section around them and the halves of described values.
const MAX_DEPTH: usize = MAX_NESTING + 4;

/// Decodes all sections of a message.
pub(super) fn read_message(message: &[u8]) {
    let mut reader = Naive { rest: message, empty: 0 };
    while !reader.rest.is_empty() {
        assert_eq!(reader.rest[0], 0, "a section is described");
        let section = reader.rest;
        reader.value(0);
        if let [0x00, 0x53, descriptor @ (0x71 | 0x72 | 0x74 | 0x78), ..] = section {
            read_pairs(&section[3..], *descriptor == 0x74);
        }
    }
    assert!(reader.empty <= MAX_EMPTY_ELEMENTS, "room for {} elements without bytes", reader.empty);
}

/// Reads the keys and values of a map, whose types depend on the section.
fn read_pairs(map: &[u8], application_properties: bool) {
    let mut reader = Naive { rest: map, empty: 0 };
    let narrow = reader.byte() == 0xc1;
    let (_size, count) = (reader.number(narrow), reader.number(narrow));
    for _ in 0..count / 2 {
        match reader.rest[0] {
            0xa1 | 0xb1 if application_properties => {}
            0xa3 | 0xb3 | 0x44 | 0x53 | 0x80 if !application_properties => {}
            code => panic!("a key with the format code {code:02x}"),
        }
        reader.value(0);
        let simple = !matches!(reader.rest[0], 0x45 | 0xc0..=0xff);
        assert!(simple || !application_properties, "an application property that is not simple");
        reader.value(0);
    }
}

struct Naive<'a> {
    rest: &'a [u8],
    /// The number of elements of arrays that took no bytes.
    empty: usize,
}

impl Naive<'_> {
    fn byte(&mut self) -> u8 {
        let (byte, rest) = self.rest.split_first().expect("a byte");
        self.rest = rest;
        *byte
    }

    /// A size or a count of one byte or of four.
    fn number(&mut self, narrow: bool) -> usize {
        if narrow {
            self.byte().into()
        } else {
            (0..4).fold(0, |number, _| number << 8 | usize::from(self.byte()))
        }
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = &self.rest[bytes..];
    }

    fn value(&mut self, depth: usize) {
        let code = self.byte();
        self.of_code(code, depth);
    }

    fn of_code(&mut self, code: u8, depth: usize) {
        assert!(depth <= MAX_DEPTH, "the nesting is within its limit");
        match code {
            0x00 => {
                assert!(is_descriptor(self.rest[0]), "not a descriptor");
                self.value(depth + 1);
                self.value(depth + 1);
            }
            0x40..=0x45 => {}
            0x50..=0x56 => self.skip(1),
            0x60 | 0x61 => self.skip(2),
            0x70..=0x74 => self.skip(4),
            0x80..=0x84 => self.skip(8),
            0x94 | 0x98 => self.skip(16),
            0xa0 | 0xa1 | 0xa3 | 0xb0 | 0xb1 | 0xb3 => {
                let length = self.number(code < 0xb0);
                self.skip(length);
            }
            0xc0 | 0xc1 | 0xd0 | 0xd1 => {
                let narrow = code < 0xd0;
                let (_size, count) = (self.number(narrow), self.number(narrow));
                assert!(count <= self.rest.len(), "{count} items do not fit into the bytes");
                (0..count).for_each(|_| self.value(depth + 1));
            }
            0xe0 | 0xf0 => self.array(code == 0xe0, depth),
            _ => panic!("unknown format code {code:02x}"),
        }
    }

    fn array(&mut self, narrow: bool, depth: usize) {
        let (size, count) = (self.number(narrow), self.number(narrow));
        if count == 0 {
            // Some libraries write no constructor for an empty array.
            return self.skip(size - if narrow { 1 } else { 4 });
        }
        assert!(count <= self.rest.len() + MAX_EMPTY_ELEMENTS, "{count} elements do not fit into the bytes");
        let mut depth = depth + 1;
        let mut element = self.byte();
        while element == 0x00 {
            assert!(is_descriptor(self.rest[0]), "not a descriptor");
            self.value(depth);
            depth += 1;
            element = self.byte();
        }
        if matches!(element, 0x40..=0x45) {
            self.empty += count;
        }
        (0..count).for_each(|_| self.of_code(element, depth));
    }
}

/// True for the codes of integers and text: the service delivers descriptors of these types.
fn is_descriptor(code: u8) -> bool {
    matches!(
        code,
        0x43 | 0x44 | 0x50..=0x55 | 0x60 | 0x61 | 0x70 | 0x71 | 0x80 | 0x81 | 0xa1 | 0xa3 | 0xb1 | 0xb3
    )
}
