// Bars as SVG, small enough to read as text, for light and dark pages.

const WIDTH = 720;
const LABEL = 210;
const VALUE = 90;
const ROW = 26;
const BAR = 16;
const TOP = 44;

/** `{ title, bars: [{ label, value, text }] }`; the first bar is ours. */
export function chart({ title, bars }) {
  const most = Math.max(...bars.map(({ value }) => value));
  const scale = (WIDTH - LABEL - VALUE) / most;
  const height = TOP + bars.length * ROW + 8;
  const rows = bars.map(({ label, value, text }, at) => {
    const y = TOP + at * ROW;
    const length = Math.max(1, value * scale).toFixed(1);
    const kind = at === 0 ? 'own' : 'other';
    return [
      `<text x="${LABEL - 10}" y="${y + 13}" text-anchor="end">${quoted(label)}</text>`,
      `<rect class="${kind}" x="${LABEL}" y="${y}" width="${length}" height="${BAR}" rx="2"/>`,
      `<text x="${LABEL + Number(length) + 8}" y="${y + 13}">${quoted(text)}</text>`,
    ].join('');
  });
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="${quoted(title)}">`,
    STYLE,
    `<text class="title" x="10" y="24">${quoted(title)}</text>`,
    ...rows,
    '</svg>',
    '',
  ].join('\n');
}

const STYLE = `<style>
text { font: 13px system-ui, sans-serif; fill: #24292f }
.title { font-weight: 600 }
.own { fill: #b4341f }
.other { fill: #9aa4af }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } .own { fill: #f0714f } .other { fill: #6e7781 } }
</style>`;

function quoted(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('"', '&quot;');
}
