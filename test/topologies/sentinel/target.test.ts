/** The targets of `connect` for Sentinels and a master, and those that it refuses before anything is sent. */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { SentinelTarget } from 'holdfast';
import { connect } from '../../support/holdfast.js';

const SENTINELS = ['127.0.0.1:26379'];

type Refusal = readonly [what: string, target: object, code: string, message: RegExp];

const TYPE = 'ERR_INVALID_ARG_TYPE';
const VALUE = 'ERR_INVALID_ARG_VALUE';
const RANGE = 'ERR_OUT_OF_RANGE';

const REFUSED: readonly Refusal[] = [
  ['no master', { sentinels: SENTINELS }, TYPE, /master must be a string, got undefined/],
  ['an empty master', { sentinels: SENTINELS, master: '' }, VALUE, /master .* not empty/],
  ['no Sentinels', { master: 'm' }, TYPE, /\{ sentinels: \[urls\], master \}/],
  ['an empty list', { sentinels: [], master: 'm' }, TYPE, /Sentinels need a list/],
  ['one URL in place of a list', { sentinels: 'a:1', master: 'm' }, TYPE, /Sentinels need a list/],
  [
    'a name with a mistake',
    { sentinels: SENTINELS, master: 'm', sentinelPasword: 's3cret' },
    TYPE,
    /no option "sentinelPasword"; did you mean "sentinelPassword"/,
  ],
  ['a number', of(26379), TYPE, /sentinels\[0\] must be a URL, 'host:port' or \{ host, port \}/],
  ['nothing in the list', of(null), TYPE, /sentinels\[0\] must be/],
  ['an empty text', of(''), VALUE, /sentinels\[0\] is not host:port/],
  ['a port that is none', of('localhost:s3cret'), VALUE, /sentinels\[0\] is not host:port/],
  ['a socket', of('unix:///run/s3cret'), VALUE, /begins with redis:\/\/, rediss:\/\//],
  [
    'TLS for some',
    { sentinels: ['rediss://:s3cret@localhost', 'localhost:1'], master: 'm' },
    VALUE,
    /Sentinels and their master speak TLS all or none/,
  ],
  ['a database', of('redis://:s3cret@localhost/1'), VALUE, /sentinels\[0\] has a database/],
  ['parameters', of('redis://localhost?password=s3cret'), VALUE, /the parameter password/],
  ['no host', of({ port: 1 }), TYPE, /sentinels\[0\]\.host must be a string/],
  ['an empty host', of({ host: '' }), VALUE, /sentinels\[0\]\.host must not be empty/],
  ['an unknown part', of({ host: 'a', prot: 1 }), TYPE, /"prot"; did you mean "port"/],
  ['a port of text', of({ host: 'a', port: '1' }), TYPE, /sentinels\[0\]\.port must be a number/],
  ['the port 0', of({ host: 'a', port: 0 }), RANGE, /1 to 65535, got 0/],
  ['a database of text', { ...of('a'), db: '1' }, TYPE, /db must be a number/],
  ['a database below 0', { ...of('a'), db: -1 }, RANGE, /db must be a whole number.*got -1/],
  ['a user that is no text', { ...of('a'), username: 1 }, TYPE, /username must be a string/],
  ['a password that is no text', { ...of('a'), password: 7 }, TYPE, /password .* a number/],
  ['such a user of the Sentinels', { ...of('a'), sentinelUsername: 1 }, TYPE, /sentinelUsername/],
  ['such a password of them', { ...of('a'), sentinelPassword: 7 }, TYPE, /sentinelPassword/],
];

function of(sentinel: unknown): object {
  return { sentinels: [sentinel], master: 'm' };
}

for (const [what, target, code, message] of REFUSED) {
  test(`connect: refuses Sentinels with ${what}, and shows no password`, async () => {
    await assert.rejects(connect(target as SentinelTarget), (error: Error & { code: string }) => {
      assert.equal(error.code, code);
      assert.ok(code === RANGE ? error instanceof RangeError : error instanceof TypeError);
      assert.match(error.message, message);
      assert.ok(!`${error.stack}${JSON.stringify(error)}`.includes('s3cret'));
      return true;
    });
  });
}

test('connect: an object that names no place is refused with what it may be', async () => {
  await assert.rejects(connect({ hosts: ['a'] } as never), {
    code: TYPE,
    message: /must be a URL, \{ host, port \}, \{ cluster \}, \{ sentinels, master \}/,
  });
});
