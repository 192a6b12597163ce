//! The blocks of a page of commands, each with the hosts that it is typed on.

/// What the first line of a block begins with that is typed somewhere.
const ON: &str = "# on ";
/// What a block says that is done at the power button.
const SWITCH_OFF: &str = "# switch off ";
/// Stands for what differs from run to run.
const ANY: &str = "...";

/// What is between two headings of the page's sections.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Section {
    /// The heading; none of what comes before the first.
    pub title: String,
    /// Its blocks, in order.
    pub blocks: Vec<Block>,
}

/// A block.
#[derive(Debug, PartialEq)]
pub(crate) struct Block {
    /// The line of the page that opens it.
    pub line: usize,
    /// Where it is typed, or what is switched off: `client` or `host-N`.
    pub hosts: Vec<String>,
    pub what: What,
    /// What it prints, if the page shows it.
    pub prints: Option<String>,
}

/// What a block is.
#[derive(Debug, PartialEq)]
pub(crate) enum What {
    /// Commands, as they are typed.
    Commands(String),
    /// A host loses its power.
    SwitchOff,
}

/// The sections of a page; what is wrong with it, if a block of it cannot be followed.
pub(crate) fn sections(text: &str) -> Result<Vec<Section>, String> {
    let mut sections = vec![Section::default()];
    let mut lines = text.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let section = sections.last_mut().expect("there is one from the beginning on");
        if let Some(title) = line.strip_prefix("## ") {
            sections.push(Section { title: title.to_owned(), blocks: Vec::new() });
        } else if let Some(language) = line.strip_prefix("```") {
            let inner: Vec<&str> =
                lines.by_ref().map(|(_, line)| line).take_while(|line| *line != "```").collect();
            add(section, index + 1, language, &inner)?;
        } else if line.trim_start().starts_with("```") {
            return Err(format!("line {}: a block that is not at the line's begin", index + 1));
        }
    }
    Ok(sections)
}

fn add(section: &mut Section, line: usize, language: &str, inner: &[&str]) -> Result<(), String> {
    match language {
        "sh" => {
            section.blocks.push(block(line, inner)?);
            Ok(())
        }
        "" => match section.blocks.last_mut() {
            Some(last) if last.prints.is_none() => {
                last.prints = Some(inner.join("\n"));
                Ok(())
            }
            _ => Err(format!("line {line}: output of no block")),
        },
        other => Err(format!("line {line}: `{other}` is neither commands nor output")),
    }
}

fn block(line: usize, inner: &[&str]) -> Result<Block, String> {
    let (first, rest) = inner.split_first().ok_or_else(|| format!("line {line}: an empty block"))?;
    let (names, what) = match (first.strip_prefix(ON), first.strip_prefix(SWITCH_OFF)) {
        (Some(names), _) if !rest.is_empty() => (names, What::Commands(rest.join("\n"))),
        (_, Some(names)) if rest.is_empty() => (names, What::SwitchOff),
        _ => return Err(format!("line {line}: a block that does not say on which host: {first}")),
    };
    let hosts: Vec<String> = names.split(", ").map(str::to_owned).collect();
    let is_known = |name: &String| name == "client" || number_of(name).is_some();
    match hosts.iter().find(|name| !is_known(name)) {
        Some(unknown) => Err(format!("line {line}: `{unknown}` is no host")),
        None => Ok(Block { line, hosts, what, prints: None }),
    }
}

/// The number of `host-N`.
pub(crate) fn number_of(name: &str) -> Option<u16> {
    name.strip_prefix("host-")?.parse().ok()
}

/// Whether what was printed is what the page shows. A line of three points is any lines, and within a line
/// they are any text.
pub(crate) fn shows(page: &str, printed: &str) -> bool {
    let [page, printed] = [page, printed].map(|text| text.lines().collect::<Vec<_>>());
    match_lines(&page, &printed)
}

fn match_lines(page: &[&str], printed: &[&str]) -> bool {
    match page.split_first() {
        None => printed.is_empty(),
        Some((&ANY, rest)) => (0..=printed.len()).any(|skipped| match_lines(rest, &printed[skipped..])),
        Some((line, rest)) => printed
            .split_first()
            .is_some_and(|(found, others)| match_line(line, found) && match_lines(rest, others)),
    }
}

fn match_line(page: &str, printed: &str) -> bool {
    let mut parts = page.split(ANY);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = printed.strip_prefix(first) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::{What, sections, shows};

    #[test]
    fn page_gives_its_blocks_with_hosts_and_output() {
        let page = "text\n## One\n```sh\n# on host-1, client\necho a\n```\n```\na\n```\n\
                    ## Two\n```sh\n# switch off host-3\n```\n";
        let found = sections(page).unwrap();
        let titles: Vec<&str> = found.iter().map(|section| section.title.as_str()).collect();
        assert_eq!(titles, ["", "One", "Two"]);
        let typed = &found[1].blocks[0];
        assert_eq!((typed.line, typed.hosts.join(" ").as_str()), (3, "host-1 client"));
        assert_eq!((&typed.what, typed.prints.as_deref()), (&What::Commands("echo a".to_owned()), Some("a")));
        assert_eq!(found[2].blocks[0].what, What::SwitchOff);
    }

    #[test]
    fn block_that_nobody_could_follow_is_refused() {
        for (wrong, why) in [
            ("```sh\necho a\n```\n", "on which host"),
            ("```sh\n# on host-1\n```\n", "on which host"),
            ("```sh\n```\n", "empty"),
            ("```sh\n# on elsewhere\necho a\n```\n", "no host"),
            ("```toml\na = 1\n```\n", "neither"),
            ("```\nprinted\n```\n", "output of no block"),
            ("- item\n  ```sh\n  # on host-1\n", "line's begin"),
        ] {
            let said = sections(wrong).unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
    }

    #[test]
    fn output_is_compared_but_for_what_differs() {
        assert!(shows("a\n...\nb ... c", "a\nx\ny\nb 1 2 c\n"));
        assert!(shows("...", ""));
        assert!(!shows("a", "a\nb\n"));
        assert!(!shows("a ... c", "a b\n"));
        assert!(!shows("a\n...\nb", "a\n"));
    }
}
