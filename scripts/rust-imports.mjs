// Which files of src/ a Rust file names: in `use` trees and in paths of its code. A name that its module only hands on
// (`pub use`) counts as the file that has it.

import { readFileSync } from 'node:fs';

/** The files that each file of `files` names, as a map. Unit tests at the end of a file do not count. */
export function rustImports(files) {
  const modules = new Map(files.map((file) => [file, readModule(file)]));
  return new Map(files.map((file) => [file, importsOf(file, modules)]));
}

function readModule(file) {
  const [code] = readFileSync(file, 'utf8').split(
    /^#\[cfg\((?:all\()?test\b.*\)\]\n(?:#.*\n)*mod \w+ \{/m,
  );
  const text = code
    .replaceAll(/\/\/.*$/gm, '')
    .replaceAll(/"(?:[^"\\]|\\.)*"/g, '""')
    .replaceAll(/\bpub\(in [^)]*\)/g, 'pub(crate)');
  // In a module within a file, `super` is the file.
  const flat = /^(?:pub )?mod \w+ \{/m.test(text)
    ? text.replaceAll(/^ +use super::/gm, 'use self::')
    : text;
  const uses = [...flat.matchAll(/\b(pub(?:\([^)]*\))? )?use ([^;]+);/g)].flatMap(
    ([, isPublic, tree]) =>
      pathsOf(tree.replaceAll(/\s+/g, ' ').trim()).map((path) => ({
        ...path,
        isPublic: isPublic !== undefined,
      })),
  );
  const body = flat.replaceAll(/\b(?:pub(?:\([^)]*\))? )?use [^;]+;/g, '');
  const paths = [...body.matchAll(/(?<![\w:>])(?:\w+::)+\w+/g)].map(([path]) => path.split('::'));
  const children = new Set(
    [...text.matchAll(/^\s*(?:pub(?:\([^)]*\))? )?mod (\w+);/gm)].map(([, name]) => name),
  );
  return { uses, paths, body, children };
}

/** The paths of a tree such as `a::{b, c::D as E}`, each with the name that it gets. */
function pathsOf(tree, start = []) {
  const open = tree.indexOf('{');
  if (open < 0) {
    const [path, name] = tree.split(' as ');
    const parts = [...start, ...path.trim().split('::')];
    if (parts.at(-1) === 'self') parts.pop();
    return [{ parts, name: name?.trim() ?? parts.at(-1) }];
  }
  const before = tree
    .slice(0, open)
    .split('::')
    .map((part) => part.trim())
    .filter(Boolean);
  const inner = tree.slice(open + 1, tree.lastIndexOf('}'));
  return branchesOf(inner).flatMap((branch) => pathsOf(branch, [...start, ...before]));
}

/** The parts of a list between its outer commas. */
function branchesOf(list) {
  let depth = 0;
  const branches = [''];
  for (const letter of list) {
    if (letter === '{') depth += 1;
    if (letter === '}') depth -= 1;
    if (letter === ',' && depth === 0) branches.push('');
    else branches[branches.length - 1] += letter;
  }
  return branches.map((branch) => branch.trim()).filter(Boolean);
}

function importsOf(file, modules) {
  const { uses, paths, body } = modules.get(file);
  // What a module only hands on counts for those that use it.
  const used = uses.filter(
    ({ name, isPublic }) => !isPublic || new RegExp(`\\b${name}\\b`).test(body),
  );
  const named = [...used.map(({ parts }) => parts), ...paths];
  const found = named
    .map((parts) => resolve(file, parts, modules))
    .filter((it) => it !== undefined && it !== file);
  return [...new Set(found)];
}

/** The folder that has the modules inside of a file. */
function folderOf(file) {
  return file.replace(/(\/mod|(?<=^src)\/lib)?\.rs$/, '');
}

function fileOf(folder, modules) {
  if (folder === 'src') return 'src/lib.rs';
  return [`${folder}.rs`, `${folder}/mod.rs`].find((file) => modules.has(file));
}

/** The file that has what a path names, seen from `file`; none if it is of another crate or of the file itself. */
function resolve(file, parts, modules, depth = 0) {
  if (depth > 8) return undefined;
  const here = folderOf(file);
  const parent = here.replace(/\/\w+$/, '');
  const [first, ...rest] = parts;
  if (first === 'crate') return follow('src', rest, modules, depth);
  if (first === 'self') return follow(here, rest, modules, depth);
  if (first === 'super') {
    if (rest[0] === 'super')
      return follow(parent.replace(/\/\w+$/, ''), rest.slice(1), modules, depth);
    return follow(parent, rest, modules, depth);
  }
  const { children } = modules.get(file);
  return children.has(first) ? follow(here, parts, modules, depth) : undefined;
}

/** Goes from the module in `folder` along a path, and along what it hands on. */
function follow(folder, parts, modules, depth) {
  const file = fileOf(folder, modules);
  if (file === undefined) return undefined;
  const [first, ...rest] = parts;
  if (first === undefined) return file;
  const { children, uses } = modules.get(file);
  if (children.has(first) && fileOf(`${folder}/${first}`, modules))
    return follow(`${folder}/${first}`, rest, modules, depth);
  const handedOn = uses.find(({ name, isPublic }) => isPublic && name === first);
  const target = handedOn && resolve(file, [...handedOn.parts, ...rest], modules, depth + 1);
  return target ?? file;
}
