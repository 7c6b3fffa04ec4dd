// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A drawing as SVG.

use super::drawing::{Anchor, HEIGHT, Mark, WIDTH};
use std::fmt::Write as _;

pub(super) fn svg(marks: &[Mark]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    for mark in marks {
        let _ = match mark {
            Mark::Line(points, (r, g, b)) => {
                let points: Vec<String> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
                let points = points.join(" ");
                writeln!(
                    svg,
                    "<polyline points=\"{points}\" fill=\"none\" stroke=\"#{r:02x}{g:02x}{b:02x}\"/>"
                )
            }
            Mark::Text((x, y), text, anchor, (r, g, b)) => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                writeln!(
                    svg,
                    "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\" fill=\"#{r:02x}{g:02x}{b:02x}\">{text}</text>"
                )
            }
        };
    }
    svg.push_str("</svg>\n");
    svg
}
