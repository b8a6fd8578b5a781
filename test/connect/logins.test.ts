/** However a URL is spelled, and whatever is wrong with it, nothing shows the login in it. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { connect } from '../support/holdfast.js';

interface Prepared {
  readonly context: { readonly server: string };
  readonly options: {
    readonly host?: string;
    readonly path?: string;
    readonly quorum?: { readonly servers: readonly { readonly label: string }[] };
  };
}

// It is internal: it is reached by path, past the package's exports.
const { prepare } = require('../../../dist/internals.js') as {
  prepare(target: unknown, options?: object): Prepared;
};

const SECRET = 's3cret';
const SCHEMES = [
  ...['redis://', 'rediss://', 'valkey://', 'valkeys://', 'redis+sentinel://', 'http://'],
  ...['unix://', 'unix:///', 'unix:', 'redis:', 'redis:/', 'redis:///', 'REDIS://', '//', ''],
];
/** What a password may have in it that means something in a URL, and what an escape may become. */
const ODD = [':', '/', '?', '#', '@', '%', '%40', '%3A', '\\', '[', ']', ' ', '&', '=', '//', 'ö'];
const word = fc.constantFrom('', 'ada', SECRET, '0', 'db', 'tls', 'pass');
const login = fc
  .array(fc.oneof(word, fc.constantFrom(...ODD)), { maxLength: 6 })
  .map((parts) => `${parts.join('')}${SECRET}`);
const host = fc.constantFrom('127.0.0.1', 'localhost', '[::1]', '', 'run/x.sock', '/run/x.sock');
const end = fc.constantFrom(
  '',
  ':1',
  ':99999',
  ':x',
  '/3',
  '/shop',
  ':1/0?tls=maybe',
  '?x=1',
  '#a',
);
const url = fc
  .tuple(fc.constantFrom(...SCHEMES), login, host, end)
  .map(([scheme, name, place, rest]) => `${scheme}${name}@${place}${rest}`)
  // These parameters make the text before them the path of a socket.
  .filter((text) => !/^unix:[^?]*\?(db|user|pass)=/i.test(text));
const server = fc.constantFrom('redis://127.0.0.1:1', 'redis://127.0.0.1:2');
const list = fc.tuple(url, server, server).map((all) => [...all]);
const target = fc.oneof(
  url,
  url.map((href) => ({ href })),
  list.map((cluster) => ({ cluster })),
  list.map((quorum) => ({ quorum })),
  list.map((sentinels) => ({ sentinels, master: 'shop' })),
  url.map((given) => ({ host: given })),
  url.filter((given) => /^[a-z][a-z+]*:/i.test(given)).map((given) => ({ path: given })),
);
const options = fc.constantFrom({}, { replicas: 1 }, { serverTimeout: 5 }, { tls: {} });

/** All that is told of a target, in whatever way. */
function told(given: unknown, more: object): string {
  try {
    const { context, options: parts } = prepare(given, more);
    const labels = parts.quorum?.servers.map(({ label }) => label);
    return inspect([context.server, labels, parts.host, parts.path]);
  } catch (error) {
    return inspect(error, { showHidden: true });
  }
}

test('no spelling of a URL shows the login in it', () => {
  fc.assert(
    fc.property(target, options, (given, more) => {
      const text = told(given, more).toLowerCase();
      assert.ok(!text.includes(SECRET), text);
    }),
    { numRuns: 20_000 },
  );
});

test('neither the error of a server that is not up nor a manager shows it', async () => {
  const places = ['redis://ada:s3cret@127.0.0.1:1', 'unix:///run/none.sock?pass=s3cret'];
  for (const place of places) {
    await assert.rejects(connect(place), (error: Error) => {
      assert.ok(!inspect(error, { showHidden: true, depth: 9 }).includes(SECRET));
      return true;
    });
  }
});
