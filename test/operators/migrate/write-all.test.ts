/** How new texts get into files: what is left of a draft, of the rights of a file and of listeners, whatever fails. */

import assert from 'node:assert/strict';
import fs, { chmodSync, readdirSync, statSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { folderOf, read } from './support.js';

interface Change {
  readonly path: string;
  readonly text: string;
}

interface Written {
  readonly changed: readonly string[];
  readonly unchanged: readonly { readonly path: string; readonly reason: string }[];
}

// It is internal: it is reached by path, past the package's exports.
const { writeAll } = require('../../../../dist/internals.js') as {
  writeAll(changes: readonly Change[]): Promise<Written>;
};

const SIGNALS = ['SIGHUP', 'SIGINT', 'SIGTERM'] as const;
const NONE = 'another file could not be changed';

let folder: string;
let changes: Change[];

beforeEach(() => {
  folder = folderOf({ 'a.js': 'old a', 'b.js': 'old b', 'c.js': 'old c' });
  changes = ['a', 'b', 'c'].map((name) => ({
    path: join(folder, `${name}.js`),
    text: `new ${name}`,
  }));
});

afterEach(() => {
  mock.restoreAll();
  assert.deepEqual(readdirSync(folder).sort(), ['a.js', 'b.js', 'c.js'], 'no draft is left');
  for (const signal of SIGNALS) assert.deepEqual(ownListeners(signal), []);
});

/** Those of other modules end this process. */
const others = new Set(SIGNALS.flatMap((signal) => process.listeners(signal)));
const ownListeners = (signal: NodeJS.Signals) =>
  process.listeners(signal).filter((each) => !others.has(each));

const path = (name: string) => join(folder, name);
const texts = () => ['a.js', 'b.js', 'c.js'].map((name) => read(folder, name));
const OLD = ['old a', 'old b', 'old c'];

function failing(code: string): never {
  throw Object.assign(new Error(`${code}: no`), { code });
}

/** Makes a call of the file system fail from its `nth` time on. */
function breaks(call: 'chownSync' | 'renameSync' | 'writeFileSync', nth: number, code: string) {
  const real = fs[call] as (...args: unknown[]) => void;
  let count = 0;
  mock.method(fs, call, (...args: unknown[]) => {
    count += 1;
    if (count >= nth) failing(code);
    return real(...args);
  });
}

test('all files have their new texts and the rights of before', async () => {
  chmodSync(path('b.js'), 0o751);
  const { changed, unchanged } = await writeAll(changes);
  assert.deepEqual([changed, unchanged], [changes.map((each) => each.path), []]);
  assert.deepEqual(texts(), ['new a', 'new b', 'new c']);
  assert.equal(statSync(path('b.js')).mode & 0o777, 0o751);
  assert.deepEqual(await writeAll([]), { changed: [], unchanged: [] });
});

test('if one draft cannot be written, nothing changes, and only its file has the reason', async () => {
  breaks('writeFileSync', 2, 'ENOSPC');
  const { changed, unchanged } = await writeAll(changes);
  assert.deepEqual(changed, []);
  assert.deepEqual(
    unchanged.map(({ path, reason }) => [path.slice(-4), reason]),
    [
      ['a.js', NONE],
      ['b.js', 'ENOSPC: no'],
      ['c.js', NONE],
    ],
  );
  assert.deepEqual(texts(), OLD);
});

test('an owner who may not be kept is no failure, and any other error is', async () => {
  breaks('chownSync', 1, 'EPERM');
  assert.equal((await writeAll(changes)).changed.length, 3);
  mock.restoreAll();
  breaks('chownSync', 1, 'EIO');
  const { changed, unchanged } = await writeAll([{ path: path('a.js'), text: 'newer' }]);
  assert.deepEqual(changed, []);
  assert.deepEqual(unchanged, [{ path: path('a.js'), reason: 'EIO: no' }]);
  assert.equal(read(folder, 'a.js'), 'new a');
});

test('files that cannot be replaced in the end are told one by one', async () => {
  breaks('renameSync', 2, 'EBUSY');
  const { changed, unchanged } = await writeAll(changes);
  assert.deepEqual(changed, [path('a.js')]);
  assert.deepEqual(
    unchanged,
    ['b.js', 'c.js'].map((name) => ({ path: path(name), reason: 'EBUSY: no' })),
  );
  assert.deepEqual(texts(), ['new a', 'old b', 'old c']);
});

test('a file that is gone is told, and nothing else changes', async () => {
  const { unchanged } = await writeAll([...changes, { path: path('gone.js'), text: '' }]);
  assert.deepEqual(
    unchanged.slice(0, 3).map(({ reason }) => reason),
    [NONE, NONE, NONE],
  );
  assert.match(`${unchanged[3]?.reason}`, /^ENOENT/);
  assert.deepEqual(texts(), OLD);
});

for (const signal of SIGNALS)
  test(`${signal} before the first file is in its place changes nothing`, async () => {
    const writing = writeAll(changes);
    const [stop, ...more] = ownListeners(signal);
    assert.deepEqual(more, []);
    stop?.(signal);
    const { changed, unchanged } = await writing;
    assert.deepEqual([changed, unchanged[0]?.reason], [[], `stopped by ${signal}`]);
    assert.deepEqual(texts(), OLD);
  });

test('a link stays, and the file that it names is replaced', async () => {
  const links = folderOf({});
  symlinkSync(path('a.js'), join(links, 'link.js'));
  const { changed } = await writeAll([{ path: join(links, 'link.js'), text: 'new' }]);
  assert.deepEqual(changed, [join(links, 'link.js')]);
  assert.deepEqual([read(folder, 'a.js'), readdirSync(links)], ['new', ['link.js']]);
});
