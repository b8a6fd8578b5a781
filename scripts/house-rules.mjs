// Rules of this code base that no linter knows. Each finding names the alternative.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path/posix';
import { rustImports } from './rust-imports.mjs';

/** @type {{ files: RegExp, except?: RegExp, banned: RegExp, instead: string }[]} */
const RULES = [
  {
    files: /^src\/.*\.rs$/,
    except: /^src\/(server\/|fuzzing\/(frames|replies|scripts))/,
    banned: /\bredis::/,
    instead: 'only src/server/ names the Redis client',
  },
  {
    files: /^src\/.*\.rs$/,
    except: /^src\/node\//,
    banned: /\bnapi(_derive)?::/,
    instead: 'only src/node/ names Node-API',
  },
  {
    files: /^src\/(machine|protocol)\//,
    // The campaign says how long it has run.
    except: /^src\/(protocol\/clock|machine\/tests\/campaign)/,
    banned: /\b(tokio|std::net|Mono::now|SystemTime|Instant)\b/,
    instead: 'the machine knows neither clock nor network: time is an argument',
  },
  {
    files: /^js\//,
    except: /^js\/operators\/cli\//,
    banned: /from '(commander|(\.\.?\/)+cli\/.*)'/,
    instead:
      'only js/operators/cli/ names the parser of arguments, and nothing else names js/operators/cli/',
  },
  {
    files: /^src\/protocol\/lua\//,
    banned: /loadstring|KEYS\[[^\d]|ARGV\[[^\d]/,
    instead: 'every key and argument is bound to a name, by its number',
  },
  {
    // Those for other platforms are for one kind of machine.
    files: /^test\/(?!platforms)/,
    banned: /\b(spawn|execFile)(Sync|\))?\('(?!(bash|id|mkfifo|npm|ps|sh|tar)')/,
    instead: 'test/support/tools.ts has the program: needs(…)',
  },
  {
    files: /^(js|test)\//,
    except: /^test\/support\/sockets\.ts$/,
    banned: /\bresetAndDestroy\b/,
    instead: 'a process in which it fails never ends: test/support/sockets.ts has reset(…)',
  },
  {
    files: /\.(rs|ts|mts|mjs|lua)$/,
    except: /^scripts\/house-rules/,
    banned: /\b(FIXME|XXX|TODO)\b/,
    instead: 'finish it, or open an issue',
  },
];

/** The files of the core that adapters and operators' tools may import. Most have what users get by the entries. */
const OPEN_TO_ANNEXES = [
  /^js\/base\//,
  // Targets, and the places to which clients are connected.
  /^js\/connect\/(connect|prepare|options|target|check-target|tls)\.ts$/,
  /^js\/connect\/clients\//,
  /^js\/(lead|lock|once)\/options\.ts$/,
  /^js\/lock\/(lock|lock-set|query|times)\.ts$/,
  /^js\/manager\/(manager|stats|warnings)\.ts$/,
  /^js\/fence\/table\.ts$/,
  // The drop-ins hold locks under values of their callers.
  /^js\/lock\/held-lock\.ts$/,
  // What listeners throw is an uncaught error everywhere.
  /^js\/native\/calls\.ts$/,
  // The command line asks servers, and ends processes, without a manager.
  /^js\/lock\/outcome\.ts$/,
  /^js\/native\/(addon|operations|records)\.ts$/,
];

const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
  encoding: 'utf8',
})
  .split('\n')
  .filter((file) => /\.(rs|ts|mts|mjs|lua)$/.test(file));

let findings = 0;
for (const file of files) {
  const lines = readFileSync(file, 'utf8').split('\n');
  for (const rule of RULES) {
    if (!rule.files.test(file) || rule.except?.test(file)) continue;
    lines.forEach((line, index) => {
      if (rule.banned.test(line)) report(file, index + 1, rule.instead);
    });
  }
}

/** The layers that each layer of src/ may name beside itself. `slim` is for all of them, `faults` for all that is no machine. */
const LAYERS = {
  slim: [],
  faults: [],
  protocol: ['slim'],
  machine: ['protocol', 'slim'],
  server: ['protocol', 'slim', 'faults'],
  keeper: ['server', 'protocol', 'slim', 'faults'],
  core: ['keeper', 'machine', 'server', 'protocol', 'slim', 'faults'],
  node: ['core', 'machine', 'server', 'protocol', 'slim', 'faults'],
  fuzzing: ['core', 'keeper', 'machine', 'server', 'protocol', 'slim', 'faults'],
};
const rust = rustImports(
  files.filter((file) => /^src\/.*\.rs$/.test(file) && !/\/tests(\/|\.rs)/.test(file)),
);
for (const [file, imported] of rust) {
  const layer = layerOf(file);
  const above = [...imported].filter(
    (other) => layerOf(other) !== layer && !LAYERS[layer]?.includes(layerOf(other)),
  );
  if (layer !== 'lib' && above.length > 0) {
    report(file, 1, `${layer} is below or beside what it names: ${above.join(', ')}`);
  }
}
const scripts = edgesOf(
  files.filter((file) => /^js\/.*\.m?ts$/.test(file)),
  scriptImports,
);
// A file in a circle of imports cannot be read by itself.
for (const circle of [rust, scripts, foldersOf(scripts)].flatMap(circlesOf)) {
  if (circle.length > 1) report(circle[0], 1, `these import each other: ${circle.join(', ')}`);
}
for (const [file, imported] of scripts) {
  for (const each of imported) {
    if (isAnnex(each) && !isAnnex(file) && file !== 'js/internals.ts') {
      report(file, 1, `the core does without ${each}: only js/adapters and js/operators import it`);
    }
    if (isAnnex(file) && !isAnnex(each) && !OPEN_TO_ANNEXES.some((open) => open.test(each))) {
      report(file, 1, `it uses what users can, or OPEN_TO_ANNEXES of this script: not ${each}`);
    }
  }
}
process.exit(findings === 0 ? 0 : 1);

function report(file, line, message) {
  findings += 1;
  console.error(`${file}:${line}: ${message}`);
}

/** The folder or file below src/ that a file belongs to. */
function layerOf(file) {
  return file.replace(/^src\//, '').replace(/(\/.*|\.rs)$/, '');
}

/** What each file imports. */
function edgesOf(modules, imports) {
  return new Map(modules.map((file) => [file, imports(file)]));
}

/** The same by folders of js/: which subject imports which. */
function foldersOf(edges) {
  const folders = new Map([...edges.keys()].map((file) => [folderOf(file), new Set()]));
  for (const [file, imported] of edges) {
    for (const each of imported) folders.get(folderOf(file)).add(folderOf(each));
  }
  return folders;
}

/** The subject of a file: its folder in js/, and each adapter and tool by itself. */
function folderOf(file) {
  const depth = isAnnex(file) ? 3 : 2;
  return file.split('/').slice(0, -1).slice(0, depth).join('/');
}

function isAnnex(file) {
  return /^js\/(adapters|operators)\//.test(file);
}

/** The groups of nodes that reach each other, each as a list (Tarjan's strongly connected components). */
function circlesOf(edges) {
  const [order, low, stack, circles] = [new Map(), new Map(), [], []];
  const visit = (file) => {
    order.set(file, order.size);
    low.set(file, order.get(file));
    stack.push(file);
    for (const next of edges.get(file)) {
      if (!order.has(next)) visit(next);
      if (stack.includes(next)) low.set(file, Math.min(low.get(file), low.get(next)));
    }
    if (low.get(file) !== order.get(file)) return;
    circles.push(stack.splice(stack.indexOf(file)));
  };
  for (const file of edges.keys()) if (!order.has(file)) visit(file);
  return circles;
}

/** The files of js/ from which a file imports something, types included. */
function scriptImports(file) {
  const text = readFileSync(file, 'utf8');
  const paths = [...text.matchAll(/\b(?:from|import|import\() ?'(\.[^']*)'/g)].map(
    ([, path]) => path,
  );
  const named = paths.map((path) => join(dirname(file), path).replace(/\.(m?)js$/, '.$1ts'));
  return named.filter((path) => files.includes(path));
}
