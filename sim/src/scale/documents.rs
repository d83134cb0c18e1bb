//! Writes the tables of `docs/scale.md` and its picture from the output of `ephor-sim scale`.

use std::fs;
use std::path::Path;

use super::Scale;

/// The line before the tables.
pub const BEGIN: &str = "<!-- written by `ephor-sim scale --write docs`: begin -->";
/// The line after the tables.
pub const END: &str = "<!-- written by `ephor-sim scale --write docs`: end -->";

const PAGE: &str = "scale.md";
const PICTURE: &str = "pictures/scale.svg";

/// Returns an error about an unsuitable folder, before minutes are spent on measuring.
pub(super) fn ensure_writable(folder: &Path) -> Result<(), String> {
    let page = read(&folder.join(PAGE))?;
    replaced(&page, "").map(drop).map_err(|error| format!("{}: {error}", folder.join(PAGE).display()))
}

/// Writes tables and picture into a folder of documents.
pub(super) fn write(folder: &Path, scale: &Scale) -> Result<(), String> {
    let path = folder.join(PAGE);
    let page = replaced(&read(&path)?, &scale.to_string())?;
    save(&path, &page)?;
    save(&folder.join(PICTURE), &scale.svg())
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| {
        format!("cannot read {}: {error}; name the folder that holds scale.md, usually docs", path.display())
    })
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The page with its tables replaced.
fn replaced(page: &str, tables: &str) -> Result<String, String> {
    let missing =
        |line: &str| format!("the line {line:?} is missing; put it back where the tables should be");
    let (before, rest) = page.split_once(BEGIN).ok_or_else(|| missing(BEGIN))?;
    let (_, after) = rest.split_once(END).ok_or_else(|| missing(END))?;
    Ok(format!("{before}{BEGIN}\n\n{tables}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let page = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let expected = format!("before\n{BEGIN}\n\n| new |\n\n{END}\nafter\n");
        assert_eq!(replaced(&page, "| new |\n"), Ok(expected));
        assert!(replaced("no marks", "").is_err_and(|error| error.contains("is missing")));
        let unended = replaced(&format!("{BEGIN}\n"), "");
        assert!(unended.is_err_and(|error| error.contains("end -->")));
    }
}
