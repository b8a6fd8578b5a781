/** Lengths of time as people write them. */

const UNITS = { ms: 1, s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const;

/** Reads a length of time such as `30s`, in whole ms; answers undefined if it is none. @internal */
export function readDuration(text: string): number | undefined {
  const [, digits, unit] = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)$/.exec(text) ?? [];
  if (digits === undefined) return undefined;
  return Math.round(Number(digits) * UNITS[unit as keyof typeof UNITS]);
}
