//! `judge PATH…`: judges the histories in files, and in folders.

use holdfast_judge::record::{File, Record, read};
use holdfast_judge::verdict::{Verdict, judge};
use std::collections::BTreeMap;
use std::io::Result;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let paths: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if paths.is_empty() {
        eprintln!("Which histories? Name files or folders: npm run judge -- tools/judge/histories");
        return ExitCode::from(2);
    }
    match judge_all(&paths) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Answers the number of histories that no order explains.
fn judge_all(paths: &[PathBuf]) -> Result<usize> {
    let mut broken = 0;
    for path in files(paths)? {
        if !report(&path, &read(&path)?) {
            broken += 1;
        }
    }
    Ok(broken)
}

fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for path in paths {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let mut inside = Vec::new();
        for entry in std::fs::read_dir(path)? {
            let file = entry?.path();
            if file.extension().is_some_and(|extension| extension == "jsonl") {
                inside.push(file);
            }
        }
        if inside.is_empty() {
            let message = format!("{}: there is no history (*.jsonl) in it", path.display());
            return Err(std::io::Error::other(message));
        }
        inside.sort();
        files.extend(inside);
    }
    Ok(files)
}

/// Prints the verdict on a history. Answers whether it is linearizable.
fn report(path: &Path, file: &File) -> bool {
    let mut locks: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for name in file.records.iter().filter_map(|record| record.lock.as_deref()) {
        locks.entry(name).or_default();
    }
    for record in &file.records {
        match record.lock.as_deref() {
            Some(name) => locks.entry(name).or_default().push(record),
            None => locks.values_mut().for_each(|records| records.push(record)),
        }
    }
    // One lock knows nothing of another, so each has a history of its own.
    let verdicts: Vec<(&str, Verdict)> =
        locks.iter().map(|(name, records)| (*name, judge(records))).collect();
    let broken: Vec<_> = verdicts.iter().filter(|(_, verdict)| verdict.broken.is_some()).collect();
    let word = if broken.is_empty() { "linearizable" } else { "NOT LINEARIZABLE" };
    let sum =
        |of: fn(&Verdict) -> usize| verdicts.iter().map(|(_, verdict)| of(verdict)).sum::<usize>();
    println!("{}: {word}", path.display());
    println!("  {}", file.header.title);
    println!(
        "  {} locks, {} holds, {} operations, {} records",
        locks.len(),
        sum(|verdict| verdict.holds),
        sum(|verdict| verdict.operations),
        file.records.len()
    );
    for (name, verdict) in &broken {
        if let Some(record) = &verdict.broken {
            println!("  {name}: no order explains {}", tell(record));
            for other in others(record, &locks[*name]) {
                println!("    meanwhile: {}", tell(other));
            }
        }
    }
    broken.is_empty()
}

/// The grants whose owners believed in them at the end of `wrong`, and those that came right before.
fn others<'a>(wrong: &Record, records: &[&'a Record]) -> Vec<&'a Record> {
    let end = wrong.returned.unwrap_or(u64::MAX);
    let mut earlier: Vec<&Record> = records
        .iter()
        .copied()
        .filter(|each| {
            each.done().is_some_and(|done| done < end)
                && each.fence.is_some() | each.until.is_some()
        })
        .collect();
    earlier.sort_by_key(|each| each.returned);
    earlier.split_off(earlier.len().saturating_sub(3))
}

fn tell(record: &Record) -> String {
    let Record { process, action, hold, call, returned, fence, until, .. } = record;
    let mut words = vec![process.clone(), format!("{action:?}").to_lowercase()];
    words.extend(hold.iter().map(|hold| format!("hold {hold}")));
    words.extend(fence.map(|fence| format!("fence {fence}")));
    words.push(match returned {
        Some(returned) => format!("[{call} … {returned}]"),
        None => format!("[{call} …"),
    });
    words.extend(until.map(|until| format!("held until {until}")));
    words.join(" ")
}
