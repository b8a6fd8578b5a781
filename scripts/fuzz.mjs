// Feeds the core with arbitrary bytes, each target for a number of minutes. Needs cargo-fuzz
// (`cargo install cargo-fuzz`) and a C++ compiler.
//
//   npm run fuzz -- [--minutes M] [--keep] [target…]
//
// An input that breaks a promise is written to `fuzz/artifacts/<target>/` and ends the run. The other inputs
// stay in `fuzz/found/`, for the next run; `--keep` adds those of the readers that reach new code to `fuzz/corpus/`,
// which the unit tests replay. The inputs of the other targets mean something else after each change of the code.

import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const root = join(import.meta.dirname, '..');
const folder = join(root, 'fuzz');
const all = readdirSync(join(folder, 'fuzz_targets')).map((file) => file.replace(/\.rs$/, ''));
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    minutes: { type: 'string', default: '10' },
    keep: { type: 'boolean', default: false },
  },
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) throw new Error(`--minutes takes a number above 0, got ${values.minutes}`);
const targets = positionals.length === 0 ? all : positionals;
const unknown = targets.find((target) => !all.includes(target));
if (unknown !== undefined) throw new Error(`no target ${unknown}; there are ${all.join(', ')}`);

/** Longer inputs find little more, and nobody reads them. */
const LENGTH_MAX = { conversation: 2_048, replies: 1_024 };

writeLibrary();
for (const target of targets) {
  const found = join(folder, 'found', target);
  mkdirSync(found, { recursive: true });
  const corpus = join(folder, 'corpus', target);
  const corpora = existsSync(corpus) ? [corpus] : [];
  const limits = [`-max_len=${LENGTH_MAX[target] ?? 512}`, '-timeout=60', '-rss_limit_mb=2048'];
  const seconds = Math.ceil(minutes * 60);
  fuzz(
    target,
    [found, ...corpora],
    [`-max_total_time=${seconds}`, '-print_final_stats=1', ...limits],
  );
  if (values.keep && corpora.length > 0) fuzz(target, [corpus, found], ['-merge=1', ...limits]);
}

/** Writes the manifest of the crate as an `rlib`, which its own cannot have beside `lto`. */
function writeLibrary() {
  const manifest = readFileSync(join(root, 'Cargo.toml'), 'utf8');
  const sources = 'build = "../../build.rs"\n\n[lib]\npath = "../../src/lib.rs"\n';
  const library = manifest.replace(/^\[lib\]\n(?:.+\n)*/m, sources);
  mkdirSync(join(folder, 'holdfast'), { recursive: true });
  writeFileSync(join(folder, 'holdfast', 'Cargo.toml'), library);
}

/** Without a sanitizer: the core has no unsafe code, and the run finds as much in half of the time. */
function fuzz(target, corpora, options) {
  const args = ['fuzz', 'run', '--sanitizer', 'none', '--fuzz-dir', folder, target, ...corpora];
  console.log(`── ${target}: ${options.join(' ')}`);
  const { status, error } = spawnSync('cargo', [...args, '--', ...options], { stdio: 'inherit' });
  if (error !== undefined) throw error;
  if (status !== 0) process.exit(status ?? 1);
}
