// Whether a figure reaches its target.

/** `{ word, text }` for a table of targets; a figure without a bound is only reported. */
export function outcome({ atLeast, atMost, unit = '' }, value, whenNone = 'no target') {
  if (atLeast === undefined && atMost === undefined) return { word: '-', text: `(${whenNone})` };
  const bound = atLeast ?? atMost;
  const met = atLeast === undefined ? value <= bound : value >= bound;
  const percent = Math.abs((value / bound - 1) * 100).toFixed(1);
  const wanted = `target ${atLeast === undefined ? '<=' : '>='} ${bound}${unit}`;
  const text = met ? `${wanted}, ${percent} % to spare` : `${wanted}, off by ${percent} %`;
  return { word: met ? 'met' : 'MISSED', text };
}

/** One line of a table of targets. */
export function judge(what, value, target, digits = 2) {
  if (!Number.isFinite(value)) return `  ${'-'.padEnd(7)} ${what.padEnd(WHAT_WIDTH)}  not measured`;
  const { word, text } = outcome(target, value);
  const shown = `${value.toFixed(digits)}${target.unit ?? ''}`;
  return `  ${word.padEnd(7)} ${what.padEnd(WHAT_WIDTH)} ${shown.padStart(10)}  ${text}`;
}

const WHAT_WIDTH = 58;
