//! A plot as SVG: lines and points over two axes.

use std::fmt::Write;

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// Points of the paper stand alone, without a line.
    pub(crate) is_paper: bool,
}

/// The plot.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The file's name.
    pub name: &'static str,
    pub(crate) title: String,
    pub(crate) axes: [&'static str; 2],
    /// Whether an axis is logarithmic.
    pub(crate) logarithmic: [bool; 2],
    pub(crate) lines: Vec<Line>,
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
/// Left, top, right, bottom.
const MARGINS: [f64; 4] = [70.0, 40.0, 190.0, 50.0];
const COLOURS: [&str; 8] =
    ["#0b62a4", "#d1495b", "#3a7d44", "#8d5a97", "#c77d0a", "#3c8d93", "#7a7a7a", "#000000"];

/// An axis: its range, and where the numbers on it stand.
struct Axis {
    from: f64,
    to: f64,
    marks: Vec<f64>,
    logarithmic: bool,
}

impl Axis {
    fn new(numbers: impl Iterator<Item = f64>, logarithmic: bool) -> Axis {
        let (mut from, mut to) =
            numbers.fold((f64::INFINITY, 0.0_f64), |(from, to), number| (from.min(number), to.max(number)));
        if logarithmic {
            from = from.max(1e-9);
            to = to.max(2.0 * from);
            let powers = (-9..=12).flat_map(|power| [1.0, 2.0, 5.0].map(|step| step * 10_f64.powi(power)));
            let powers: Vec<f64> = powers.collect();
            from = powers.iter().copied().rfind(|mark| *mark <= from * 1.001).unwrap_or(from);
            to = powers.iter().copied().find(|mark| *mark >= to * 0.999).unwrap_or(to);
            let marks = powers.into_iter().filter(|mark| (from..=to).contains(mark)).collect();
            return Axis { from, to, marks, logarithmic };
        }
        let step = [1.0, 2.0, 5.0, 10.0].map(|step| step * 10_f64.powf((to / 8.0).log10().floor()));
        let step = step.into_iter().find(|step| to / step <= 8.0).unwrap_or(to);
        let steps = (0..).map(|at| f64::from(at) * step);
        let marks: Vec<f64> = steps.take_while(|mark| *mark < to + step).collect();
        Axis { from: 0.0, to: marks.last().copied().unwrap_or(to), marks, logarithmic }
    }

    /// Where a number is, from 0 to 1.
    fn place(&self, number: f64) -> f64 {
        if self.logarithmic {
            (number.max(self.from) / self.from).ln() / (self.to / self.from).ln()
        } else {
            (number - self.from) / (self.to - self.from)
        }
    }
}

impl Plot {
    /// The file's text.
    #[must_use]
    pub fn svg(&self) -> String {
        let numbers = |of: fn(&(f64, f64)) -> f64| {
            self.lines.iter().flat_map(|line| &line.points).map(of).collect::<Vec<_>>()
        };
        let across = Axis::new(numbers(|point| point.0).into_iter(), self.logarithmic[0]);
        let up = Axis::new(numbers(|point| point.1).into_iter(), self.logarithmic[1]);
        let [left, top, right, bottom] = MARGINS;
        let x = |number: f64| left + across.place(number) * (WIDTH - left - right);
        let y = |number: f64| HEIGHT - bottom - up.place(number) * (HEIGHT - top - bottom);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        let mut text = |at: (f64, f64), anchor: &str, more: &str, text: &str| {
            let text = text.replace('&', "&amp;").replace('<', "&lt;");
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\"{more}>{text}</text>",
                at.0, at.1
            );
        };
        text((left, 22.0), "start", " font-weight=\"bold\"", &self.title);
        text(((left + WIDTH - right) / 2.0, HEIGHT - 12.0), "middle", "", self.axes[0]);
        let turned = format!(" transform=\"rotate(-90 16 {:.1})\"", HEIGHT / 2.0);
        text((16.0, HEIGHT / 2.0), "middle", &turned, self.axes[1]);
        for mark in &across.marks {
            text((x(*mark), HEIGHT - bottom + 18.0), "middle", "", &shown(*mark));
        }
        for mark in &up.marks {
            text((left - 8.0, y(*mark) + 4.0), "end", "", &shown(*mark));
        }
        for (at, line) in self.lines.iter().enumerate() {
            text((WIDTH - right + 34.0, top + 8.0 + 20.0 * at as f64), "start", "", &line.name);
        }
        for mark in &up.marks {
            let (y, end) = (y(*mark), WIDTH - right);
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>"
            );
        }
        for (at, line) in self.lines.iter().enumerate() {
            let places = line.points.iter().map(|(across, up)| (x(*across), y(*up))).collect::<Vec<_>>();
            let sample = (WIDTH - right + 10.0, top + 4.0 + 20.0 * at as f64);
            draw(&mut svg, COLOURS[at % COLOURS.len()], line.is_paper, &places, sample);
        }
        svg + "</svg>\n"
    }
}

/// A line with its sample in the list of names.
fn draw(svg: &mut String, colour: &str, is_paper: bool, places: &[(f64, f64)], sample: (f64, f64)) {
    let samples = [sample, (sample.0 + 16.0, sample.1)];
    for places in [places, &samples] {
        if is_paper || places.len() < 40 {
            let shape = if is_paper { "none" } else { colour };
            for (x, y) in places {
                let _ = writeln!(
                    svg,
                    "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{shape}\" stroke=\"{colour}\" \
                     stroke-width=\"1.5\"/>"
                );
            }
        }
        if !is_paper {
            let points: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>",
                points.join(" ")
            );
        }
    }
}

fn shown(number: f64) -> String {
    match number {
        number if number >= 1e6 => format!("{}M", number / 1e6),
        number if number >= 1e4 => format!("{}k", number / 1e3),
        number => format!("{}", (number * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn svg_has_each_line_within_its_axes() {
        let line = |name: &str, is_paper| Line {
            name: name.to_owned(),
            points: vec![(1.0, 500.0), (8.0, 2_900.0)],
            is_paper,
        };
        for logarithmic in [false, true] {
            let plot = Plot {
                name: "p",
                title: "a < b".to_owned(),
                axes: ["cores", "K/s"],
                logarithmic: [logarithmic; 2],
                lines: vec![line("ours", false), line("the paper's", true)],
            };
            let svg = plot.svg();
            assert!(svg.contains("a &lt; b") && svg.matches("<polyline").count() == 2, "{svg}");
            let places = svg.split("cx=\"").skip(1).filter_map(|rest| rest.split('"').next());
            for place in places.map(|place| place.parse::<f64>().unwrap()) {
                assert!((MARGINS[0]..WIDTH).contains(&place), "{place}");
            }
        }
    }
}
