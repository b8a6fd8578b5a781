/** What the compiler says of a method that `@Once` refuses. */

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { Packed } from '../packed.js';
import { compiled, service } from './program.js';

test('a method of @Once that must return something is told why not', async () => {
  const packed = await Packed.start();
  try {
    const folder = await service(packed, '5.9', 24);
    const method = "@Once('count', { every: '1h' }) async count(): Promise<number> { return 1; }";
    const source = `import { Once } from 'holdfast/nest';\nexport class Shop { ${method} }\n`;
    writeFileSync(join(folder, 'typed.ts'), source);
    const [error = '', ...rest] = await compiled('5.9', folder, 'bundler');
    assert.match(error, /^typed\.ts\(2,\d+\): error TS1241/);
    assert.match(error, /let the method return Promise<\.\.\. \| undefined>"'/);
    assert.deepEqual(rest, []);
  } finally {
    await packed.stop();
  }
});
