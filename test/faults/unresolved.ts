/** Run by outages.test.ts: the name of a server does not resolve while the server is away. */

import assert from 'node:assert/strict';
import { setAddress } from '../support/names.js';
import { lossesBy, OUTAGES, type Outage } from '../support/outages.js';
import { FaultProxy } from '../support/proxy.js';
import { RedisServer } from '../support/server.js';

const NAME = 'server.holdfast.test';

const UNRESOLVED: Outage = {
  begin(place) {
    setAddress(NAME, undefined);
    OUTAGES.reset.begin(place);
  },
  end(place) {
    OUTAGES.reset.end(place);
    setAddress(NAME, '127.0.0.1');
  },
};

async function main(): Promise<void> {
  setAddress(NAME, '127.0.0.1');
  const server = await RedisServer.start();
  const proxy = await FaultProxy.start(server.port);
  try {
    const place = { target: `redis://${NAME}:${proxy.port}`, proxies: [proxy] };
    const { HOLDFAST_ROUNDS = 5, HOLDFAST_PART = 0.55 } = process.env;
    const [rounds, part, ttl] = [Number(HOLDFAST_ROUNDS), Number(HOLDFAST_PART), 3_000];
    let lost = 0;
    for (let tried = 0; tried < rounds; tried += 5) {
      lost += await lossesBy(UNRESOLVED, place, { ttl, part, count: Math.min(5, rounds) });
    }
    console.log(`DNS, ttl ${ttl} ms, away for ${part} of it: ${lost} of ${rounds} lost`);
    assert.equal(lost, 0);
  } finally {
    await proxy.stop();
    await server.stop();
  }
}

void main();
