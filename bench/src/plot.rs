// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drawings as files: SVG with text as text, PNG with the letters of a font that is part of the command.

mod latency;

use gnstor_console::CliError;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

pub(crate) type Area<DB> = DrawingArea<DB, Shift>;
pub(crate) type Drawn = Result<(), Box<dyn std::error::Error>>;

/// The font family of all text. A viewer of an SVG uses its own; a PNG uses the registered one.
pub(crate) const FAMILY: &str = "sans-serif";

/// A drawing for either kind of file.
pub(crate) trait Drawing {
    /// Width and height, pixels.
    fn size(&self) -> (u32, u32);
    /// Draws everything on a white area.
    fn on<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn
    where
        DB::ErrorType: 'static;
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

impl Format {
    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "svg" => Some(Self::Svg),
            "png" => Some(Self::Png),
            _ => None,
        }
    }
}

/// Checks and makes the file of a drawing, before an hour of measuring and not after it.
///
/// # Errors
/// [`CliError::Usage`] if the name has no known format, [`CliError::File`] if it cannot be written.
pub(super) fn reserve(path: &Path) -> Result<(), CliError> {
    if Format::of(path).is_none() {
        return Err(CliError::Usage(format!("--plot {} must end in .svg or .png", path.display())));
    }
    File::create(path).map(drop).map_err(|error| unwritable(path, &error))
}

/// Draws into a file, in the format that its name says.
///
/// # Errors
/// [`CliError::File`].
pub(super) fn write(path: &Path, drawing: &impl Drawing) -> Result<(), CliError> {
    let drawn = match Format::of(path) {
        Some(Format::Png) => png(path, drawing),
        _ => svg(path, drawing),
    };
    drawn.map_err(|cause| unwritable(path, &cause))
}

fn unwritable(path: &Path, cause: &impl ToString) -> CliError {
    CliError::File { path: path.display().to_string(), cause: cause.to_string() }
}

fn svg(path: &Path, drawing: &impl Drawing) -> Drawn {
    register()?;
    let root = SVGBackend::new(path, drawing.size()).into_drawing_area();
    root.fill(&WHITE)?;
    drawing.on(&root)?;
    Ok(root.present()?)
}

fn png(path: &Path, drawing: &impl Drawing) -> Drawn {
    let (width, height) = drawing.size();
    let pixels = pixels(drawing)?;
    let mut encoder = png::Encoder::new(BufWriter::new(File::create(path)?), width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&pixels)?;
    Ok(writer.finish()?)
}

/// Three bytes a pixel, row after row.
fn pixels(drawing: &impl Drawing) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    register()?;
    let (width, height) = drawing.size();
    let mut pixels = vec![0; width as usize * height as usize * 3];
    {
        let root = BitMapBackend::with_buffer(&mut pixels, (width, height)).into_drawing_area();
        root.fill(&WHITE)?;
        drawing.on(&root)?;
        root.present()?;
    }
    Ok(pixels)
}

/// Makes the font known. Both formats need one: also the places of an SVG's texts follow from how wide they
/// are.
fn register() -> Drawn {
    let font = epaint_default_fonts::HACK_REGULAR;
    plotters::style::register_font(FAMILY, FontStyle::Normal, font)
        .map_err(|_| "the command's own font cannot be read".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gnstor_base::testing::deadline;

    struct Words;

    impl Drawing for Words {
        fn size(&self) -> (u32, u32) {
            (200, 60)
        }

        fn on<DB: DrawingBackend>(&self, area: &Area<DB>) -> Drawn
        where
            DB::ErrorType: 'static,
        {
            Ok(area.draw(&Text::new("latency", (10, 10), (FAMILY, 24)))?)
        }
    }

    #[test]
    fn letters_are_drawn_without_any_font_of_the_system() {
        let _deadline = deadline();
        let pixels = pixels(&Words).expect("a drawing");
        let dark = pixels.chunks_exact(3).filter(|pixel| pixel.iter().all(|&value| value < 100)).count();
        assert!((100..4000).contains(&dark), "{dark} dark pixels");
    }

    #[test]
    fn only_names_that_say_a_format_are_taken() {
        let _deadline = deadline();
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["a.svg", "a.png"] {
            reserve(&folder.path().join(name)).expect("a format");
        }
        for name in ["a.pdf", "a", "png", ".png"] {
            let refused = reserve(&folder.path().join(name));
            assert!(
                matches!(&refused, Err(CliError::Usage(why)) if why.contains(".svg or .png")),
                "{refused:?}"
            );
            assert!(!folder.path().join(name).exists());
        }
    }
}
