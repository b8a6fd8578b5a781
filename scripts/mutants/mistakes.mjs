// Makes plausible mistakes of the TypeScript below js/: all are in one text of each source, and the variable
// `__STRYKER_ACTIVE_MUTANT__` of a process says which of them it makes.
//
// Stryker makes them, and the kinds that it lacks are ours. Texts and patterns stay as they are: most texts are messages.
// Nor does anybody empty a whole list or object by a slip.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInstrumenter } from '@stryker-mutator/instrumenter';
import { ROOT } from './copy.mjs';

const EXCLUDED = ['StringLiteral', 'Regex', 'ObjectLiteral', 'ArrayDeclaration'];
/** A larger number is a measure, of which one more means nothing. */
const COUNTED_MAX = 100;
/** These kinds change statements; all others change expressions. */
const STATEMENTS = ['BlockStatement', 'CallRemoval'];

/** Stryker counts how often a mistake is reached, which makes a loop a hundred times as slow; recorder.cjs asks only whether. */
const COUNTER = /function (stryCov_\w+)\(\) \{.+?\n\}\n/s;
const RECORDER = 'function $1() {\n  globalThis.__stryker__.reached?.(arguments);\n}\n';

const STRYKER = import.meta.resolve('@stryker-mutator/instrumenter');
/** The Babel that Stryker has. */
const { types } = createRequire(STRYKER)('@babel/core');
const OWN = [
  {
    name: 'AwaitRemoval',
    *mutate(path) {
      if (path.isAwaitExpression()) yield types.cloneNode(path.node.argument, true);
    },
  },
  {
    name: 'CallRemoval',
    *mutate(path) {
      if (!path.isExpressionStatement()) return;
      const { expression } = path.node;
      const isWrapped = types.isAwaitExpression(expression) || expression.operator === 'void';
      const call = isWrapped ? expression.argument : expression;
      if (!types.isCallExpression(call) && !types.isOptionalCallExpression(call)) return;
      if (!types.isSuper(call.callee)) yield types.emptyStatement();
    },
  },
  {
    name: 'NumberLiteral',
    *mutate(path) {
      if (!path.isNumericLiteral() || path.node.value > COUNTED_MAX) return;
      yield types.numericLiteral(path.node.value + 1);
    },
  },
  {
    name: 'SwappedBranches',
    *mutate(path) {
      if (!path.isConditionalExpression()) return;
      const { test, consequent, alternate } = types.cloneNode(path.node, true);
      yield types.conditionalExpression(test, alternate, consequent);
    },
  },
];

/**
 * All mistakes of the sources, `{ id, key, file, line, kind, was, becomes, madeIn }`, and for each source its text with the
 * switches. `id` is the value of the variable, `key` stays the same when other lines change, and `madeIn` puts one mistake
 * alone into the source.
 */
export async function makeMistakes() {
  const files = readdirSync(join(ROOT, 'js'), { recursive: true })
    .map((file) => `js/${file}`)
    .filter((file) => file.endsWith('.ts'))
    .sort();
  const sources = new Map(files.map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]));
  const made = await (await instrumenter()).instrument(
    files.map((name) => ({ name, mutate: true, content: sources.get(name) })),
    { plugins: [], excludedMutations: EXCLUDED, ignorers: [] },
  );
  const mistakes = made.mutants
    .filter(({ status }) => status !== 'Ignored')
    .map((mutant) => mistakeOf(mutant, sources.get(mutant.fileName)));
  addKeys(mistakes);
  const texts = made.files.map(({ name, content }) => [name, content.replace(COUNTER, RECORDER)]);
  return { mistakes, texts: new Map(texts) };
}

/** Stryker exports no way to add a kind of mistake: the list of its kinds is reached by path. */
async function instrumenter() {
  const { allMutators } = await import(new URL('mutators/mutate.js', STRYKER).href);
  const known = new Set(allMutators.map(({ name }) => name));
  allMutators.push(...OWN.filter(({ name }) => !known.has(name)));
  const quiet = new Proxy(
    {},
    { get: (_target, name) => () => name !== 'isDebugEnabled' && undefined },
  );
  const injector = {
    values: {},
    provideValue(name, value) {
      this.values[name] = value;
      return this;
    },
    injectClass(Class) {
      return new Class(quiet, ...Class.inject.slice(1).map((name) => this.values[name]));
    },
  };
  return createInstrumenter(injector);
}

function mistakeOf({ id, fileName, location, mutatorName, replacement }, source) {
  const start = offset(source, location.start);
  const end = offset(source, location.end);
  const was = source.slice(start, end);
  const isStatement = STATEMENTS.includes(mutatorName) || was.startsWith('case ');
  const text = isStatement ? replacement : `(${replacement})`;
  return {
    id,
    file: fileName,
    line: location.start.line + 1,
    kind: mutatorName,
    was,
    becomes: replacement,
    madeIn: () => source.slice(0, start) + text + source.slice(end),
  };
}

function addKeys(mistakes) {
  const counts = new Map();
  for (const mistake of mistakes) {
    const { file, kind, was, becomes } = mistake;
    const text = [file, kind, was, becomes].join('\0');
    const count = (counts.get(text) ?? 0) + 1;
    counts.set(text, count);
    mistake.key = createHash('sha256').update(`${text}\0${count}`).digest('base64url').slice(0, 10);
  }
}

function offset(source, { line, column }) {
  let at = 0;
  for (let rest = line; rest > 0; rest--) at = source.indexOf('\n', at) + 1;
  return at + column;
}
