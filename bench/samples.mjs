// The measurements, by participant and level, and their medians.

export class Samples {
  #runs;

  constructor(runs) {
    this.#runs = runs;
  }

  has(id, level) {
    return this.#of(id, level).length > 0;
  }

  median(id, level, metric) {
    return median(this.#of(id, level).map((run) => run[metric]));
  }

  /** Compares round by round: the runs of one round had the same machine. */
  ratios(id, other, level, metric) {
    const others = new Map(this.#of(other, level).map((run) => [run.round, run[metric]]));
    return this.#of(id, level)
      .filter(({ round }) => others.has(round))
      .map((run) => run[metric] / others.get(run.round));
  }

  #of(id, level) {
    return this.#runs.filter((run) => run.id === id && run.level === level);
  }
}

export function median(numbers) {
  const sorted = [...numbers].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** The nearest rank; NaN of nothing. */
export function percentile(numbers, share) {
  const sorted = Float64Array.from(numbers).sort();
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? Number.NaN;
}

export function shuffled(items) {
  const keyed = items.map((item) => ({ item, key: Math.random() }));
  return keyed.sort((a, b) => a.key - b.key).map(({ item }) => item);
}
