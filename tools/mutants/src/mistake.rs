//! A mistake, and how the chosen ones are written into a text.

use serde::Serialize;
use std::ops::Range;

/// One change of a source.
#[derive(Serialize)]
pub(crate) struct Mistake {
    /// From 1, among all.
    pub(crate) number: usize,
    pub(crate) file: String,
    pub(crate) line: usize,
    pub(crate) kind: &'static str,
    /// The text before and after, as it is told.
    pub(crate) was: String,
    pub(crate) becomes: String,
    /// The bytes of the source that it is about.
    pub(crate) span: Range<usize>,
    /// What is written around them; of Lua `before` takes their place.
    pub(crate) switch: Switch,
}

impl Mistake {
    /// A mistake that has no number and no file yet.
    pub(crate) const fn new(
        kind: &'static str,
        line: usize,
        was: String,
        becomes: String,
        span: Range<usize>,
        switch: Switch,
    ) -> Self {
        Self { number: 0, file: String::new(), line, kind, was, becomes, span, switch }
    }

    /// Where it stands among those of its file: the outer of two that begin in one place comes first.
    pub(crate) const fn order(&self) -> (usize, usize, usize) {
        (self.span.start, usize::MAX - self.span.end, self.number)
    }
}

/// Stands for the number of a mistake in its switch.
const NUMBER: char = '\0';

/// The switch around a span.
#[derive(Serialize)]
pub(crate) struct Switch {
    pub(crate) before: String,
    pub(crate) after: &'static str,
}

/// Where a mistake is in the text that was written.
#[derive(Serialize)]
pub(crate) struct Place {
    number: usize,
    file: String,
    span: Range<usize>,
}

/// The text with all of them. Inside of a switch, other mistakes are only where its own is off.
pub(crate) fn write(text: &str, mistakes: &[Mistake], places: &mut Vec<Place>) -> String {
    let mut outermost_first: Vec<_> = mistakes.iter().collect();
    outermost_first.sort_by_key(|it| it.order());
    let mut writer = Writer { text, at: 0, written: String::new(), open: Vec::new() };
    for it in outermost_first {
        places.extend(writer.close(it.span.start));
        writer.open(it);
    }
    places.extend(writer.close(text.len()));
    writer.copy(text.len());
    writer.written
}

struct Writer<'a> {
    text: &'a str,
    /// How much of the text is written.
    at: usize,
    written: String,
    /// The switches around this place, and where each begins in what is written.
    open: Vec<(&'a Mistake, usize)>,
}

impl<'a> Writer<'a> {
    fn copy(&mut self, until: usize) {
        self.written.push_str(&self.text[self.at..until]);
        self.at = until;
    }

    fn open(&mut self, mistake: &'a Mistake) {
        self.copy(mistake.span.start);
        self.open.push((mistake, self.written.len()));
        self.written.push_str(&mistake.switch.before.replace(NUMBER, &mistake.number.to_string()));
    }

    fn close(&mut self, until: usize) -> Vec<Place> {
        let mut closed = Vec::new();
        while let Some((it, began)) = self.open.pop_if(|(it, _)| it.span.end <= until) {
            self.copy(it.span.end);
            self.written.push_str(it.switch.after);
            let span = began..self.written.len();
            closed.push(Place { number: it.number, file: it.file.clone(), span });
        }
        closed
    }
}
