//! What is printed, in its short form: the figures mean little, but they are there, they are the same each
//! time, and of the paper's results none has gone into them.
#![allow(missing_docs, clippy::unwrap_used, reason = "a failed unwrap fails a test")]

use cell_paper::data::{DATA, DataTexts, PaperData};
use cell_paper::plot::Plot;
use cell_paper::sheet::Sheet;
use cell_paper::{PaperOptions, Part, Study};
use serde_json::Value;

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

/// All but what is past the paper, which takes long and has a test of its own.
const PARTS: [Part; 8] = [
    Part::Table(1),
    Part::Table(2),
    Part::Figure(4),
    Part::Figure(5),
    Part::Figure(6),
    Part::Figure(7),
    Part::Figure(8),
    Part::Figure(9),
];

fn study(texts: &DataTexts<'_>) -> Study {
    Study::new(PaperData::parse(texts).unwrap(), 7, true)
}

/// The same machines beside other results of the paper. They are made from the inputs and from nothing else:
/// `Calibration::new` is given no more, and the inputs must be the same.
fn beside(study: &Study, texts: &DataTexts<'_>) -> Study {
    let data = PaperData::parse(texts).unwrap();
    assert_eq!(data.inputs, study.data.inputs, "a result is an input");
    assert_ne!(data, study.data);
    Study { data, ..study.clone() }
}

fn outcomes(study: &Study) -> (Vec<Sheet>, Vec<Plot>) {
    let outcomes = PARTS.map(|part| study.outcome(part));
    let (sheets, plots): (Vec<_>, Vec<_>) = outcomes.into_iter().unzip();
    (sheets.concat(), plots.concat())
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

/// One short study, once beside the paper's results and once beside others. Its machines and its runs take
/// longer than all that is held of them. The machines are made once more, by the command, and once of other
/// inputs.
#[test]
fn figures_go_by_the_inputs_alone_and_each_shows_what_it_is_for() {
    let study = study(&DATA);
    let (before, plots) = outcomes(&study);
    // Of all parts, what does not stand beside results is held to be the same each time by the other run.
    let (figure9, again) = ([sheet(&before, "figure9")], study.outcome(Part::Figure(9)).0);
    assert_eq!(differences(&figure9, &again), [], "a run is the same each time");
    let after = with_raised(|texts| outcomes(&beside(&study, texts)).0);
    results_of_the_paper_change_nothing_but_what_stands_beside_them(&before, &after);
    inputs_change_what_the_model_comes_to(&before);
    each_part_has_its_rows_and_plots(&before, &plots);
    figures_of_sixteen_servers_say_whether_they_are_near(&before);
    latency_that_grows_to_the_end_of_the_spike_is_not_settled(&before);
    inserts_cost_more_than_updates_and_split_meganodes(&before);
    rows_by_cores_have_their_goals_and_the_best_share(&before);
    past_the_paper_both_rules_stand_beside_the_best_fixed_share(&study);
    run_prints_rows_of_json_of_each_part_and_writes_its_plots(&study);
}

fn results_of_the_paper_change_nothing_but_what_stands_beside_them(before: &[Sheet], after: &[Sheet]) {
    let changed = differences(before, after);
    for expected in [
        ("table2", "paper_cell_k"),
        ("table2", "cell_error_percent"),
        ("table2", "server_side_error_points"),
        ("table2", "fixed_ratio_error_percent"),
        ("figure4_highest", "paper"),
        ("figure5_sixteen", "paper"),
        ("figure5_sixteen", "error_percent"),
        ("figure6", "paper_cell_k"),
        ("figure6", "server_only_error_percent"),
        ("figure7_quiet", "error_percent"),
    ] {
        assert!(changed.contains(&expected), "{expected:?} in {changed:?}");
    }
    let leaked: Vec<_> = changed.into_iter().filter(|(_, column)| !BESIDE.contains(column)).collect();
    assert_eq!(leaked, [], "the model knows what it is compared with, or a run is another one each time");
}

fn inputs_change_what_the_model_comes_to(before: &[Sheet]) {
    let inputs = raised(DATA.table2, 1..2);
    let after = study(&DataTexts { table2: &inputs, ..DATA }).outcome(Part::Table(2)).0;
    let changed = differences(&[sheet(before, "table2")], &after);
    assert!(changed.contains(&("table2", "cell_k")), "{changed:?}");
}

/// How many rows figures have, in the short form.
const ROWS: [(&str, usize); 10] = [
    ("figure4", 12),
    ("figure4_highest", 6),
    ("figure5", 3),
    ("figure5_sixteen", 3),
    ("figure7", 6),
    ("figure7_quiet", 5),
    ("figure7_spike", 6),
    ("figure8", 3),
    ("figure8_text", 6),
    ("figure9", 8),
];

/// The rows of what was printed, one JSON object each.
fn json_rows(printed: Vec<u8>) -> Vec<Value> {
    let text = String::from_utf8(printed).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn count_of(rows: &[Value], name: &str) -> usize {
    rows.iter().filter(|row| row["sheet"] == name).count()
}

fn each_part_has_its_rows_and_plots(sheets: &[Sheet], plots: &[Plot]) {
    let names: Vec<&str> = plots.iter().map(|plot| plot.name).collect();
    let expected =
        ["table2", "figure4", "figure5", "figure6", "figure7", "figure7_more", "figure8", "figure9"];
    assert_eq!(names, expected);
    let mut out = Vec::new();
    for (name, _) in ROWS {
        sheet(sheets, name).write(&mut out, true).unwrap();
    }
    let rows = json_rows(out);
    for (name, count) in ROWS {
        assert_eq!(count_of(&rows, name), count, "{name}");
    }
    let cell = rows.iter().filter_map(|row| row.get("cell_k"));
    assert!(cell.clone().count() > 20 && cell.clone().all(|rate_k| rate_k.as_f64().unwrap() > 0.0));
}

fn figures_of_sixteen_servers_say_whether_they_are_near(sheets: &[Sheet]) {
    let is_met = sheet(sheets, "figure5_sixteen").rows.iter().all(|row| row[4].is_string());
    assert!(is_met, "each says whether it is near: {sheets:?}");
}

/// Two figures stand for all: what the others print is held above.
fn run_prints_rows_of_json_of_each_part_and_writes_its_plots(study: &Study) {
    let folder = std::env::temp_dir().join(format!("cell-paper-{}", std::process::id()));
    let options = PaperOptions {
        figure: vec![4, 8],
        json: true,
        short: true,
        svg: Some(folder.clone()),
        ..PaperOptions::default()
    };
    let mut out = Vec::new();
    let made_again = |options: &PaperOptions| {
        let again = options.study().unwrap();
        assert_eq!(again.calibration, study.calibration, "machines are the same each time");
        Ok(again)
    };
    cell_paper::run_of(&options, made_again, &mut out).unwrap();
    let plots = std::fs::read_dir(&folder).unwrap().count();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(plots, 2);
    let rows = json_rows(out);
    let is_asked_for = |name: &str| ["figure4", "figure8"].iter().any(|asked| name.starts_with(*asked));
    for (name, count) in ROWS.into_iter().filter(|(name, _)| is_asked_for(name)) {
        assert_eq!(count_of(&rows, name), count, "{name}");
    }
}

/// The one sheet of this name.
fn sheet(sheets: &[Sheet], name: &str) -> Sheet {
    sheets.iter().find(|sheet| sheet.name == name).expect("it is printed").clone()
}

/// The cell of a column in the row that begins so.
fn cell<'a>(sheet: &'a Sheet, begin: &[serde_json::Value], column: &str) -> &'a serde_json::Value {
    let row = sheet.rows.iter().find(|row| row.starts_with(begin)).expect("there is such a row");
    &row[sheet.columns.iter().position(|one| *one == column).expect("there is such a column")]
}

/// 84 clients ask for more than the servers alone can do: each search takes longer than the one before.
fn latency_that_grows_to_the_end_of_the_spike_is_not_settled(sheets: &[Sheet]) {
    let figure7 = sheet(sheets, "figure7");
    let of = |more: u64, column| cell(&figure7, &[more.into(), "server only".into()], column);
    assert!(of(60, "rest_us").as_f64() > Some(10.0 * of(36, "rest_us").as_f64().unwrap()), "{figure7:?}");
    assert_eq!((of(60, "settled_after_ms").as_u64(), of(60, "met_1_s").as_str()), (None, Some("NO")));
    assert!(of(36, "settled_after_ms").is_u64(), "those who keep up are settled: {figure7:?}");
    assert_eq!(of(36, "met_1_s").as_str(), Some("yes"));
}

/// Nodes that split, and the copies of meganodes, take the servers more than updates do; no rule has a say in
/// either.
fn inserts_cost_more_than_updates_and_split_meganodes(sheets: &[Sheet]) {
    let figure9 = sheet(sheets, "figure9");
    let of = |workload: &str, column| cell(&figure9, &[workload.into()], column);
    for column in ["server_only_k", "cell_k", "paper_rule_k"] {
        let rates = ["100 % insert", "100 % update"].map(|workload| of(workload, column).as_f64().unwrap());
        let part = rates[0] / rates[1];
        assert!((0.85..0.95).contains(&part), "{column}: {part}");
    }
    for workload in ["100 % insert", "100 % update"] {
        assert!(of(workload, "met_at_least_server_only").is_null(), "no selector is asked");
    }
    assert!(of("100 % get", "met_at_least_server_only").is_string());
    let figure8 = sheet(sheets, "figure8");
    let splits = figure8.column("meganode_splits");
    assert!(splits.iter().all(|splits| *splits > Some(0.0)), "{splits:?}");
}

/// The best of all fixed shares is no less than the one that the rule came to, and each row says whether its
/// goals are met.
fn rows_by_cores_have_their_goals_and_the_best_share(sheets: &[Sheet]) {
    for name in ["table2", "figure6"] {
        let sheet = sheet(sheets, name);
        let mut rates = sheet.column("fixed_ratio_k").into_iter().zip(sheet.column("best_fixed_k"));
        assert!(rates.all(|(mean_k, best_k)| mean_k <= best_k), "{sheet:?}");
        // The text has figures of one core and of eight.
        for cores in [1_u64, 8] {
            let of = |column| cell(&sheet, &[cores.into()], column);
            assert!(of("met_10_of_paper").is_string(), "{name}, {cores} cores");
            let (ours_k, servers_k) = (of("cell_k").as_f64(), of("server_only_k").as_f64());
            let says = of("met_at_least_server_only").as_str();
            let is_met = if ours_k > servers_k { "yes" } else { "NO" };
            // Figures that are printed alike may differ by less.
            assert!(ours_k == servers_k || says == Some(is_met), "{name}, {cores} cores: {says:?}");
        }
    }
}

/// None of the paper's results is there: what would look at one would find nothing, and end.
fn past_the_paper_both_rules_stand_beside_the_best_fixed_share(with_results: &Study) {
    let mut data = PaperData::parse(&DataTexts { outcomes: "", ..DATA }).unwrap();
    data.table2.clear();
    assert_eq!(data.inputs, with_results.data.inputs, "a result is an input");
    let study = Study { data, ..with_results.clone() };
    let (sheets, plots) = study.outcome(Part::Past);
    let rows: Vec<(&str, usize)> = sheets.iter().map(|sheet| (sheet.name, sheet.rows.len())).collect();
    let expected =
        [("past_servers", 2), ("past_cards", 4), ("past_skew", 4), ("past_herds", 2), ("past_steps", 6)];
    assert_eq!(rows, expected);
    assert_eq!(plots.len(), 1);
    for sheet in sheets.iter().filter(|sheet| sheet.columns.contains(&"rate_k")) {
        let rates = sheet.column("rate_k");
        assert!(rates.iter().all(|rate_k| rate_k.is_some_and(|rate_k| rate_k > 0.0)), "{sheet:?}");
    }
}
