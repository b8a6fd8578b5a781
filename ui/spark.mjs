// A line that shows how a length of time went, without axes.

const SVG = 'http://www.w3.org/2000/svg';
const [WIDTH, HEIGHT] = [120, 28];
/** So many looks fill the width, or more. */
const LOOKS_MIN = 20;

/** Draws the seconds of each look into `place`; NaN breaks the line. */
export function drawSpark(place, seconds) {
  const line = place.querySelector('path') ?? newLine(place);
  const shape = shapeOf(seconds);
  if (line.getAttribute('d') !== shape) line.setAttribute('d', shape);
}

function newLine(place) {
  const svg = document.createElementNS(SVG, 'svg');
  svg.setAttribute('viewBox', `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute('preserveAspectRatio', 'none');
  svg.setAttribute('aria-hidden', 'true');
  const line = document.createElementNS(SVG, 'path');
  svg.append(line);
  place.append(svg);
  return line;
}

/** The newest look is at the right edge. */
function shapeOf(seconds) {
  const most = seconds.reduce((a, b) => Math.max(a, b || 0), 0) || 1;
  const step = WIDTH / (Math.max(seconds.length, LOOKS_MIN) - 1);
  const left = WIDTH - (seconds.length - 1) * step;
  let pen = 'M';
  const points = seconds.map((value, i) => {
    if (Number.isNaN(value)) {
      pen = 'M';
      return '';
    }
    const point = `${pen}${(left + i * step).toFixed(1)} ${(HEIGHT - 2 - (value / most) * (HEIGHT - 4)).toFixed(1)}`;
    // A look by itself is a dot.
    const dot = pen === 'M' ? 'h0.1' : '';
    pen = 'L';
    return point + dot;
  });
  return points.join('');
}
