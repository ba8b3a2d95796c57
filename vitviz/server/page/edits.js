// The ablated heads, MLPs and patches as removable chips. All views show the ablated model.

import { button, el, marked, seek, selection, span } from '../../frontend/elements.js';
import { listen } from '../../frontend/events.js';
import { t } from '../../frontend/i18n.js';
import { camera } from './camera.js';
import { imageEditor } from './image_editor.js';
import { questions } from './requests.js';
import { video } from './video.js';

const NOTHING = { heads: [], mlps: [], patches: [] };
const headsBy = () => [
  ['mean', t('mean over images')],
  ['tokens', t('mean over tokens')],
  ['zero', t('zero')],
];
const patchesBy = () => [
  ['dropped', t('left out')],
  ['mean', t('the model’s mean colour')],
  ['blur', t('blurred')],
  ['black', t('black')],
];

/** A selection of how ablated parts are replaced. */
function how(label, options, value, change) {
  const list = selection({ 'aria-label': label, onchange: () => change(list.value) }, options, value);
  return el('label', { class: 'vv-how' }, span(label), list);
}

export default function part(element, props, watch, trigger) {
  const root = element.querySelector('.vv-edits');
  const question = questions(trigger, 'without');
  const editor = imageEditor(props, trigger);
  camera();
  video();
  let wanted = { ...NOTHING, heads_as: 'mean', patches_as: 'dropped' };

  /** The ablation after all pending requests. */
  const coming = () => (!question.open() && props.value?.heads ? props.value : wanted);

  function ask(next) {
    wanted = next;
    const { heads, mlps, patches, heads_as: headsAs, patches_as: patchesAs } = next;
    const parts = [
      heads.length && `heads=${heads.join('_')}`,
      mlps.length && `mlps=${mlps.join('.')}`,
      patches.length && `patches=${patches.join('.')}`,
      (heads.length || mlps.length) && headsAs !== 'mean' && `heads_as=${headsAs}`,
      patches.length && patchesAs !== 'dropped' && `patches_as=${patchesAs}`,
    ];
    question.ask({ text: parts.filter(Boolean).join(' ') });
  }

  function chip(text, remove) {
    const name = t('Restore: {what}', { what: text });
    const back = button('×', remove, { 'aria-label': name, title: name });
    return el('span', { class: 'vv-edit' }, span(text), back);
  }

  function show() {
    const value = props.value;
    editor.show();
    root.dataset.strokes = value?.strokes ?? '';
    root.hidden = !value?.text && !value?.strokes;
    marked(seek('#vitviz-page'), 'edited', !root.hidden);
    if (!value?.heads) return;
    const without = (name, one) => ({ ...coming(), [name]: coming()[name].filter((other) => other !== one) });
    const heads = value.heads.map((one) => {
      const [layer, head] = one.split('.');
      return chip(t('Layer {layer}, head {head}', { layer, head }), () => ask(without('heads', one)));
    });
    const mlps = value.mlps.map((one) =>
      chip(t('MLP of layer {layer}', { layer: one }), () => ask(without('mlps', one))),
    );
    const [first, ...more] = value.patches;
    const named = more.length
      ? t('{count} patches', { count: value.patches.length })
      : t('Patch {number}', { number: Number(first) + 1 });
    const patches = value.patches.length ? [chip(named, () => ask({ ...coming(), patches: [] }))] : [];
    const ways = [
      heads.length + mlps.length &&
        how(t('replaced by'), headsBy(), value.heads_as, (name) => ask({ ...coming(), heads_as: name })),
      patches.length &&
        how(t('patches'), patchesBy(), value.patches_as, (name) => ask({ ...coming(), patches_as: name })),
    ].filter(Boolean);
    const painted = value.strokes ? [chip(t('Edited image'), () => editor.paint(''))] : [];
    const all = button(t('Reset'), putBack, { class: 'vv-edit-all' });
    root.replaceChildren(
      ...painted,
      ...(value.text ? [el('strong', { text: t('Removed:') })] : []),
      ...heads,
      ...mlps,
      ...patches,
      ...ways,
      all,
    );
    root.dataset.text = value.text;
  }

  listen('ablate', ({ heads = [], mlps = [], patches = [], patches_as }) => {
    if (!root.isConnected) return;
    const join = (old, more) => [...new Set([...old, ...more])];
    const base = coming();
    const all = { heads: join(base.heads, heads), mlps: join(base.mlps, mlps) };
    all.patches = join(base.patches, patches);
    ask({ ...base, ...all, patches_as: patches_as ?? base.patches_as });
  });

  listen('restore', (parts) => {
    const { heads } = coming();
    const kept = parts ? { heads: heads.filter((one) => !parts.heads.includes(one)) } : NOTHING;
    if (root.isConnected) ask({ ...coming(), ...kept });
  });

  /** All ablated parts and the edits. */
  function putBack() {
    editor.paint('');
    if (props.value.text || question.open()) ask({ ...coming(), ...NOTHING });
  }

  listen('reset-edits', () => root.isConnected && putBack());
  listen('edit-image', (from) => root.isConnected && editor.open(from));
  watch('value', show);
  show();
}
