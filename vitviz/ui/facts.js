// The answer of the model, and what it took to compute it.
const { el, t } = window.vitviz;
const root = element.querySelector('.vv-facts');

function bar([label, probability]) {
  const percent = (100 * probability).toFixed(probability < 0.0995 ? 1 : 0) + ' %';
  const fill = el('span', { class: 'vv-answer-bar' });
  fill.style.width = 100 * probability + '%';
  return el('li', {}, el('span', { class: 'vv-answer-label', text: label }), el('span', { class: 'vv-answer-number', text: percent }), el('span', { class: 'vv-answer-track' }, fill));
}

let open = !window.matchMedia('(max-width: 640px)').matches; // until somebody opens or closes it

function show() {
  const value = props.value;
  root.hidden = !value || !value.checkpoint;
  if (root.hidden) return;
  const cost = t('{milliseconds} ms on {device}', { milliseconds: value.milliseconds, device: value.device });
  root.replaceChildren(
    el('h2', { text: root.closest('#vitviz-second-facts') ? `${t('Prediction')} · ${value.checkpoint}` : t('Prediction') }),
    value.top.length ? el('ol', { class: 'vv-answers', 'aria-label': t('Likeliest classes') }, ...value.top.map(bar)) : el('p', { text: t('This checkpoint has no classifier, so there is no prediction.') }),
    ...value.notes.map((note) => el('p', { class: 'vv-small', text: t(note.text, note.values) })),
    el('details', { open, ontoggle: (event) => { open = event.currentTarget.open; } }, el('summary', { text: cost }),
      el('dl', {}, ...value.shapes.flatMap(([name, shape]) => [el('dt', { text: t(name) }), el('dd', { text: t(shape) })]))),
  );
  root.dataset.checkpoint = value.checkpoint;
}

watch('value', show);
show();
