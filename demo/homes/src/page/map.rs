//! Draws the map of the city: a block for each neighbourhood, streets, and a river. It never changes while
//! the demo runs.

use std::fmt::Write as _;

use maud::{Markup, html};

use super::page_content::Shown;

/// The longest side, in blocks: as many as make the plan about square.
fn side(blocks: usize) -> usize {
    (1..).find(|side| side * side >= blocks).unwrap_or(1)
}

const SIZE: f64 = 1_000.0;
const EDGE: f64 = 16.0;
const STREET: f64 = 5.0;
const RIVER: f64 = 19.0;

#[derive(Clone, Copy)]
struct Point {
    x: f64,
    y: f64,
}

impl Point {
    /// The point between two, `share` of the way.
    fn towards(self, other: Self, share: f64) -> Self {
        Self { x: self.x + (other.x - self.x) * share, y: self.y + (other.y - self.y) * share }
    }
}

/// A number from -1 to 1 that is always the same for the same place.
fn chance(column: usize, row: usize, salt: u64) -> f64 {
    let mut mixed =
        (column as u64 * 0x9e37_79b9) ^ (row as u64 * 0x85eb_ca6b) ^ salt.wrapping_mul(0xc2b2_ae35);
    mixed = (mixed ^ (mixed >> 15)).wrapping_mul(0x2c1b_3c6d_2c1b_3c6d);
    mixed = (mixed ^ (mixed >> 31)).wrapping_mul(0x297a_2d39_297a_2d39);
    ((mixed >> 40) % 2_001) as f64 / 1_000.0 - 1.0
}

struct Plan {
    side: usize,
    river: usize,
}

impl Plan {
    /// A crossing of two streets.
    fn crossing(&self, column: usize, row: usize) -> Point {
        let step = (SIZE - 2.0 * EDGE) / self.side as f64;
        let inside = |at: usize| at > 0 && at < self.side;
        let bend = (row as f64 * 0.75).sin() * step * 0.34;
        let x = EDGE + column as f64 * step;
        let y = EDGE + row as f64 * step;
        Point {
            x: x + if inside(column) { chance(column, row, 1) * step * 0.1 + bend } else { 0.0 },
            y: y + if inside(row) { chance(column, row, 2) * step * 0.12 } else { 0.0 },
        }
    }

    /// The corners of a block, clockwise, with the streets left out.
    fn block(&self, column: usize, row: usize) -> [Point; 4] {
        let left = if column == self.river { RIVER } else { STREET };
        let right = if column + 1 == self.river { RIVER } else { STREET };
        let corner = |column: usize, row: usize, x: f64, y: f64| {
            let point = self.crossing(column, row);
            Point { x: point.x + x, y: point.y + y }
        };
        [
            corner(column, row, left, STREET),
            corner(column + 1, row, -right, STREET),
            corner(column + 1, row + 1, -right, -STREET),
            corner(column, row + 1, left, -STREET),
        ]
    }

    /// The alleys that divide a block into lots.
    fn lots(&self, column: usize, row: usize) -> String {
        let mut path = String::new();
        let [a, b, c, d] = self.block(column, row);
        let across = 0.5 + chance(column, row, 3) * 0.16;
        let down = 0.5 + chance(column, row, 4) * 0.16;
        let (from, to) = (a.towards(b, across), d.towards(c, across));
        line(&mut path, from, to);
        let side = if chance(column, row, 5) > 0.0 { (a, d) } else { (b, c) };
        line(&mut path, side.0.towards(side.1, down), from.towards(to, down));
        path
    }

    fn river(&self) -> String {
        let mut path = String::new();
        let points: Vec<Point> = (0..=self.side).map(|row| self.crossing(self.river, row)).collect();
        for (at, point) in points.iter().enumerate() {
            let _ = match at {
                0 => write!(path, "M{:.0} -20L{:.0} {:.0}", point.x, point.x, point.y),
                _ => write!(path, "L{:.0} {:.0}", point.x, point.y),
            };
        }
        if let Some(end) = points.last() {
            let _ = write!(path, "L{:.0} 1020", end.x);
        }
        path
    }

    fn bridges(&self) -> String {
        let mut path = String::new();
        for row in [self.side / 5, self.side / 2, self.side * 4 / 5] {
            let middle = self.crossing(self.river, row.max(1));
            let bank = |x: f64| Point { x: middle.x + x, y: middle.y };
            line(&mut path, bank(-RIVER - 2.0), bank(RIVER + 2.0));
        }
        path
    }
}

fn line(path: &mut String, from: Point, to: Point) {
    // Writing to a String does not fail.
    let _ = write!(path, "M{:.1} {:.1}L{:.1} {:.1}", from.x, from.y, to.x, to.y);
}

/// The id of a block's element.
pub(super) fn block_id(neighbourhood: usize) -> String {
    format!("block-{neighbourhood}")
}

/// The plan. What each block shows is in `shown`, by its id.
pub(super) fn plan(shown: &Shown, blocks: usize) -> Markup {
    let plan = Plan { side: side(blocks), river: side(blocks) * 3 / 5 };
    let place = |block: usize| (block % plan.side, block / plan.side);
    html! {
        svg.map viewBox="0 0 1000 1000" role="group" aria-label="The neighbourhoods; arrow keys move between them"
            data-side=(plan.side) {
            defs {
                g #mark-alarm { path.plate d="M0 -15L15 12H-15Z" {} path.sign d="M0 -6V4M0 7.4V8.6" {} }
                g #mark-silent { circle.plate r="9" {} path.sign d="M-6 6L6 -6" {} }
            }
            path.river d=(plan.river()) {}
            path.bridges d=(plan.bridges()) {}
            @for block in 0..blocks {
                @let (column, row) = place(block);
                (one_block(shown, block, plan.block(column, row), &plan.lots(column, row)))
            }
        }
    }
}

fn one_block(shown: &Shown, block: usize, corners: [Point; 4], lots: &str) -> Markup {
    let id = block_id(block);
    let points: Vec<String> = corners.iter().map(|point| format!("{:.1},{:.1}", point.x, point.y)).collect();
    let middle = corners[0].towards(corners[2], 0.5).towards(corners[1].towards(corners[3], 0.5), 0.5);
    let at = |x: f64, y: f64| format!("translate({:.0} {:.0})", middle.x + x, middle.y + y);
    let attribute = |name: &str| shown.attribute(&id, name);
    html! {
        a.block id=(id) href=[attribute("href")] data-level=[attribute("data-level")]
            data-marks=[attribute("data-marks")] aria-label=[attribute("aria-label")]
            tabindex=(if block == 0 { "0" } else { "-1" }) {
            polygon points=(points.join(" ")) {}
            path.lots d=(lots) {}
            g.alarm transform=(at(0.0, -6.0)) { use href="#mark-alarm" {} }
            g.silent transform=(at(-14.0, 24.0)) {
                use href="#mark-silent" {}
                text x="14" y="6" id=(format!("{id}-silent")) { (shown.text(&format!("{id}-silent"))) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_square_enough_and_has_all_blocks() {
        assert_eq!([0, 1, 2, 99, 100, 101].map(side), [1, 1, 2, 10, 10, 11]);
        let text = plan(&Shown::default(), 100).into_string();
        assert_eq!(text.matches("<polygon").count(), 100);
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        assert_eq!(plan(&Shown::default(), 0).into_string().matches("<polygon").count(), 0);
    }

    #[test]
    fn blocks_lie_beside_each_other() {
        let plan = Plan { side: 10, river: 6 };
        for row in 0..10 {
            for column in 0..9 {
                let (left, right) = (plan.block(column, row), plan.block(column + 1, row));
                assert!(left[1].x < right[0].x && left[2].x < right[3].x, "{column} {row}");
                assert!(left[0].x + 40.0 < left[1].x && left[0].y + 40.0 < left[3].y, "{column} {row}");
            }
        }
    }
}
