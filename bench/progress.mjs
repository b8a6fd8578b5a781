/** Shows the progress of a workload on standard error; a round 0 warms up. */
export function showRound(id, round, rounds) {
  if (round <= 1) process.stderr.write(`${id}:`);
  process.stderr.write(round === 0 ? ' warm-up\n' : ` ${round}/${rounds}`);
  if (round === rounds) process.stderr.write('\n');
}
