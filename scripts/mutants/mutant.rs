//! Which mistake is made, and by which tests the code of each is reached. Only in copies that `npm run mutants` makes.

use std::collections::HashSet;
use std::env::var;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{LazyLock, Mutex};

/// The number of the mistake.
static ON: LazyLock<u32> =
    LazyLock::new(|| var("HOLDFAST_MUTANT").ok().and_then(|it| it.parse().ok()).unwrap_or(0));
static REACHED: LazyLock<Option<Mutex<Reached>>> = LazyLock::new(|| {
    let file = OpenOptions::new().create(true).append(true).open(var("HOLDFAST_REACHED").ok()?);
    Some(Mutex::new(Reached { file: file.ok()?, lines: HashSet::new() }))
});

struct Reached {
    file: File,
    lines: HashSet<String>,
}

/// Whether this one is made.
pub fn on(number: u32) -> bool {
    if let Some(reached) = &*REACHED {
        // The thread of a test has its name.
        let line = format!("{number} {}\n", std::thread::current().name().unwrap_or("?"));
        let mut reached = reached.lock().unwrap_or_else(|it| it.into_inner());
        if !reached.lines.contains(&line) {
            let _ = reached.file.write_all(line.as_bytes());
            reached.lines.insert(line);
        }
    }
    *ON == number
}
