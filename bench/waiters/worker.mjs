// One contender: a process with thousands of waiters, which also does something else.

import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { answer } from '../answer.mjs';
import { clock } from '../clock.mjs';
import { contenderCalled } from '../contenders.mjs';
import { NAMES } from '../names.mjs';
import { percentile } from '../samples.mjs';

const { open } = contenderCalled(process.argv[2]);
const SMALL_FILE = join(import.meta.dirname, '..', 'package.json');
const WARM_UP = 200;
let contender;
const waiting = [];

answer({
  async open(url) {
    contender = await open(url);
    for (let done = 0; done < WARM_UP; done++) {
      await contender.release(await contender.ask(`${NAMES}${process.pid}:warm-up`));
    }
  },

  async hold(name) {
    await contender.ask(name);
  },

  /** Reads a small file again and again for `ms`; returns the median duration of a read in µs. */
  async read(ms) {
    const took = [];
    const end = clock() + ms * 1000;
    for (let now = clock(); now < end; ) {
      await readFile(SMALL_FILE);
      const then = now;
      now = clock();
      took.push(now - then);
    }
    return percentile(took, 0.5);
  },

  /** Bytes in use when nothing is left to be collected. */
  async memory() {
    for (let turn = 0; turn < 3; turn++) {
      await sleep(50);
      globalThis.gc();
    }
    const { rss, heapUsed, external } = process.memoryUsage();
    return { rss, js: heapUsed + external };
  },

  /** Lets `count` callers wait for `name`, and returns after they had `ms` to settle. */
  async wait({ name, count, ms }) {
    for (let index = 0; index < count; index++) waiting.push(contender.ask(name));
    await sleep(ms);
    const first = await Promise.race([waiting[0], sleep(0, 'nobody')]);
    if (first !== 'nobody') throw new Error('got a lock that another process holds');
  },
});
