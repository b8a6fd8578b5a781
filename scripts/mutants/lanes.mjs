import { availableParallelism } from 'node:os';

/** Most tests wait for a server or a lease most of the time. */
const LANES = 3 * availableParallelism();

/** What `work` makes of each, in their order; some are under way at a time. */
export async function inLanes(list, work) {
  const results = [];
  let next = 0;
  const lane = async () => {
    while (next < list.length) {
      const at = next;
      next += 1;
      results[at] = await work(list[at]);
    }
  };
  await Promise.all(Array.from({ length: LANES }, lane));
  return results;
}
