"""Faithfulness tests of saliency maps: compare the removal of relevant and of irrelevant patches."""
