// A picture made of patches under pointer, finger and keyboard.

/**
 * Makes `canvas` a field of rows x cols cells. `place()` gives {rows, cols, x, y, width, height} in CSS pixels of the
 * canvas; `hover(cell, event)`, `leave()` and `pick(cell)` are told; `name(cell)` is read out; arrow keys begin at
 * `start()`.
 */
function cells(self, canvas, { place, hover, leave, pick, name, label, start }) {
  let current = -1, box = null;
  canvas.tabIndex = 0;
  canvas.setAttribute('role', 'application');
  const describe = () => canvas.setAttribute('aria-label', label() + ' ' + t('Arrow keys move, Enter picks.'));
  const at = (event) => {
    const p = place();
    if (!p) return -1;
    box = box || canvas.getBoundingClientRect();
    const col = Math.floor(((event.clientX - box.left - p.x) / p.width) * p.cols), row = Math.floor(((event.clientY - box.top - p.y) / p.height) * p.rows);
    return row >= 0 && col >= 0 && row < p.rows && col < p.cols ? row * p.cols + col : -1;
  };
  const move = (cell, event) => {
    if (cell < 0) return out();
    current = cell;
    self.root.dataset.cur = cell;
    hover(cell, event);
  };
  const out = () => {
    if (current < 0 && !self.root.dataset.cur) return;
    current = -1;
    delete self.root.dataset.cur;
    tip.hide();
    leave?.();
  };
  const stale = () => { box = null; };
  window.addEventListener('scroll', stale, { passive: true, capture: true, signal: self.life.signal });
  canvas.addEventListener('pointerenter', stale);
  canvas.addEventListener('pointerdown', (event) => { stale(); if (event.pointerType !== 'mouse') move(at(event), event); });
  canvas.addEventListener('pointermove', (event) => move(at(event), event));
  canvas.addEventListener('pointerleave', out);
  canvas.addEventListener('pointercancel', out);
  canvas.addEventListener('blur', () => { if (!canvas.matches(':hover')) out(); });
  canvas.addEventListener('focus', describe);
  canvas.addEventListener('click', (event) => { const cell = at(event); if (cell >= 0) pick?.(cell, event); });
  canvas.addEventListener('keydown', (event) => {
    const p = place(), step = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    if (!p) return;
    if (event.key === 'Escape') out();
    if ((event.key === 'Enter' || event.key === ' ') && current >= 0) pick?.(current, event);
    else if (!step) return;
    event.preventDefault();
    if (!step) return;
    const from = current < 0 ? Math.max(0, start?.() ?? 0) : current, row = Math.floor(from / p.cols) + step[0], col = (from % p.cols) + step[1];
    const cell = Math.max(0, Math.min(p.rows - 1, row)) * p.cols + Math.max(0, Math.min(p.cols - 1, col));
    const rect = canvas.getBoundingClientRect();
    move(cell, { clientX: rect.left + p.x + ((cell % p.cols) + 0.5) * (p.width / p.cols), clientY: rect.top + p.y + (Math.floor(cell / p.cols) + 0.5) * (p.height / p.rows), keyboard: true });
    self.say(name(cell));
  });
  describe();
  return { at, out, get current() { return current; } };
}

/** An outline laid over a canvas, moved without drawing anything anew. */
function outline(parent, kind = '') {
  const node = el('div', { class: 'vv-outline ' + kind, hidden: true });
  parent.append(node);
  let last = '';
  return {
    node,
    put(x, y, width, height) {
      const style = `transform:translate(${x}px,${y}px);width:${width}px;height:${height}px`;
      if (style !== last) node.style.cssText = last = style;
      if (node.hidden) node.hidden = false;
    },
    hide() { node.hidden = true; },
  };
}
