/** Shows on standard error how far a workload is; round 0 warms up. */
export function showRound(id, round, rounds) {
  process.stderr.write(round === 0 ? `${id}: warm-up` : ` ${round}/${rounds}`);
  if (round === rounds) process.stderr.write('\n');
}
