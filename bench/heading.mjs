// The heading of the report: machine, versions and method.

import { readFileSync } from 'node:fs';
import { cpus, loadavg, release } from 'node:os';
import { join } from 'node:path';

export function heading(server, own) {
  const [cpu] = cpus();
  const load = loadavg().map((average) => average.toFixed(2));
  const packages = Object.keys(manifest('.').dependencies);
  const versions = packages.map((name) => `${name} ${version('node_modules', name)}`);
  return [
    `machine   ${cpus().length} x ${cpu?.model}, ${process.platform} ${release()}, load ${load.join(' ')}`,
    `Node      ${process.version}`,
    `server    ${server}${own ? ', persistence off' : ''}`,
    `versions  holdfast ${version('..')}, ${versions.join(', ')}`,
    'method    each participant in processes of its own, in a new order every round. Compare the',
    '          ratios: absolute numbers are of this machine, with all that it had to do meanwhile.',
  ].join('\n');
}

function version(...path) {
  return manifest(...path).version.replace(/^v/, '');
}

function manifest(...path) {
  return JSON.parse(readFileSync(join(import.meta.dirname, ...path, 'package.json'), 'utf8'));
}
