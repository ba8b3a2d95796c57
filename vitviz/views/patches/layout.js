// Where the patches lie: in the picture, spread apart, or as a row of tokens wrapped like text; drawn there.

const inputSize = ({ grid }) => [grid.cols * grid.patch[1], grid.rows * grid.patch[0]];

/** Where patch i lies, CSS px: in the picture, spread apart, or as a row of tokens wrapped like text. */
export function layout(self) {
  const { grid, settings } = self;
  const [w, h] = inputSize(self);
  const limit = self.tall;
  const room = Math.min(self.wide ? self.width - self.detail - 28 : self.width, 1100);
  const apart = Number(settings.gap ?? 0);
  const left = 26 * self.zoom;
  const top = 22 * self.zoom;
  if (settings.form === 'sequence') {
    const count = grid.rows * grid.cols;
    const prefix = grid.prefix.length;
    const aspect = grid.patch[0] / grid.patch[1];
    const label = count <= 400 ? 14 * self.zoom : 0;
    let across = Math.max(6, Math.ceil(Math.sqrt((count * room * aspect) / limit)));
    if (across === grid.cols) across += 1; // a sequence that does not happen to look like the picture
    const pitch = room / across;
    const gap = Math.max(1, pitch * (0.12 + 0.3 * apart));
    const size = pitch - gap;
    const down = size * aspect + gap + label;
    const rows = Math.ceil((count + prefix) / across);
    const at = (i) => {
      const place = i + prefix;
      return [(place % across) * pitch, Math.floor(place / across) * down, size, size * aspect];
    };
    const whole = { width: room, height: rows * down, left: 0, top: 0 };
    return { at, ...whole, pitch, down, across, prefix, label, rows, sequence: true, spread: null };
  }
  const scale = Math.min((room - left) / w, (limit - top) / h);
  const spread = apart * 0.5;
  const pitch = [(w * scale) / grid.cols, (h * scale) / grid.rows];
  const size = [pitch[0] / (1 + spread), pitch[1] / (1 + spread)];
  const corner = (i) => [left + (i % grid.cols) * pitch[0], top + Math.floor(i / grid.cols) * pitch[1]];
  const at = (i) => [...corner(i), ...size];
  const whole = { width: left + w * scale, height: top + h * scale, left, top };
  const steps = { pitch: pitch[0], down: pitch[1], across: grid.cols, rows: grid.rows };
  return { at, ...whole, ...steps, prefix: 0, label: 0, sequence: false, spread };
}

/** A token that is no patch. */
export function drawChip(self, context, goal, i) {
  const [x, y, w, h] = goal.at(i - goal.prefix);
  context.fillStyle = self.colour('--vv-accent');
  context.globalAlpha = 0.16;
  context.fillRect(x, y, w, h);
  context.globalAlpha = 1;
  context.strokeStyle = self.colour('--vv-accent');
  context.lineWidth = 1.5;
  context.strokeRect(x + 0.75, y + 0.75, w - 1.5, h - 1.5);
  context.fillStyle = self.colour('color');
  context.font = `600 ${Math.min(13 * self.zoom, w * 0.36)}px ${self.colour('font-family')}`;
  const name = self.grid.prefix[i];
  const short = { class: 'cls', distillation: 'dist' }[name] || name.replace(/^register\s*/, 'r');
  context.fillText(short, x + w / 2, y + h / 2, w - 4);
}

/** Grid lines, and the numbers of columns and rows. */
export function drawFrame(self, context, goal, ink, font) {
  const { grid } = self;
  if (goal.spread === 0) {
    context.fillStyle = 'rgb(255 255 255 / .55)';
    for (let c = 1; c < grid.cols; c++)
      context.fillRect(goal.left + c * goal.pitch - 0.5, goal.top, 1, goal.height - goal.top);
    for (let r = 1; r < grid.rows; r++)
      context.fillRect(goal.left, goal.top + r * goal.down - 0.5, goal.width - goal.left, 1);
  }
  context.fillStyle = ink;
  context.font = `${11.5 * self.zoom}px ${font}`;
  context.globalAlpha = 0.75;
  const every = (room, pitch) => Math.max(1, Math.ceil(room / pitch));
  const [cx, cy] = [every(20 * self.zoom, goal.pitch), every(15 * self.zoom, goal.down)];
  for (let c = 0; c < grid.cols; c += cx)
    context.fillText(String(c + 1), goal.at(c)[0] + goal.at(c)[2] / 2, goal.top / 2 - 1);
  context.textAlign = 'right';
  for (let r = 0; r < grid.rows; r += cy)
    context.fillText(String(r + 1), goal.left - 7, goal.at(r * grid.cols)[1] + goal.at(0)[3] / 2);
  context.globalAlpha = 1;
}
