/** The table: every adapter in all weathers. `node build/test/weather/table.js` prints what makes no sense where, and why. */

import { adapters as bullmq } from './bullmq.js';
import { adapters as fence } from './fence.js';
import { adapters as idempotency } from './idempotency.js';
import { adapters as metrics } from './metrics.js';
import { adapters as nest } from './nest.js';
import { adapters as nodeCron } from './node-cron.js';
import { adapters as page } from './page.js';
import { adapters as redisSemaphore } from './redis-semaphore.js';
import { adapters as redlock } from './redlock.js';
import { type Adapter, WEATHERS, type Weather } from './weather.js';
import { adapters as webLocks } from './web-locks.js';

/** By the names of their modules in this folder. */
export const TABLE: Readonly<Record<string, readonly Adapter[]>> = {
  bullmq,
  fence,
  idempotency,
  metrics,
  nest,
  'node-cron': nodeCron,
  page,
  'redis-semaphore': redisSemaphore,
  redlock,
  'web-locks': webLocks,
};

function print(): void {
  const weathers = Object.keys(WEATHERS) as Weather[];
  const row = (cells: readonly string[]) => console.log(`| ${cells.join(' | ')} |`);
  row(['adapter', ...weathers]);
  row(['---', ...weathers.map(() => '---')]);
  for (const { name, cells } of Object.values(TABLE).flat()) {
    row([name, ...weathers.map((each) => ('not' in cells[each] ? cells[each].not : 'tried'))]);
  }
}

if (require.main === module) print();
