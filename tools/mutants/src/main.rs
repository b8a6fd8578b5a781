//! Finds plausible mistakes of the Rust and Lua sources by their syntax, and writes them into a copy.
//!
//! `holdfast-mutants list ROOT` prints all mistakes of `ROOT/src`, in an order that depends on the sources alone.
//! `holdfast-mutants write ROOT COPY` reads the numbers of some of the Rust ones, writes all of these into the files of
//! `COPY`, each behind a switch (`crate::mutant::on(NUMBER)`), and prints where in these files each is.
//!
//! Only one is switched on at a time. A mistake of Lua is a change of the text, which its reader makes.

mod cfg;
mod lua;
mod mistake;
mod rust;

use mistake::{Mistake, Place};
use std::collections::BTreeSet;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folder of the scripts.
const SCRIPTS: &str = "src/protocol/lua";

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["list", root] => serde_json::to_writer(io::stdout(), &all(Path::new(root))?)?,
        ["write", root, copy] => {
            let chosen: BTreeSet<usize> = serde_json::from_reader(io::stdin())?;
            let places = write(Path::new(root), Path::new(copy), &chosen)?;
            serde_json::to_writer(io::stdout(), &places)?;
        }
        _ => return Err("usage: holdfast-mutants list ROOT | write ROOT COPY".into()),
    }
    Ok(())
}

/// All mistakes, numbered from 1.
fn all(root: &Path) -> Outcome<Vec<Mistake>> {
    let mut all = Vec::new();
    let excluded = excluded(root)?;
    for file in files(root)? {
        let text = fs::read_to_string(root.join(&file))?;
        let name = file.to_string_lossy();
        let mut found = match file.extension().and_then(|it| it.to_str()) {
            Some("lua") => lua::mistakes_of(&text)?,
            Some("rs") if !excluded.iter().any(|it| file.starts_with(it)) => {
                rust::mistakes_of(&text).map_err(|error| format!("{name}: {error}"))?
            }
            _ => Vec::new(),
        };
        found.sort_by_key(Mistake::order);
        for mut it in found {
            it.number = all.len() + 1;
            it.file = name.clone().into_owned();
            all.push(it);
        }
    }
    Ok(all)
}

/// Writes the chosen ones of each file.
fn write(root: &Path, copy: &Path, chosen: &BTreeSet<usize>) -> Outcome<Vec<Place>> {
    let mut mistakes = all(root)?;
    mistakes.retain(|it| chosen.contains(&it.number) && !it.file.starts_with(SCRIPTS));
    let mut places = Vec::new();
    for of_file in mistakes.chunk_by(|a, b| a.file == b.file) {
        let Some(Mistake { file, .. }) = of_file.first() else { continue };
        let text = fs::read_to_string(root.join(file))?;
        let written = mistake::write(&text, of_file, &mut places);
        fs::write(copy.join(file), written)?;
    }
    Ok(places)
}

/// Below `src`, sorted.
fn files(root: &Path) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![root.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path.strip_prefix(root)?.to_owned());
            }
        }
    }
    // What is no code of the project's own.
    files.retain(|it| it.starts_with(SCRIPTS) || it.extension().is_some_and(|e| e == "rs"));
    files.sort();
    Ok(files)
}

/// The files and folders of the modules that the addon is compiled without.
fn excluded(root: &Path) -> Outcome<Vec<PathBuf>> {
    let mut excluded = Vec::new();
    for file in files(root)? {
        if file.extension().is_none_or(|it| it != "rs") {
            continue;
        }
        let parsed = syn::parse_file(&fs::read_to_string(root.join(&file))?)?;
        let folder = match file.file_stem().and_then(|it| it.to_str()) {
            Some("lib" | "mod") => file.with_file_name(""),
            _ => file.with_extension(""),
        };
        for item in parsed.items {
            let syn::Item::Mod(module) = item else { continue };
            if module.content.is_none() && !cfg::is_compiled(&module.attrs) {
                let name = folder.join(module.ident.to_string());
                excluded.push(name.with_extension("rs"));
                excluded.push(name);
            }
        }
    }
    Ok(excluded)
}
