//! Checks that bytes are exactly one well-formed AMQP value, including the values that are nested in it.
//!
//! [`Reader::skip`] trusts the size of a compound value; this checks its items. It keeps its own stack, of a
//! fixed size, and its time depends on the number of bytes only, never on what they claim.

use crate::decode::{MAX_NESTING, Malformed, Reader};
use crate::format_codes::{self as code, Width};

/// The most elements that take no bytes, such as the nulls of an array, in one message: readers allocate room
/// for each of them.
pub const MAX_EMPTY_ELEMENTS: usize = 1_024;

/// The error of a value that has more of them.
pub const TOO_MANY_EMPTY: &str = "more than 1,024 elements that take no bytes in one message";

/// The number of elements without bytes that are still allowed: one for everything that readers decode
/// together, however many arrays it has.
#[derive(Clone, Copy, Debug)]
pub struct EmptyElements {
    left: usize,
}

impl Default for EmptyElements {
    fn default() -> Self {
        Self { left: MAX_EMPTY_ELEMENTS }
    }
}

impl EmptyElements {
    fn take(&mut self, count: usize, at: usize) -> Result<(), Malformed> {
        self.left = self.left.checked_sub(count).ok_or(Malformed::new(at, TOO_MANY_EMPTY))?;
        Ok(())
    }
}

/// A compound value that has been entered.
#[derive(Clone, Copy)]
struct Frame {
    end: usize,
    /// The number of items still to come.
    left: usize,
    /// Values still to come of the current item: a described item is two values in a row.
    pending: usize,
    /// The format code that all elements of an array share.
    element: Option<u8>,
    /// The depth of nesting: compound values and described values around it.
    inside: usize,
    /// The number of nested described values that the current item consists of.
    described: usize,
}

/// Checks that `bytes` are one well-formed value, nested at most [`MAX_NESTING`] deep, and nothing else.
pub fn check(bytes: &[u8]) -> Result<(), Malformed> {
    check_within(bytes, &mut EmptyElements::default())
}

/// The same for a value that is a part of a message, whose values share `empty`.
pub fn check_within(bytes: &[u8], empty: &mut EmptyElements) -> Result<(), Malformed> {
    let whole = Frame { end: bytes.len(), left: 1, pending: 0, element: None, inside: 0, described: 0 };
    let mut frames = [whole; MAX_NESTING + 1];
    let (mut depth, mut at) = (0, 0);
    loop {
        let frame = &mut frames[depth];
        if frame.left == 0 && frame.pending == 0 {
            if at != frame.end {
                return Err(Malformed::new(at, "bytes after the last item"));
            }
            if depth == 0 {
                return Ok(());
            }
            depth -= 1;
            continue;
        }
        if frame.pending == 0 {
            frame.left -= 1;
            frame.pending = 1;
            frame.described = 0;
        }
        let mut reader = Reader::starting(&bytes[..frame.end], at);
        let code = match frame.element {
            Some(code) => code,
            None => reader.byte()?,
        };
        let entered = match code {
            // The same depth as [`Reader::skip`]. The value of a described value may be described as well,
            // and readers that recurse do so for both.
            code::DESCRIBED if frame.inside + frame.described + 1 >= MAX_NESTING => {
                return Err(Malformed::new(at, "descriptors nested too deeply"));
            }
            code::DESCRIBED if reader.peek().is_some_and(|code| !is_descriptor(code)) => {
                return Err(Malformed::new(reader.at(), "a descriptor that is neither a number nor a name"));
            }
            code::DESCRIBED => {
                frame.pending += 2;
                frame.described += 1;
                None
            }
            code::LIST_8 | code::LIST_32 | code::MAP_8 | code::MAP_32 | code::ARRAY_8 | code::ARRAY_32 => {
                let inside = frame.inside + frame.described + 1;
                if inside > MAX_NESTING {
                    return Err(Malformed::new(at, "nested too deeply"));
                }
                Some(enter(&mut reader, code, at, inside, empty)?)
            }
            _ => {
                reader.primitive(code, at)?;
                None
            }
        };
        frame.pending -= 1;
        at = reader.at();
        if let Some(inner) = entered {
            depth += 1;
            *frames.get_mut(depth).ok_or(Malformed::new(at, "nested too deeply"))? = inner;
        }
    }
}

/// True for integers and text. The specification uses ulong and symbol, and reserves the other types (part 1, section 1.2).
/// The service delivers integers of other types as well: a live test of the Python SDK sends one (LIVE). Nothing else is
/// known to be used, and readers that look descriptors up in a table fail at a list or a map.
fn is_descriptor(code: u8) -> bool {
    let ulong_or_symbol =
        matches!(code, code::ULONG_0 | code::SMALL_ULONG | code::ULONG | code::SYMBOL_8 | code::SYMBOL_32);
    let unsigned = matches!(code, code::UBYTE | code::USHORT | code::UINT_0 | code::SMALL_UINT | code::UINT);
    let signed = matches!(
        code,
        code::BYTE | code::SHORT | code::SMALL_INT | code::INT | code::SMALL_LONG | code::LONG
    );
    ulong_or_symbol || unsigned || signed || matches!(code, code::STRING_8 | code::STRING_32)
}

/// Reads the size and count of a compound value, up to its first item.
fn enter(
    reader: &mut Reader<'_>,
    code: u8,
    at: usize,
    inside: usize,
    empty: &mut EmptyElements,
) -> Result<Frame, Malformed> {
    let narrow = matches!(code, code::LIST_8 | code::MAP_8 | code::ARRAY_8);
    let end = reader.clone().data(code)?.end;
    let (_size, left) = match narrow {
        true => (reader.byte()?.into(), reader.byte()?.into()),
        false => (reader.four()?, reader.four()?),
    };
    let mut frame = Frame { end, left, pending: 0, element: None, inside, described: 0 };
    match code {
        code::ARRAY_8 | code::ARRAY_32 => enter_array(reader, &mut frame, empty)?,
        code::MAP_8 | code::MAP_32 if left % 2 != 0 => {
            return Err(Malformed::new(at, "a key without a value"));
        }
        _ => {}
    }
    if frame.left > end.saturating_sub(reader.at()) {
        return Err(Malformed::new(at, "more items than bytes"));
    }
    Ok(frame)
}

/// Reads the constructor that all elements share.
fn enter_array(
    reader: &mut Reader<'_>,
    frame: &mut Frame,
    empty: &mut EmptyElements,
) -> Result<(), Malformed> {
    if frame.left == 0 && reader.at() == frame.end {
        // An empty array can be decoded without a constructor, and some peers write none.
        return Ok(());
    }
    let mut element = reader.byte()?;
    while element == code::DESCRIBED {
        frame.inside += 1;
        if frame.inside >= MAX_NESTING {
            return Err(Malformed::new(reader.at() - 1, "descriptors nested too deeply"));
        }
        let descriptor = reader.byte()?;
        if !is_descriptor(descriptor) {
            return Err(Malformed::new(
                reader.at() - 1,
                "an array whose descriptor is neither a number nor a name",
            ));
        }
        let at = reader.at() - 1;
        reader.primitive(descriptor, at)?;
        element = reader.byte()?;
    }
    match Width::of(element) {
        None => return Err(Malformed::new(reader.at() - 1, "unknown format code")),
        // Four billion elements may fit in no bytes at all, and there are no bytes to check.
        Some(Width::Fixed(0)) => {
            empty.take(frame.left, reader.at() - 1)?;
            frame.left = 0;
        }
        Some(_) => frame.element = Some(element),
    }
    Ok(())
}
