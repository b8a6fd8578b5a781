/** The places of the campaign, and their faults. */

import { cluster } from './places/cluster.js';
import type { Place } from './places/place.js';
import { quorum, quorumOfClocks } from './places/quorum.js';
import { sentinel } from './places/sentinel.js';
import { single } from './places/single.js';
import { split } from './places/split.js';

/** All places by name. */
export const PLACES: Readonly<Record<string, () => Promise<Place>>> = {
  single: () => single(false),
  persistent: () => single(true),
  sentinel: () => sentinel(false),
  replicas: () => sentinel(true),
  split: () => split(false),
  'split-replicas': () => split(true),
  cluster,
  quorum,
  'quorum-clocks': quorumOfClocks,
};
