//! Every defect that can be planted has a catcher in `tests/run`: `tests/mutants.txt` names it, and the code
//! has both.

use std::collections::BTreeMap;
use std::fs;

use crate::demand_none;
use crate::tree::{Source, root, sources};

const TABLE: &str = "tests/mutants.txt";
const SIMULATOR: &str = "simulator";
/// The crate whose defects the simulator plants.
const SIMULATED: &str = "crates/terms/";

/// A defect as it is declared.
#[derive(Debug, PartialEq, Eq)]
struct Declared {
    file: String,
    variant: String,
    name: String,
}

/// The defects of a source's `mutants!`.
fn declared(source: &Source) -> Vec<Declared> {
    let opening = concat!("mutants", "! {");
    let lines = source.text.lines().skip_while(|line| !line.trim_end().ends_with(opening)).skip(1);
    let inside = lines.take_while(|line| *line != "}");
    let defects = inside.filter_map(|line| {
        let (variant, rest) = line.trim().split_once(": \"")?;
        let name = rest.trim_end_matches(',').strip_suffix('"')?;
        let is_variant = variant.chars().all(char::is_alphanumeric);
        is_variant.then(|| Declared {
            file: source.path.clone(),
            variant: variant.to_owned(),
            name: name.to_owned(),
        })
    });
    defects.collect()
}

/// Who catches what, by the table: a name, and its catchers.
fn catchers(text: &str) -> Vec<(String, Vec<String>)> {
    let lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'));
    let rows = lines.map(|line| {
        let mut words = line.split_whitespace().map(str::to_owned);
        (words.next().unwrap_or_default(), words.collect())
    });
    rows.collect()
}

/// What is wrong with a test that is named as a catcher.
fn fault_of_test(catcher: &str, defect: &Declared, all: &[Source]) -> Option<String> {
    let (file, test) = catcher.split_once("::")?;
    let Some(source) = all.iter().find(|source| source.path == file) else {
        return Some(format!("{file} is not there"));
    };
    if !source.text.contains(&format!("fn {test}()")) {
        return Some(format!("{file} has no test {test}"));
    }
    let plants = ["ALL", &defect.variant].iter().any(|what| source.text.contains(&format!("Mutant::{what}")));
    (!plants).then(|| format!("{catcher} does not plant {}", defect.variant))
}

#[test]
fn mutants_each_have_a_catcher_in_the_run() {
    let all = sources();
    let defects: Vec<Declared> = all.iter().flat_map(declared).collect();
    assert!(defects.len() > 30, "{} defects were found", defects.len());
    let table = catchers(&fs::read_to_string(root().join(TABLE)).expect("the table is there"));
    let mut violations = Vec::new();
    let mut rows: BTreeMap<&str, &[String]> = BTreeMap::new();
    for (name, catchers) in &table {
        if rows.insert(name, catchers).is_some() {
            violations.push(format!("{TABLE} has two lines of {name}"));
        }
        if !defects.iter().any(|defect| defect.name == *name) {
            violations.push(format!("{TABLE} names {name}, which cannot be planted"));
        }
    }
    for defect in &defects {
        if defects.iter().filter(|other| other.name == defect.name).count() > 1 {
            violations.push(format!("two defects have the name {}", defect.name));
        }
        match rows.get(defect.name.as_str()) {
            None => violations.push(format!("{TABLE} lacks {} of {}", defect.name, defect.file)),
            // A seed that finds it is luck: a test of its own catches it, too.
            Some([tests @ .., test]) if test.contains("::") => {
                let simulated = defect.file.starts_with(SIMULATED);
                if !(tests.is_empty() || simulated && tests == [SIMULATOR]) {
                    violations.push(format!("{}: {tests:?} is no catcher", defect.name));
                }
                let fault = fault_of_test(test, defect, &all);
                violations.extend(fault.map(|fault| format!("{}: {fault}", defect.name)));
            }
            Some(others) => violations.push(format!("{}: no test of its own in {others:?}", defect.name)),
        }
        let planted = format!("Mutant::{})", defect.variant);
        if !all.iter().any(|source| source.path.contains("/src/") && source.text.contains(&planted)) {
            violations.push(format!("no code asks whether {} is planted", defect.variant));
        }
    }
    demand_none("mutants without a catcher", &violations);
}

#[test]
fn declared_mutants_are_found_and_nothing_else() {
    let text = "cell_terms::mutants! {\n    pub(crate),\n    /// A: \"b\".\n    TornRead: \"torn-read\",\n}\nx: \"y\",\n";
    let source = Source { path: "a.rs".into(), text: text.into() };
    let expected = Declared { file: "a.rs".into(), variant: "TornRead".into(), name: "torn-read".into() };
    assert_eq!(declared(&source), [expected]);
    let words = ["simulator", "c::d"].map(str::to_owned).to_vec();
    assert_eq!(catchers("# a\n\nb  simulator c::d\n"), [("b".to_owned(), words)]);
}
