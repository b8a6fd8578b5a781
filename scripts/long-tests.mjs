/** The tests that take minutes, or fetch much: the starts of their paths below `test`. */
export const LONG = [
  'compat/', // deploys beside the clients of other libraries
  'behaviour/conformance/forgetful',
  'behaviour/conformance/servers', // the servers that .ci/servers fetches
  'behaviour/conformance/resp2',
  'behaviour/conformance/runtimes', // Bun and Deno
  'behaviour/lifecycle/worker', // workers that come and go for a minute
  'behaviour/waiting/wakeups',
  'connect/rotations-full', // a minute for each kind of target
  'faults/torture/campaign',
  'faults/torture/histories',
  'adapters/redis-semaphore/suite', // each lease runs out once
  'operators/page/pictures', // each view in each width and theme
  'package/', // runtimes, package managers, bundlers, frameworks
];
