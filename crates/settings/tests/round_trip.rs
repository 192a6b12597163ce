//! What is shown of a value can be read again, from every source, and means the same.
#![allow(clippy::unwrap_used, reason = "tests")]

use cell_settings::{Registry, Section, SourceError, read_environment, read_file};
use cell_terms::setting::{Applies, Bounds, Setting, SettingError, Settings, Source, Value};
use proptest::prelude::*;

const fn setting(name: &'static str, default: &'static str, bounds: Bounds) -> Setting {
    Setting { name, meaning: "What it does.", default, bounds, applies: Applies::Live }
}

const SECTION: Section = Section {
    name: "all kinds",
    settings: &[
        setting("number", "1", Bounds::Integer { min: 0, max: u64::MAX }),
        setting("bytes", "1 KiB", Bounds::Bytes { min: 0, max: u64::MAX, power_of_two: false }),
        setting("time", "1 s", Bounds::Milliseconds { min: 0, max: u64::MAX }),
        setting("time or none", "0", Bounds::MillisecondsOrNone { min: 10_000, max: u64::MAX }),
        setting("real", "0.5", Bounds::Real { min: -1e300, max: 1e300 }),
        setting("word", "one", Bounds::Choice(&["one", "two"])),
        setting("flag", "false", Bounds::Flag),
        setting("text", "", Bounds::Text { max: 64 }),
    ],
};
const REGISTRY: Registry = Registry::new(&[SECTION]);

/// Round numbers come up as often as others: they are shown with a unit.
fn whole() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        (0_u64..1 << 20, 0_u32..5).prop_map(|(number, power)| number << (10 * power)),
        (0_u64..10_000, prop::sample::select(vec![1, 1_000, 60_000, 3_600_000]))
            .prop_map(|(n, unit)| n * unit),
    ]
}

fn value() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        whole().prop_map(|number| ("number", Value::Integer(number))),
        whole().prop_map(|number| ("bytes", Value::Integer(number))),
        whole().prop_map(|number| ("time", Value::Integer(number))),
        prop_oneof![Just(0), whole().prop_map(|number| number.max(10_000))]
            .prop_map(|number| ("time or none", Value::Integer(number))),
        (-1e300..1e300).prop_map(|number| ("real", Value::Real(number))),
        prop::sample::select(vec!["one", "two"]).prop_map(|word| ("word", Value::Text(word.to_owned()))),
        any::<bool>().prop_map(|flag| ("flag", Value::Flag(flag))),
        "[ -~]{0,64}".prop_map(|text| ("text", Value::Text(text.trim().to_owned()))),
    ]
}

fn declared(name: &str) -> &'static Setting {
    REGISTRY.declarations().map(|(_, setting)| setting).find(|setting| setting.name == name).unwrap()
}

proptest! {
    #[test]
    fn shown_value_is_read_as_itself((name, value) in value()) {
        let setting = declared(name);
        prop_assert_eq!(setting.parse(&setting.format(&value)), Ok(value));
    }

    #[test]
    fn value_is_the_same_from_file_and_environment((name, value) in value()) {
        let text = declared(name).format(&value);
        let file = tempfile::NamedTempFile::new().unwrap();
        let table = toml::Table::from_iter([(name.to_owned(), text.clone().into())]);
        std::fs::write(file.path(), table.to_string()).unwrap();
        let mut of_file = REGISTRY.defaults();
        read_file(&mut of_file, file.path()).unwrap();
        prop_assert_eq!(of_file.get(name), Some((&value, Source::File)));
        let mut of_environment = REGISTRY.defaults();
        let variable = format!("CELL_{}", name.to_ascii_uppercase());
        let variables = [(variable.into(), text.clone().into())].into_iter();
        let warnings = read_environment(&mut of_environment, variables, &[]);
        prop_assert!(warnings.unwrap().is_empty());
        // One that is empty is as one that is not set.
        let source = if text.is_empty() { Source::Default } else { Source::Environment };
        if !text.is_empty() {
            prop_assert_eq!(of_environment.get(name).unwrap().0, &value);
        }
        prop_assert_eq!(of_environment.get(name).unwrap().1, source);
    }

    /// Nothing that a person may write makes a reader panic, and what is refused changes nothing.
    #[test]
    fn any_text_is_taken_or_refused(name in "[a-z_]{0,10}", text in "\\PC{0,30}") {
        let mut settings = REGISTRY.defaults();
        for name in SECTION.settings.iter().map(|setting| setting.name).chain([name.as_str()]) {
            let before = settings.get(name).map(|(value, _)| value.clone());
            if settings.set(name, &text, Source::Flag).is_err() {
                prop_assert_eq!(settings.get(name).map(|(value, _)| value.clone()), before);
            }
        }
    }
}

#[test]
fn file_that_is_wrong_is_refused_with_its_name_and_the_reason() {
    let refused = |text: &str| {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let error = read_file(&mut REGISTRY.defaults(), file.path()).unwrap_err();
        assert!(error.to_string().starts_with(file.path().to_str().unwrap()), "{error}");
        error
    };
    assert!(matches!(refused("number = 1\nnumber = 2"), SourceError::Syntax { .. }));
    assert!(matches!(refused("number = [1]"), SourceError::Kind { name, .. } if name == "number"));
    let unknown = SettingError::Unknown { name: "numbr".to_owned(), nearest: Some("number") };
    assert!(matches!(refused("numbr = 1"), SourceError::File { error, .. } if error == unknown));
    let nowhere = read_file(&mut REGISTRY.defaults(), "/nowhere/at/all".as_ref());
    assert!(matches!(nowhere, Err(SourceError::Read { .. })));
}

#[test]
fn environment_warns_of_names_that_are_none_and_passes_over_reserved_ones() {
    let variables = [("CELL_SERVER", "x"), ("CELL_NUMBR", "1"), ("OTHER", "x"), ("CELL_NUMBER", "2")];
    let variables = variables.map(|(name, value)| (name.into(), value.into()));
    let mut settings: Settings = REGISTRY.defaults();
    let warnings = read_environment(&mut settings, variables.into_iter(), &["CELL_SERVER"]).unwrap();
    assert_eq!(warnings, ["CELL_NUMBR is ignored: there is no setting `numbr`; did you mean `number`?"]);
    assert_eq!(settings.integer("number"), 2);
}

#[test]
fn table_lists_unit_bounds_and_when_a_change_applies() {
    let table = REGISTRY.json();
    let row = &table["settings"][1];
    assert_eq!(
        (&row["name"], &row["unit"], &row["applies"]),
        (&"bytes".into(), &"bytes".into(), &"live".into())
    );
    assert_eq!((&row["min"], &row["max"]), (&0.into(), &u64::MAX.into()));
    assert!(
        REGISTRY
            .markdown()
            .contains("\n| `text` | none | text of at most 64 bytes | live | What it does. | - |\n")
    );
}
