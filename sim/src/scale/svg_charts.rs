//! Draws the picture of `docs/scale.md`: four charts, as SVG, with a light or dark background as the
//! reader's screen has.

use std::fmt::Write;

use super::Scale;
use super::fleet_changes::{Change, Size, grouped};
use super::real_hosts::Whole;

const WIDTH: f64 = 940.0;
const HEIGHT: f64 = 790.0;
/// The drawing area of a panel.
const PLOT: (f64, f64) = (370.0, 220.0);

const STYLE: &str = "
  svg { --paper: #ffffff; --ink: #1f2328; --faint: #6e7781; --grid: #d8dee4;
        --c0: #1f2328; --c1: #0969da; --c2: #8250df; --c3: #1a7f37; --c4: #0a8f8f; --c5: #9a6700; --c6: #cf222e; --c7: #bf3989;
        font-family: system-ui, -apple-system, 'Segoe UI', sans-serif; font-size: 12px; }
  @media (prefers-color-scheme: dark) {
    svg { --paper: #0d1117; --ink: #e6edf3; --faint: #9198a1; --grid: #30363d;
          --c0: #e6edf3; --c1: #58a6ff; --c2: #bc8cff; --c3: #3fb950; --c4: #39c5cf; --c5: #d29922; --c6: #ff7b72; --c7: #f778ba; }
  }
  .paper { fill: var(--paper); } text { fill: var(--ink); } .faint { fill: var(--faint); }
  .title { font-size: 14px; font-weight: 600; } .grid { stroke: var(--grid); stroke-width: 1; }
  .line { fill: none; stroke-width: 2; } .dashed { stroke-dasharray: 6 4; }
";

/// A line of a panel: its kind, true if it is of fleets that only decide, and its points.
struct Series {
    kind: usize,
    dashed: bool,
    points: Vec<(Size, f64)>,
}

struct Panel<'a> {
    title: &'a str,
    unit: &'a str,
    /// The lowest and the highest value; on a logarithmic scale if `log`.
    range: (f64, f64),
    log: bool,
    ticks: &'a [f64],
    sizes: Vec<Size>,
    series: Vec<Series>,
}

/// The kinds of lines, in the order of their colours.
const KINDS: [(&str, Option<Change>); 8] = [
    ("at rest", None),
    ("all start at once", Some(Change::ColdStart)),
    ("all start within 10 s", Some(Change::SlowStart)),
    ("one joins", Some(Change::Join)),
    ("a tenth joins", Some(Change::TenthJoins)),
    ("one stops", Some(Change::Stop)),
    ("one crashes", Some(Change::Crash)),
    ("a tenth crashes", Some(Change::TenthCrashes)),
];

/// Draws the picture.
pub(super) fn draw(scale: &Scale) -> String {
    let whole_sizes: Vec<Size> = scale.wholes.iter().map(|(whole, _)| whole.size).collect();
    let mut all_sizes = whole_sizes.clone();
    all_sizes.extend(scale.decisions.iter().map(|fleet| fleet.size));
    all_sizes.sort_unstable();
    all_sizes.dedup();
    let after = [0.01, 0.1, 1.0, 10.0, 100.0];
    let panels = [
        Panel {
            title: "At rest after a change, on a store that wakes its users",
            unit: "seconds of virtual time",
            range: (0.01, 100.0),
            log: true,
            ticks: &after,
            sizes: whole_sizes.clone(),
            series: whole_series(scale, true, |settling| settling.after.as_secs_f64()),
        },
        Panel {
            title: "At rest after a change, on a store that cannot wake",
            unit: "seconds of virtual time",
            range: (0.01, 100.0),
            log: true,
            ticks: &after,
            sizes: all_sizes.clone(),
            series: with_decisions(scale, |one| one.after.as_secs_f64(), |one| one.after.as_secs_f64()),
        },
        Panel {
            title: "Moves, as a multiple of the fewest possible",
            unit: "times the fewest",
            range: (0.0, 5.0),
            log: false,
            ticks: &[0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
            sizes: all_sizes,
            series: with_decisions(
                scale,
                |one| one.moves as f64 / one.fewest as f64,
                |one| one.moves as f64 / one.fewest as f64,
            ),
        },
        Panel {
            title: "Calls of one host to a store that wakes its users",
            unit: "calls a minute, at rest and in the minute that begins with a change",
            range: (10.0, 1_000.0),
            log: true,
            ticks: &[10.0, 30.0, 100.0, 300.0, 1_000.0],
            sizes: whole_sizes,
            series: call_series(scale),
        },
    ];
    let mut svg = String::new();
    // Writing to a string does not fail.
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"How soon fleets of growing size rest, with how many moves and store calls\">\n\
         <style>{STYLE}</style>\n<rect class=\"paper\" width=\"{WIDTH}\" height=\"{HEIGHT}\" rx=\"8\"/>"
    );
    for (index, panel) in panels.iter().enumerate() {
        let (column, row) = ((index % 2) as f64, (index / 2) as f64);
        panel.draw(&mut svg, 70.0 + column * 465.0, 56.0 + row * 335.0);
    }
    legend(&mut svg, 706.0);
    svg.push_str("</svg>\n");
    svg
}

type Figure = fn(&super::real_hosts::Settling) -> f64;

fn whole_series(scale: &Scale, wakes: bool, figure: Figure) -> Vec<Series> {
    let fleets: Vec<&Whole> =
        scale.wholes.iter().map(|(one, other)| if wakes { one } else { other }).collect();
    let line = |(kind, (_, change)): (usize, &(&str, Option<Change>))| {
        let change = (*change)?;
        let point = |fleet: &&Whole| {
            let found = fleet.changes.iter().find(|settling| settling.change == change)?;
            Some((fleet.size, figure(found)))
        };
        Some(Series { kind, dashed: false, points: fleets.iter().filter_map(point).collect() })
    };
    KINDS.iter().enumerate().filter_map(line).collect()
}

fn with_decisions(
    scale: &Scale,
    whole: Figure,
    alone: fn(&super::decisions::Settling) -> f64,
) -> Vec<Series> {
    let mut series = whole_series(scale, false, whole);
    for (kind, (_, change)) in KINDS.iter().enumerate() {
        let point = |fleet: &super::decisions::Decisions| {
            let found = fleet.changes.iter().find(|settling| Some(settling.change) == *change)?;
            Some((fleet.size, alone(found)))
        };
        let points: Vec<_> = scale.decisions.iter().filter_map(point).collect();
        series.push(Series { kind, dashed: true, points });
    }
    series
}

fn call_series(scale: &Scale) -> Vec<Series> {
    let rest = scale.wholes.iter().map(|(whole, _)| (whole.size, whole.rest.rate_of_all())).collect();
    let mut series = vec![Series { kind: 0, dashed: false, points: rest }];
    series.extend(whole_series(scale, true, |settling| settling.calls.rate_of_all()));
    series
}

impl Panel<'_> {
    fn x(&self, size: Size) -> f64 {
        let at = |size: &Size| (size.partitions as f64).log2();
        let first = self.sizes.first().map_or(0.0, at);
        let last = self.sizes.last().map_or(1.0, at);
        20.0 + (at(&size) - first) / (last - first).max(1.0) * (PLOT.0 - 40.0)
    }

    fn y(&self, value: f64) -> f64 {
        let scaled = |value: f64| if self.log { value.max(f64::MIN_POSITIVE).ln() } else { value };
        let (low, high) = (scaled(self.range.0), scaled(self.range.1));
        PLOT.1 * (1.0 - ((scaled(value) - low) / (high - low)).clamp(0.0, 1.0))
    }

    fn draw(&self, svg: &mut String, left: f64, top: f64) {
        let _ = writeln!(svg, "<g transform=\"translate({left} {top})\">");
        let _ = writeln!(svg, "<text class=\"title\" x=\"-50\" y=\"-30\">{}</text>", self.title);
        let _ = writeln!(svg, "<text class=\"faint\" x=\"-50\" y=\"-12\">{}</text>", self.unit);
        for tick in self.ticks {
            let y = self.y(*tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"0\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"faint\" x=\"-8\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                PLOT.0,
                y + 4.0,
                if *tick < 1_000.0 { tick.to_string() } else { grouped(*tick as u64) }
            );
        }
        for size in &self.sizes {
            let (x, bottom) = (self.x(*size), PLOT.1);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{bottom}\" y2=\"{}\"/>\
                 <text class=\"faint\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>\
                 <text class=\"faint\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                bottom + 5.0,
                bottom + 18.0,
                grouped(size.partitions as u64),
                bottom + 32.0,
                grouped(size.hosts as u64),
            );
        }
        let _ = writeln!(
            svg,
            "<text class=\"faint\" x=\"-8\" y=\"{}\" text-anchor=\"end\">partitions</text>\
             <text class=\"faint\" x=\"-8\" y=\"{}\" text-anchor=\"end\">hosts</text>",
            PLOT.1 + 18.0,
            PLOT.1 + 32.0
        );
        for series in self.series.iter().filter(|series| !series.points.is_empty()) {
            let places: Vec<(f64, f64)> =
                series.points.iter().map(|(size, value)| (self.x(*size), self.y(*value))).collect();
            let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let class = if series.dashed { "line dashed" } else { "line" };
            let _ = writeln!(
                svg,
                "<polyline class=\"{class}\" style=\"stroke: var(--c{})\" points=\"{}\"/>",
                series.kind,
                path.join(" ")
            );
            for (x, y) in places {
                svg.push_str(&marker(series.kind, x, y));
            }
        }
        svg.push_str("</g>\n");
    }
}

/// A mark whose form stands for the same as its colour.
fn marker(kind: usize, x: f64, y: f64) -> String {
    let fill = format!("style=\"fill: var(--c{kind})\"");
    let polygon = |corners: &[(f64, f64)]| {
        let points: Vec<String> =
            corners.iter().map(|(dx, dy)| format!("{:.1},{:.1}", x + dx, y + dy)).collect();
        format!("<polygon {fill} points=\"{}\"/>\n", points.join(" "))
    };
    match kind % 4 {
        0 => format!("<circle {fill} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\"/>\n"),
        1 => polygon(&[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)]),
        2 => polygon(&[(0.0, -5.0), (4.8, 3.6), (-4.8, 3.6)]),
        _ => polygon(&[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)]),
    }
}

fn legend(svg: &mut String, top: f64) {
    for (kind, (words, _)) in KINDS.iter().enumerate() {
        let (x, y) = (40.0 + (kind % 4) as f64 * 220.0, top + (kind / 4) as f64 * 24.0);
        let _ = writeln!(
            svg,
            "<line class=\"line\" style=\"stroke: var(--c{kind})\" x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\"/>{}\
             <text x=\"{}\" y=\"{}\">{words}</text>",
            x + 30.0,
            marker(kind, x + 15.0, y),
            x + 38.0,
            y + 4.0
        );
    }
    let y = top + 52.0;
    let _ = writeln!(
        svg,
        "<line class=\"line\" style=\"stroke: var(--faint)\" x1=\"40\" x2=\"70\" y1=\"{y}\" y2=\"{y}\"/>\
         <text x=\"78\" y=\"{0}\">whole hosts</text>\
         <line class=\"line dashed\" style=\"stroke: var(--faint)\" x1=\"260\" x2=\"290\" y1=\"{y}\" y2=\"{y}\"/>\
         <text x=\"298\" y=\"{0}\">the decisions alone</text>\
         <text class=\"faint\" x=\"480\" y=\"{0}\">across: partitions, on a logarithmic scale</text>",
        y + 4.0
    );
}
