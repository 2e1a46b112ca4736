//! What of a file is said to people: all of a document, and the comments of a source.

/// Whether a piece of a line is a comment, or part of a string literal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    Comment,
    Literal,
}

/// Which comments a file has.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Document,
    Slashes,
    Hashes,
}

impl Kind {
    /// `None` where a file is neither a document nor a source.
    pub(crate) fn of(file: &str, text: &str) -> Option<Self> {
        let name = file.rsplit('/').next().unwrap_or(file);
        match name.rsplit_once('.').map(|(_, ending)| ending) {
            Some("md") => Some(Self::Document),
            Some("rs" | "c" | "h") => Some(Self::Slashes),
            Some("sh" | "toml" | "py") => Some(Self::Hashes),
            None if text.starts_with("#!") => Some(Self::Hashes),
            _ => None,
        }
    }

    /// What is said, by the number of its line.
    pub(crate) fn pieces(self, text: &str) -> Vec<(usize, Said, String)> {
        let lines = || text.lines().enumerate().map(|(at, line)| (at + 1, line));
        match self {
            Self::Document => lines().map(|(at, line)| (at, Said::Comment, line.to_owned())).collect(),
            Self::Hashes => lines().map(|(at, line)| hashed(at, line)).collect(),
            Self::Slashes => slashed(text),
        }
    }
}

/// A hash behind nothing or a blank begins a comment, wherever quotes are: what a string says is judged too.
fn hashed(at: usize, line: &str) -> (usize, Said, String) {
    let begins = |(place, _): &(usize, &str)| *place == 0 || line[..*place].ends_with([' ', '\t']);
    match line.match_indices('#').find(begins) {
        Some((place, _)) => (at, Said::Comment, line[place..].to_owned()),
        None => (at, Said::Literal, line.to_owned()),
    }
}

/// Where a reader of Rust or C is.
enum State {
    Code,
    Line,
    /// So many begun inside each other.
    Block(usize),
    /// With the hashes that end it, where it is raw.
    Text(Option<usize>),
}

fn slashed(text: &str) -> Vec<(usize, Said, String)> {
    let letters: Vec<char> = text.chars().collect();
    let (mut state, mut at, mut line) = (State::Code, 0, 1);
    let (mut pieces, mut piece) = (Vec::new(), String::new());
    let is =
        |at: usize, what: &str| what.chars().enumerate().all(|(more, letter)| letters.get(at + more) == Some(&letter));
    while let Some(&letter) = letters.get(at) {
        let said = match state {
            State::Code => None,
            State::Line | State::Block(_) => Some(Said::Comment),
            State::Text(_) => Some(Said::Literal),
        };
        let mut wide = 1;
        let next = match state {
            State::Code if is(at, "//") => Some(State::Line),
            State::Code if is(at, "/*") => Some(State::Block(1)),
            State::Code if letter == '"' => Some(State::Text(raw(&letters, at))),
            State::Code if letter == '\'' => {
                wide = character(&letters, at);
                None
            }
            State::Line if letter == '\n' => Some(State::Code),
            State::Block(depth) if is(at, "*/") => Some(if depth == 1 { State::Code } else { State::Block(depth - 1) }),
            State::Block(depth) if is(at, "/*") => Some(State::Block(depth + 1)),
            State::Text(None) if letter == '\\' => {
                wide = 2;
                None
            }
            State::Text(None) if letter == '"' => Some(State::Code),
            State::Text(Some(hashes)) if letter == '"' && is(at + 1, &"#".repeat(hashes)) => Some(State::Code),
            _ => None,
        };
        if let (Some(said), true) = (said, next.is_some() || letter == '\n') {
            pieces.push((line, said, std::mem::take(&mut piece)));
        } else if said.is_some() {
            piece.push(letter);
        }
        line += letters[at..letters.len().min(at + wide)].iter().filter(|letter| **letter == '\n').count();
        at += wide;
        state = next.unwrap_or(state);
    }
    pieces.extend((!piece.is_empty()).then_some((line, Said::Comment, piece)));
    pieces
}

/// The hashes in front of a quote, where an `r` is in front of them.
fn raw(letters: &[char], quote: usize) -> Option<usize> {
    let hashes = letters[..quote].iter().rev().take_while(|letter| **letter == '#').count();
    (letters[..quote - hashes].last() == Some(&'r')).then_some(hashes)
}

/// How wide a character literal is; 1 for a lifetime's mark.
fn character(letters: &[char], at: usize) -> usize {
    match (letters.get(at + 1), letters.get(at + 2)) {
        (Some('\\'), _) => {
            3 + letters[(at + 3).min(letters.len())..].iter().take_while(|letter| **letter != '\'').count() + 1
        }
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_of_rust_are_told_apart() {
        let text = "let a = \"x // y\"; // one\nlet b = '\"'; /* two\n three */ fn f<'a>() {} // four\nr#\"five\" // \"#; '\\'' // six\n";
        let found = Kind::Slashes.pieces(text);
        let of = |kind: Said| {
            let pieces = found.iter().filter(|(_, said, _)| *said == kind);
            pieces.map(|(line, _, piece)| (*line, piece.trim_matches(['/', '*', ' ']))).collect::<Vec<_>>()
        };
        assert_eq!(of(Said::Comment), [(1, "one"), (2, "two"), (3, "three"), (3, "four"), (4, "six")]);
        assert_eq!(of(Said::Literal), [(1, "x // y"), (4, "five\"")]);
    }

    #[test]
    fn a_hash_begins_a_comment_where_a_word_may_begin() {
        let pieces = Kind::Hashes.pieces("a=${b#c} # d\n# e\nf");
        assert_eq!(
            pieces.iter().map(|(line, said, _)| (*line, *said)).collect::<Vec<_>>(),
            [(1, Said::Comment), (2, Said::Comment), (3, Said::Literal)]
        );
        assert_eq!(pieces[0].2, "# d");
    }
}
