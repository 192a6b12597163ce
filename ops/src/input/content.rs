//! The lines of a source that are to be records, and whether the source was whole: a dump has an end, which
//! counts its entries, and what is packed ends where its packer says so.

use std::io::{self, BufRead};
use std::time::Duration;

use cell_terms::mutant::{Mutant, planted};
use cell_terms::text::counted;

use super::ahead::Arriving;
use super::format::{Format, Mark};
use super::line::{InputLine, Lines};
use super::record::Parser;

/// Why a source is not whole.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Incomplete {
    /// The source is over, and the dump is not.
    #[error("the dump that begins at line {begins} is incomplete: after {} it has no end", entries(*.read))]
    NoEnd {
        /// Line of its heading.
        begins: u64,
        /// Its entries so far.
        read: u64,
    },
    /// Another dump begins before it is over.
    #[error(
        "the dump that begins at line {begins} is incomplete: after {} another one begins at line {line}",
        entries(*.read)
    )]
    NotEnded {
        /// Line of its heading.
        begins: u64,
        /// Its entries so far.
        read: u64,
        /// Line of the other heading.
        line: u64,
    },
    /// Lines are missing, or were added.
    #[error("line {line} ends a dump of {}, and it has {read}: it is not whole, or was changed", entries(*.said))]
    WrongCount {
        /// Line of its end.
        line: u64,
        /// Entries that it had.
        said: u64,
        /// Entries that are there.
        read: u64,
    },
    /// What is behind a dump is no dump.
    #[error("line {line} follows the end of a dump and does not begin another one of the same format")]
    AfterEnd {
        /// Which.
        line: u64,
    },
    /// Written by another version.
    #[error("line {line} is a mark of a dump that this build does not know")]
    UnknownMark {
        /// Which.
        line: u64,
    },
    /// The file, or what unpacks it, says so.
    #[error("it cannot be read {}{}: {error}", reached(*.line), hint(.error))]
    Unreadable {
        /// The last one that was read; 0: none was.
        line: u64,
        /// The system's or the unpacker's.
        error: io::Error,
    },
}

fn entries(count: u64) -> String {
    counted(count, "entry", "entries")
}

fn reached(line: u64) -> String {
    if line == 0 { "to its first record".to_owned() } else { format!("any further than line {line}") }
}

fn hint(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::UnexpectedEof { ", because it is cut off" } else { "" }
}

/// How far the dumps of a source are.
#[derive(Clone, Copy, Debug)]
enum State {
    /// A heading is due.
    Over,
    /// So many entries followed the heading of this line.
    Open { begins: u64, read: u64 },
}

/// The lines of a source that are to be records.
pub(crate) struct Content<'l, R> {
    lines: &'l mut Lines<R>,
    /// That of a dump; other sources have no marks.
    dump: Option<Format>,
    state: State,
    skip: u64,
    last: u64,
}

impl Incomplete {
    /// What can be done.
    pub(crate) fn next(&self) -> &'static str {
        match self {
            Incomplete::UnknownMark { .. } => "load it with the version of cell that wrote it",
            Incomplete::AfterEnd { .. } => "take what is not of the dump away, and load that by itself",
            _ => {
                "make the dump again, or copy all of it, and load that: what is in the store is written anew"
            }
        }
    }
}

impl<R: Arriving> Content<'_, R> {
    /// Whether the next line, or the end, is there, or comes within this time.
    pub(crate) fn is_next_here(&mut self, within: Duration) -> bool {
        self.lines.is_next_here(within)
    }
}

impl<'l, R: BufRead> Content<'l, R> {
    /// Of a source as its parser reads it, whose first `skip` lines are not records.
    pub(crate) fn new(lines: &'l mut Lines<R>, parser: &Parser, skip: u64) -> Content<'l, R> {
        Content { lines, dump: parser.dump(), state: State::Over, skip, last: 0 }
    }

    /// The next line and its number; without the line where it is not to be a record. None: that was all, and
    /// the source was whole.
    ///
    /// # Errors
    /// The source is not whole. Nothing of it can be read after that.
    pub(crate) fn next(&mut self) -> Result<Option<(u64, Option<InputLine<'_>>)>, Incomplete> {
        let last = self.last;
        let next = self.lines.next().map_err(|error| Incomplete::Unreadable { line: last, error })?;
        let Some((number, line)) = next else {
            return match self.state {
                State::Open { begins, read } if !planted(Mutant::DumpEndUnasked) => {
                    Err(Incomplete::NoEnd { begins, read })
                }
                _ => Ok(None),
            };
        };
        self.last = number;
        let is_mark = match self.dump {
            Some(format) => follow(&mut self.state, format, number, &line)?,
            None => false,
        };
        Ok(Some((number, (!is_mark && number > self.skip).then_some(line))))
    }
}

/// Takes a line of a dump in; whether it is a mark.
fn follow(state: &mut State, format: Format, line: u64, content: &InputLine<'_>) -> Result<bool, Incomplete> {
    let mark = match content {
        InputLine::Text(text) => format.mark_of(text),
        InputLine::Unended(_) | InputLine::TooLong => None,
    };
    match (mark, *state) {
        (Some(Mark::Unknown), _) => Err(Incomplete::UnknownMark { line }),
        (Some(Mark::Heading), State::Over) => {
            *state = State::Open { begins: line, read: 0 };
            Ok(true)
        }
        (Some(Mark::Heading), State::Open { begins, read }) => {
            Err(Incomplete::NotEnded { begins, read, line })
        }
        (Some(Mark::End { entries: said }), State::Open { read, .. }) if said != read => {
            Err(Incomplete::WrongCount { line, said, read })
        }
        (Some(Mark::End { .. }), State::Open { .. }) => {
            *state = State::Over;
            Ok(true)
        }
        (None, State::Over) if matches!(content, InputLine::Unended(_)) => {
            Err(Incomplete::NoEnd { begins: line, read: 0 })
        }
        (Some(Mark::End { .. }) | None, State::Over) => Err(Incomplete::AfterEnd { line }),
        (None, State::Open { begins, read }) => {
            // A part of an entry is none.
            let is_whole = !matches!(content, InputLine::Unended(_));
            *state = State::Open { begins, read: read + u64::from(is_whole) };
            Ok(false)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufReader, Cursor, Read};

    use super::*;
    use crate::input::record::Columns;

    fn dump_parser(format: Format) -> Parser {
        let columns = Columns { key: None, value: None, value_default: None, escaped: true };
        Parser::new(format, &columns).unwrap().of_dump()
    }

    /// How many lines are to be records, and why the source is not whole.
    fn read(format: Format, text: &[u8]) -> (usize, Option<Incomplete>) {
        let (parser, mut lines) = (dump_parser(format), Lines::new(Cursor::new(text)));
        let mut content = Content::new(&mut lines, &parser, 1);
        let mut records = 0;
        loop {
            match content.next() {
                Ok(Some((_, line))) => records += usize::from(line.is_some()),
                Ok(None) => return (records, None),
                Err(incomplete) => return (records, Some(incomplete)),
            }
        }
    }

    fn dump(format: Format) -> Vec<u8> {
        let entries: &[u8] = match format {
            Format::Tsv => b"a\tb\nc\t#cell-dump end 1\n",
            Format::Json => b"{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"c\",\"value\":\"d\"}\n",
        };
        [format.heading(), b"\n", entries, format.end(2).as_bytes(), b"\n"].concat()
    }

    /// How many cuts of a dump, or of two in a row, pass for whole.
    fn cuts_that_pass(format: Format) -> usize {
        let one = dump(format);
        let two = [&one[..], &one].concat();
        let passes = |length: usize| read(format, &two[..length]).1.is_none();
        // A head without a whole heading is refused where the source is opened.
        let heading = format.heading().len();
        (heading..two.len()).filter(|length| *length != one.len() && passes(*length)).count()
    }

    #[test]
    fn next_a_dump_is_whole_with_its_end_alone() {
        for format in [Format::Tsv, Format::Json] {
            let one = dump(format);
            assert!(matches!(read(format, &one), (2, None)));
            assert!(matches!(read(format, &[&one[..], &one].concat()), (4, None)));
            assert_eq!(cuts_that_pass(format), 0, "{format:?}");
            let empty = [format.heading(), b"\r\n", format.end(0).as_bytes(), b"\r\n"].concat();
            assert!(matches!(read(format, &empty), (0, None)));
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_dump_end_unasked_is_caught() {
        cell_terms::mutant::in_own_process(|| {
            cell_terms::mutant::plant(Some(Mutant::DumpEndUnasked));
            let passed = cuts_that_pass(Format::Tsv);
            cell_terms::mutant::plant(None);
            assert!(passed > 0);
            println!("mutant {} caught by cell-ops' dump", Mutant::DumpEndUnasked.name());
        });
    }

    #[test]
    fn next_what_is_not_a_whole_dump_says_what_it_is() {
        let heading = "#cell-dump 1 tsv escaped\n";
        for (text, words) in [
            ("a\tb\n", "line 1 is incomplete: after 1 entry it has no end"),
            ("a\tb\nc\td", "after 1 entry it has no end"),
            ("a\tb\n#cell-dump end 1", "after 1 entry it has no end"),
            ("a\tb\n#cell-dump end 2\n", "line 3 ends a dump of 2 entries, and it has 1"),
            ("a\tb\nc\td\n#cell-dump end 1\n", "line 4 ends a dump of 1 entry, and it has 2"),
            ("a\tb\n#cell-dump 1 tsv escaped\n", "after 1 entry another one begins at line 3"),
            ("#cell-dump end 0\na\tb\n", "line 3 follows the end of a dump"),
            ("#cell-dump end 0\n#cell-dump end 0\n", "line 3 follows the end of a dump"),
            ("a\tb\n#cell-dump 2 tsv\n", "line 3 is a mark of a dump that this build does not know"),
        ] {
            let said = read(Format::Tsv, format!("{heading}{text}").as_bytes()).1.unwrap().to_string();
            assert!(said.contains(words), "{text:?}: {said}");
        }
    }

    #[test]
    fn next_what_cannot_be_read_is_no_end() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::UnexpectedEof.into())
            }
        }
        let columns = Columns { key: None, value: None, value_default: None, escaped: false };
        let parser = Parser::new(Format::Tsv, &columns).unwrap();
        let mut lines = Lines::new(BufReader::new(Cursor::new("a\tb\nc").chain(Broken)));
        let mut content = Content::new(&mut lines, &parser, 0);
        assert!(matches!(content.next(), Ok(Some((1, Some(_))))));
        let said = content.next().unwrap_err().to_string();
        assert!(
            said.starts_with("it cannot be read any further than line 1, because it is cut off"),
            "{said}"
        );
    }
}
