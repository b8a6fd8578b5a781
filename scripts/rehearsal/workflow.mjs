// A workflow of GitHub Actions, read as far as those of this project need it.

import { readFileSync } from 'node:fs';
import { parse } from 'yaml';

/** The jobs of a workflow in the order in which they can run, each with the entries of its matrix. */
export function jobsOf(file) {
  const { env = {}, jobs } = parse(readFileSync(file, 'utf8'));
  return Object.entries(jobs).map(([id, job]) => ({
    id,
    steps: job.steps,
    env,
    // Without a shell that is named, GitHub leaves out pipefail.
    shell: job.defaults?.run?.shell === 'bash' ? ['-eo', 'pipefail'] : ['-e'],
    entries: entriesOf(job),
  }));
}

/** Text with what stands in `${{ }}` replaced; `context` has the values, such as `matrix.os`. */
export function filled(text, context) {
  return String(text).replaceAll(/\$\{\{\s*(.+?)\s*\}\}/g, (_, path) => found(path, context) ?? '');
}

/** Whether a step is to run: conditions are a value, `!value`, or `value == 'text'`. */
export function holds(condition, context) {
  if (condition === undefined) return true;
  const [path, wanted] = condition.split(/\s*==\s*/);
  if (wanted !== undefined) return (found(path, context) ?? '') === wanted.slice(1, -1);
  if (path.startsWith('!')) return !found(path.slice(1), context);
  return Boolean(found(path, context));
}

function found(path, context) {
  return path.split('.').reduce((value, key) => value?.[key], context);
}

/** Every combination of the lists of a matrix, and what it includes. */
function entriesOf({ strategy, 'runs-on': os }) {
  const { include = [], ...lists } = strategy?.matrix ?? {};
  let entries = Object.keys(lists).length > 0 ? [{}] : [];
  for (const [key, values] of Object.entries(lists)) {
    entries = entries.flatMap((entry) => values.map((value) => ({ ...entry, [key]: value })));
  }
  const all = [...entries, ...include];
  return (all.length > 0 ? all : [{}]).map((matrix) => ({ matrix, os: matrix.os ?? os }));
}
