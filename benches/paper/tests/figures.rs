//! What is printed, in its short form: the figures mean little, but they are there, they are the same each
//! time, and of the paper's results none has gone into them.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

use cell_paper::calibration::Calibration;
use cell_paper::data::{DATA, DataTexts, PaperData};
use cell_paper::sheet::Sheet;
use cell_paper::{PaperOptions, Part, Study};

/// Columns in which the paper's own figures stand, or ours beside them.
const BESIDE: [&str; 15] = [
    "paper",
    "paper_cell_k",
    "paper_server_side_percent",
    "paper_fixed_ratio_k",
    "paper_server_only_k",
    "paper_client_only_k",
    "cell_error_percent",
    "server_only_error_percent",
    "client_only_error_percent",
    "fixed_ratio_error_percent",
    "server_side_error_points",
    "error_percent",
    "met",
    "met_10_of_paper",
    "met_1_s",
];

/// All but Figure 5 and what is past the paper, which take long and have tests of their own.
const PARTS: [Part; 7] = [
    Part::Table(1),
    Part::Table(2),
    Part::Figure(4),
    Part::Figure(6),
    Part::Figure(7),
    Part::Figure(8),
    Part::Figure(9),
];

fn study(texts: &DataTexts<'_>) -> Study {
    Study::new(PaperData::parse(texts).unwrap(), 7, true)
}

/// The same machines beside other results of the paper. They are made from the inputs and from nothing else:
/// [`Calibration::new`] is given no more, and the inputs must be the same.
fn beside(study: &Study, texts: &DataTexts<'_>) -> Study {
    let data = PaperData::parse(texts).unwrap();
    assert_eq!(data.inputs, study.data.inputs, "a result is an input");
    assert_ne!(data, study.data);
    Study { data, ..study.clone() }
}

fn sheets(study: &Study) -> Vec<Sheet> {
    PARTS.into_iter().flat_map(|part| study.outcome(part).0).collect()
}

/// Where two runs differ, as sheet and column.
fn differences(one: &[Sheet], other: &[Sheet]) -> Vec<(&'static str, &'static str)> {
    let mut found = Vec::new();
    for (one, other) in one.iter().zip(other) {
        assert_eq!((one.name, &one.columns), (other.name, &other.columns));
        for (at, column) in one.columns.iter().enumerate() {
            let differs = one.rows.iter().zip(&other.rows).any(|(one, other)| one[at] != other[at]);
            found.extend((differs || one.rows.len() != other.rows.len()).then_some((one.name, *column)));
        }
    }
    found
}

/// The text of a file with the numbers of some columns raised by a tenth.
fn raised(text: &str, columns: std::ops::Range<usize>) -> String {
    let lines = text.lines().enumerate().map(|(line, text)| {
        let fields = text.split('\t').enumerate().map(|(at, field)| match field.parse::<f64>() {
            Ok(number) if line > 1 && columns.contains(&at) => format!("{}", number * 1.1),
            _ => field.to_owned(),
        });
        fields.collect::<Vec<_>>().join("\t") + "\n"
    });
    lines.collect()
}

/// All results of the paper raised by a tenth.
fn with_raised<T>(then: impl FnOnce(&DataTexts<'_>) -> T) -> T {
    let (table2, outcomes) = (raised(DATA.table2, 2..5), raised(DATA.outcomes, 1..2));
    then(&DataTexts { table2: &table2, outcomes: &outcomes, ..DATA })
}

#[test]
fn results_of_the_paper_change_nothing_but_what_stands_beside_them() {
    let study = study(&DATA);
    assert_eq!(Calibration::new(&study.data.inputs), study.calibration, "machines are the same each time");
    let before = sheets(&study);
    assert_eq!(differences(&before, &sheets(&study)), [], "a run is the same each time");
    let after = with_raised(|texts| sheets(&beside(&study, texts)));
    let changed = differences(&before, &after);
    for expected in [
        ("table2", "paper_cell_k"),
        ("table2", "cell_error_percent"),
        ("table2", "server_side_error_points"),
        ("table2", "fixed_ratio_error_percent"),
        ("figure4_highest", "paper"),
        ("figure6", "paper_cell_k"),
        ("figure6", "server_only_error_percent"),
        ("figure7_quiet", "error_percent"),
    ] {
        assert!(changed.contains(&expected), "{expected:?} in {changed:?}");
    }
    let leaked: Vec<_> = changed.into_iter().filter(|(_, column)| !BESIDE.contains(column)).collect();
    assert_eq!(leaked, [], "the model knows what it is compared with");
}

#[test]
fn figures_of_sixteen_servers_change_nothing_but_their_error() {
    let study = study(&DATA);
    let figure5 = |study: &Study| study.outcome(Part::Figure(5)).0;
    let after = with_raised(|texts| figure5(&beside(&study, texts)));
    let changed = differences(&figure5(&study), &after);
    assert_eq!(changed, [("figure5_sixteen", "paper"), ("figure5_sixteen", "error_percent")]);
}

#[test]
fn inputs_change_what_the_model_comes_to() {
    let table2 = raised(DATA.table2, 1..2);
    let sheets = |texts: &DataTexts<'_>| study(texts).outcome(Part::Table(2)).0;
    let changed = differences(&sheets(&DATA), &sheets(&DataTexts { table2: &table2, ..DATA }));
    assert!(changed.contains(&("table2", "cell_k")), "{changed:?}");
}

#[test]
fn each_part_prints_rows_of_json_and_its_plot() {
    let folder = std::env::temp_dir().join(format!("cell-paper-{}", std::process::id()));
    let options = PaperOptions {
        figure: vec![4, 5, 7, 8, 9],
        json: true,
        short: true,
        svg: Some(folder.clone()),
        ..PaperOptions::default()
    };
    let mut out = Vec::new();
    cell_paper::run(&options, &mut out).unwrap();
    let plots = std::fs::read_dir(&folder).unwrap().count();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(plots, 6);
    let text = String::from_utf8(out).unwrap();
    let rows: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |name: &str| rows.iter().filter(|row| row["sheet"] == name).count();
    let names = ["figure4", "figure4_highest", "figure5", "figure7", "figure7_quiet", "figure8", "figure9"];
    assert_eq!(names.map(of), [12, 6, 3, 6, 5, 3, 8]);
    let cell = rows.iter().filter_map(|row| row.get("cell_k"));
    assert!(cell.clone().count() > 20 && cell.clone().all(|rate_k| rate_k.as_f64().unwrap() > 0.0));
}

#[test]
fn past_the_paper_both_rules_stand_beside_the_best_fixed_share() {
    let study = study(&DATA);
    let (sheets, plots) = study.outcome(Part::Past);
    let names: Vec<&str> = sheets.iter().map(|sheet| sheet.name).collect();
    assert_eq!(names, ["past_servers", "past_cards", "past_skew", "past_herds", "past_steps"]);
    assert_eq!(plots.len(), 1);
    for sheet in sheets.iter().filter(|sheet| sheet.columns.contains(&"rate_k")) {
        let rates = sheet.column("rate_k");
        assert!(rates.iter().all(|rate_k| rate_k.is_some_and(|rate_k| rate_k > 0.0)), "{sheet:?}");
    }
    let after = with_raised(|texts| beside(&study, texts).outcome(Part::Past).0);
    assert_eq!(differences(&sheets, &after), [], "no result of the paper is known there");
}
