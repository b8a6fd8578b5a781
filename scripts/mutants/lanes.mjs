import { availableParallelism } from 'node:os';

/** Most tests wait for a server or a lease most of the time. */
const LANES = 3 * availableParallelism();

/** Answers the results of `work` for each of a list, in their order; `lanes` are under way at a time. */
export async function inLanes(list, work, lanes = LANES) {
  const results = [];
  let next = 0;
  const lane = async () => {
    while (next < list.length) {
      const at = next;
      next += 1;
      results[at] = await work(list[at]);
    }
  };
  await Promise.all(Array.from({ length: lanes }, lane));
  return results;
}
