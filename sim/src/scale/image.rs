// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A drawing as PNG, with a font of the command's own.

use super::drawing::{Anchor, HEIGHT, Mark, WIDTH};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const FAMILY: &str = "gnstor-sim";

type Failed = Box<dyn std::error::Error>;

fn at(&(x, y): &(u64, u64)) -> (i32, i32) {
    (i32::try_from(x).unwrap_or(i32::MAX), i32::try_from(y).unwrap_or(i32::MAX))
}

/// The bytes of the PNG file.
pub(super) fn png(marks: &[Mark]) -> Result<Vec<u8>, Failed> {
    let font = epaint_default_fonts::HACK_REGULAR;
    plotters::style::register_font(FAMILY, FontStyle::Normal, font).map_err(|_| "the font is broken")?;
    let [width, height] = [WIDTH, HEIGHT].map(|size| u32::try_from(size).unwrap_or(u32::MAX));
    let mut pixels = vec![0; width as usize * height as usize * 3];
    {
        let root = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        for mark in marks {
            match mark {
                Mark::Line(points, (r, g, b)) => {
                    let points: Vec<(i32, i32)> = points.iter().map(at).collect();
                    root.draw(&PathElement::new(points, RGBColor(*r, *g, *b)))?;
                }
                Mark::Text(place, text, anchor, (r, g, b)) => {
                    let across = match anchor {
                        Anchor::Start => HPos::Left,
                        Anchor::Middle => HPos::Center,
                        Anchor::End => HPos::Right,
                    };
                    let colour = RGBColor(*r, *g, *b);
                    let style = TextStyle::from((FAMILY, 12).into_font()).color(&colour);
                    let style = style.pos(Pos::new(across, VPos::Bottom));
                    root.draw(&Text::new(text.as_str(), at(place), style))?;
                }
            }
        }
        root.present()?;
    }
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    writer.finish()?;
    Ok(bytes)
}
