// The numbers that the model reads from one patch.

/**
 * The normalised values of a patch, row by row, red, green and blue of each pixel: (byte / 255 - mean) /
 * standard deviation, as in the model's preprocessing. `bytes` are the input's pixels, RGBA, row by row;
 * patches are counted from 0.
 */
export function normalised(bytes, patch, { cols, patch: [tall, wide] }, { mean, std }) {
  const across = cols * wide;
  const top = Math.floor(patch / cols) * tall;
  const left = (patch % cols) * wide;
  return Float32Array.from({ length: tall * wide * 3 }, (_, i) => {
    const channel = i % 3;
    const pixel = (i - channel) / 3;
    const at = (top + Math.floor(pixel / wide)) * across + left + (pixel % wide);
    return (bytes[4 * at + channel] / 255 - mean[channel]) / std[channel];
  });
}
