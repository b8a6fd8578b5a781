// A copy of the core with mistakes, and its builds.

import { spawnSync } from 'node:child_process';
import { appendFileSync, copyFileSync, cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { LEFT_OUT, makeCopy, ROOT } from './copy.mjs';

/** For files of a run. */
export const WORK = join(ROOT, 'target', 'mutants');
const CORE = join(WORK, 'core');
const MANIFEST = join(ROOT, 'tools', 'mutants', 'Cargo.toml');
const MAKER_TARGET = join(ROOT, 'target', 'judge');
const MAKER = join(MAKER_TARGET, 'release', 'holdfast-mutants');
/** Another version, so that the builds of the copy do not replace the project's own. */
const VERSIONED = ['Cargo.toml', 'Cargo.lock'];
/** Cargo finds it above the copy; twice its flags would be other ones. */
const CONFIGURATION = '.cargo';
/** The libraries are those of the project's own builds. */
const TARGET = join(ROOT, 'target');
const BIG = { encoding: 'utf8', maxBuffer: 2 ** 30 };
const LUA = join('src', 'protocol', 'lua');
/** The build takes longer than the tests. */
const QUICKLY = {
  CARGO_PROFILE_TEST_OPT_LEVEL: '1',
  CARGO_PROFILE_RELEASE_OPT_LEVEL: '1',
  CARGO_PROFILE_RELEASE_LTO: 'off',
  CARGO_PROFILE_RELEASE_CODEGEN_UNITS: '16',
};
const FEATURES = ['--no-default-features', '--features', 'core'];
/** The code of the addon, and that of the unit tests: either has parts that the other lacks. */
const CHECKED = [[], ['--tests', ...FEATURES]];

/** All mistakes of Rust and Lua: `{ number, file, line, kind, was, becomes, span, switch }`. */
export function findMistakes() {
  cargo(ROOT, ['build', '--release', '--manifest-path', MANIFEST, '--target-dir', MAKER_TARGET]);
  return make(['list', ROOT]);
}

function makeCore() {
  makeCopy(CORE, ['src', ...VERSIONED], [...LEFT_OUT, CONFIGURATION]);
  for (const path of VERSIONED.map((file) => join(CORE, file))) {
    const version = /(name = "holdfast"\nversion = ")[^"]+/;
    const text = readFileSync(path, 'utf8');
    writeFileSync(
      path,
      text.replace(version, (_, before) => `${before}0.0.0-mutants`),
    );
  }
  cpSync(join(import.meta.dirname, 'mutant.rs'), join(CORE, 'src', 'mutant.rs'));
  appendFileSync(join(CORE, 'src', 'lib.rs'), '\n#[doc(hidden)]\npub mod mutant;\n');
}

/** The unit tests of a copy with all of these mistakes but those that the compiler refuses. */
export function buildWith(mistakes) {
  makeCore();
  const refused = refuse(mistakes);
  const built = cargo(CORE, ['test', '--no-run', ...FEATURES, '--message-format=json']);
  const { executable } = messages(built).find((each) => typeof each.executable === 'string');
  // A later build would take its place.
  const binary = join(WORK, `tests-${process.pid}`);
  copyFileSync(executable, binary);
  process.once('exit', () => rmSync(binary));
  return { binary, refused };
}

/** The addon of the same copy, as a file. */
export function buildAddon() {
  const built = cargo(CORE, ['build', '--release', '--message-format=json']);
  const files = messages(built).flatMap(({ target, filenames }) =>
    target?.name === 'holdfast' ? (filenames ?? []) : [],
  );
  return files.find((file) => /\.(?:so|dylib|dll)$/.test(file));
}

/** Does `work` with a folder of scripts in which one has this mistake. */
export async function withLua({ number, file, span, switch: { before } }, work) {
  const lua = join(WORK, `lua-${number}`);
  cpSync(join(ROOT, LUA), lua, { recursive: true });
  const source = readFileSync(join(ROOT, file));
  const parts = [source.subarray(0, span.start), Buffer.from(before), source.subarray(span.end)];
  writeFileSync(join(lua, relative(LUA, file)), Buffer.concat(parts));
  try {
    return await work(lua);
  } finally {
    rmSync(lua, { recursive: true });
  }
}

/** Writes the mistakes into the copy, without those that the compiler refuses, which are returned. */
function refuse(mistakes) {
  const refused = new Set();
  for (;;) {
    for (const file of new Set(mistakes.map(({ file }) => file))) {
      cpSync(join(ROOT, file), join(CORE, file));
    }
    const numbers = mistakes.filter((each) => !refused.has(each)).map(({ number }) => number);
    const places = make(['write', ROOT, CORE], JSON.stringify(numbers));
    const errors = CHECKED.flatMap((flags) => {
      const checked = cargo(CORE, ['check', ...flags, '--message-format=json'], { mayFail: true });
      return messages(checked).filter(({ message }) => message?.level === 'error');
    });
    if (errors.length === 0) return [...refused];
    const found = new Set(errors.flatMap(({ message }) => placesOf(message, places)));
    if (found.size === 0) throw new Error(errors[0].message.rendered);
    for (const mistake of mistakes) if (found.has(mistake.number)) refused.add(mistake);
  }
}

/** The numbers of the mistakes that an error of the compiler is about. */
function placesOf({ spans, children }, places) {
  const all = [...spans, ...children.flatMap((child) => child.spans)];
  const touched = (span) =>
    places.filter(
      ({ file, span: { start, end } }) =>
        file === span.file_name && span.byte_start < end && span.byte_end > start,
    );
  // A mistake within another is the one that the error is about.
  const innermost = ({ span }, others) =>
    !others.some(
      (other) =>
        other.span !== span && other.span.start >= span.start && other.span.end <= span.end,
    );
  for (const spansOf of [spans.filter((span) => span.is_primary), all]) {
    const found = spansOf.flatMap((span) => {
      const around = touched(span);
      return around.filter((place) => innermost(place, around));
    });
    if (found.length > 0) return found.map(({ number }) => number);
  }
  // A consequence elsewhere: of those in the file the nearest.
  const [primary] = spans;
  const inFile = places.filter(({ file }) => file === primary?.file_name);
  const distance = ({ span }) => Math.abs(span.start - primary.byte_start);
  return inFile
    .sort((a, b) => distance(a) - distance(b))
    .slice(0, 1)
    .map(({ number }) => number);
}

function make(args, input = '') {
  const { status, stdout, stderr } = spawnSync(MAKER, args, { input, ...BIG });
  if (status !== 0) throw new Error(stderr);
  return JSON.parse(stdout);
}

function cargo(cwd, args, { mayFail = false } = {}) {
  const options = { cwd, env: { ...process.env, CARGO_TARGET_DIR: TARGET, ...QUICKLY }, ...BIG };
  const { status, stdout, stderr } = spawnSync('cargo', args, options);
  if (status !== 0 && !mayFail) throw new Error(stderr.slice(-4000));
  return stdout;
}

function messages(output) {
  return output
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));
}
